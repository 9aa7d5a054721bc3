"""What somebody does to the files of a run when it is over: an index comes back exactly, or it is named as lost.

Short files have a second copy in the store, so nothing of theirs is lost. What is longer is in the user's file only,
unless the filesystem shares blocks.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab

from metamori.store.io.os_io import REAL, Door
from metamori.store.read.store import Store
from metamori.store.restore import restore

SHORT, LONG = b"result1\n", b"0123456789abcdef" * 20_000


def shares_blocks(folder: Path) -> bool:
    one, other = folder / ".one", folder / ".other"
    one.write_bytes(bytes(4096))
    with one.open("rb") as source, other.open("wb") as target:
        shared = REAL.clone_range(source.fileno(), 0, target.fileno(), 0, 4096)
    one.unlink()
    other.unlink()
    return shared


def first_run(lab: Lab) -> None:
    """Index 1 has two short files and a long one."""
    (lab.folder / "long").write_bytes(LONG)
    assert lab.run(["sh", "-c", "printf 'result1\\n' >a; echo beside >b; cat ../long >long"]).returncode == 0


def in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"XXXXXXX")


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shorter(path: Path) -> None:
    os.truncate(path, 3)


def touched(path: Path) -> None:
    os.utime(path, (1, 1))


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    """As `sed -i` does it."""
    new = path.with_name("sedXYZ")
    new.write_bytes(b"another one")
    new.rename(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("b")


WAYS = [in_place, appended, shorter, touched, removed, replaced, a_folder, a_link]


def lost_in_log(lab: Lab) -> dict[int, list[str]]:
    return {entry["index"]: [os.path.basename(each["path"]) for each in entry["lost"]]
            for entry in lab.log()["checkpoints"] if entry["lost"]}


class Killed(BaseException):
    pass


class Stops(Door):
    """Whoever restores is killed when head has its name, or before."""

    def __init__(self, after: bool) -> None:
        self._after = after

    def rename(self, source: bytes, target: bytes) -> None:
        is_head = os.path.basename(target) == b"head"
        if self._after or not is_head:
            super().rename(source, target)
        if is_head:
            raise Killed


@pytest.mark.in_turn("way", "gone")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("killed", [None, False, True], ids=["", "before-head", "after-head"])
@pytest.mark.parametrize("gone", ["rm a", "mv c a", "rm a; {back}", "mv c a; {back}"])
def test_of_what_came_back_nothing_is_lost(
    lab: Lab, way: Callable[[Path], None], gone: str, killed: bool | None
) -> None:
    """The only copy was in the store, and a restore has moved it back: after the run, or in it."""
    for name in "abc":
        (lab.work / name).write_bytes(name.encode() * 3000)
    before = lab.state()
    back = shlex.join(map(str, lab.argv("restore", 0)))
    assert lab.run(["sh", "-c", gone.format(back=back)]).returncode == 0
    if killed is not None and "{" not in gone:
        with Store.open(str(lab.store), door=Stops(killed)) as store, pytest.raises(Killed):
            store.lock()
            restore.move_home(store, 0)
        lab.verb("log")
    lab.restore(0)
    lab.assert_state(before, "back")
    way(lab.work / "a")
    assert "no errors" in lab.verb("verify").stdout and not lost_in_log(lab)
    lab.restore("--force", 1)
    lab.restore(0)
    lab.assert_state(before, "back again")


@pytest.mark.parametrize("options", [[], ["--mode=single"]], ids=["default", "single"])
def test_what_a_killed_run_in_isolation_had_removed_gets_no_second_copy(lab: Lab, options: list[str]) -> None:
    """It comes back to where it was, and is held as it was; in a job's own stores nobody expects copies."""
    (lab.work / "a").write_bytes(SHORT)
    before = lab.state()
    lab.run(["sh", "-c", "rm a; kill -9 $PPID $$"], "--isolate", *options)
    lab.verb("log")
    lab.assert_state(before, "back")
    assert not [*lab.store.glob("checkpoints/*.undo.*")]


@pytest.mark.parametrize("way", WAYS)
def test_of_short_files_nothing_is_lost(lab: Lab, way: Callable[[Path], None]) -> None:
    first_run(lab)
    at_one = lab.state()
    way(lab.work / "a")
    changed = lab.state()
    assert "no errors" in lab.verb("verify").stdout and not lost_in_log(lab)
    assert "a" in lab.restore(1, code=14).stderr
    lab.assert_state(changed, "a refused restore touches nothing")
    assert lab.run(["true"]).returncode == 0
    assert "no errors" in lab.verb("verify").stdout
    lab.restore(1)
    lab.assert_state(at_one, "index 1")
    lab.restore(2)
    lab.assert_state(changed, "what somebody else left")


