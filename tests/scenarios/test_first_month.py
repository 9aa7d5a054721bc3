"""What people stumble over in the first month: git beside a run, folders that are read-only, disks that are full."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lab import PATIENCE, Lab

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
SETUP = "git init -q . && git config user.email a@b.c && git config user.name n && git config core.fsmonitor false"
AGAIN = "touch -d '2001-01-01' a; git status --short"   # another time: git notes it in its index


@needs_git
@pytest.mark.parametrize("live", [False, True], ids=["over", "live"])
def test_git_status_is_in_nobodys_way(lab: Lab, live: bool) -> None:
    """It writes .git/index anew. That is saved, and a restore goes on; any other change is refused as ever."""
    def git(words: str) -> str:
        return subprocess.run(["sh", "-c", words], cwd=lab.work, env=lab.env, capture_output=True, text=True,
                              check=True).stdout

    git(f"{SETUP}; echo a > a; echo b > b; git add . && git commit -qm one")
    lab.run(["sh", "-c", "echo 2 > b; git add b; git commit -qm two; echo 3 > b"])
    index = (lab.work / ".git" / "index").stat().st_ino
    git(AGAIN)
    assert (lab.work / ".git" / "index").stat().st_ino != index, "the test needs a git that writes its index"
    if live:
        session = lab.start()
        session.must(["open own rw,creat", "write 3 100 1", "close 3"])
        assert "saved" not in lab.verb("restore", 0, cwd=lab.work).stderr
        session.end()
    else:
        assert "saved as a checkpoint first" in lab.verb("restore", 0, "--dry-run", cwd=lab.work).stdout
        said = lab.verb("restore", 0, cwd=lab.work)
        assert said.stderr == "metamori: the modified files were saved as checkpoint 2\n"
    assert git("git log --format=%s") == "one\n" and git("git status --short") == ""
    lab.restore(2)                         # nothing was lost
    assert git("git log --format=%s") == "two\none\n" and git("git status --short") == " M b\n"
    git(AGAIN)
    (lab.work / "b").write_text("somebody's")
    assert "modified outside Metamori: b;" in lab.verb("restore", 0, cwd=lab.work, code=14).stderr


@needs_git
def test_git_status_is_no_step(lab: Lab) -> None:
    """What was undone can be done again after it, and what is refused has made no checkpoint."""
    def git(words: str) -> str:
        return subprocess.run(["sh", "-c", words], cwd=lab.work, env=lab.env, capture_output=True, text=True,
                              check=True).stdout

    git(f"{SETUP}; echo a > a; echo b > b; git add . && git commit -qm one; echo 2 > b; git commit -qam two")
    lab.run(["git", "reset", "-q", "--hard", "HEAD~1"])
    lab.verb("undo", cwd=lab.work)
    assert git("git log --format=%s") == "two\none\n"
    git(AGAIN)
    said = json.loads(lab.verb("redo", "--json", cwd=lab.work).stdout)
    assert (said["index"], said["recorded"]) == (1, 2)
    assert git("git log --format=%s") == "one\n" and (lab.work / "b").read_text() == "b\n"
    index = (lab.work / ".git" / "index").stat().st_ino
    git(AGAIN.replace("2001", "2002"))
    assert (lab.work / ".git" / "index").stat().st_ino != index
    before = lab.log()["checkpoints"]
    assert "nothing to redo" in lab.verb("redo", cwd=lab.work, code=13).stderr
    assert lab.log()["checkpoints"] == before
    lab.restore(0)                         # its own .git/index had come out of the store
    assert git("git log --format=%s") == "two\none\n" and git("git status --short") == ""


@needs_git
def test_git_does_not_see_the_store(tmp_path: Path) -> None:
    """The default one, in the folder itself: it brings a .gitignore that covers everything in it."""
    run = [sys.executable, "-P", "-m", "metamori", "run", "--", "sh", "-c", "echo 1 > a"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    seen = subprocess.run(["sh", "-c", f'{SETUP}; "$@"; git add . && git status --short --ignored', "sh", *run],
                          cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert seen.stdout == "A  a\n!! .metamori/\n" and not seen.stderr
    assert (tmp_path / ".metamori/.gitignore").read_text() == "*\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_no_store_in_a_read_only_folder_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "shut"
    folder.mkdir()
    for each in (tmp_path, *tmp_path.parents[:-1]):
        each.chmod(each.stat().st_mode | 0o755)
    os.chown(folder, 1000, 1000)
    folder.chmod(0o555)
    done = subprocess.run([sys.executable, "-P", "-m", "metamori", "run", "--", "true"], cwd=folder, user=1000,
                          group=1000, extra_groups=[], capture_output=True, text=True, timeout=PATIENCE,
                          env={"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    assert done.returncode == 125
    assert done.stderr == (f"metamori: no store can be made at {folder}/.metamori: Permission denied; "
                           "--store names another place\n")
    assert os.listdir(folder) == [] and folder.stat().st_mode & 0o777 == 0o555
