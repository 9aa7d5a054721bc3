"""`rm -r .metamori`, or its run area, in a live run: no harm is done, a person is told, nothing is claimed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from lab import Lab, difference, picture, wait_until

BEFORE = ["open a rw", "pwrite 3 9000 5000 1", "open new rw,creat", "pwrite 4 3000 0 2", "checkpoint",
          "pwrite 3 20000 30000 3", "pwrite 4 50 1000 4", "open lone rw", "pwrite 5 6000 100 5", "unlink lone"]
AT_ONCE = ["pwrite 3 100 100 6", "unlink b", "rename c d", "open late rw,creat", "pwrite 6 5000 0 7"]
LATER = ["open e rw", "pwrite 7 5000 1000 8", "rename e f", "pwrite 3 70000 1 9", "ftruncate 3 60000", "unlink d",
         "mkdir g", "close 4", "pread 3 20 5000", "pread 5 20 100"]


def files(folder: Path) -> None:
    for name in ("a", "b", "c", "e", "lone"):
        (folder / name).write_bytes(name.encode() * 60000)


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("what", ["run", "."], ids=["the run area", "all"])
def test_the_store_goes(lab: Lab, what: str, options: list[str]) -> None:
    twin = lab.folder / "twin"
    twin.mkdir()
    files(lab.work)
    files(twin)
    native = lab.start(native=True, cwd=twin)
    for line in (*BEFORE, *AT_ONCE, *LATER):
        native.ask(line)
    session = lab.start(*options)
    session.must(BEFORE)
    shutil.rmtree(lab.store / what)
    removed = time.monotonic()
    session.must(AT_ONCE)
    wait_until(lambda: "was removed" in session.stderr(), "nobody is told")
    assert time.monotonic() - removed < 30  # a second, on a machine that has time
    wait_until(lambda: (lab.work / "new").read_bytes() == (twin / "new").read_bytes(), "it is not written back")
    assert session.ask("checkpoint").startswith("-1")
    answers = session.must(LATER)
    assert answers[-2:] == native.do(LATER[-2:])
    assert session.end() == 125
    assert "all that it wrote is in its files; this run ends with 125" in session.stderr()
    assert native.end() == 0
    wrong = difference(picture(lab.work), picture(twin))
    assert not wrong, wrong
    if what == "run":
        lab.restore(0, code=12)
        lab.restore(1, "--to", lab.folder / "copy", code=12)
        lab.verb("verify", code=12)
        assert "removed while it was alive" in lab.verb("log", code=12).stderr
        assert not difference(picture(lab.work), picture(twin)), "nothing was touched"
        assert lab.verb("restore", 1, "--force", code=None).returncode in (12, 14)    # 14: a new file is in the way
        assert lab.run("true").returncode == 0
        lab.restore(1, code=12)
    else:
        lab.restore(0, code=10)


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_behind_a_redirected_block(lab: Lab, options: list[str]) -> None:
    """By default what the run appends there is in place; zeros were written over it."""
    lines = ["open f rw", "checkpoint", "pwrite 3 10 4990 1", "pwrite 3 300 5000 2"]
    (lab.work / "f").write_bytes(b"o" * 5000)
    shutil.copytree(lab.work, lab.folder / "twin")
    native = lab.start(native=True, cwd=lab.folder / "twin")
    for line in lines:
        native.ask(line)
    assert native.end() == 0
    session = lab.start(*options)
    session.must(lines)
    shutil.rmtree(lab.store)
    wait_until(lambda: "was removed" in session.stderr(), "nobody is told")
    assert session.end() == 125
    assert (lab.work / "f").read_bytes() == (lab.folder / "twin/f").read_bytes()


def test_the_store_goes_before_anybody_watches_it(lab: Lab) -> None:
    """Nobody was told."""
    session = lab.start()
    session.must(["open f w,creat"])
    wait_until(lambda: (lab.store / "run/header").exists(), "it has begun")
    shutil.rmtree(lab.store)
    wait_until(lambda: "was removed" in session.stderr(), "nobody is told")
    assert session.end() == 125


def test_a_killed_run_s_area_is_removed(lab: Lab) -> None:
    """Nobody is there to say it: what the run did since is not known, and no restore claims to have undone it."""
    files(lab.work)
    session = lab.start()
    session.must(BEFORE)
    session.kill_all()
    shutil.rmtree(lab.store / "run")
    lab.restore(0, code=12)
    lab.verb("verify", code=12)
    session = lab.start()
    session.must(["open a rw", "pwrite 3 100 100 1"])
    taken = int(session.ask("checkpoint"))
    tree = session.ask("tree")
    session.must(["pwrite 3 100 100 2"])
    assert session.end() == 0
    lab.restore(1, code=12)
    lab.restore(taken)
    assert lab.start(native=True).ask("tree") == tree
