"""Whether the dynamic loader will put the preload library into a program: read from its ELF header."""

from __future__ import annotations

import os
import stat
import struct

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3  # program headers, PT_...
_NEEDED, _STRINGS, _HASH = 1, 5, 0x6FFFFEF5   # entries of PT_DYNAMIC, DT_...
_SANITIZERS = (b"libasan.so", b"libtsan.so", b"libhwasan.so")          # gcc's, the first library
_LINKED_SANITIZERS = (b"__asan_init", b"__tsan_init", b"__hwasan_init")   # clang's, in the program itself
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}
_SCRIPT_DEPTH_MAX = 4
_32_BIT, _OTHER_MACHINE = "it is a 32-bit program", "it is for another kind of processor"
NO_PROGRAM = "it is not a program: neither ELF nor a script with an interpreter line"     # execvp gives it to a shell
_OTHER_LIBC = "its C library is not the GNU one"
_SANITIZED = "it is built with AddressSanitizer or ThreadSanitizer, which do not work beside this library"


def why_not(path: str, depth: int = 0) -> str:
    """Why a program file cannot be tracked, a sentence part; "" when it can. OSError."""
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
            return NO_PROGRAM
        rights = _other_rights(file.fileno())
        if rights:
            return f"it changes its privileges ({rights}): the loader ignores the preload library"
        if head[4] != 2:
            return _32_BIT
        order = "<" if head[5] == 1 else ">"
        machine, = struct.unpack_from(order + "H", head, 18)
        if machine != _MACHINES.get(os.uname().machine, machine):
            return _OTHER_MACHINE
        return _loader(file, order, head)


def refuses(why: str) -> bool:
    """Whether a program that cannot be tracked must not be offered the library either: its loader would complain, or
    fail. Others (static ones, or with other rights) hand it on to programs that can be tracked."""
    return any(reason in why for reason in (_SANITIZED, _OTHER_LIBC, _32_BIT, _OTHER_MACHINE))


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
    """What goes past the C library although the program is tracked, "" when nothing is known of it. OSError."""
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
            return "it is a Go program: it calls the kernel by itself, and what it writes that way is not tracked"
    return ""


def _at(file, offset: int, length: int) -> bytes:  # type: ignore[no-untyped-def]
    """What is there of those bytes; no file reaches as far as a header may say."""
    if offset >= 1 << 63:
        return b""
    file.seek(offset)
    return bytes(file.read(length))


def _sanitized(file, order: str, table: int, size: int, count: int) -> bool:  # type: ignore[no-untyped-def]
    """Whether a sanitizer's runtime is the first library that the program needs (DT_NEEDED), or is linked into it."""
    loads, dynamic = [], b""
    for number in range(min(count, 1170)):
        entry = _at(file, table + number * size, 56)
        if len(entry) < 56:
            break
        kind, = struct.unpack_from(order + "I", entry)
        offset, address, _, length = struct.unpack_from(order + "QQQQ", entry, 8)
        if kind == _LOAD:
            loads.append((address, length, offset))
        elif kind == _DYNAMIC:
            dynamic = _at(file, offset, min(length, 1024))
    first: dict[int, int] = {}
    for tag, value in struct.iter_unpack(order + "qQ", dynamic[: len(dynamic) // 16 * 16]):
        first.setdefault(tag, value)
    for address, length, offset in loads:
        place = offset - address
        if (_NEEDED in first and address <= first.get(_STRINGS, -1) < address + length
                and _at(file, place + first[_STRINGS] + first[_NEEDED], 15).startswith(_SANITIZERS)):
            return True
        if (address <= first.get(_HASH, -1) < address + length
                and any(_defines(file, order, place + first[_HASH], name) for name in _LINKED_SANITIZERS)):
            return True
    return False


def _defines(file, order: str, table: int, name: bytes) -> bool:  # type: ignore[no-untyped-def]
    """Whether the program has such a dynamic symbol, by its DT_GNU_HASH; the hash's 32 bits stand for the name."""
    head = _at(file, table, 16)
    if len(head) < 16:
        return False
    buckets, lowest, words, _ = struct.unpack(order + "IIII", head)
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    start = table + 16 + 8 * words
    number = _at(file, start + 4 * (value % buckets), 4) if buckets else b""
    if len(number) < 4 or struct.unpack(order + "I", number)[0] < lowest:
        return False
    chain = _at(file, start + 4 * (buckets + struct.unpack(order + "I", number)[0] - lowest), 4000)
    for found, in struct.iter_unpack(order + "I", chain[: len(chain) // 4 * 4]):
        if found | 1 == value | 1:
            return True
        if found & 1:
            break
    return False


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
            return f"{_OTHER_LIBC} ({os.fsdecode(name)})"
        if not os.path.exists(name):
            return f"its loader {os.fsdecode(name)} is not there: it cannot be started"
        return _SANITIZED if _sanitized(file, order, table, size, count) else ""
    loader = _LOADERS.get(os.uname().machine, "")
    if os.path.exists(loader) and os.path.samestat(os.fstat(file.fileno()), os.stat(loader)):
        return ""                          # started as a program, it preloads for the one that it is given
    return "it is static: there is no dynamic loader to preload anything"
