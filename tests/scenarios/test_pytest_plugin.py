"""The plugin for pytest: a suite that spoils its own files passes as if each test were the first."""

from __future__ import annotations

import sys
from pathlib import Path

from lab import Lab

SUITE = '''
import os
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    path = tmp_path_factory.mktemp("shared") / "f"
    path.write_text("from the fixture")
    return path

@pytest.mark.parametrize("time", range(3))
def test_spoils(time, shared, tmp_path):
    data = Path("data")
    assert data.read_text() == "as it was" and not os.path.exists("new")
    assert shared.read_text() == "from the fixture" and not list(tmp_path.iterdir())
    data.write_text("spoiled"); Path("new").mkdir(); shared.write_text("spoiled too")
    (tmp_path / "own").touch(); print("printed by", time)

def test_fails(shared):
    os.remove("data"); print("said before it failed")
    assert not "as it should"

def test_after():
    assert Path("data").read_text() == "as it was"
'''


def suite(lab: Lab) -> Path:
    (lab.work / "data").write_text("as it was")
    (lab.work / "test_suite.py").write_text(SUITE)
    return lab.work / "test_suite.py"


def words(*more: str) -> list[str]:
    """Where pytest's own temporary folders are it removes those of earlier sessions, which the run would keep."""
    begin = [sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", "--basetemp=../own"]
    return [*begin, *more, "test_suite.py"]


def plugin(lab: Lab) -> list[str]:
    """By its entry point, where the package is installed with it."""
    from importlib.metadata import entry_points

    known = any(each.value == "metamori.pytest_plugin" for each in entry_points(group="pytest11"))
    return [] if known else ["-p", "metamori.pytest_plugin"]


def test_each_test_finds_the_files_of_the_first(lab: Lab) -> None:
    suite(lab)
    before = lab.state()
    done = lab.run(words("--metamori", *plugin(lab)))
    said = done.stdout.decode()
    assert done.returncode == 1 and "4 passed" in said and "1 failed" in said, said + done.stderr.decode()
    assert "said before it failed" in said and "not undone" not in said
    lab.assert_state(before, "nothing is left of the tests")
    assert "test_suite.py::test_fails" in lab.messages().values()


def test_without_the_option_or_a_run(lab: Lab) -> None:
    suite(lab)
    done = lab.run(words(*plugin(lab)))
    assert done.returncode == 1 and "1 passed" in done.stdout.decode()
    assert (lab.work / "new").is_dir()
    done = lab.run(words("--metamori", *plugin(lab)), native=True)
    assert done.returncode == 4 and b"metamori run -- python -m pytest --metamori" in done.stderr
