"""What is looked at, read or asked grows with what differs: it is counted, not timed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import Lab

from metamori.cli.checkpoint import take
from metamori.runtime.area.run_area import Area
from metamori.runtime.area.unwritten import beside_runs
from metamori.runtime.checkpoint import snapshot
from metamori.runtime.checkpoint.session import Session
from metamori.store.format.records import (
    NO_LIMIT,
    KeptHome,
    Meta,
    NameEntry,
    OffsetEntry,
    Offsets,
    PifEntry,
)
from metamori.store.io.os_io import Door
from metamori.store.read import sizes, verify
from metamori.store.read import state as states
from metamori.store.read.compare import compare
from metamori.store.read.copies import last_copies
from metamori.store.read.reader import Reader
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore.name_plan import NamesPlan
from metamori.store.restore.restore_plan import plan_names
from metamori.tables.record import replace
from metamori.tables.view import NOTHING


class Counting(Door):
    """How often each of some calls was made."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def lstat(self, path: bytes) -> os.stat_result:
        self.count["lstat"] += 1
        return super().lstat(path)

    def listdir(self, path: bytes) -> list[bytes]:
        self.count["listdir"] += 1
        return super().listdir(path)


def file_entries(path: Path, inode: int, size: int) -> tuple[NameEntry, PifEntry]:
    """Of a file that is made here, of zeros."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    st = path.stat()
    return (NameEntry(bytes(path), "file", inode, st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns),
            PifEntry(inode, st.st_dev, st.st_ino, 0, 0, bytes(path), 0, 0, size, NO_LIMIT, NO_LIMIT, st.st_mode,
                     st.st_uid, st.st_gid, st.st_mtime_ns, b""))


def store_of(folder: Path, files: int, ranges: int, checkpoints: int) -> Store:
    """Of each file every other block is redirected by the first checkpoint; then each touches block 8 of the first."""
    door = Counting()
    store = Store.create_or_open(bytes(folder / "store"), door=door)
    run, process, size = store.next_run(), store.next_process(), max(ranges << 13, 100)
    both = [file_entries(folder / "files" / str(inode), inode, size) for inode in range(1, files + 1)]
    rows = [OffsetEntry(inode, process, 2 * at << 12, 2 * at + 1 << 12, place << 12, place + 1 << 12, 0)
            for place, (inode, at) in enumerate(
                ((inode, at) for inode in range(1, files + 1) for at in range(ranges)), 1)]
    again = OffsetEntry(1, process, 8 << 12, 9 << 12, 1 << 12, 2 << 12, 0)
    with open(store.layout.buffer(run), "wb") as buffer:
        buffer.truncate(len(rows) + 1 << 12)
    for index in range(1, checkpoints + 1):
        new = tuple(rows) if index == 1 else (again,) * bool(rows)
        store.commit_checkpoint(
            Meta(index, index - 1, 0, "", "", run, process, names=tuple(name for name, _ in both) if index == 1 else (),
                 pifs=tuple(replace(pif, count=index) for _, pif in (both if index == 1 else both[:1]))),
            Offsets(index, process, run, new), durable=False)
    store.set_head(checkpoints, durable=False)
    door.count.clear()
    return store


def test_a_file_of_many_pieces_is_read_with_few_questions(tmp_path: Path) -> None:
    """Whether a run or a prune beside it has changed something: each lists all records of the store."""
    with store_of(tmp_path, 1, 1000, 3) as store, Reader(store, 1, 1) as reader:
        assert len(reader.read()) == 1000 << 13
        assert store.door.count["listdir"] <= 10   # type: ignore[attr-defined]


def test_a_comparison_looks_at_the_ranges_that_may_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, resolve = [], states.resolve

    def counted(*words: Any) -> list[Any]:
        found = resolve(*words)
        pieces.extend(found)
        return found

    monkeypatch.setattr(states, "resolve", counted)
    with store_of(tmp_path, 1, 1000, 3) as store:
        assert list(compare(store, 2, 3)) == []
    assert 0 < len(pieces) < 10


def test_a_comparison_asks_nothing_of_files_that_are_the_same(tmp_path: Path) -> None:
    with store_of(tmp_path, 100, 2, 3) as store:
        assert [*compare(store, 2, 3)] == []
        assert store.door.count["lstat"] < 20   # type: ignore[attr-defined]


REPLACES = "import os\nfor name in os.listdir():\n open('new', 'w').write('new')\n os.rename('new', name)\n"


def test_a_comparison_with_replaced_files_lists_no_folder_for_each(lab: Lab) -> None:
    for number in range(100):
        (lab.work / f"f{number}").write_text("old")
    lab.run([sys.executable, "-c", REPLACES]).check_returncode()
    door = Counting()
    with Store.open(str(lab.store), door=door) as store:
        assert len([*compare(store, 0, 1)]) == 100
    assert door.count["listdir"] < 110     # each asks whether an undo record has come


def test_a_comparison_after_a_change_of_all_modes_looks_at_no_file_for_each(lab: Lab) -> None:
    """Of files that are longer than what has a second copy."""
    for number in range(100):
        (lab.work / f"f{number}").write_text("old")
    lab.run([sys.executable, "-c", REPLACES.replace("write('new')", "write('new' * 30_000)")]).check_returncode()
    for path in lab.work.iterdir():
        path.chmod(0o600)
    door = Counting()
    with Store.open(str(lab.store), door=door) as store:
        assert len([*compare(store, 0, 1)]) == 100
    assert door.count["lstat"] < 2000


def test_names_go_back_by_a_look_at_what_differs(tmp_path: Path) -> None:
    """When a run in isolation was killed."""
    def asked(files: int) -> int:
        with store_of(tmp_path / str(files), files, 0, 2) as store:
            name = store.state(2).names[bytes(tmp_path / str(files) / "files" / "2")]
            os.chmod(name.path, 0o600)
            store.commit_checkpoint(Meta(3, 2, 0, "", "", 1, 1, names=(replace(name, mode=0o100600),),
                                         pifs=(replace(store.state(2).pifs[2], mode=0o100600),)), durable=False)
            door: Any = store.door
            door.count.clear()
            work = plan_names(store, 3, 2, is_all_known=True)
            assert [each.path for each in work.intent.sizes] == [name.path] and not work.intent.names
            return int(door.count["lstat"])

    assert asked(100) == asked(10) < 30


class Asked(list[int]):
    """How many of its numbers were asked for."""

    count = 0

    def __getitem__(self, at: Any) -> Any:
        self.count += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[int]:
        for each in super().__iter__():
            self.count += 1
            yield each


def test_whose_saved_bytes_are_is_found_without_asking_every_checkpoint() -> None:
    """`log` and `show` ask for each range that was saved."""
    for indexes in Asked(range(100)), Asked(range(10_000)):
        assert sizes._since(indexes, 90) == 91 and indexes.count < 20
        assert sizes._since(indexes, len(indexes) - 1) == len(indexes) - 1
        assert sizes._since(indexes, len(indexes) - 2) == len(indexes) - 1 and indexes.count < 60


def test_a_kept_file_is_looked_at_where_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times, pieces = [], State.pieces
    with store_of(tmp_path, 2, 3, 2) as store:
        name, pif = (store.state(2).names[bytes(tmp_path / "files" / "2")], store.state(2).pifs[2])
        for index in range(3, 39):
            store.commit_checkpoint(Meta(index, index - 1, 0, "", "", 1, 1), durable=False)
        os.rename(name.path, store.layout.kept(b"2"))
        store.commit_checkpoint(Meta(39, 38, 0, "", "", 1, 1, names=(NameEntry(name.path, "absent"),),
                                     pifs=(replace(pif, was_deleted=39, kept=b"2"),)), durable=False)
        store.set_head(39, (KeptHome(2, b"2"),), durable=False)
        monkeypatch.setattr(State, "pieces", lambda *words: times.append(1) or pieces(*words))
        assert verify.verify(store, whole=False).problems == [] and len(times) < 5
        os.truncate(store.layout.kept(b"2"), 5)
        assert any("ends at byte 5" in each for each in verify.verify(store, whole=False).problems)


def test_a_copy_is_looked_for_back_to_where_its_file_was_spoken_of(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_of(tmp_path, 2, 1, 40) as store:
        state, read, meta = store.state(40), [], Store.meta
        monkeypatch.setattr(Store, "meta", lambda self, index: read.append(index) or meta(self, index))
        last_copies(store, state, [1])
        assert read == [40]


def test_a_folder_that_goes_takes_along_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of names that a later checkpoint was the first to see."""
    then = State(0, lambda *_: NOTHING)
    then.add_initial({path: NameEntry(path, kind) for path, kind in (
        (b"/d", "dir"), (b"/d/in", "symlink"), (b"/d0", "symlink"),
        *((b"/e%d/e" % each, "symlink") for each in range(500)))}, {})
    asked, may_hold = [], State._may_hold
    monkeypatch.setattr(State, "_may_hold", lambda *words: asked.append(1) or may_hold(*words))
    meta = Meta(1, 0, 1, "", "", 1, 1, names=(NameEntry(b"/d", "absent"),))
    now = then.successor([(meta, Offsets(1, 1, 1))])
    assert [path for path, entry in now.names.items() if entry.kind == "absent"] == [b"/d", b"/d/in"]
    assert len(asked) < 5


