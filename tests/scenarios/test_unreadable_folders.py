"""Folders that their own owner may not list, change or enter, an ordinary user: every index comes back with them, also
after a kill while one of them is opened up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, picture

NOBODY = 65534
AS_NOBODY = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--"]

STEPS = """
import os, sys
import metamori

os.umask(0o022)

def put(path, text):
    with open(path, "w") as file:
        file.write(text)

def modes(**all):
    for name, mode in all.items():
        os.chmod(name.replace("_", "/"), mode)

def first():
    global fd
    os.mkdir("bare", 0o234)
    for name in ("a", "a/in", "to", "went"):
        os.mkdir(name)
    put("a/old", "hello" * 2000); put("a/in/deep", "deep"); put("went/with", "it"); put("plain", "p")
    os.symlink("old", "a/link")
    fd = os.open("a/in/deep", os.O_RDWR)
    modes(a_in=0, a=0o234, went=0o300)

def second():
    modes(a=0o700, a_in=0o700)
    put("a/old", "other" * 3000); put("a/new", "new"); os.unlink("a/link"); os.rename("a/in", "to/in")
    os.rename("went", "to/went")
    modes(to_in=0o555, a=0)
    os.pwrite(fd, b"later", 1)

def third():
    modes(a=0o700); put("a/new", "newer"); os.unlink("a/old"); os.chmod("a", 0); os.rmdir("bare")

steps = [first, second, third]
native = "native" in sys.argv
for number, step in enumerate(steps[:int(sys.argv[1])], 1):
    step()
    native or metamori.checkpoint() == number or sys.exit("another number")
if "back" in sys.argv and not os.path.exists("bare"):
    metamori.restore(1)
if "dies" in sys.argv:
    os.kill(os.getpid(), 9)
"""

# a restore whose process dies at the Nth change of a mode, right before it or right after it
DYING = """
import os, sys
from metamori.cli.main import main
left, after, real = int(sys.argv[1]), sys.argv[2] == "after", os.chmod
def dying(*values, **named):
    global left
    left -= 1
    if left == 0 and not after:
        os._exit(77)
    real(*values, **named)
    if left == 0:
        os._exit(77)
os.chmod = dying
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture
def folder(installed: None) -> Iterator[Path]:
    """Where nobody may go: pytest's own folders are private."""
    if os.geteuid() != 0:
        pytest.skip("it becomes another user")
    with tempfile.TemporaryDirectory(prefix="shut-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def laboratory(folder: Path, name: str) -> Lab:
    (folder / name).mkdir()
    lab = Lab(folder / name, Path(sys.executable))
    for path in (lab.folder, lab.work):
        os.chown(path, NOBODY, NOBODY)
    return lab


def act(lab: Lab, *words: object, code: int = 0) -> str:
    """Of nobody, in the working folder; what it prints."""
    done = subprocess.run([*AS_NOBODY, *map(str, words)], cwd=lab.work, env=lab.env | {"HOME": "/tmp"},
                          capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == code, done.stderr
    return done.stdout


def seen(lab: Lab) -> dict[str, tuple[object, ...]]:
    return {name: (each.kind, each.mode, each.content) for name, each in picture(lab.work).items()}


def as_natively(folder: Path, last: int = 3) -> list[dict[str, tuple[object, ...]]]:
    states = []
    for until in range(last + 1):
        lab = laboratory(folder, f"native-{until}")
        act(lab, sys.executable, "-c", STEPS, until, "native")
        states.append(seen(lab))
    return states


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_every_index_comes_back(folder: Path, options: list[str]) -> None:
    want = as_natively(folder)
    lab = laboratory(folder, "followed")
    act(lab, *lab.argv("run", *options), "--", sys.executable, "-c", STEPS, 3)
    assert seen(lab) == want[3]
    for index in (0, 3, 1, 2, 0, 1, 3, 2):
        act(lab, *lab.argv("restore", index))
        assert seen(lab) == want[index], index
    act(lab, *lab.argv("verify"))
    act(lab, *lab.argv("prune", "--keep-last", 1))
    assert seen(lab) == want[2]


@pytest.mark.parametrize("options", [["--mode=single"], ["--every=0.01s"]], ids=["single", "often"])
def test_the_end_of_a_run(folder: Path, options: list[str]) -> None:
    want = as_natively(folder)
    lab = laboratory(folder, "followed")
    act(lab, *lab.argv("run", *options), "--", sys.executable, "-c", STEPS, 3, "native")
    assert seen(lab) == want[3]
    act(lab, *lab.argv("verify"))


def test_the_program_dies(folder: Path) -> None:
    want = as_natively(folder)
    lab = laboratory(folder, "followed")
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", STEPS, 3, "native", "dies", code=137)
    for index, there in ((1, 3), (0, 0), (1, 3)):
        act(lab, *lab.argv("restore", index))
        assert seen(lab) == want[there], index


def test_the_program_goes_back(folder: Path) -> None:
    want = as_natively(folder)
    lab = laboratory(folder, "followed")
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", STEPS, 3, "back")
    assert seen(lab) == want[1]
    for index in (3, 0, 1):
        act(lab, *lab.argv("restore", index))
        assert seen(lab) == want[index], index


def test_killed_while_a_folder_is_opened_up(folder: Path) -> None:
    want = as_natively(folder)
    lab = laboratory(folder, "followed")
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", STEPS, 3)
    deaths = 0
    for first, here, there in ((1, 3, 2), (6, 2, 0), (12, 0, 3)):
        for nth in range(first, 1000, 17):
            act(lab, *lab.argv("restore", here))
            words = [str(nth), "before" if nth % 2 else "after", *lab.argv("restore", there)[3:]]
            done = subprocess.run([*AS_NOBODY, sys.executable, "-c", DYING, *words], cwd=lab.work, env=lab.env,
                                  capture_output=True, text=True, check=False, timeout=240)
            if f"* {there} " in act(lab, *lab.argv("log")):    # it completes what was begun
                assert seen(lab) == want[there], (here, there, nth)
            act(lab, *lab.argv("restore", there))
            assert seen(lab) == want[there], (here, there, nth)
            if done.returncode == 0:
                break
            assert done.returncode == 77, done.stderr
            deaths += 1
    assert deaths > 5
