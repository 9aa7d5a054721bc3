"""What somebody does between runs to folders that runs use: moves them and leaves a link, puts files of his into them,
writes to what a run removed by a name that is not tracked. No index loses a byte, and none gets one that is not its."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from lab import Lab, Tree

LONG = 300_000


def files(lab: Lab) -> dict[str, bytes]:
    return {name: entry.content for name, entry in lab.state().items() if entry.kind == "file"}


def copied(lab: Lab, index: int) -> list[str]:
    """Names of files and links."""
    to = lab.folder / f"copy{index}"
    lab.restore(index, "--to", to)
    top = to / lab.work.name
    return sorted(str(each.relative_to(top)) for each in top.rglob("*") if each.is_symlink() or not each.is_dir())


# -- a folder that was moved, with a link to it in its place -------------------------------------------------------


def moved_out(lab: Lab) -> Path:
    return lab.folder / "disk"


def moved_within(lab: Lab) -> Path:
    return lab.work / "e"


WAYS = pytest.mark.parametrize("way", [moved_out, moved_within], ids=lambda way: way.__name__)
KNOWN = pytest.mark.parametrize("is_known", [True, False], ids=["made by a run", "there before"])


def with_folder(lab: Lab, way, is_known: bool) -> tuple[Path, Tree, Tree]:  # type: ignore[no-untyped-def]
    """Where the folder is now; how it was at index 1 and is now. is_known: a run has made it, and has a name for it."""
    (lab.folder / "long").write_bytes(b"x" * LONG)
    if not is_known:
        (lab.work / "d/in").mkdir(parents=True)
    lab.run(["sh", "-c", f"{'mkdir -p d/in; ' * is_known}echo short > d/s; cat ../long > d/l; echo 1 > d/in/f"])
    one, there = lab.state(), way(lab)
    (lab.work / "d").rename(there)
    (lab.work / "d").symlink_to(there)
    return there, one, lab.state()


@KNOWN
@WAYS
def test_a_folder_with_a_link_in_its_place(lab: Lab, way, is_known: bool) -> None:  # type: ignore[no-untyped-def]
    there, one, now = with_folder(lab, way, is_known)
    lab.verb("verify")
    assert lab.verb("cat", 1, lab.work / "d/l").stdout == "x" * LONG
    lab.restore(1, code=14)
    lab.assert_state(now, "a refused restore touches nothing")
    lab.restore(1, "--force")
    have = lab.state()
    lab.assert_state(one | {name: entry for name, entry in now.items() if name == "e" or name.startswith("e/")}, "1")
    assert not os.path.samefile(lab.work / "d/l", there / "l") and have["d/l"].content == b"x" * LONG
    lab.verb("verify")
    lab.restore(2)
    lab.assert_state(now, "what somebody had made of it")
    assert copied(lab, 2) == ["d"] and copied(lab, 1) == ["d/in/f", "d/l", "d/s"]
    for index in (0, 1, 2, 1):
        lab.restore(index)
    assert (there / "l").read_bytes() == b"x" * LONG


@KNOWN
@WAYS
def test_a_run_goes_on_there(lab: Lab, way, is_known: bool) -> None:  # type: ignore[no-untyped-def]
    there, one, now = with_folder(lab, way, is_known)
    lab.run(["sh", "-c", "echo more >> d/s; printf y | dd of=d/l conv=notrunc 2>/dev/null"])
    assert (there / "l").read_bytes() == b"y" + b"x" * (LONG - 1) and (there / "s").read_bytes() == b"short\nmore\n"
    after, verified = lab.state(), lab.verb("verify")
    assert "lost" not in verified.stderr
    for index, want in ((2, now), (3, after), (2, now)):
        lab.restore(index)
        lab.assert_state(want, f"index {index}")
    lab.restore(1)
    assert {name: data for name, data in files(lab).items() if name.startswith("d/")} == {
        name: entry.content for name, entry in one.items() if entry.kind == "file"}


# -- somebody's file where a killed run is to be taken back --------------------------------------------------------

KILLED = """
import metamori, mmap, os, signal, subprocess, sys
before = sys.argv[1]
if before == "mapped":
    f = os.open("p", os.O_RDWR)
    m = mmap.mmap(f, 0)
    m[0:4] = b"MMMM"
os.rename("p", "q") if before == "renamed" else os.unlink("p")
os.mkdir("p")
open("p/of the run", "w").close()
with open("other", "r+b", 0) as file:
    file.write(b"written")
