"""config.fti: every key of the FTI 0.9.9 manual and of today's FTI, its default and what it may be.

Read with line numbers, so that a mistake is named where it stands. FTI writes into this file (failure, exec_id);
`rewrite` changes exactly those values and leaves every other byte, comments included.
Source: FTI manual, "[Basic]" to "[Advanced]"; keys after 0.9.9 as in FTI 1.6.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from metamori.errors import Usage

POSIX, MPIIO, FTIFF, SIONLIB, HDF5 = 1, 2, 3, 4, 5
_IO_NAMES = {1: "POSIX", 2: "MPI-IO", 3: "FTI-FF", 4: "SIONlib", 5: "HDF5"}
USHRT_MAX = 65535


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of one configuration file. Times in minutes, block_size in KB, transfer_size in MB.

    Where a key is missing: the manual's "Default Configuration".
    """

    head: int = 0
    node_size: int = 2
    ckpt_dir: str = "./Local"
    glbl_dir: str = "./Global"
    meta_dir: str = "./Meta"
    glbl_stash_dir: str = ""
    ckpt_l1: int = 3
    ckpt_l2: int = 5
    ckpt_l3: int = 7
    ckpt_l4: int = 11
    dcp_l4: int = 0
    inline_l2: int = 1
    inline_l3: int = 1
    inline_l4: int = 1
    keep_last_ckpt: int = 0
    keep_l4_ckpt: int = 0
    keep_heads_alive: int = 0
    group_size: int = 4
    max_sync_intv: int = 0
    max_var_id: int = 102400
    ckpt_io: int = POSIX
    enable_staging: int = 0
    enable_dcp: int = 0
    dcp_mode: int = 0
    dcp_block_size: int = 16384
    dcp_stack_size: int = 5
    cacheddcp: int = 0
    h5_single_file_enable: int = 0
    h5_single_file_dir: str = ""
    h5_single_file_prefix: str = "VPR-h5"
    h5_single_file_keep: int = 0
    h5_single_file_inline: int = 1
    verbosity: int = 2
    failure: int = 0
    exec_id: str = "NULL"
    rank: int = 0
    index: int = 0
    number: int = 0
    position: int = 0
    frequency: int = 0
    block_size: int = 1024
    transfer_size: int = 16
    general_tag: int = 2612
    ckpt_tag: int = 711
    stage_tag: int = 406
    final_tag: int = 3107
    mpi_tag: int = 2612
    lustre_striping_unit: int = 4194304
    lustre_striping_factor: int = -1
    lustre_striping_offset: int = -1
    fast_forward: int = 1
    gpu_host_bufsize: int = 16
    local_test: int = 1
    # Metamori's own, in a section [Metamori]
    keep_ckpts: int = 0                    # checkpoints kept, 0: all
    ftiff_version: int = 1                 # 1: the manual's layout (metadata first), 2: today's (metadata last)
    node_stores: int = 0                   # 1: stores are lost with their nodes, so levels 2 to 4 carry their files
    restart_index: int = 0                 # index to recover, 0: the newest


def _whole(low: int, high: int | None = None) -> Callable[[str], int]:
    bounds = f"{low} or more" if high is None else f"{low} to {high}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"must be a whole number, {bounds}") from None
        if value < low or (high is not None and value > high):
            raise ValueError(f"must be {bounds}")
        return value
    return read


_switch = _whole(0, 1)
_RULES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("head", "inline_l2", "inline_l3", "inline_l4", "keep_last_ckpt", "keep_l4_ckpt", "local_test",
                     "keep_heads_alive", "enable_staging", "enable_dcp", "dcp_mode", "cacheddcp",
                     "node_stores", "h5_single_file_enable", "h5_single_file_keep", "h5_single_file_inline"), _switch),
    "node_size": _whole(1), "group_size": _whole(1, 128), "verbosity": _whole(1, 4), "failure": _whole(0, 3),
    "ckpt_io": _whole(1, 5), "dcp_block_size": _whole(512, USHRT_MAX), "dcp_stack_size": _whole(1),
    "block_size": _whole(1, 2048), "transfer_size": _whole(1), "max_var_id": _whole(1), "fast_forward": _whole(1, 10),
    "lustre_striping_unit": _whole(0), "lustre_striping_factor": _whole(-1), "lustre_striping_offset": _whole(-1),
    "ftiff_version": _whole(1, 2),
}
_SECTIONS = {"basic", "restart", "injection", "advanced", "metamori"}
_SPELLINGS = {f"lustre_{word}_{what}": f"lustre_striping_{what}"
              for word in ("stripping", "stiping", "striping") for what in ("unit", "factor", "offset")}
