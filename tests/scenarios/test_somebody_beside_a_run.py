"""What somebody outside of a run does to its files while it is alive, or when it was killed: he removes, replaces and
moves them. What is his stays as it is, and of each index all comes back, or it is named as lost."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import honest
import pytest
from conftest import Compile
from lab import Lab, Session

THEIRS, LONG = b"theirs\n" * 20, b"o" * 300_000

MODES = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])


@pytest.mark.parametrize("made", ["mkdir d", "fill d w,creat 10 1", "symlink x d"])
@pytest.mark.parametrize("between", [False, True], ids=["at once", "after a checkpoint"])
@MODES
def test_a_folder_is_taken_away(lab: Lab, options: list[str], between: bool, made: str) -> None:
    """The run has taken a name out of it before, and makes something of its name then: the folder counted as one that
    had not been there, and so did the name."""
    (lab.work / "d").mkdir()
    (lab.work / "d/f").write_bytes(b"old")
    before = lab.state()
    program = lab.start(*options)
    program.must(["unlink d/f"])
    (lab.work / "d").rmdir()
    program.must(["checkpoint"] * between + [made])
    assert program.end() == 0
    after = lab.state()
    for index, want in ((0, before), (1 + between, after), (0, before)):
        lab.restore(index)
        lab.assert_state(want, f"index {index}")
    lab.verb("verify")


def put_over(path: Path) -> None:
    """As editors do it."""
    path.with_name("new").write_bytes(THEIRS)
    path.with_name("new").rename(path)


def made_anew(path: Path) -> None:
    """On many filesystems with the number of the one that it was."""
    path.unlink()
    path.write_bytes(THEIRS)


def moved(path: Path) -> None:
    path.rename(path.with_name("moved"))


def removed(path: Path) -> None:
    path.unlink()


WAYS = pytest.mark.parametrize("way", [put_over, made_anew, moved, removed], ids=lambda way: way.__name__)


def written(lab: Lab, options: list[str]) -> Session:
    """A run that has written to an old file, which two indexes need."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 8192 0 1", "close 3", "checkpoint"])
    return program


def all_or_lost(lab: Lab) -> None:
    for index in (0, 1):
        to = lab.folder / f"copy{index}"
        done = lab.restore(index, "--to", to, code=None)
        if done.returncode != 0:
            assert (done.returncode, "f is lost" in done.stderr) == (12, True), done
        else:
            assert next(to.rglob("f")).read_bytes()[8192 * index:] == LONG[8192 * index:]


@pytest.mark.in_turn("way", "end")
@pytest.mark.parametrize("end", ["exit", "kill all"])
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode", "single"]], ids=["default", "isolate", "single"])
@WAYS
def test_a_file_with_redirected_bytes(lab: Lab, way: Callable[[Path], None], options: list[str], end: str) -> None:
    """At the end of the run these, the old size and the old time were given to the one that had taken its place."""
    program = written(lab, options)
    if end == "kill all":
        program.kill_all()
    way(lab.work / "f")
    theirs = lab.state().get("f")
    assert end == "kill all" or program.end() == 0
    lab.verb("log", code=None)
    assert lab.state().get("f") == theirs
    if theirs:
        assert (lab.work / "f").stat().st_mtime_ns == theirs.mtime_ns
    if "single" not in options:
        all_or_lost(lab)


@pytest.mark.parametrize("how", ["inside", "by a verb"])
@MODES
@WAYS
def test_a_file_that_is_to_go_back(lab: Lab, way: Callable[[Path], None], options: list[str], how: str) -> None:
    """It was made anew with what was in the buffer, and zeros otherwise, as if these were its bytes then."""
    program = written(lab, options)
    program.must(["open f rw", "pwrite 3 8192 8192 1", "close 3"])
    way(lab.work / "f")
    theirs = lab.state().get("f")
    if how == "inside":
        assert program.ask("restore 1") == "-1 EIO"
    else:
        said = lab.restore(1, code=12).stderr      # with assertions more is saved ahead of a write
        assert re.search(r"/f: bytes \d+-300000 of checkpoint 1 are lost$", said, re.MULTILINE)
    assert lab.state().get("f") == theirs
    assert program.end() == 0
    all_or_lost(lab)


