"""What grows with the number of ranges grows in proportion: operations are counted, not seconds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import Lab

from metamori.cli.checkpoint import take
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint.cut import Cut
from metamori.runtime.checkpoint.session import Session
from metamori.store.format import files
from metamori.store.format.records import NO_LIMIT, Meta, NameEntry, OffsetEntry, Offsets, PifEntry, UndoEntry, WriteOp
from metamori.store.prune.prune import prune
from metamori.store.read import copies
from metamori.store.read import state as states
from metamori.store.read.apart import Apart, between
from metamori.store.read.checksums import Checked
from metamori.store.read.compare import compare
from metamori.store.read.holders import Losses
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.store.restore.restore_plan import Plan
from metamori.tables.record import replace
from metamori.tables.retention import Rules
from metamori.tables.view import HOME, NOTHING

WRITES = """
import os
from metamori import checkpoint
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, bytes(800 * 4096), 0)
checkpoint()
for at in range(0, 800 * 4096, 2 * 4096):
    os.pwrite(fd, b"a" * 100, at + 50)
checkpoint()
"""


def test_diff_of_many_ranges_resolves_a_file_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run([sys.executable, "-c", WRITES]).check_returncode()
    times, resolve = [], states.resolve
    monkeypatch.setattr(states, "resolve", lambda *words: times.append(1) or resolve(*words))
    with Store.open(str(lab.store)) as store:
        (change,) = compare(store, 1, 2)
    assert len(change.ranges) == 400
    assert len(times) <= 4


def calls(work: Callable[[], object]) -> int:
    """Calls of Python functions, generators that go on among them."""
    count = 0

    def counts(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counts)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def two_states(ranges: int) -> tuple[State, State]:
    """A file of so many ranges, and one checkpoint later, when one of them was written to again."""
    states = [State(0, lambda *_: NOTHING)]
    for index, blocks in enumerate((range(0, 2 * ranges, 2), (10,)), 1):
        pif = PifEntry(2, 1, 2, 0, 1, b"/f", 0, 0, ranges << 13, NO_LIMIT, ranges << 13, 0o100644, 0, 0, index, b"")
        rows = tuple(OffsetEntry(2, 1, at << 12, at + 1 << 12, at + index << 12, at + index + 1 << 12, 0)
                     for at in blocks)
        states.append(states[-1].successor([(Meta(index, index - 1, index, "", "", 1, 1, pifs=(pif,)),
                                             Offsets(index, 1, 1, rows))]))
    return states[1], states[2]


@pytest.mark.parametrize("is_grown", [True, False])
def test_one_range_that_differs_is_found_by_itself(is_grown: bool) -> None:
    """What a restore and a comparison ask of a file whose ranges were folded before. is_grown: it is known that one
    state grew from the other."""
    def asked(ranges: int) -> int:
        then, now = two_states(ranges)
        then.maps.get(2)
        if not is_grown:
            now = two_states(ranges)[1]
        now.maps.get(2)
        return calls(lambda: list(now.differences(then, 2)))

    assert asked(8000) < 2 * asked(1000) < 400


def test_the_way_to_an_index_costs_what_differs(tmp_path: Path) -> None:
    """`metamori restore`, of a file of n ranges of which one was written to again; and what `log` asks of lost ones."""
    def asked(ranges: int) -> tuple[int, int]:
        file = tmp_path / f"f{ranges}"
        file.write_bytes(bytes(ranges << 13))
        with Store.create_or_open(str(tmp_path / f"store{ranges}")) as store:
            run, process, st = store.next_run(), store.next_process(), file.stat()
            with open(store.layout.buffer(run), "wb") as buffer:
                buffer.truncate(ranges + 2 << 12)
            pif = PifEntry(1, st.st_dev, st.st_ino, 0, 0, bytes(file), 0, 0, ranges << 13, NO_LIMIT, NO_LIMIT,
                           st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, b"")
            name = NameEntry(bytes(file), "file", 1, st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns)
            for index, blocks in enumerate((range(0, 2 * ranges, 2), (10,)), 1):
                rows = tuple(OffsetEntry(1, process, at << 12, at + 1 << 12, place << 12, place + 1 << 12, 0)
                             for place, at in enumerate(blocks, ranges * (index - 1) + 1))
                store.commit_checkpoint(Meta(index, index - 1, 0, "", "", run, process, names=(name,)[:2 - index],
                                             pifs=(replace(pif, count=index),)),
                                        Offsets(index, process, run, rows), durable=False)
            store.set_head(2, durable=False)
            found: list[Plan] = []
            plans = calls(lambda: found.append(restore.plan(store, 1)))
            assert found[0].intent.writes == (WriteOp(1, bytes(file), 10 << 12, 11 << 12, run, 6 << 12),)
            file.write_bytes(b"of somebody else")
            losses = Losses(store)
            assert losses.at(1) == [bytes(file)]
            return plans, calls(lambda: losses.at(1))

    few, many = asked(200), asked(1600)
    assert many[0] < 1.2 * few[0] and many[1] < 1.2 * few[1]


def test_lost_files_that_nobody_spoke_of_are_looked_at_once(lab: Lab) -> None:
    """All of a project is gone, and its log asks at every checkpoint what of it is lost."""
    text = "from metamori import checkpoint\nfor each in range(50): open(f'f{each}', 'w').write('a' * 300000)\n" \
           "for each in range(20):\n    open('f0', 'a').write('b')\n    checkpoint()\n"
    lab.run([sys.executable, "-c", text]).check_returncode()
    for file in lab.work.iterdir():
        file.unlink()
    with Store.open(str(lab.store)) as store:
        losses = Losses(store)
        if not losses.at(20):
            pytest.skip("the run's end shares the blocks of what it leaves, so nothing is lost")
        losses = Losses(store)
        first, *others = (calls(lambda index=index: losses.at(index)) for index in range(1, 21))
    assert max(others) < first / 2


def test_one_name_among_many_is_found_by_itself() -> None:
    """What a restore asks first: which names and files may not be the same."""
    def asked(names: int) -> int:
        then, found = State(0, lambda *_: NOTHING), list[Apart]()
        pifs: dict[int, PifEntry] = dict.fromkeys(range(1, names))   # type: ignore[arg-type]
        then.add_initial({b"/d/%d" % each: NameEntry(b"/d/%d" % each, "file", each) for each in pifs}, pifs)
        then.paths(1)                      # in order once, and so after each checkpoint
        meta = Meta(1, 0, 1, "", "", 1, 1, names=(NameEntry(b"/d/5", "absent"), NameEntry(b"/d/new", "file", 5)))
        undo_log = SimpleNamespace(spoken_of=lambda low, high: set())

        def work() -> None:
            now = then.successor([(meta, Offsets(1, 1, 1))])
            found.append(between(undo_log, now, then))   # type: ignore[arg-type]

        count = calls(work)
        assert found == [({b"/d/5", b"/d/new", b"/d"}, set())]
        return count

    asked(10)                              # what is done once
    assert abs(asked(8000) - asked(1000)) < 5 and asked(1000) < 60


def test_a_prune_reads_no_record_that_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --keep-last the oldest record, which names every file, is written anew after each checkpoint."""
    read, decode = [], files.decode_meta
    monkeypatch.setattr(files, "decode_meta", lambda *words: read.append(1) or decode(*words))
    names = tuple(NameEntry(b"/%d" % each, "absent") for each in range(300))
    with Store.create_or_open(str(tmp_path / "store")) as store:
        for index in range(1, 8):
            store.commit_checkpoint(Meta(index, index - 1, 0, "", "", 1, 1, names=names if index == 1 else ()),
                                    durable=False)
            prune(store, Rules(keep_last=3), durable=False)
        assert not read
        assert len(store.meta(5).names) == 300 and store.history.indexes == [0, 5, 6, 7]