_OLD = {"mpi_tag": "general_tag",          # the name before there were four tags
        "gbl_dir": "glbl_dir"}             # as two of the manual's configurations have it
_KNOWN = {each.name: each for each in fields(Settings)}


def _value(text: str) -> str:
    """The value without a comment behind it, and without quotes."""
    if text and text[0] in "\"'" and text.find(text[0], 1) > 0:
        return text[1:text.find(text[0], 1)]
    for mark in ("#", ";"):
        text = text.split(mark)[0]
    return text.strip()


def parse(text: str, path: str = "config.fti") -> Settings:
    """The settings in `text`. Usage, with the line, for an unknown key or an impossible value."""
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            section = line[1:].split("]")[0].strip().lower()
            if "]" not in line or section not in _SECTIONS:
                raise Usage(f"{path}:{number}: there is no section {line}")
            continue
        if "=" not in line:
            raise Usage(f"{path}:{number}: neither a section nor 'key = value': {line}")
        written, _, rest = line.partition("=")
        key = written.strip().lower()
        key = _SPELLINGS.get(key, _OLD.get(key, key))
        if key not in _KNOWN:
            raise Usage(f"{path}:{number}: FTI has no key '{written.strip()}'")
        try:
            values[key] = _read(key, _value(rest.strip()))
        except ValueError as error:
            raise Usage(f"{path}:{number}: {written.strip()} {error}, not '{_value(rest.strip())}'") from None
        lines[key] = number
    made = Settings(**values)
    _together(made, lines, path)
    return made


def _read(key: str, text: str) -> Any:
    if isinstance(_KNOWN[key].default, str):
        if not text:
            raise ValueError("needs a value")
        return os.path.expanduser(text)
    return _RULES.get(key, _whole(0))(text)


def _together(made: Settings, lines: dict[str, int], path: str) -> None:
    """What depends on more than one key."""
    def wrong(key: str, why: str) -> Usage:
        return Usage(f"{path}:{lines.get(key, 1)}: {why}")
    if made.ckpt_io == SIONLIB:
        raise wrong("ckpt_io", "ckpt_io = 4 asks for SIONlib, which is not supported; "
                               "use 1 (POSIX), 2 (MPI-IO), 3 (FTI-FF) or 5 (HDF5)")
    if made.head and made.node_size < 2:
        raise wrong("head", "head = 1 takes one process of each node, so node_size must be 2 or more")
    if made.enable_dcp and made.ckpt_io not in (POSIX, FTIFF):
        raise wrong("enable_dcp", f"differential checkpoints need ckpt_io = 1 or 3, not {_IO_NAMES[made.ckpt_io]}")
    if made.node_stores and made.ckpt_io not in (POSIX, MPIIO):
        raise wrong("node_stores", f"files are carried with ckpt_io = 1 or 2, not {_IO_NAMES[made.ckpt_io]}")
    if made.dcp_l4 and not made.enable_dcp:
        raise wrong("dcp_l4", "dcp_l4 needs enable_dcp = 1")


def read(path: str) -> Settings:
    """The settings in a file. Usage when it cannot be read or says something impossible."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return parse(file.read(), path)
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from None


def rewritten(text: str, failure: int, exec_id: str) -> str:
    """`text` with these two values in its section [Restart], which is added if it is missing."""
    wanted = {"failure": str(failure), "exec_id": exec_id}
    out, section, end, found = [], "", None, set()
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            section = stripped[1:].split("]")[0].strip().lower()
        key = stripped.partition("=")[0].strip().lower()
        if "=" in stripped and stripped[0] not in "#;[" and key in wanted:   # each time: the last one counts
            head = line[:line.index("=") + 1]
            line = f"{head} {wanted[key]}"
            found.add(key)
        out.append(line)
        if section == "restart" and stripped:
            end = len(out)
    missing = [f"{key} = {value}" for key, value in wanted.items() if key not in found]
    if missing and end is None:
        out += ["", "[Restart]"]
        end = len(out)
    if missing:
        out[end:end] = missing
    return "\n".join(out) + "\n"


def rewrite(path: str, failure: int, exec_id: str) -> None:
    """Change failure and exec_id in the file, in one step and durably."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    mode = os.stat(path).st_mode & 0o7777
    target = os.path.realpath(path)
    partial = f"{target}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(rewritten(text, failure, exec_id))
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.replace(partial, target)
    folder = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
