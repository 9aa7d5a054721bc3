"""Real programs (`scripts/`) natively and under Metamori: equal output, exit status and files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from lab import Lab, Tree, difference

SCRIPTS = Path(__file__).resolve().parent / "scripts"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
PYTHONS = ["/usr/bin/python3", *(str(PYENV / v / "bin/python3") for v in ("3.12.1", "3.13.0", "3.8.18"))]
MODES = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
ENVIRONMENT = {
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "", "LC_ALL": "C.UTF-8",
}  # fmt: skip


def need(script: Path) -> None:
    """Skips with a message when a tool that the script's first line names is not there."""
    for tool in script.read_text().splitlines()[0].partition(";")[0].split()[2:]:
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")


def without_index(tree: Tree) -> Tree:
    """git's index holds inode numbers and times."""
    return {path: entry for path, entry in tree.items() if path != ".git/index"}


def same(lab: Lab, native: Lab, command: list[str], options: list[str]) -> None:
    """Both laboratories must end equal, and Metamori's be restorable to nothing and back."""
    before = lab.state()
    wanted = native.run(command, native=True, env=ENVIRONMENT)
    done = lab.run(command, *options, env=ENVIRONMENT | {"PYTHONPATH": lab.env["PYTHONPATH"]})
    assert done.stderr.decode() == wanted.stderr.decode()
    assert (done.returncode, done.stdout) == (wanted.returncode, wanted.stdout)
    wrong = difference(without_index(lab.state()), without_index(native.state()))
    assert not wrong, wrong
    end = lab.state()
    lab.restore(0)
    lab.assert_state(before, "after restore 0")
    lab.restore(max(lab.messages()))
    lab.assert_state(end, "after going to the end again")


@pytest.mark.in_turn("script")
@MODES
@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda path: path.stem)
def test_script(lab: Lab, native_lab: Lab, script: Path, options: list[str]) -> None:
    need(script)
    shell = "bash" if script.stem == "redirections" and options else "sh"
    same(lab, native_lab, [shell, str(script)], options)


@pytest.mark.in_turn("python")
@MODES
@pytest.mark.parametrize("python", PYTHONS)
def test_python(lab: Lab, native_lab: Lab, python: str, options: list[str]) -> None:
    if not os.access(python, os.X_OK):
        pytest.skip(f"{python} is not installed")
    same(lab, native_lab, ["env", "-u", "PYTHONPATH", python, str(SCRIPTS / "job.py")], options)


@pytest.mark.parametrize("script", sorted(SCRIPTS.iterdir()), ids=lambda path: path.name)
def test_script_itself_natively(native_lab: Lab, script: Path) -> None:
    """The script does its work, and leaves the same files every time."""
    trees, outputs = [], []
    for _ in range(2):
        shutil.rmtree(native_lab.work)
        native_lab.work.mkdir()
        if script.suffix == ".sh":
            need(script)
        shell = ["/usr/bin/python3"] if script.suffix == ".py" else ["sh"]
        done = native_lab.run([*shell, str(script)], native=True, env=ENVIRONMENT)
        assert done.returncode == (6 if script.stem == "redirections" else 0), done.stderr
        trees.append(without_index(native_lab.state()))
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert not difference(*trees)