@WAYS
def test_a_file_that_the_run_has_not_used_since_its_last_checkpoint(lab: Lab, way: Callable[[Path], None]) -> None:
    """A verb said that all was as at the index."""
    program = written(lab, [])
    way(lab.work / "f")
    theirs = lab.state().get("f")
    assert "modified outside Metamori: " in lab.restore(1, code=14).stderr
    assert lab.state().get("f") == theirs
    assert program.end() == 0
    all_or_lost(lab)


def test_a_file_with_the_name_of_one_that_the_run_moved(lab: Lab) -> None:
    """It was moved back in its place."""
    program = written(lab, [])
    program.must(["rename f g", "checkpoint"])
    put_over(lab.work / "g")
    assert program.ask("restore 1") == "-1 EIO"
    assert sorted(lab.state()) == ["g"] and (lab.work / "g").read_bytes() == THEIRS
    assert program.end() == 0
    all_or_lost(lab)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, partial(os.mknod, mode=stat.S_IFSOCK | 0o600)],
                         ids=["fifo", "folder", "socket"])
def test_its_number_is_that_of_something_else(lab: Lab, make: Callable[[Path], None]) -> None:
    """A fifo was taken for the file, and could not be synced: no checkpoint was to be had, and no end of the run."""
    program = lab.start()
    program.must(["fill f w,creat 5000 1"])
    number = (lab.work / "f").stat().st_ino
    (lab.work / "f").unlink()
    for attempt in range(50):
        make(lab.folder / f"{attempt}")
        if (lab.folder / f"{attempt}").lstat().st_ino == number:
            break
    else:
        pytest.skip("this filesystem gives no number again soon")
    (lab.folder / f"{attempt}").rename(lab.work / "f")
    program.must(["checkpoint"])
    assert program.end() == 0
    lab.restore(0)
    lab.restore(1)
    assert not (lab.work / "f").is_file()


@pytest.mark.parametrize("taken", [False, True], ids=["to a new name", "over another file"])
@pytest.mark.parametrize("when", ["opened anew", "while it is open"])
@MODES
def test_a_file_is_moved_that_the_program_goes_on_with(lab: Lab, options: list[str], when: str, taken: bool) -> None:
    """It had lost at the end what was redirected, and no index from then on had it by its new name."""
    program = written(lab, options)
    program.must(["fill g w,creat 9000 2"] * taken)
    if when == "while it is open":
        program.must(["open f rw"])
    (lab.work / "f").rename(lab.work / "g")
    if when == "opened anew":
        program.must(["open g rw"])
    program.must(["pwrite 3 8192 8192 1", "close 3"])
    seen = program.ask("tree")
    program.must(["checkpoint"])
    assert program.end() == 0
    assert honest.tree_of(lab.work) == seen
    lab.restore(2, "--to", lab.folder / "copy")
    assert honest.tree_of(lab.folder / "copy" / "work") == seen


def test_in_a_folder_of_a_killed_run_something_else_is_put(lab: Lab) -> None:
    """The run's end was begun, and could not be carried through: the folder did not go, where a file was to be."""
    (lab.work / "h").write_bytes(b"old")
    program = lab.start("--isolate")
    program.must(["unlink h", "mkdir h", "mkdir h/h", "checkpoint"])
    (lab.work / "h/h").rmdir()
    (lab.work / "h/h").symlink_to("his")
    program.kill_all()
    lab.verb("log")
    assert os.readlink(lab.work / "h/h") == "his"
    lab.restore(0, "--to", lab.folder / "copy")
    assert (lab.folder / "copy/work/h").read_bytes() == b"old"


def changed_kinds(lab: Lab) -> None:
    for name in ("f", "d/x"):
        (lab.work / name).unlink()
    (lab.work / "d").rmdir()
    (lab.work / "f").mkdir()
    (lab.work / "f/x").write_bytes(THEIRS)
    (lab.work / "d").write_bytes(THEIRS)


@MODES
def test_a_file_becomes_a_folder_and_a_folder_a_file(lab: Lab, options: list[str]) -> None:
    """The run writes there: an index had names below what was no folder, and could not be restored at all."""
    program = lab.start(*options)
    program.must(["fill f w,creat 100 1", "mkdir d", "fill d/x w,creat 100 1", "checkpoint"])
    changed_kinds(lab)
    program.must(["fill f/x w,append 100 1", "fill d w,append 100 1"])
    seen = program.ask("tree")
    program.must(["checkpoint"])
    assert program.end() == 0
    assert honest.tree_of(lab.work) == seen
    lab.restore(2, "--to", lab.folder / "copy")
    assert honest.tree_of(lab.folder / "copy/work") == seen


