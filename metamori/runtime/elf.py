"""Whether the dynamic loader will put the preload library into a program: read from its ELF header."""

from __future__ import annotations

import os
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
            if not os.path.isfile(interpreter):
                return f"its interpreter {interpreter} is not there"
            why = why_not(interpreter, depth + 1)
            return f"its interpreter {interpreter}: {why}" if why else ""
        if head[:4] != b"\x7fELF" or len(head) < 64:
            return "it is no program: neither ELF nor a script with an interpreter line"
        rights = _other_rights(file.fileno())
        if rights:
            return f"it gets other rights ({rights}): the loader ignores the preload library"
        if head[4] != 2:
            return "it is a 32-bit program"
        order = "<" if head[5] == 1 else ">"
        machine, = struct.unpack_from(order + "H", head, 18)
        if machine != _MACHINES.get(os.uname().machine, machine):
            return "it is for another kind of processor"
        return _loader(file, order, head)


def _other_rights(fd: int) -> str:
    """Which rights executing the file would add to this process's (execve(2), ld.so(8)), "" when none."""
    if os.fstatvfs(fd).f_flag & os.ST_NOSUID:
        return ""
    found = os.fstat(fd)
    if found.st_mode & stat.S_ISUID and found.st_uid != os.getuid():
        return "set-user-ID"
    if found.st_mode & stat.S_ISGID and found.st_mode & stat.S_IXGRP and found.st_gid != os.getgid():
        return "set-group-ID"
    if os.getuid() != 0:                   # root has them all anyway
        try:
            os.getxattr(fd, "security.capability")
        except OSError:
            return ""
        return "file capabilities"
    return ""


def remark(path: str) -> str:
    """What goes past the C library although the program is followed, "" when nothing is known of it. OSError."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF" or len(head) < 64 or head[4] != 2:
            return ""
        order = "<" if head[5] == 1 else ">"
        sections, = struct.unpack_from(order + "Q", head, 40)
        size, count, names = struct.unpack_from(order + "HHH", head, 58)
        if not sections or names >= count:
            return ""
        entry = _at(file, sections + names * size, 40)
        if len(entry) < 40:
            return ""
        offset, length = struct.unpack_from(order + "QQ", entry, 24)
        if b".go.buildinfo\0" in _at(file, offset, min(length, 1 << 20)):
            return "it is a Go program: it calls the kernel by itself, and what it writes that way is not followed"
    return ""


def _at(file, offset: int, length: int) -> bytes:  # type: ignore[no-untyped-def]
    """What is there of those bytes; no file reaches as far as a header may say."""
    if offset >= 1 << 63:
        return b""
    file.seek(offset)
    return bytes(file.read(length))


def _loader(file, order: str, head: bytes) -> str:  # type: ignore[no-untyped-def]
    """Look for the program header that names the dynamic loader."""
    table, = struct.unpack_from(order + "Q", head, 32)
    size, count = struct.unpack_from(order + "HH", head, 54)
    for number in range(min(count, 1170)):   # the kernel takes no more than 64 KB of them
        entry = _at(file, table + number * size, 56)
        if len(entry) < 56 or struct.unpack_from(order + "I", entry)[0] != _INTERPRETER:
            continue
        offset, = struct.unpack_from(order + "Q", entry, 8)
        length, = struct.unpack_from(order + "Q", entry, 32)
        name = _at(file, offset, min(length, 4096)).rstrip(b"\0")
        if b"ld-musl" in name or b"linker64" in name:
            return f"its C library is not the GNU one ({os.fsdecode(name)})"
        if not os.path.exists(name):
            return f"its loader {os.fsdecode(name)} is not there: it cannot be started"
        return ""
    return "it is static: there is no dynamic loader to preload anything"
