"""Somebody outside of a run moves files that it has just made, cuts some that it uses, and takes folders away that it
never used: each index has what the run did, or names it as lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import honest
import pytest
from lab import Lab

from metamori.runtime.area.run_area import Area

LONG = b"o" * 70_000

MODES = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])


def copied(lab: Lab, index: int, *options: str, code: int = 0) -> Path:
    """What there is of `work` in a copy of an index."""
    lab.restore(index, "--to", lab.folder / f"copy{index}", *options, code=code)
    return lab.folder / f"copy{index}" / "work"


@pytest.mark.parametrize("folder", ["ours", "theirs"])
@MODES
def test_a_file_is_moved_that_the_run_has_just_made(lab: Lab, options: list[str], folder: str) -> None:
    """An index had it as empty, and so had all later ones where the run changed only its mode."""
    (lab.work / "theirs").mkdir()
    program = lab.start(*options)
    program.must(["mkdir ours", "fill f w,creat 5000 1"])
    data = program.ask("tree").split("f:f:644:")[1].split()[0]
    (lab.work / "f").rename(lab.work / folder / "x")
    program.must(["checkpoint", f"chmod {folder}/x 600", "checkpoint"])
    assert program.end() == 0
    assert honest.told(lab.store).lost == set()
    for index in (1, 2) if folder == "ours" else (2,):
        assert f"/x:f:{'644' if index == 1 else '600'}:{data}" in honest.tree_of(copied(lab, index))
    if folder == "theirs":             # it may do without, but has nothing wrong
        assert "x:f" not in honest.tree_of(copied(lab, 1)) or data in honest.tree_of(lab.folder / "copy1/work")


@MODES
def test_a_file_is_moved_and_removed_by_the_run(lab: Lab, options: list[str]) -> None:
    """An index had it by its old name."""
    program = lab.start(*options)
    program.must(["fill f w,creat 5000 1", "checkpoint"])
    (lab.work / "f").rename(lab.work / "g")
    program.must(["unlink g", "checkpoint"])
    assert program.end() == 0
    assert (copied(lab, 1) / "f").stat().st_size == 5000
    assert not (copied(lab, 2) / "f").exists()


@MODES
def test_a_folder_is_moved_that_only_names_in_it_tell_of(lab: Lab, options: list[str]) -> None:
    """An index had something in what was a file by then: it could not be copied at all."""
    (lab.work / "d").mkdir()
    program = lab.start(*options)
    program.must(["symlink to d/x", "checkpoint"])
    (lab.work / "d").rename(lab.work / "moved")
    program.must(["fill d w,creat 100 1", "checkpoint"])
    assert program.end() == 0
    assert os.readlink(copied(lab, 1) / "d/x") == "to"
    assert (copied(lab, 2) / "d").stat().st_size == 100


@MODES
def test_a_folder_of_theirs_becomes_a_link(lab: Lab, options: list[str]) -> None:
    """The run takes that: the index before could not be copied, having it as a link that something is in."""
    program = lab.start(*options)
    (lab.work / "d").mkdir()
    program.must(["symlink to d/x", "checkpoint"])
    (lab.work / "d").rename(lab.work / "moved")
    (lab.work / "d").symlink_to("moved")
    program.must(["rename d e", "checkpoint"])
    assert program.end() == 0
    assert os.readlink(copied(lab, 1) / "d/x") == "to"
    assert os.readlink(copied(lab, 2) / "e") == "moved"


@pytest.mark.parametrize("grows", [False, True], ids=["stays short", "grows again"])
@pytest.mark.parametrize("before", [[], ["checkpoint"]], ids=["at once", "after a checkpoint"])
@pytest.mark.parametrize("used", ["pwrite 3 100 0 2", "ftruncate 3 60000"], ids=["written to", "cut by the run"])
def test_a_file_is_cut_that_the_run_uses(lab: Lab, used: str, before: list[str], grows: bool) -> None:
    """Nobody said so where the run had just come to it, or had saved other bytes of it since the last checkpoint."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start()
    program.must(["open f rw", "pwrite 3 10 0 1", *before, used])
    os.truncate(lab.work / "f", 5000)
    program.must(["pwrite 3 1000 90000 3"] * grows + ["checkpoint"])
    seen = program.ask("tree")
    assert program.end() == 0
    last = 1 + len(before)
    assert honest.told(lab.store).lost == set(range(last))
    copied(lab, 0, code=12)
    copied(lab, 0, "--force", code=12)
    assert honest.tree_of(copied(lab, last)) == seen == honest.tree_of(lab.work)


