"""Somebody outside of a run moves a file of which something is in the run's buffer: it follows, or is said to be lost.

The program does not look at it from then on: by a name that it uses the run finds the file anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import honest
import pytest
from lab import Lab, Session

LONG, THEIRS = b"o" * 300_000, b"theirs\n"
MODES = pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode", "single"]],
                                ids=["default", "isolate", "single"])
ISOLATED = pytest.mark.parametrize("options", [["--isolate"], ["--mode", "single"]], ids=["isolate", "single"])
WRITTEN = pytest.mark.parametrize("is_new", [False, True], ids=["old", "new"])
CHECKPOINTS = pytest.mark.parametrize("between", [False, True], ids=["at once", "after a checkpoint"])


def beside(work: Path) -> None:
    (work / "d/f").rename(work / "d/g")


def elsewhere(work: Path) -> None:
    (work / "e").mkdir()
    (work / "d/f").rename(work / "e/g")


def over_another(work: Path) -> None:
    (work / "d/f").rename(work / "d/h")


def with_its_folder(work: Path) -> None:
    (work / "d").rename(work / "e")


def by_a_link(work: Path) -> None:
    (work / "d/g").hardlink_to(work / "d/f")
    (work / "d/f").unlink()


def as_logs_are(work: Path) -> None:
    beside(work)
    (work / "d/f").write_bytes(THEIRS)


WAYS = pytest.mark.parametrize("way", [beside, elsewhere, over_another, with_its_folder, by_a_link, as_logs_are],
                               ids=lambda way: way.__name__)


def written(lab: Lab, options: list[str] | None, is_new: bool, between: bool = False) -> Session:
    (lab.work / "d").mkdir()
    (lab.work / "d/h").write_bytes(b"another")
    if not is_new:
        (lab.work / "d/f").write_bytes(LONG)
    program = lab.start(native=True) if options is None else lab.start(*options)
    program.must(["fill d/f w,creat 9000 1"] if is_new else ["open d/f rw", "pwrite 3 8192 0 1", "close 3"])
    program.must(["checkpoint"] * between)
    return program


@pytest.mark.in_turn("way", "options")
@pytest.mark.parametrize("end", ["exit", "kill all"])
@CHECKPOINTS
@WRITTEN
@WAYS
@MODES
def test_bytes_follow_a_moved_file(lab: Lab, native_lab: Lab, options: list[str], way: Callable[[Path], None],
                                   is_new: bool, between: bool, end: str) -> None:
    """They got into no file, a new one stayed empty, and nobody said so."""
    for each, how in (native_lab, None), (lab, options):
        program = written(each, how, is_new, between and how is not None)
        way(each.work)
        if end == "kill all":
            program.kill_all()
        else:
            assert program.end() == 0
    said = lab.verb("log", code=None).stderr + lab.sessions[0].stderr()
    assert "in no file" not in said
    if end == "exit" or not options:
        assert honest.tree_of(lab.work) == honest.tree_of(native_lab.work)
    else:                                  # as of the last commit, and by his names
        assert lab.state().keys() == native_lab.state().keys()
    told = honest.told(lab.store)
    last = 1 + between
    if last not in told.lost and (options or not is_new):   # else all is in place, and no index knows the new name
        lab.restore(last, "--to", lab.folder / "copy")
        copy = lab.folder / "copy/work"
        assert [each for each in copy.rglob("[gh]") if (
            each.read_bytes() != (native_lab.work / each.relative_to(copy)).read_bytes())] == []
        assert copy.exists()


def put_over(path: Path) -> None:
    path.with_name("new").write_bytes(THEIRS)
    path.with_name("new").rename(path)


def taken_far_away(path: Path) -> None:
    """To where the run tracks nothing."""
    path.rename(path.parent.parent.parent / "outside" / "f")


@pytest.mark.parametrize("end", ["exit", "kill all"])
@pytest.mark.parametrize("way", [put_over, taken_far_away, Path.unlink], ids=lambda way: way.__name__)
@WRITTEN
@ISOLATED
def test_what_gets_into_no_file_is_said(lab: Lab, options: list[str], is_new: bool, way: Callable[[Path], None],
                                        end: str) -> None:
    """And his own file was taken away, when the run was killed."""
    (lab.folder / "outside").mkdir()
    del lab.env["METAMORI_TRACK"]
    program = written(lab, [*options, "--track", str(lab.work)], is_new)
    way(lab.work / "d/f")
    if end == "exit":
        assert program.end() == 0
        said = program.stderr()
    else:
        program.kill_all()
        said = lab.verb("log", code=None).stderr
    assert "what the run wrote last is in no file: " in said and "work/d/f" in said
    theirs = lab.work / "d/f" if way is put_over else lab.folder / "outside/f"
    if way is not Path.unlink:
        assert theirs.read_bytes() == (THEIRS if way is put_over else b"" if is_new else LONG)
    assert honest.told(lab.store).lost == (set() if is_new or ("single" in options and end == "exit") else {0})


@ISOLATED
def test_a_folder_of_his_in_the_place_of_a_link_stays(lab: Lab, options: list[str]) -> None:
    """The run was killed: it went, with what was in it."""
    program = lab.start(*options)
    program.must(["symlink x h"])
    (lab.work / "h").unlink()
    (lab.work / "h").mkdir()
    (lab.work / "h/a").write_bytes(THEIRS)
    program.kill_all()
    lab.verb("log")
    assert (lab.work / "h/a").read_bytes() == THEIRS
    lab.restore(1, "--to", lab.folder / "copy")
    assert (lab.folder / "copy/work/h/a").read_bytes() == THEIRS


def test_a_folder_that_he_had_made_is_moved_and_removed(lab: Lab) -> None:
    """Where a file was once. The run was killed, and no verb could complete it: that folder was to move."""
    (lab.work / "d").write_bytes(b"x")
    program = lab.start("--isolate")
    program.must(["truncate d 0"])
    (lab.work / "d").unlink()
    program.must(["checkpoint"])
    (lab.work / "d").mkdir()
    (lab.work / "d/a").write_bytes(THEIRS)
    program.must(["open d/a rw", "pwrite 3 10 10 1", "close 3", "checkpoint"])
    (lab.work / "d").rename(lab.work / "e")
    program.must(["unlink e/a", "rmdir e"])
    program.kill_all()
    lab.verb("log")
    assert honest.told(lab.store).lost == {0}


@pytest.mark.parametrize("made", [["open . rw,tmp", "write 3 200000 5", "linkfd 3 d"], ["fill d w,creat 200000 5"]],
                         ids=["nameless first", "by its name"])
def test_it_follows_where_the_store_is_elsewhere(elsewhere: Lab, made: list[str]) -> None:
    """Of one that had had no name a copy is in the store."""
    program = elsewhere.start("--isolate")
    program.must(made)
    (elsewhere.work / "d").rename(elsewhere.work / "e")
    assert program.end() == 0
    assert program.stderr() == ""
    assert (elsewhere.work / "e").stat().st_size == 200_000


@pytest.mark.parametrize("after", [[], ["chmod f 755"]], ids=["not used", "chmodded"])
@pytest.mark.parametrize("before", [["open f rw", "pwrite 3 10 10 1", "close 3"], ["chmod f 700", "checkpoint"]],
                         ids=["written", "chmodded"])
@ISOLATED
def test_what_he_appended_stays_when_the_run_is_killed(lab: Lab, options: list[str], before: list[str],
                                                      after: list[str]) -> None:
    """It was cut off, was nowhere, and an index that had it could not be restored, which nobody had said."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start(*options)
    program.must(before)
    with (lab.work / "f").open("ab") as file:
        file.write(THEIRS)
    program.must(after)
    program.kill_all()
    lab.verb("log", code=None)
    assert (lab.work / "f").read_bytes() == LONG + THEIRS
    told = honest.told(lab.store)
    for index in told.listed:
        done = lab.restore(index, "--to", lab.folder / f"{index}", code=None)
        assert done.returncode in (0, 13) or index in told.lost


def test_what_he_appended_stays_at_the_next_commit(lab: Lab) -> None:
    """In single mode each checkpoint is one: what had been redirected before the last was cut to what it was then."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start("--mode", "single")
    program.must(["open f rw", "pwrite 3 10 10 1", "close 3", "checkpoint"])
    with (lab.work / "f").open("ab") as file:
        file.write(THEIRS)
    program.must(["checkpoint"])
    assert (lab.work / "f").stat().st_size == len(LONG + THEIRS)
    assert program.end() == 0
    assert (lab.work / "f").read_bytes().endswith(b"o" + THEIRS)
    lab.restore(3, "--to", lab.folder / "copy")
    assert (lab.folder / "copy/work/f").read_bytes() == (lab.work / "f").read_bytes()