@pytest.mark.parametrize("way", WAYS)
def test_short_files_that_later_runs_left_alone(lab: Lab, way: Callable[[Path], None]) -> None:
    """Between runs and beside one: the copy that the first run left is of their indexes too."""
    first_run(lab)
    assert lab.run(["sh", "-c", "echo c >c"]).returncode == 0
    at_two = lab.state()
    way(lab.work / "a")
    changed = lab.state()
    assert "no errors" in lab.verb("verify").stdout and not lost_in_log(lab)
    assert lab.verb("cat", 2, lab.work / "a").stdout == "result1\n"
    lab.restore(2, "--to", lab.folder / "copy")
    assert next((lab.folder / "copy").rglob("a")).read_bytes() == b"result1\n"
    lab.restore(2, code=14)
    lab.restore(2, "--force")
    lab.assert_state(at_two, "index 2")
    lab.restore(3)
    lab.assert_state(changed, "what somebody else left")
    lab.restore(2)
    assert lab.run(["sh", "-c", "echo d >d"]).returncode == 0
    at_four = lab.state()
    way(lab.work / "a")
    assert lab.run(["sh", "-c", "ls >>a || ls >e"]).returncode == 0
    assert "no errors" in lab.verb("verify").stdout and not lost_in_log(lab)
    lab.restore(4)
    lab.assert_state(at_four, "index 4")


def test_beside_a_run_that_then_writes_to_it(lab: Lab) -> None:
    """As below, of a short file that an earlier run has left a copy of."""
    first_run(lab)
    program = lab.start()
    program.must(["open new w,creat", "write 3 10 1", "checkpoint"])
    at_two = lab.state()
    in_place(lab.work / "a")
    program.must(["open a rw", "lseek 4 0 end", "write 4 10 1"])
    assert program.end() == 0
    assert not lost_in_log(lab)
    lab.restore(2)
    lab.assert_state(at_two, "index 2")


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way, options", [
    *((way, ()) for way in WAYS),
    *((way, options) for way in (in_place, removed) for options in (("--isolate",), ("--mode", "single"))),
])
def test_what_is_lost_beside_a_run_is_said(lab: Lab, way: Callable[[Path], None], options: tuple[str, ...]) -> None:
    """By somebody else while a run is alive that does not touch the file: its end does not take it for its own."""
    if shares_blocks(lab.folder):
        pytest.skip("nothing is lost where blocks are shared")
    first_run(lab)
    program = lab.start(*options)
    program.must(["open new w,creat", "write 3 10 1", "checkpoint"])
    way(lab.work / "long")
    changed = lab.state()
    program.must(["write 3 10 2"])
    assert program.end() == 0
    new = lab.state()["new"]
    last, single = lab.log()["head"], "single" in options
    lost = {index: ["long"] for index in range(last if single else 1, last + 1)}
    assert lost_in_log(lab) == lost
    assert "cannot be restored exactly" in lab.verb("verify", code=12).stderr
    assert "long is lost" in lab.restore(last, code=14).stderr
    assert lab.run(["true"]).returncode == 0
    present = lab.log()["head"]
    assert lost_in_log(lab) == lost
    if not single:
        lab.restore(1, "--force", code=12)
        assert lab.state() == {name: entry for name, entry in changed.items() if name != "new"}
        lab.restore(present)
    assert lab.state() == changed | {"new": new}


