"""What the kernel says of a process and its descriptors while the run stands still."""

from __future__ import annotations

import os
import stat

from metamori._area import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_stream_state


def program(folder: bytes) -> bytes:
    try:
        return os.readlink(folder + b"/exe")
    except OSError:
        return b""


def flags_of(path: bytes, otherwise: int) -> int:
    """open(2) flags of a description, with FD_CLOEXEC of this descriptor of it."""
    try:
        return int(start(path).split(None, 4)[3], 8)
    except OSError:                        # the C library has closed it by a call of its own
        return otherwise


def start(path: bytes) -> bytes:
    """Of what /proc says there; the run stands still meanwhile."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 256)
    finally:
        os.close(fd)


def removed_folder(link: bytes) -> int | None:
    """The mode of a folder without a name, or None: it is something else."""
    try:
        st = os.stat(link)
    except OSError:
        return None
    return stat.S_IMODE(st.st_mode) if stat.S_ISDIR(st.st_mode) and st.st_nlink == 0 else None


_STREAM_BUFFER = 1 << 26                   # a longer one is none: the program has written over its stream's fields


def unflushed_bytes(pid: int, state: mm_stream_state) -> bytes:
    """Bytes written to a stream that are still in the program's memory."""
    count = state.unflushed
    if not 0 < count <= _STREAM_BUFFER:
        return b""
    room = ffi.new("char[]", count)
    got = lib.mm_peek(pid, state.unflushed_at, room, count)
    return bytes(ffi.buffer(room, got)) if got > 0 else b""
