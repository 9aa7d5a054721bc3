"""A run area that is not this store's last run's: named, and nothing of it is trusted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab

LINES = ["open f0 rw,creat", "write 3 60000 1", "checkpoint", "pwrite 3 9000 20000 2", "rename f0 f1"]


def killed(folder: Path, driver: Path) -> Lab:
    folder.mkdir()
    lab = Lab(folder, driver)
    session = lab.start()
    session.must(LINES)
    session.kill_all()
    lab.close()
    return lab


def area_from(lab: Lab, source: Path) -> Path:
    """Put there as a person would who copies folders."""
    area = lab.store / "run"
    subprocess.run(["rm", "-rf", area], check=True)
    subprocess.run(["cp", "-a", source, area], check=True)
    return area


def refused(lab: Lab, words: str) -> None:
    for verb in (["log"], ["restore", "1"], ["run"]):
        command = lab.argv(*verb) if verb != ["run"] else [*lab.argv("run"), "--", "true"]
        done = subprocess.run(command, cwd=lab.work, env=lab.env, capture_output=True, text=True, check=False)
        assert done.returncode == (125 if verb == ["run"] else 12), done
        assert f"{lab.store}/run is " in done.stderr and words in done.stderr, done
        assert "; move it away first, it is not used" in done.stderr


def test_of_another_store(tmp_path: Path, compiled: Compile, installed: None) -> None:
    """Its files are there, and are what it says they are: they would have been written to."""
    mine, other = (killed(tmp_path / name, compiled("driver")) for name in ("mine", "other"))
    mine.verb("log")
    before, theirs = mine.state(), other.state()
    area_from(mine, other.store / "run")
    refused(mine, "of another store")
    assert (mine.state(), other.state()) == (before, theirs)
    subprocess.run(["rm", "-rf", mine.store / "run"], check=True)
    mine.restore(1)
    mine.verb("verify")
    other.restore(1)


def test_of_an_earlier_time(tmp_path: Path, compiled: Compile, installed: None) -> None:
    """The run was completed, its area was put back: what it redirected would have been written back once more."""
    lab = killed(tmp_path / "lab", compiled("driver"))
    subprocess.run(["cp", "-a", lab.store / "run", tmp_path / "saved"], check=True)
    lab.verb("log")
    assert lab.run([lab.driver], stdin="open f1 rw\npwrite 3 100 20000 9\n").returncode == 0
    before = lab.state()
    area_from(lab, tmp_path / "saved")
    refused(lab, "of an earlier time")
    assert lab.state() == before


@pytest.mark.skipif(os.getuid() != 0, reason="giving a file to another user needs root")
def test_of_another_user(tmp_path: Path, compiled: Compile, installed: None) -> None:
    lab = killed(tmp_path / "lab", compiled("driver"))
    before = lab.state()
    os.chown(lab.store / "run" / "header", 12345, 12345)
    done = lab.verb("log", code=1)
    assert "run" in done.stderr and "Operation not permitted" in done.stderr, done
    assert lab.state() == before
    os.chown(lab.store / "run" / "header", 0, 0)
    assert "its state is checkpoint" in lab.verb("log").stderr