@pytest.mark.parametrize("looks", ["fsize 3", "pread 3 70000 0", "open f r"])
@MODES
def test_what_the_run_finds_cut_off_is_named_at_once(lab: Lab, options: list[str], looks: str) -> None:
    """`verify` and `log` said nothing before the next checkpoint."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 10 0 1", "checkpoint"])
    os.truncate(lab.work / "f", 5000)
    program.must([looks])
    assert "f is lost" in lab.verb("verify", code=12).stderr
    assert "f is lost]" in lab.verb("log", code=None).stdout
    assert honest.told(lab.store).lost == {0, 1}
    assert program.end() == 0
    assert honest.told(lab.store).lost == {0, 1}


@pytest.mark.parametrize("end", ["exit", "kill all"])
@pytest.mark.parametrize("used", [[], ["pwrite 3 10 0 2"]], ids=["not used", "used"])
def test_a_file_is_cut_that_only_old_indexes_need(lab: Lab, used: list[str], end: str) -> None:
    """An isolated run has written all of it anew."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start("--isolate")
    program.must(["open f rw,trunc", "write 3 5000 1", "checkpoint"])
    os.truncate(lab.work / "f", 100)
    program.must(used)
    if end == "kill all":
        program.kill_all()
        lab.verb("log", code=None)
    else:
        assert program.end() == 0
    assert honest.told(lab.store).lost == {0}
    assert (copied(lab, 1) / "f").stat().st_size == 5000


@MODES
def test_what_is_not_lost_can_be_copied(lab: Lab, options: list[str]) -> None:
    """Where nobody could know yet that something is, --force copied nothing."""
    for name in "afz":
        (lab.work / name).write_bytes(LONG)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 100 0 1", "chmod a 600", "chmod z 600", "checkpoint"])
    os.truncate(lab.work / "f", 5000)
    copied(lab, 1, code=12)
    there = copied(lab, 1, "--force", code=12)
    assert (sorted(os.listdir(there)), (there / "z").read_bytes()) == (["a", "z"], LONG)
    assert program.end() == 0


def put_over_it(path: Path) -> None:
    path.with_name("new").write_bytes(b"theirs\n")
    path.with_name("new").rename(path)


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def made_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("h")


def moved_away(path: Path) -> None:
    path.rename(path.with_name("moved"))


WAYS = pytest.mark.parametrize("way", [put_over_it, made_a_folder, made_a_link, moved_away, Path.unlink],
                               ids=lambda way: way.__name__)


@pytest.mark.parametrize("used", ["open f r", "open f rw", "unlink f/a"])
@MODES
@WAYS
def test_gone_back_when_a_file_was_taken_that_is_the_same_then(lab: Lab, way: Callable[[Path], None],
                                                              options: list[str], used: str) -> None:
    """It was open, or what had taken its place was used. His file was taken for it, and cut or made longer with zeros;
    or it was made anew, of zeros, and nobody said that an index had lost it."""
    (lab.work / "f").write_bytes(LONG)
    (lab.work / "h").write_bytes(LONG)
    program = lab.start(*options)
    program.must(["fill f w,append 600 1", *[used] * ("open" in used), "checkpoint"])
    way(lab.work / "f")
    if "open" not in used and (lab.work / "f").is_dir():
        (lab.work / "f/a").write_bytes(b"theirs\n")
        program.must([used])
    theirs = lab.state().get("f")
    program.must(["fill h w,append 10 1"])
    assert program.ask("restore 1") in ("0", "-1 EIO")
    assert lab.state().get("f") == theirs
    assert program.end() == 0
    assert lab.state().get("f") == theirs
    assert honest.told(lab.store).lost >= {0, 1}