class Walked(dict[bytes, NameEntry]):
    """How many of its keys were come by."""

    count = 0

    def __iter__(self) -> Iterator[bytes]:
        for each in super().__iter__():
            self.count += 1
            yield each


def test_new_folders_ask_once_for_what_was_seen_in_others(tmp_path: Path) -> None:
    """While the run is frozen, and by what records changes that were made outside."""
    many, now = 500, State(0, lambda *_: NOTHING)
    folders = [b"/d%d" % each for each in range(many)]
    inner = sorted(folder + b"/in" for folder in folders)
    now.add_initial({path: NameEntry(path, "absent") for path in (*folders, b"/d")}, {})
    now.add_initial({path: NameEntry(path, "symlink") for path in (*inner, b"/d/in")}, {})
    now._impossible = walked = Walked(now._impossible)
    made = tuple(NameEntry(path, "dir") for path in folders)
    assert now.with_unplaced(made) == (*made, *(NameEntry(path, "absent") for path in inner))
    assert walked.count == many + 1

    there, looked = SimpleNamespace(st=tmp_path.stat(), slot=0), []
    cut: Any = SimpleNamespace(found=dict.fromkeys(folders, there), touches={}, looks=None, pifs=[], elsewhere=[],
                               shared_with=lambda _: (),
                               look=lambda path: looked.append(path) or SimpleNamespace(st=None, slot=0))
    area: Any = SimpleNamespace()
    snapshot.examine(cut, area, now)
    assert sorted(looked) == inner and walked.count == 2 * (many + 1)