def cut_short(path: Path) -> bytes:
    with path.open("r+b") as file:
        file.truncate(3000)
    return LONG[:3000]


def appended_to(path: Path) -> bytes:
    with path.open("ab") as file:
        file.write(THEIRS)
    return LONG + THEIRS


def written_anew(path: Path) -> bytes:
    path.write_bytes(THEIRS)
    return THEIRS


@pytest.mark.in_turn("what")
@pytest.mark.parametrize("after", [[], ["rename f g"], ["chmod f 755"], ["unlink f"]],
                         ids=["not used", "renamed", "changed in its mode", "removed"])
@pytest.mark.parametrize("written", [False, True], ids=["chmodded", "written"])
@pytest.mark.parametrize("what", [cut_short, appended_to, written_anew], ids=lambda what: what.__name__)
@MODES
def test_a_file_is_written_to(lab: Lab, options: list[str], what: Callable[[Path], bytes], written: bool,
                              after: list[str]) -> None:
    """At the end what he had appended was cut off, or what he had cut off was there as zeros; indexes had such zeros,
    and his bytes in a file that the run had only chmodded, and nothing was said."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 8192 0 1", "close 3"] if written else ["chmod f 600"])
    program.must(["checkpoint"])
    theirs = what(lab.work / "f")
    program.must(after)
    assert program.end() == 0
    end = next(iter(lab.work.iterdir()), None)
    assert (end is None) == (after == ["unlink f"])
    if end:
        assert len(end.read_bytes()) == len(theirs)
        assert written or end.read_bytes() == theirs
        lab.restore(2, "--to", lab.folder / "copy")
        assert next((lab.folder / "copy").rglob("[fg]")).read_bytes() == end.read_bytes()
    said = honest.told(lab.store)
    assert said.lost == (set() if written and what is appended_to else {0, 1})
    for index in {0, 1} - said.lost:
        lab.restore(index, "--to", lab.folder / f"copy{index}")
        assert next((lab.folder / f"copy{index}").rglob("f")).read_bytes()[8192:] == LONG[8192:]


@pytest.mark.in_turn("used")
@pytest.mark.parametrize("used", [[], ["chmod f 600"], ["fill f w,append 50 1"], ["open f r"]],
                         ids=["not used", "its mode", "appended to", "open"])
@pytest.mark.parametrize("before", [True, False], ids=["before that", "after that"])
@MODES
def test_its_number_is_that_of_another_file(lab: Lab, options: list[str], before: bool, used: list[str]) -> None:
    """One that the run has made, with all its bytes in place: an index had those of the new one."""
    program = lab.start(*options)
    program.must(["fill f w,creat 100000 1", "checkpoint"])
    ours, number = program.ask("tree"), (lab.work / "f").stat().st_ino
    program.must(used if before else [])
    (lab.work / "f").unlink()
    for attempt in range(50):
        (lab.folder / f"{attempt}").write_bytes(THEIRS)
        if (lab.folder / f"{attempt}").stat().st_ino == number:
            break
    else:
        pytest.skip("this filesystem gives no number again soon")
    (lab.folder / f"{attempt}").rename(lab.work / "f")
    program.must([] if before else used)
    theirs = honest.tree_of(lab.work)
    program.must(["checkpoint"])
    after = program.ask("tree") if used[:1] == ["fill f w,append 50 1"] else theirs
    assert program.end() == 0
    said = honest.told(lab.store)
    for index in {1, 2} - said.lost:
        lab.restore(index, "--to", lab.folder / f"copy{index}")
        assert honest.tree_of(lab.folder / f"copy{index}/work") in ({ours} if index == 1 else {ours, theirs, after})
    assert (1 in said.lost) == ("--isolate" not in options)


@pytest.mark.parametrize("to,how,more,size", [
    (0, "rw,append", ["write 3 400000 2"], 400_000), (0, "rw,append", ["write 3 100 2"], 100),
    (0, "rw", ["pwrite 3 100 400000 2"], 400_100), (0, "rw", ["pwrite 3 100 0 2"], 100),
    (0, "rw", ["ftruncate 3 400000"], 400_000), (0, "rw", ["fallocate 3 0 400000"], 400_000),
    (0, "rw", ["hole 3 0 100", "pwrite 3 100 400000 2"], 400_100),
    (200_000, "rw", ["ftruncate 3 100000", "ftruncate 3 400000"], 400_000),
], ids=["appended to", "a little", "written to", "anew", "stretched", "allocated", "punched", "cut by the run"])
@pytest.mark.parametrize("redirected", [False, True], ids=["in place", "redirected"])
def test_a_file_is_cut_and_grows_again(lab: Lab, redirected: bool, to: int, how: str, more: list[str],
                                       size: int) -> None:
    """As logs are, by whoever rotates them. Older indexes had what the program wrote then, or zeros; what it wrote at
    the beginning was not there."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start()
    program.must([f"open f {how}", "open f rw", *["pwrite 4 100 8192 1"] * redirected, "close 4", "checkpoint"])
    os.truncate(lab.work / "f", to)
    program.must(["fsize 3", *more])
    seen = program.ask("tree")
    program.must(["checkpoint"])
    assert program.end() == 0
    assert honest.tree_of(lab.work) == seen
    assert (lab.work / "f").stat().st_size == size
    assert honest.told(lab.store).lost == {0, 1}
    lab.restore(2, "--to", lab.folder / "copy")
    assert honest.tree_of(lab.folder / "copy/work") == seen