def test_what_head_says_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, decode = [], files.decode_head
    monkeypatch.setattr(files, "decode_head", lambda *words: read.append(1) or decode(*words))
    with Store.create_or_open(str(tmp_path / "store")) as store, Store.open(str(tmp_path / "store")) as other:
        assert [store.head, other.head, store.head].count(store.head) == 3
        for _ in range(3):
            store.refresh()
            assert store.head.index == 0
        assert len(read) == 2
        store.commit_checkpoint(Meta(1, 0, 0, "", "", 1, 1), durable=False)
        store.set_head(1, durable=False)
        other.refresh()
        store.refresh()
        assert (other.head.index, store.head.index) == (1, 1) and len(read) == 3


def test_what_a_record_saved_of_many_files_is_found_file_by_file(tmp_path: Path) -> None:
    """A restore asks for each of them."""
    def asked(count: int) -> int:
        with Store.create_or_open(str(tmp_path / f"store{count}")) as store:
            store.add_undo([UndoEntry(inode, 0, 1, 1, inode) for inode in range(1, count + 1)], 0, durable=False)
            return calls(lambda: [store.undo_log.saved_for(inode, 0) for inode in range(1, count + 1)])

    assert asked(2000) < 2.5 * asked(1000)


def test_a_copy_of_many_ranges_is_matched_on_one_way_through() -> None:
    """Each compared with each, 10,000 ranges took 40 seconds."""
    class Looked(tuple):
        times = 0

        def __new__(cls, start: int, end: int) -> Looked:
            return super().__new__(cls, (start, end))

        @property
        def start(self) -> int:
            Looked.times += 1
            return self[0]

        end = property(lambda self: self[1])
        kind = property(lambda self: HOME)

    places = [(at * 8192, at * 8192 + 4096) for at in range(2000)]
    saved = [UndoEntry(7, start, end, 1, (1 << 20) + start, 5) for start, end in places]
    assert copies._parts([Looked(*place) for place in places], saved) == saved     # type: ignore[misc]
    assert Looked.times <= 4 * len(places)