def test_folders_that_take_the_places_of_others_are_listed_once(tmp_path: Path) -> None:
    """Folders in folders, each of which is to be where another is that goes."""
    depth, door = 20, Counting()
    here, there = State(2, lambda *_: NOTHING), State(1, lambda *_: NOTHING)
    names = ["/".join("d" * level) for level in range(1, depth + 1)]
    for root, number in ((tmp_path / "one", 100), (tmp_path / "two", 200)):
        root.mkdir()
        (root / names[-1]).mkdir(parents=True)
        here.add_initial({bytes(root / name): NameEntry(bytes(root / name), "dir", number + level, 0o40755)
                          for level, name in enumerate(names)}, {})
    two = [bytes(tmp_path / "two" / name) for name in names]
    there.add_initial({path: NameEntry(path, "dir", 100 + level, 0o40755) for level, path in enumerate(two)}, {})
    layout: Any = SimpleNamespace(kept_folder=bytes(tmp_path))
    NamesPlan(door, layout, here, there, ())
    assert door.count["listdir"] < 4 * depth


OVERWRITES = """
import os, sys
from metamori import checkpoint
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, bytes(24 << 20), 0)
checkpoint()
for at in range(0, 8 << 20, 8192):
    os.pwrite(fd, b"a" * 100, at)
checkpoint()
for at in range(8 << 20, 24 << 20, 1 << 18):
    os.pwrite(fd, b"b" * (1 << 18), at)
print("made", flush=True)
sys.stdin.read()
"""