metamori.checkpoint()
subprocess.run(["sh", "-c", "echo mine > p/mine"], env={"METAMORI_DISABLE": "1", "PATH": os.environ["PATH"]})
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.in_turn("before")
@pytest.mark.parametrize("before", ["removed", "renamed", "mapped"])
@pytest.mark.parametrize("size", [100, LONG])
@pytest.mark.parametrize("place", ["lab", "elsewhere"])
def test_a_folder_where_a_file_is_to_be(request: pytest.FixtureRequest, place: str, size: int, before: str) -> None:
    """Isolated and killed: it stays, with what is somebody's in it, and the file stays in the store."""
    lab: Lab = request.getfixturevalue(place)
    (lab.folder / "first").write_bytes(b"p" * size)
    assert lab.run(["sh", "-c", "cat ../first > p; cat ../first > other"]).returncode == 0
    done = lab.run([sys.executable, "-c", KILLED, before], "--isolate")
    assert done.returncode == -signal.SIGKILL and b"Traceback" not in done.stderr, done.stderr
    log = lab.log()
    assert log["head"] == 1 and not any(each["lost"] for each in log["checkpoints"])
    assert files(lab) == {"p/mine": b"mine\n", "other": b"p" * size}
    lab.verb("verify")
    lab.restore(0, code=14)
    lab.restore(2, code=14)
    (lab.work / "p/mine").rename(lab.folder / "mine")
    lab.restore(1, "--force")
    assert files(lab) == {"p": b"p" * size, "other": b"p" * size}
    lab.restore(2)
    found = files(lab)
    assert found["other"] == b"written" + b"p" * (size - 7) and "p/of the run" in found
    lab.restore(1)
    assert files(lab) == {"p": b"p" * size, "other": b"p" * size}
    lab.verb("verify")


# -- what a run removed, written to by a name that is not tracked ---------------------------------------------------


OF_A_KIND = pytest.mark.parametrize("made", ["cat ../first > d/p", "mkfifo d/p", "ln -s q d/p"],
                                    ids=["file", "fifo", "link"])
MOVED = "rm d/p; mkdir d/p; echo 2 > d/p/f; mv d e"


def before_it_moved(lab: Lab, made: str) -> Tree:
    (lab.folder / "first").write_bytes(b"p" * LONG)
    lab.run(["sh", "-c", f"mkdir d; echo 1 > d/f; {made}"])
    return lab.state()


@OF_A_KIND
def test_a_folder_that_a_move_takes_along_to_where_something_else_is_to_be(lab: Lab, made: str) -> None:
    """Something of somebody's is in it, so that it cannot go: nothing is touched."""
    one = before_it_moved(lab, made)
    lab.run(["sh", "-c", MOVED])
    (lab.work / "e/p/mine").write_text("mine")
    now = lab.state()
    for words in [], ["--force"]:
        lab.restore(1, *words, code=14)
        lab.assert_state(now, "a refused restore touches nothing")
    lab.verb("verify")
    (lab.work / "e/p/mine").unlink()
    lab.restore(1)
    lab.assert_state(one, "and when it is gone")


@OF_A_KIND
def test_the_same_in_an_isolated_run_that_is_killed(lab: Lab, made: str) -> None:
    """It stays, where it was taken along to, with what is somebody's."""
    one = before_it_moved(lab, made)
    script = f"{MOVED}; {sys.executable} -m metamori checkpoint; METAMORI_DISABLE=1 sh -c 'echo mine > e/p/mine'"
    lab.run(["sh", "-c", f"{script}; kill -9 $PPID $$"], "--isolate")
    assert lab.log()["head"] == 1
    found = lab.state()
    assert files(lab) == {"d/f": b"1\n", "d/p/mine": b"mine\n"} and "e" not in found
    lab.verb("verify")
    (lab.work / "d/p/mine").unlink()
    (lab.work / "d/p").rmdir()
    lab.restore(1, "--force")
    lab.assert_state(one, "and when it is gone")


@pytest.mark.parametrize("forced", [False, True])
def test_a_removed_file_that_is_written_to_by_its_other_name(lab: Lab, forced: bool) -> None:
    """All of it is in the store besides: it comes back, and what somebody wrote stays in his file."""
    del lab.env["METAMORI_TRACK"]
    outer = lab.folder / "outer"
    lab.run(["sh", "-c", "echo first > f; ln f ../outer"])
    lab.run(["rm", "f"])
    outer.write_bytes(b"somebody else's")
    assert not any(each["lost"] for each in lab.log()["checkpoints"])
    lab.restore(1, *["--force"] * forced)
    assert files(lab) == {"f": b"first\n"} and outer.read_bytes() == b"somebody else's"
    for index in (2, 1, 0, 1):
        lab.restore(index)
        assert files(lab) == ({"f": b"first\n"} if index == 1 else {}), index
    assert outer.read_bytes() == b"somebody else's"
    lab.verb("verify")


# -- a copy of an index, and files that a run came to only later ----------------------------------------------------


