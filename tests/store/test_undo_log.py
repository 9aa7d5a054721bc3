"""The log of undo records with little room in memory answers as one with room for everything."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metamori.store.format.records import UndoEntry
from metamori.store.read import undos
from metamori.store.read.store import Store
from metamori.store.read.verify import verify

ENTRIES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=6)
STEPS = st.lists(st.tuples(st.integers(0, 5), ENTRIES), max_size=12)


def saved(log: undos.UndoLog, inode: int, index: int) -> list[tuple[int, ...]]:
    return [tuple(aml) for aml in log.saved_for(inode, index)]


def by_bytes(added: list[tuple[int, list[UndoEntry]]], inode: int, index: int) -> dict[int, tuple[int, int]]:
    """The plain model: of a byte, the first entry of the first record that counts."""
    found: dict[int, tuple[int, int]] = {}
    order = sorted(range(len(added)), key=lambda n: (added[n][0], n))
    for n in order:
        for entry in added[n][1] if added[n][0] >= index else ():
            for at in range(entry.start, entry.end) if entry.inode == inode else ():
                found.setdefault(at, (entry.run, entry.buffer_start + at - entry.start))
    return found


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(1, 8))
def test_bounded_as_unbounded(steps: list, room: int) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(undos, "_HELD_MAX", room)
        store, added, place = Store.create_or_open(os.path.join(folder, "store")), [], 0
        for after_index, words in steps:
            entries = [UndoEntry(inode, start, start + length, 1, place + 100 * n)
                       for n, (inode, start, length) in enumerate(words)]
            place += 100 * len(entries)
            added.append((after_index, entries))
            store.undo_log.add(tuple(entries), after_index, durable=False)
            held = store.undo_log._held
            held.check()
            assert len(held) <= 1 or sum(len(each.entries) for each in held.values()) <= room
        again = Store.open(os.path.join(folder, "store"))
        for log in (store.undo_log, again.undo_log):
            for inode in (1, 2, 3):
                for index in range(7):
                    want = by_bytes(added, inode, index)
                    have = {at: (run, place + at - start) for start, end, run, place in saved(log, inode, index)
                            for at in range(start, end)}
                    assert have == want
            assert [(each.after_index, len(each.entries)) for each in log.records] == sorted(
                ((index, len(entries)) for index, entries in added), key=lambda each: each[0])


@pytest.mark.parametrize("is_damaged", [False, True])
def test_verify_where_a_record_names_many_runs(tmp_path: Path, is_damaged: bool) -> None:
    """As of a job, whose runs save turn by turn: more of them than a store holds open."""
    store, count = Store.create_or_open(str(tmp_path / "store")), 40
    places = {run: (4096 * (run % 7), 4096 * (8 + run % 5)) for run in range(1, count + 1)}   # each has others' holes
    for run, both in places.items():
        fd = store.buffers.writer(run)
        for start in both:
            os.pwrite(fd, b"%03d" % run, start)
        os.ftruncate(fd, 4096 * 14)
        os.close(fd)
    rows = [(run, places[run][part]) for part in (0, 1) for run in places]
    store.add_undo(tuple(UndoEntry(1, 10 * at, 10 * at + 3, run, start, store.buffers.checksum(run, start, 3))
                         for at, (run, start) in enumerate(rows)), 0, durable=False)
    if is_damaged:
        fd = store.buffers.writer(20)
        os.pwrite(fd, b"x", places[20][1])
        os.close(fd)
    report = verify(Store.open(str(tmp_path / "store")))
    assert report.ranges == 2 * count
    assert len(report.problems) == is_damaged, report.problems
    assert all("20: checksum mismatch" in each for each in report.problems)
