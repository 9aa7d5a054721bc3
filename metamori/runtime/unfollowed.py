"""What the preload library cannot be loaded into, said before the command starts."""

from __future__ import annotations

import os
import shutil
import stat
import struct


def reason(path: str) -> str:
    """Why a program file cannot be followed, or ""."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
            mode = os.fstat(file.fileno()).st_mode
    except OSError:
        return ""
    if head[:2] == b"#!":
        interpreter = head[2:].split(b"\n", 1)[0].split()
        return reason(os.fsdecode(interpreter[0])) if interpreter and interpreter[0] != os.fsencode(path) else ""
    if head[:4] != b"\x7fELF":
        return ""
    if mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
        return "it is set-user-ID: the system does not preload libraries into it"
    if head[4] != 2 or head[5] != 1:
        return "it is not a 64-bit little-endian program"
    offset, = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    with open(path, "rb") as file:
        file.seek(offset)
        table = file.read(size * count)
    kinds = [struct.unpack_from("<I", table, i * size)[0] for i in range(count) if (i + 1) * size <= len(table)]
    return "" if 3 in kinds else "it is statically linked"


def warn(command: str) -> None:
    """One line on stderr when the command itself cannot be followed."""
    from metamori.runtime.supervise import say

    path = shutil.which(command)
    why = reason(path) if path else ""
    if why:
        say(f"{path} cannot be followed: {why}; its files will not be checkpointed")
