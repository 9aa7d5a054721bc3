"""What can be tracked on this machine and, with BINARY, in that program."""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from metamori.cli import output
from metamori.cli.run import too_old
from metamori.printed import columns, cut_start, line_text, name_text
from metamori.runtime.lifecycle import elf
from metamori.store.io.os_io import REAL
from metamori.tables.record import record

_PACKAGE = Path(__file__).resolve().parents[1]
_BLOCK_BYTES = 65536
_NAME_MIN, _NAME_MAX = 15, 24
NEWEST_KNOWN = 2, 36                       # whose functions are all in shim_c/src/libc/calls.def or calls.others


@record
class Finding:
    """`good` None: it is worth knowing, and nothing depends on it."""

    what: str
    good: bool | None
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("binary", metavar="BINARY", nargs="?", help="a program to look at")


def run(arguments: argparse.Namespace) -> int:
    findings = [_libc(), *_libraries(), _filesystem(arguments.store), _calls(), _memory()]
    if arguments.binary is not None:
        findings += _binary(arguments.binary)
    signs = {True: output.paint("yes", "green"), False: output.paint("NO ", "red"), None: "   "}
    names = [cut_start(name_text(each.what), _NAME_MAX) for each in findings]
    room = max(_NAME_MIN, *map(columns, names))
    text = "\n".join(output.wrapped(line_text(each.text), f"{signs[each.good]} {name}{' ' * (room - columns(name))} ",
                                    room + 5) for each, name in zip(findings, names, strict=True))
    ready = all(each.good is not False for each in findings)
    output.result(arguments, {"ready": ready, "findings": [asdict(each) for each in findings]}, text)
    return 0 if ready else 1


def _libc() -> Finding:
    name, version = platform.libc_ver()
    streams = all(_has(None, table) for table in ("_IO_file_jumps", "_IO_wfile_jumps"))
    if name != "glibc":
        return Finding("C library", False, f"{name or 'an unknown one'}: programs must use the GNU C library")
    if too_old(f"glibc {version}"):
        return Finding("C library", False, f"glibc {version}: programs can be tracked with glibc 2.17 or newer")
    if not streams:
        return Finding("C library", False, f"glibc {version} does not export its stream tables: stdio output "
                                           "cannot be tracked")
    if tuple(int(part) for part in version.split(".")[:2]) > NEWEST_KNOWN:
        return Finding("C library", None, f"glibc {version}, streams can be tracked; functions that are newer than "
                                          f"{'.'.join(map(str, NEWEST_KNOWN))} are not known here")
    return Finding("C library", True, f"glibc {version}, streams can be tracked")


def _has(library: str | None, symbol: str) -> bool:
    try:
        getattr(ctypes.CDLL(library), symbol)
    except (OSError, AttributeError):
        return False
    return True


def _libraries() -> list[Finding]:
    found = []
    for what, name in (("preload library", "libmetamori.so"), ("runtime", "libmetamori_rt.so")):
        path = _PACKAGE / name
        if not path.exists():
            found.append(Finding(what, False, f"{path} is not there; build it with: make build"))
            continue
        trouble = _loads(path)
        found.append(Finding(what, not trouble, trouble or str(path)))
    return found


def _loads(path: Path) -> str:
    """Why a library cannot be loaded (a shared libpython that is missing, say), tried in another process."""
    code = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_LAZY); os._exit(0)"
    ours = ("LD_PRELOAD", "METAMORI_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run([sys.executable, "-c", code, str(path)], env=env, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"loading {path} ended with {done.returncode}"])[-1]


def _filesystem(store: str) -> Finding:
    """Of the folder that the store is or would be in. Nothing here is needed; each makes things cheaper."""
    folder = os.path.abspath(store)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        with tempfile.TemporaryFile(dir=folder) as one, tempfile.TemporaryFile(dir=folder) as other:
            one.write(bytes(_BLOCK_BYTES))
            one.flush()
            able = {"shares blocks": REAL.clone_range(one.fileno(), 0, other.fileno(), 0, _BLOCK_BYTES),
                    "punches holes": REAL.punch_hole(one.fileno(), 0, _BLOCK_BYTES),
                    "unnamed files": _unnamed_files(folder)}
    except OSError as error:
        return Finding("filesystem", False, f"{folder}: {error.strerror}")
    text = ", ".join(f"{what}: {'yes' if can else 'no'}" for what, can in able.items())
    return Finding("filesystem", None, f"{folder}: {text}")


def _calls() -> Finding:
    """Whether programs without the library can be tracked here. Without them everything else works."""
    why = elf.calls_are_hidden()
    return Finding("static programs", None, f"not tracked: {why}" if why else "tracked by their system calls")


def _memory() -> Finding:
    """What `run --memory` can do here. Without it everything else works."""
    try:
        from metamori.runtime.memory import images as memory
        from metamori.runtime.memory import proc_inspect
    except ImportError as error:           # the extension is not built: said above
        return Finding("memory", None, f"not known: {error}")
    if platform.machine() != "x86_64" or not proc_inspect.machine()[1]:
        return Finding("memory", None, "run --memory: no, this is not Linux on x86-64")
    if why := memory.no_return():
        return Finding("memory", None, f"run --memory: no, nothing could be restarted: {why}")
    why = memory.all_of_it()
    how = f"complete each time: no dirty-page tracking ({why})" if why else "incremental"
    return Finding("memory", None, f"run --memory: yes; images are {how}")


def _unnamed_files(folder: str) -> bool:
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError:
        return False
    return True


def _binary(name: str) -> list[Finding]:
    path = name if os.path.exists(name) else shutil.which(name)
    if path is None:
        return [Finding(name, False, "there is no such program")]
    program, what = elf.look(path), os.path.basename(path)
    hidden = elf.calls_are_hidden() if program.shows_calls else ""
    if program.shows_calls and not hidden:
        return [Finding(what, True, f"{path} can be tracked by its system calls: {program.why or program.remark}"),
                Finding(f"{what}, memory", None, "run --memory: no, it needs the library in the program")]
    if program.why:
        return [Finding(what, False, f"{program.why}. Nor can its system calls be tracked: {hidden}" if hidden
                        else program.why)]
    memory = "run --memory: yes, without io_uring, but while it has kernel aio, or, without --outside, a " \
             "connection, terminal or pipe that leads out of the run"
    return [Finding(what, True, f"{path} can be tracked"), Finding(f"{what}, memory", None, memory),
            *([Finding(what, None, f"{program.remark}. What it writes that way is not tracked: {hidden}")]
              if program.remark else [])]