def test_a_file_that_stays_in_place_is_cut(lab: Lab, compiled: Compile) -> None:
    """For a program that is not tracked. What the run wrote then was in the indexes, and nothing was said."""
    (lab.work / "f").write_bytes(LONG)
    command = f"{compiled('outsider', 'static')} f beside > /dev/null & exec {lab.driver}"
    env = lab.env | {"METAMORI_STATIC": "untracked"}
    program = Session([*lab.argv("run"), "--", "sh", "-c", command], lab.work, env, lab.folder / "stderr")
    lab.sessions.append(program)
    program.must(["open f rw", "pwrite 3 100 8192 1", "checkpoint"])
    os.truncate(lab.work / "f", 100_000)
    program.must(["pwrite 3 400000 100000 2", "checkpoint"])
    (lab.work / "stop").touch()
    assert program.end() == 0
    assert honest.told(lab.store).lost == {1}
    lab.restore(0, "--to", lab.folder / "copy")
    assert (lab.folder / "copy/work/f").read_bytes() == LONG


def test_a_file_is_cut_where_no_index_knows_of_it(lab: Lab) -> None:
    """The program has seen that, and what is appended then: there it read what it had written before."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start()
    program.must(["open f rw", "ftruncate 3 200000", "pwrite 3 100 199950 1", "pwrite 3 3000 197500 2"])
    os.truncate(lab.work / "f", 200_010)
    program.must(["fsize 3"])
    appended_to(lab.work / "f")
    program.must(["pwrite 3 100 250000 3"])
    seen = program.ask("tree")
    assert program.end() == 0
    assert honest.tree_of(lab.work) == seen
    assert (lab.work / "f").read_bytes()[200_010:].startswith(THEIRS + b"\0")


def test_a_file_of_an_isolated_run_becomes_longer(lab: Lab) -> None:
    """What he had appended was zeros in the index, though the program had seen it."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start("--isolate")
    program.must(["open f rw"])
    appended_to(lab.work / "f")
    program.must(["checkpoint", "pwrite 3 100 0 1"])
    appended_to(lab.work / "f")
    seen = program.ask("tree")
    program.must(["checkpoint", "pwrite 3 100 310000 1"])
    last = program.ask("tree")
    assert program.end() == 0
    assert honest.tree_of(lab.work) == last
    for index, want in ((1, None), (2, seen), (3, last)):
        lab.restore(index, "--to", lab.folder / f"copy{index}")
        assert want in (None, honest.tree_of(lab.folder / f"copy{index}/work"))
    assert (lab.folder / "copy1/work/f").read_bytes() == LONG + THEIRS


def test_a_file_of_an_isolated_run_is_cut_before_it_is_removed(elsewhere: Lab) -> None:
    """The program goes on with it: when it grew, what had been redirected behind the cut was there again."""
    (elsewhere.work / "f").write_bytes(LONG)
    program = elsewhere.start("--isolate")
    program.must(["open f rw", "pwrite 3 4096 8192 1", "checkpoint"])
    os.truncate(elsewhere.work / "f", 9000)
    program.must(["unlink f", "ftruncate 3 16000"])
    assert program.ask("pread 3 7000 9000") == f"7000 {zlib.crc32(bytes(7000)):08x}"
    assert program.end() == 0
    assert honest.told(elsewhere.store).lost == {0, 1}