@pytest.mark.in_turn("way", "options")
@pytest.mark.parametrize("back", [False, True], ids=["goes on", "goes back"])
@pytest.mark.parametrize("way, options", [
    *((way, ()) for way in (in_place, appended, shorter, touched, replaced)), (in_place, ("--isolate",)),
])
def test_a_run_that_then_writes_to_it(lab: Lab, way: Callable[[Path], None], options: tuple[str, ...],
                                      back: bool) -> None:
    """What it finds is the new index's; the older ones have lost what only the file held, also for the program."""
    if shares_blocks(lab.folder):
        pytest.skip("nothing is lost where blocks are shared")
    first_run(lab)
    program = lab.start(*options)
    program.must(["open new w,creat", "write 3 10 1", "checkpoint"])
    way(lab.work / "long")
    program.must(["open long rw", "lseek 4 0 end", "write 4 10 1"])
    if back and way is not replaced:
        assert program.ask("restore 2") == "-1 EIO"
    program.must(["write 4 10 2"])
    assert program.end() == 0
    at_end = lab.state()
    assert lost_in_log(lab) == {1: ["long"], 2: ["long"]}
    assert "long is lost" in lab.restore(1, code=12).stderr
    lab.restore(1, "--force", code=12)
    lab.restore(3)
    lab.assert_state(at_end, "the end of the run is exact")


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("recorded", [False, True], ids=["now", "by a run"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_lost_is_said(lab: Lab, way: Callable[[Path], None], recorded: bool) -> None:
    """By log, verify and restore, which touches nothing; with --force all else comes back, and nothing is made up."""
    if shares_blocks(lab.folder):
        pytest.skip("nothing is lost where blocks are shared")
    first_run(lab)
    at_one = lab.state()
    way(lab.work / "long")
    (lab.work / "a").unlink()
    changed = lab.state()
    if recorded:
        assert lab.run(["true"]).returncode == 0
    assert lost_in_log(lab) == {1: ["long"]}
    done = lab.verb("verify", "--json", code=12)
    assert [entry["index"] for entry in json.loads(done.stdout)["lost"]] == [1]
    assert "checkpoint 1 cannot be restored exactly" in done.stderr and "long is lost" in done.stderr
    assert "long is lost" in lab.restore(1, code=12 if recorded else 14).stderr
    assert "long is lost" in lab.restore(1, "--to", lab.folder / "copy", code=12).stderr
    assert "long is lost" in lab.restore(1, "--dry-run").stdout
    lab.assert_state(changed, "a refused restore touches nothing")
    assert "long is lost" in lab.restore(1, "--force", code=12).stderr
    now = lab.state()
    assert now.pop("long", None) == changed.pop("long", None)
    at_one.pop("long")
    assert now == at_one
    assert lost_in_log(lab) == {1: ["long"]}, "what was put back instead is exact"
    lab.restore(2)
    lab.restore(1, "--to", lab.folder / "rest", "--force", code=12)
    rest = {path.name for path in (lab.folder / "rest").rglob("*") if path.is_file()}
    assert rest == {"a", "b"}


def test_another_mode_or_name_costs_nothing(lab: Lab) -> None:
    first_run(lab)
    at_one = lab.state()
    (lab.work / "long").chmod(0o600)
    os.link(lab.work / "a", lab.folder / "further")
    (lab.folder / "further").unlink()
    lab.verb("verify")
    assert lab.run(["true"]).returncode == 0
    lab.verb("verify")
    lab.restore(1)
    lab.assert_state(at_one, "index 1")


def test_names_that_change_places(lab: Lab) -> None:
    """A tracked file under another tracked file's name is what it was; the other one is gone."""
    if shares_blocks(lab.folder):
        pytest.skip("nothing is lost where blocks are shared")
    assert lab.run(["sh", "-c", "yes one | head -c 200000 >one; yes two | head -c 200000 >two"]).returncode == 0
    (lab.work / "one").rename(lab.work / "two")
    assert lost_in_log(lab) == {1: ["two"]}
    assert lab.run(["true"]).returncode == 0
    assert lost_in_log(lab) == {1: ["two"]}
    lab.restore(1, "--force", code=12)
    assert (lab.work / "one").read_bytes() == b"one\n" * 50000
    assert not (lab.work / "two").exists()


def test_a_long_history_names_each_index(lab: Lab) -> None:
    """Only those that had bytes in the file alone."""
    if shares_blocks(lab.folder):
        pytest.skip("nothing is lost where blocks are shared")
    first_run(lab)
    assert lab.run(["sh", "-c", "rm -f long; cat ../long ../long >long"]).returncode == 0
    assert lab.run(["sh", "-c", "echo 3 >a"]).returncode == 0
    in_place(lab.work / "long")
    assert lost_in_log(lab) == {2: ["long"], 3: ["long"]}
    lab.restore(1, "--force")
    assert (lab.work / "long").read_bytes() == LONG and (lab.work / "a").read_bytes() == SHORT


@pytest.mark.parametrize("store", ["here", "elsewhere"])
@pytest.mark.parametrize("isolate, killed", [(False, False), (False, True), (True, False), (True, True)])
def test_made_anew_by_the_run_is_nobodys_work(lab: Lab, monkeypatch: pytest.MonkeyPatch, store: str, isolate: bool,
                                              killed: bool) -> None:
    """By a restore inside the program (files as copies, from a store elsewhere), or with all its attributes: the last
    index says the same of it as head did, and it is another inode."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if store == "elsewhere":
            monkeypatch.setattr(lab, "store", Path(folder) / "store")
        made = "mkdir -p d/in; ln -s a link; ln -s b other; mkfifo fifo; echo 1 >f; ln f second; echo 2 >d/file"
        assert lab.run(["sh", "-c", made]).returncode == 0
        first = lab.state()
        program = lab.start(*["--isolate"] * isolate)
        index = program.ask("checkpoint")
        program.must(["sh rm -r d link fifo f second", "mkdir link", "mkdir fifo", "checkpoint"])
        assert program.ask(f"restore {index}") == "0"
        program.must(["sh cp -a other x; mv x other"])
        if killed:
            program.kill_all()
        else:
            assert program.end() == 0
        lab.assert_state(first, "all is as it was")
        assert not lost_in_log(lab) and "no errors" in lab.verb("verify").stdout
        lab.restore(0)
        lab.restore(1)
        lab.assert_state(first, "index 1")


def names(lab: Lab) -> list[str]:
    return sorted(str(path.relative_to(lab.work)) for path in lab.work.rglob("*"))


@pytest.mark.parametrize("change", ["rm -r b", "mv b c", "rm -r b; echo file > b", "echo 1 >> b/notes", "chmod 700 b"])
def test_somebodys_own_file_in_a_folder_that_stays(lab: Lab, change: str) -> None:
    """A restore leaves the folder for the file's sake. What a run then does to both is taken back as anything else is,
    by the index of the run's start."""
    lab.run(["sh", "-c", "mkdir b; echo x > b/x"])
    (lab.work / "b/notes").write_text("mine")
    lab.restore(0)
    assert names(lab) == ["b", "b/notes"]
    lab.run(["sh", "-c", change])
    start, end = (each["index"] for each in lab.log()["checkpoints"] if each["index"] > 1)
    after = lab.state()
    for index in (start, end, start, 1, start):
        lab.restore(index)
        if index == start:
            assert names(lab) == ["b", "b/notes"] and (lab.work / "b/notes").read_text() == "mine"
        elif index == end:
            lab.assert_state(after, f"after {change}")
    lab.verb("verify")


def test_a_folder_that_stays_is_recorded_once(lab: Lab) -> None:
    lab.run(["sh", "-c", "mkdir b; echo x > b/x"])
    (lab.work / "b/notes").write_text("mine")
    lab.restore(0)
    for _ in range(2):
        lab.run(["/bin/true"])
    assert len(lab.log()["checkpoints"]) == 5
    lab.restore(1)
    lab.restore(0)
    assert names(lab) == ["b", "b/notes"]


@pytest.mark.parametrize("size", [8, 200_000])
def test_a_further_name_of_what_a_run_has_made(lab: Lab, size: int) -> None:
    """Another run writes by it. Before there was such a file it had no names, whatever is restored before."""
    lab.run(["sh", "-c", f"head -c {size} /dev/zero > x"])
    os.link(lab.work / "x", lab.work / "z")
    lab.run(["sh", "-c", "echo more >> z; printf y | dd of=z conv=notrunc"])
    first, last = bytes(size), b"y" + bytes(size - 1) + b"more\n"
    for index in (0, 3, 0, 2, 0, 1, 3, 2, 1, 0):
        lab.restore(index)
        want = [] if index == 0 else [last if index == 3 else first] * 2
        assert [path.read_bytes() for path in sorted(lab.work.iterdir()) if path.is_file()] == want, index
    lab.verb("verify")


@pytest.mark.parametrize("size", [3000, 200_000])
def test_replaced_beside_the_run_that_wrote_it(lab: Lab, size: int) -> None:
    """As an editor saves: the run has written the file, and does not come to it again. What is there was taken for
    what the run had left, and every index since had the editor's bytes."""
    session, f = lab.start(), lab.work / "f"
    session.must(["open f rw,creat", f"write 3 {size} 1", "checkpoint"])
    session.must(["close 3", "checkpoint"])
    (lab.work / "new").write_bytes(b"editor's")
    os.rename(lab.work / "new", f)
    session.must(["checkpoint"])
    assert session.end() == 0
    assert [len(each["lost"]) for each in lab.log()["checkpoints"]] == [0, 1, 1, 1, 1]
    for index in (1, 2, 3):
        assert not lab.verb("cat", index, f, code=14).stdout
    lab.restore(0, code=14)
    assert f.read_bytes() == b"editor's"
    recorded = json.loads(lab.verb("restore", 0, "--force", "--json").stdout)["recorded"]
    assert not f.exists()
    lab.restore(recorded)
    assert f.read_bytes() == b"editor's"
    lab.restore(1, code=12)
    assert f.read_bytes() == b"editor's"


def test_replaced_beside_a_run_that_has_no_hand_in_it(lab: Lab) -> None:
    """And put back afterwards: it is the file that a restore has made, if not that of its last record."""
    first, f = lab.start(), lab.work / "f"
    first.must(["open f rw,creat", "write 3 200000 1", "close 3"])
    assert first.end() == 0
    was = f.read_bytes()
    between = lab.start()
    between.must(["open h rw,creat"])
    shutil.copy2(f, lab.folder / "copy")
    f.rename(lab.folder / "of the record")
    (lab.folder / "copy").rename(f)
    assert between.end() == 0
    second = lab.start()
    second.must(["open g rw,creat"])
    f.rename(lab.folder / "aside")
    f.write_bytes(b"editor's")
    assert second.end() == 0
    f.unlink()
    (lab.folder / "aside").rename(f)
    assert [len(each["lost"]) for each in lab.log()["checkpoints"]] == [0, 0, 0, 0]
    lab.restore(0, "--force")
    lab.restore(3)
    assert f.read_bytes() == was
