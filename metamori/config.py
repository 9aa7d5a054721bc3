"""What a run is told: one frozen value, made from flags over METAMORI_* variables over defaults."""

from __future__ import annotations

import os
from collections.abc import Callable

from metamori.errors import Usage
from metamori.tables.record import field, names_of, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATIONS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DEFAULT_STORE = ".metamori"
# METAMORI_CHECKED: the tests' build, whose assertions end a program that breaks a contract (shim_c/src/base/check.h)
LIBRARY = os.path.join(os.path.dirname(os.path.realpath(__file__)),
                       "libmetamori-checked.so" if os.environ.get("METAMORI_CHECKED") else "libmetamori.so")


def parse_size(text: str) -> int:
    """Bytes: 4096, 64K, 25M, 1G."""
    import re

    found = re.fullmatch(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise Usage(f"'{text}' is not a size; write 4096, 64K, 25M or 1G")
    return int(found[1]) * _SIZES[found[2]]


def parse_room(text: str) -> int:
    """Bytes, at least one."""
    size = parse_size(text)
    if not size:
        raise Usage(f"'{text}' is not a size above 0")
    return size


def size_text(count: int) -> str:
    """1.2 MiB, in powers of 1024."""
    size, unit = float(count), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.3g} {_UNITS[unit]}"


def duration_text(seconds: float) -> str:
    """45 s, 3 min, 1.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def parse_duration(text: str) -> float:
    """Seconds: 30, 500ms, 10m, 2h."""
    import re

    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(ms|[smhd]?)", text.strip().lower())
    if found is None or float(found[1]) == 0:
        raise Usage(f"'{text}' is not a duration; write 30s, 10m or 2h")
    return float(found[1]) * _DURATIONS[found[2]]


def parse_count(text: str) -> int:
    """A number from 1 on."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18 and int(digits)):
        raise Usage(f"'{text}' is not a number from 1 on")
    return int(digits)


@record
class Config:
    """A run's settings. `origin` says of each where its value came from: default, METAMORI_X or flag."""

    store: str = DEFAULT_STORE             # absolute once made
    mode: str = "incremental"              # or single
    isolate: bool = False
    memory: bool = False                   # checkpoints hold the program's memory too
    strict: bool = False                   # every program is tracked by its system calls, none by the library
    outside: str = "refuse"                # with memory: what becomes of what leads out of the run; close, stdio
    cache_size: int = 1 << 20              # bytes of AMLs in memory, per file
    durability: str = "power"              # or process
    every: float = 0.0                     # seconds between checkpoints, 0: none by itself
    on_signal: int = 0
    on_term: bool = False                  # a SIGTERM waits until a checkpoint is complete
    on_checkpoint: str = ""                # a shell's line for each checkpoint
    requeue: bool = False                  # on that signal have Slurm queue the job again
    job: str | None = None                 # one of several runs that are one job, which may have a name
    resume_at: str = "*"                   # which checkpoints' messages are of such that can be continued from
    keep_last: int = 0                     # the run's newest N checkpoints stay; 0: all
    max_bytes: int = 0                     # as many as take so many bytes of the store; 0: all
    track: tuple[str, ...] = ()            # folders, besides the one in which the run starts
    exclude: tuple[str, ...] = ()          # patterns as in a .gitignore
    origin: dict[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def make(cls, flags: dict[str, Any], environ: dict[str, str] | None = None) -> Config:
        """Flags that are None were not given."""
        env = os.environ if environ is None else environ
        readers: dict[str, Callable[[str], Any]] = {"cache_size": parse_size, "every": parse_duration,
                   "keep_last": parse_count, "max_bytes": parse_room,
                   "isolate": lambda text: text not in ("", "0"), "store": str, "mode": str, "durability": str,
                   "track": lambda text: tuple(filter(None, text.split("\n"))),
                   "exclude": lambda text: tuple(filter(None, text.split("\n")))}
        values: dict[str, Any] = {}
        origin = {}
        for name in names_of(cls):
            if name == "origin":
                continue
            variable = f"METAMORI_{name.upper()}"
            if flags.get(name) is not None:
                values[name], origin[name] = flags[name], "flag"
            elif name in readers and env.get(variable):
                try:
                    values[name], origin[name] = readers[name](env[variable]), variable
                except Usage as error:
                    raise Usage(f"{variable}: {error}") from None
            else:
                origin[name] = "default"
        made = cls(**values, origin=origin)
        for name, known in (("mode", ("incremental", "single")), ("durability", ("power", "process"))):
            if getattr(made, name) not in known:
                raise Usage(f"{origin[name]}: '{getattr(made, name)}' is not a {name}; write {' or '.join(known)}")
        return cls(**{**values, "store": os.path.abspath(made.store)}, origin=origin)