def test_the_instant_after_an_overwrite_in_place_reads_no_whole_table(
        lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file of which a thousand blocks elsewhere are redirected."""
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", OVERWRITES], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdin and run.stdout.readline() == b"made\n"
        rows, cuts, ranges, instant = [], [], Area.ranges, Session._instant

        def counted(*words: Any) -> list[tuple[int, int, int]]:
            found = ranges(*words)
            rows.extend(found)
            return found

        def cut(*words: Any) -> Any:
            cuts.append(instant(*words))
            return cuts[-1]

        with monkeypatch.context() as here:
            here.setattr(Area, "ranges", counted)
            here.setattr(Session, "_instant", cut)
            take(str(lab.store), "")
        run.stdin.close()
    assert sum(end - start for each in cuts[0].in_place.values() for start, end in each) >= 8 << 20
    assert len(rows) < 100


REMOVES = "import os, sys\n[os.remove(name) for name in os.listdir()]\nprint('gone', flush=True)\nsys.stdin.read()\n"


def test_files_that_a_first_checkpoint_meets_are_walked_through_once(
        lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of before the run, of which none has a number in the store yet."""
    class WalkedList(list[Any]):
        count = 0

        def __iter__(self) -> Iterator[Any]:
            self.count += 1
            return super().__iter__()

    for number in range(200):
        (lab.work / f"f{number}").write_text("here before")
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", REMOVES], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdin and run.stdout.readline() == b"gone\n"
        walked, instant = WalkedList(), Session._instant

        def cut(*words: Any) -> Any:
            done = instant(*words).complete()
            walked.extend(done.pifs)
            done.pifs = walked
            return done

        with monkeypatch.context() as here:
            here.setattr(Session, "_instant", cut)
            take(str(lab.store), "")
        run.stdin.close()
    assert len(walked) >= 200 and walked.count < 10


WRITES_ON = """
import os, sys
from metamori import checkpoint
for text in "old", "older", "in no record yet":
    for name in os.listdir():
        if name[0] == "w":
            open(name, "w").write(text)
        else:
            open("new", "w").write(text)
            os.rename("new", name)
    if "old" in text:
        checkpoint()
print("made", flush=True)
sys.stdin.read()
"""


def test_what_is_written_beside_a_reader_is_walked_through_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots and notes of a live run, when files are compared that it has changed since its last checkpoint."""
    for number in range(100):
        (lab.work / f"{'wr'[number % 2]}{number}").write_text("here before")
    count, pif, journal = Counter[str](), Area.pif, Area.journal

    def counted(area: Area, slot: int) -> Any:
        count["slots"] += 1
        return pif(area, slot)

    def walked(area: Area, start: int) -> Iterator[Any]:
        for each in journal(area, start):
            count["notes"] += 1
            yield each

    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", WRITES_ON], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdin and run.stdout.readline() == b"made\n"
        with beside_runs(Store.open(str(lab.store))) as store, monkeypatch.context() as here:
            here.setattr(Area, "pif", counted)
            here.setattr(Area, "journal", walked)
            assert len([*compare(store, 1, 2)]) == 100
        run.stdin.close()
    assert 0 < count["slots"] < 1000 and 0 < count["notes"] < 1000
