"""Whether the dynamic loader will put the preload library into a program: read from its ELF header."""

from __future__ import annotations

import os
import platform
import stat
import struct

_INTERPRETER = 3  # PT_INTERP
_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}
_SCRIPT_DEPTH_MAX = 4


def why_not(path: str, depth: int = 0) -> str:
    """Why a program file cannot be followed, a sentence part; "" when it can. OSError."""
    with open(path, "rb") as file:
        head = file.read(4096)
        if head[:2] == b"#!" and depth < _SCRIPT_DEPTH_MAX:
            words = head[2:].split(b"\n", 1)[0].split()
            interpreter = os.fsdecode(words[0]) if words else ""
            if not os.path.exists(interpreter):
                return f"its interpreter {interpreter} is not there"
            why = why_not(interpreter, depth + 1)
            return f"its interpreter {interpreter}: {why}" if why else ""
        if head[:4] != b"\x7fELF" or len(head) < 64:
            return "it is no program: neither ELF nor a script with an interpreter line"
        mode = os.fstat(file.fileno()).st_mode
        if mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
            return "it is set-user-ID or set-group-ID: the loader ignores the preload library"
        if head[4] != 2:
            return "it is a 32-bit program"
        order = "<" if head[5] == 1 else ">"
        machine, = struct.unpack_from(order + "H", head, 18)
        if machine != _MACHINES.get(platform.machine(), machine):
            return "it is for another kind of processor"
        return _loader(file, order, head)


def _loader(file, order: str, head: bytes) -> str:  # type: ignore[no-untyped-def]
    """Look for the program header that names the dynamic loader."""
    table, = struct.unpack_from(order + "Q", head, 32)
    size, count = struct.unpack_from(order + "HH", head, 54)
    for number in range(count):
        file.seek(table + number * size)
        entry = file.read(56)
        if len(entry) < 56 or struct.unpack_from(order + "I", entry)[0] != _INTERPRETER:
            continue
        offset, = struct.unpack_from(order + "Q", entry, 8)
        length, = struct.unpack_from(order + "Q", entry, 32)
        file.seek(offset)
        name = file.read(min(length, 4096)).rstrip(b"\0")
        if b"ld-musl" in name or b"linker64" in name:
            return f"its C library is not the GNU one ({os.fsdecode(name)})"
        return ""
    return "it is static: there is no dynamic loader to preload anything"