def test_short_ranges_beside_a_long_one_are_found_by_themselves() -> None:
    """A range of the buffer that another record knows as part of a long one."""
    short = [(1, at, at + 100, 1) for at in range(0, 400_000, 200)]

    class Buffers:
        def checksums(self, _: int, ranges: list[tuple[int, int]]) -> list[int]:
            return [1] * len(ranges)

    def lines(ranges: list[tuple[int, int, int, int]]) -> int:
        checked, count = Checked(Buffers(), None, ranges), 0  # type: ignore[arg-type]

        def counts(*_: object) -> object:
            nonlocal count
            count += 1
            return counts

        sys.settrace(counts)  # type: ignore[arg-type]
        try:
            for _, start, end, _ in short:
                checked.require(1, start, end)
        finally:
            sys.settrace(None)
        return count

    assert lines([*short, (1, 0, 400_000, 1)]) < 3 * lines(short)


MAKES = """
import os, sys
for number in range(int(sys.argv[1])):
    os.makedirs(f"d{number // 100}", exist_ok=True)
    with open(f"d{number // 100}/f{number}", "w") as file:
        file.write("new")
print("made", flush=True)
sys.stdin.read()
"""


def calls_while_frozen(lab: Lab, files: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a checkpoint after so many new files. All of these are in it."""
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", MAKES, str(files)], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdin and run.stdout.readline() == b"made\n"
        seen: list[int] = []
        cuts: list[Cut] = []

        def counted(*words: Any) -> Cut:
            seen.append(calls(lambda: cuts.append(instant(*words))))
            return cuts[-1]

        instant = Session._instant
        with monkeypatch.context() as here:
            here.setattr(Session, "_instant", counted)
            index = take(str(lab.store), "")
        run.stdin.close()
    with Store.open(str(lab.store)) as store:
        assert len(store.state(index).names) >= files
    (count,) = seen
    return count


def test_the_instant_of_many_new_files_takes_no_python_for_each(
        lab: Lab, native_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (calls_while_frozen(each, files, monkeypatch) for each, files in ((lab, 100), (native_lab, 1000)))
    assert many - few <= 9 * 40            # for each of the folders


SPAWNS = """
import subprocess, sys
with open("log", "w") as log:
    for _ in range(300):
        subprocess.run(["true"], stdout=log, check=True)
print("made", flush=True)
sys.stdin.read()
"""


def test_processes_that_have_ended_keep_no_slots_until_a_checkpoint(lab: Lab) -> None:
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", SPAWNS], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdin and run.stdout.readline() == b"made\n"
        area = Area(str(lab.store))
        assert area.head.process_high < 20, "each program that begins takes away what some have left"
        area.close()
        run.stdin.close()


def test_the_end_of_data_is_looked_for_once(lab: Lab) -> None:
    """tmpfs looks at each page up to there: for each step of a long overwrite, or each range of the buffer, that is
    their number times the file's size."""
    if not shutil.which("strace"):
        pytest.skip("no strace")
    (lab.work / "f").write_bytes(bytes(64 << 20))
    calls, over = lab.folder / "calls", ["dd", "if=/dev/zero", "of=f", "bs=1M", "count=64", "conv=notrunc"]
    subprocess.run(["strace", "-f", "-e", "trace=lseek", "-o", calls, *lab.argv("run"), "--", *over],
                   cwd=lab.work, env=lab.env, check=True)
    assert 1 <= calls.read_text().count("SEEK_HOLE") <= 8      # 31 once