@pytest.mark.parametrize("used", ["open f r", "open f rw"])
@pytest.mark.parametrize("way", [put_over_it, moved_away, Path.unlink], ids=lambda way: way.__name__)
@MODES
def test_gone_back_to_when_an_open_file_had_been_taken(lab: Lab, options: list[str], way: Callable[[Path], None],
                                                      used: str) -> None:
    """As logs are that are rotated. The restore failed, had gone half way, and the program's descriptor was closed; or
    led to the file that had taken its place."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start(*options)
    program.must([used])
    seen = program.ask("pread 3 100 0")
    way(lab.work / "f")
    program.must(["checkpoint"])
    then = lab.state()
    program.must(["fill a w,creat 10 1"])
    now = lab.state()
    answer = program.ask("restore 1")
    assert answer == ("0" if used == "open f r" else "-1 ENOENT")
    assert lab.state() == (then if answer == "0" else now)
    assert program.ask("pread 3 100 0") == seen
    assert program.end() == 0


def folder_is_linked(work: Path) -> None:
    (work / "d").rename(work.parent / "there")
    (work / "d").symlink_to(work.parent / "there")


def folder_is_moved(work: Path) -> None:
    (work / "d").rename(work / "e")


def name_becomes_a_folder(work: Path) -> None:
    (work / "g").unlink()
    (work / "g").mkdir()


@pytest.mark.parametrize("way", [folder_is_linked, folder_is_moved, name_becomes_a_folder],
                         ids=lambda way: way.__name__)
@pytest.mark.parametrize("after", ["unlink d/x", "rename f g"])
@MODES
def test_gone_back_when_a_name_was_taken(lab: Lab, options: list[str], after: str, way: Callable[[Path], None]) -> None:
    """The restore failed, and had gone half way."""
    for name in "fg":
        (lab.work / name).write_bytes(LONG)
    program = lab.start(*options)
    program.must(["chmod f 600", "chmod g 600", "mkdir d", "fill d/x w,creat 100 1", "checkpoint"])
    program.must(["fill a w,creat 100 1", after])
    way(lab.work)
    before = lab.state()
    answer = program.ask("restore 1")
    if answer != "0":
        assert lab.state() == before
    assert program.end() == 0
    if 1 not in honest.told(lab.store).lost:
        copy = copied(lab, 1)
        assert all((copy / name).read_bytes() == LONG for name in "fg")


@pytest.mark.parametrize("way", [Path.unlink, put_over_it, made_a_folder], ids=lambda way: way.__name__)
def test_taken_when_all_were_killed_in_a_restore(lab: Lab, way: Callable[[Path], None]) -> None:
    """(Played: the run area says so.) It was made anew, of zeros, and indexes had these; the restore is not carried
    through."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start()
    program.must(["open f rw", "pwrite 3 100 100 1", "checkpoint", "pwrite 3 100 9000 1"])
    program.kill_all()
    area = Area(str(lab.store))
    area.head.restoring = 2
    area.close()
    way(lab.work / "f")
    theirs = lab.state().get("f")
    lab.verb("log")
    assert lab.state().get("f") == theirs
    assert honest.told(lab.store).lost >= {0, 1}


@pytest.mark.parametrize("becomes", ["nothing", "file", "link"])
def test_a_folder_is_taken_from_an_isolated_run_that_is_killed(lab: Lab, becomes: str) -> None:
    """In which there is to be a file again. Its end could not be carried through, by no verb: there was no folder."""
    (lab.work / "d").mkdir()
    (lab.work / "d/f").write_bytes(LONG)
    program = lab.start("--isolate")
    program.must(["chmod d 700", "chmod d/f 600", "checkpoint", "unlink d/f"])
    (lab.work / "d").rmdir()
    if becomes == "file":
        (lab.work / "d").write_bytes(b"theirs\n")
    elif becomes == "link":
        (lab.work / "d").symlink_to("nowhere")
    theirs = lab.state().get("d")
    program.kill_all()
    lab.verb("log")
    assert becomes == "nothing" or lab.state().get("d") == theirs
    assert honest.told(lab.store).lost == set()
    for index in (0, 1):
        assert (copied(lab, index) / "d/f").read_bytes() == LONG
