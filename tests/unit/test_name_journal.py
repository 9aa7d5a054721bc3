"""Notes of names that are read after a power cut: those of areas of earlier versions, too."""

from __future__ import annotations

import base64
from pathlib import Path

from metamori._area import ffi, lib
from metamori.runtime.area import name_journal

PATH = b"/folder/old"
LINKS = ffi.offsetof("struct mm_touch", "previous")    # from here on it is no part of what is said


def note(kind: int, before: int) -> bytes:
    """As `touch` in shim_c/src/names/touch.c writes it."""
    record = ffi.new("struct mm_touch *", {"type": kind, "epoch": 3, "ino": 7, "mode": 0o40755, "before": 2 * before,
                                           "path_length": len(PATH)})
    size = 88 if kind == 1 else ffi.sizeof("struct mm_touch")
    mixed = lib.mm_mixed(lib.mm_mixed(1, bytes(ffi.buffer(record)), size), PATH, len(PATH))
    record.check = mixed & 0xffffffff
    record.length = -(-(size + len(PATH)) // 8) * 8
    if kind != 1:
        record.previous, record.below = 4711, [4712] * 4   # by which others are found
    return (bytes(ffi.buffer(record))[:size] + PATH).ljust(record.length, b"\0")


def test_notes_of_both_kinds(tmp_path: Path) -> None:
    """Up to version 12 of the area a note did not tell of the one before."""
    old, new = note(1, 0), note(lib.MM_TOUCH, 2)
    found = name_journal.surviving(bytes(8) + old + new)
    ends = [8 + len(old), 8 + len(old) + len(new)]
    assert {end: (each.path, each.ino, each.before) for end, each in found.items()} == {
        ends[0]: (PATH, 7, 0), ends[1]: (PATH, 7, 2)}
    for end, each in zip(ends, (old, new)):
        if each == new:
            each = each[:LINKS] + each[ffi.sizeof("struct mm_touch"):]
        parts = [each[at:at + 165] for at in range(0, len(each), 165)]
        for number, part in enumerate(parts):
            word = base64.urlsafe_b64encode(part + bytes(-len(part) % 3)).decode()
            (tmp_path / f"{end:x}.{number:x}.{len(parts):x}.{word}").touch()
    assert name_journal.named(str(tmp_path)) == found


def test_a_torn_note_says_nothing() -> None:
    for each in (note(1, 0), note(lib.MM_TOUCH, 2)):
        for at in range(8, len(each) - 7, 8):
            torn = each[:at] + bytes(8) + each[at + 8:]
            in_links = each[4] == lib.MM_TOUCH and LINKS <= at < ffi.sizeof("struct mm_touch")
            assert torn == each or in_links or not name_journal.surviving(bytes(8) + torn), at
