"""Notes of names (struct mm_touch of shim_c/src/area/layout.h) that are left of a run area after a power cut.

Each carries a check of its own, so one that fits is a fact, whatever is around it: this path was about to change, and
that stood there. The journal is written back when the kernel likes: what it holds of new files may be lost. What was
there before, and no checkpoint knew, is noted in names besides, which reach the disk before the change does.
"""

from __future__ import annotations

import binascii
import os

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import BLOCK, Touch, touch_of

_SIZE: int = ffi.sizeof("struct mm_touch")
_TEXT_MAX = 2 * 65536 + 131072
_MASK = (1 << 64) - 1
_URL_SAFE = str.maketrans("-_", "+/")
_PARTS_MAX = 4096                          # a note has some hundred at most


def surviving(journal: bytes) -> dict[int, Touch]:
    """Whole notes of what may be torn, by the byte of the journal at which each ends."""
    found, at = dict[int, Touch](), 8
    zeros = bytes(BLOCK)
    while at + _SIZE <= len(journal):
        if at % BLOCK == 0 and journal[at:at + BLOCK] == zeros:
            at += BLOCK
            continue
        length = int.from_bytes(journal[at:at + 4], "little")
        kind = int.from_bytes(journal[at + 4:at + 8], "little")
        if kind == lib.MM_TOUCH and _SIZE <= length <= _SIZE + _TEXT_MAX and length % 8 == 0 \
                and _is_whole(journal[at:at + length]):
            found[at + length] = touch_of(ffi.from_buffer(journal[at:at + length]))
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
        note = b"".join(pieces.get(part, b"") for part in range(counts[at]))
        if len(note) < _SIZE:
            continue
        r = ffi.cast("struct mm_touch *", ffi.from_buffer(note))
        note = note[:_SIZE + r.path_length + r.target_length + r.xattrs_length]
        note += bytes(-len(note) % 8)
        if _is_whole(note):
            found[at] = touch_of(ffi.from_buffer(note))
    return found


def forget(folder: str, end: int) -> None:
    """Notes up to a byte of the journal are in a checkpoint."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name[:1] != "." and int(name.split(".")[0], 16) <= end:
            os.unlink(os.path.join(folder, name))


def _is_whole(note: bytes) -> bool:
    r = ffi.cast("struct mm_touch *", ffi.from_buffer(note))
    text = r.path_length + r.target_length + r.xattrs_length
    if -(-(_SIZE + text) // 8) * 8 != len(note):
        return False
    copy = ffi.new("struct mm_touch *")
    ffi.memmove(copy, note[:_SIZE], _SIZE)
    copy.length = copy.check = 0
    mixed = _mixed(_mixed(1, bytes(ffi.buffer(copy))), note[_SIZE:_SIZE + text])
    return bool(mixed & 0xffffffff == r.check)


def _mixed(x: int, data: bytes) -> int:
    """As `mm_mixed` in shim_c/src/names/names.h."""
    for at in range(0, len(data), 8):
        x = (x ^ int.from_bytes(data[at:at + 8], "little")) * 0x9e3779b97f4a7c15 & _MASK
        x ^= x >> 29
    return x
