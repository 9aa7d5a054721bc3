"""Notes of names (struct mm_touch of shim_c/src/area/layout.h) that are left of a run area after a power cut.

Each carries a check of its own, so one that fits is a fact, whatever is around it: this path was about to change, and
that stood there. The journal is written back when the kernel likes: what it holds of new files may be lost. What was
there before, and no checkpoint knew, is noted in names besides, which reach the disk before the change does.
"""

from __future__ import annotations

import binascii
import os
from sys import maxsize

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import BLOCK, Touch, touch_of

_SIZE: int = ffi.sizeof("struct mm_touch")
_LINKS = 5 * 8                             # the end of the record: `previous` and `below`
_SIZES: dict[int, int] = {1: _SIZE - _LINKS - 8, lib.MM_TOUCH: _SIZE}    # by type: of the record, without its text
_TEXT_MAX = 2 * 65536 + 131072
_URL_SAFE = str.maketrans("-_", "+/")
_PARTS_MAX = 4096                          # a note has some hundred at most


def surviving(journal: bytes) -> dict[int, Touch]:
    """Whole notes of what may be torn, by the byte of the journal at which each ends."""
    found, at = dict[int, Touch](), 8
    zeros = bytes(BLOCK)
    while at + _SIZES[1] <= len(journal):
        if at % BLOCK == 0 and journal[at:at + BLOCK] == zeros:
            at += BLOCK
            continue
        length = int.from_bytes(journal[at:at + 4], "little")
        size = _SIZES.get(int.from_bytes(journal[at + 4:at + 8], "little"), maxsize)
        if size <= length <= size + _TEXT_MAX and length % 8 == 0 \
                and (note := _whole(journal[at:at + length], size)) is not None:
            found[at + length] = note
            at += length
        else:
            at += 8
    return found


def named(folder: str) -> dict[int, Touch]:
    """The notes that are names of a folder, by the byte of the journal at which each ends:
    <byte>.<part>.<of>.<base64>, in hexadecimal."""
    parts: dict[int, dict[int, bytes]] = {}
    counts: dict[int, int] = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        word = name.split(".")
        try:
            at, part, of = (int(each, 16) for each in word[:3])
            if of > _PARTS_MAX:
                continue
            parts.setdefault(at, {})[part] = binascii.a2b_base64(word[3].translate(_URL_SAFE))
        except (ValueError, IndexError, binascii.Error):
            continue                       # the file that they are names of
        counts[at] = of
    found = dict[int, Touch]()
    for at, pieces in parts.items():
        data = b"".join(pieces.get(part, b"") for part in range(counts[at]))
        size = _SIZES.get(int.from_bytes(data[4:8], "little"), maxsize)
        if size == _SIZE:
            data = data[:_SIZE - _LINKS] + bytes(_LINKS) + data[_SIZE - _LINKS:]
        if size <= len(data):
            data = data[:size + _text(data)]
            note = _whole(data + bytes(-len(data) % 8), size)
            if note is not None:
                found[at] = note
    return found


def forget(folder: str, end: int) -> None:
    """Notes up to a byte of the journal are in a checkpoint."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name[:1] != "." and int(name.split(".")[0], 16) <= end:
            os.unlink(os.path.join(folder, name))


def _text(note: bytes) -> int:
    """Bytes that follow the record."""
    r = ffi.cast("struct mm_touch *", ffi.from_buffer(note))
    return int(r.path_length + r.target_length + r.xattrs_length)


def _whole(note: bytes, size: int) -> Touch | None:
    """None: it is torn. size: of the record."""
    text = _text(note)
    if -(-(size + text) // 8) * 8 != len(note):
        return None
    copy = ffi.new("struct mm_touch *")
    ffi.memmove(copy, note, size)
    check, copy.length, copy.check = copy.check, 0, 0
    said = bytes(ffi.buffer(copy))[:_SIZE - _LINKS] + bytes(_LINKS)
    mixed = lib.mm_mixed(lib.mm_mixed(1, said, size), note[size:], text)
    return touch_of(ffi.from_buffer(said + note[size:])) if mixed & 0xffffffff == check else None