def test_a_copy_has_no_content_of_another_time(lab: Lab) -> None:
    (lab.work / "old").write_text("old\n")
    (lab.work / "both").write_text("then\n")
    lab.run(["sh", "-c", "echo 1 > f"])
    (lab.work / "both").write_text("later\n")
    (lab.work / "new").write_text("new\n")
    lab.run(["sh", "-c", "echo more >> old; echo more >> both; echo more >> new"])
    done = lab.restore(1, "--to", lab.folder / "copy")
    top = lab.folder / "copy" / lab.work.name
    assert {each.name: each.read_text() for each in top.iterdir()} == {"f": "1\n", "old": "old\n"}
    assert "not copied" in done.stderr and "both" in done.stderr and "new" in done.stderr and "old" not in done.stderr
    assert copied(lab, 2) == ["both", "f", "new", "old"]
    lab.restore(1)
    assert {name: data for name, data in files(lab).items()} == {
        "f": b"1\n", "old": b"old\n", "both": b"later\n", "new": b"new\n"}


# -- a file that left the scope, and that a restore has made anew in it ----------------------------------------------

TAKEN_BACK = """
import metamori, os, signal
os.unlink("x")
metamori.checkpoint()
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_what_had_been_it_is_another_file(lab: Lab, killed: bool) -> None:
    """Its old inode is out there, where somebody goes on with it; later a run's scope is there too."""
    del lab.env["METAMORI_TRACK"]
    out = lab.folder / "out"
    out.mkdir()
    (lab.work / "x").write_bytes(b"x" * LONG)
    assert lab.run(["mv", "x", "../out/x"]).returncode == 0
    lab.restore(0)
    with (out / "x").open("ab") as file:
        file.write(b"more")
    if killed:
        lab.run([sys.executable, "-c", TAKEN_BACK], "--isolate", cwd=out)
        lab.log()
        assert (out / "x").read_bytes() == b"x" * LONG + b"more"
    else:
        lab.run(["rm", "x"], cwd=out)
        lab.restore(0)
    assert (out / "x").read_bytes() == b"x" * LONG + b"more" and (lab.work / "x").read_bytes() == b"x" * LONG
    lab.verb("verify")


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_what_left_the_runs_by_its_last_known_name_comes_along_with_its_folder(lab: Lab, options: list[str]) -> None:
    """It counts as another file from then on, also where it stood before."""
    first = b"x" * LONG                    # of a short file there would be copies
    (lab.folder / "first").write_bytes(first)
    lab.run(["sh", "-c", "mkdir d; cat ../first > d/known"])
    (lab.work / "d/of mine").hardlink_to(lab.work / "d/known")
    (lab.work / "d/known").unlink()
    before = files(lab)
    lab.run(["mv", "d", "moved"], *options)
    assert files(lab) == {"moved/of mine": first}
    for index in (2, 3, 2):
        lab.restore(index)
        assert files(lab) == ({"moved/of mine": first} if index == 3 else before)
    lab.restore(3)
    lab.run(["rm", "-r", "moved"], *options)
    lab.restore(3)
    assert files(lab) == {"moved/of mine": first} and not lab.log()["checkpoints"][3]["lost"]
    assert [each["index"] for each in lab.log()["checkpoints"] if each["lost"]] == [1]


def test_a_file_in_place_of_a_folder_that_no_run_made(lab: Lab) -> None:
    (lab.work / "d/in").mkdir(parents=True)
    lab.run(["sh", "-c", "echo 1 > d/in/f; echo 2 > d/g"])
    (lab.work / "d").rename(lab.folder / "away")
    (lab.work / "d").write_bytes(b"mine")
    lab.restore(1, "--force")
    assert files(lab) == {"d/in/f": b"1\n", "d/g": b"2\n"}
    lab.restore(2)
    assert files(lab) == {"d": b"mine"}
    lab.restore(1)
    assert files(lab) == {"d/in/f": b"1\n", "d/g": b"2\n"}
    lab.verb("verify")


def test_a_folder_that_comes_back_has_its_attributes(lab: Lab) -> None:
    (lab.work / "d/in").mkdir(parents=True)
    for name in ("d", "d/in"):
        os.setxattr(lab.work / name, "user.of", name.encode())
    lab.run(["sh", "-c", "echo 1 > d/in/f"])
    (lab.work / "d").rename(lab.folder / "away")
    (lab.work / "d").symlink_to(lab.folder / "away")
    lab.restore(1, "--force")
    assert not (lab.work / "d").is_symlink()
    assert [os.getxattr(lab.work / name, "user.of") for name in ("d", "d/in")] == [b"d", b"d/in"]


def test_two_names_of_a_socket_stay_whatever_they_are_to_be(lab: Lab) -> None:
    """A socket cannot be made anew: it stays the one that its server listens at."""
    server = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(lab.work):
        server.bind("one")
    with server:
        server.listen()
        lab.run(["chmod", "700", "one"])
        (lab.work / "two").hardlink_to(lab.work / "one")
        lab.run(["chmod", "750", "two"])
        lab.restore(0)
        numbers = {(lab.work / name).lstat().st_ino for name in ("one", "two")}
        assert len(numbers) == 1
        with contextlib.chdir(lab.work), socket.socket(socket.AF_UNIX) as client:
            client.connect("one")
