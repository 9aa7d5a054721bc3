"""run --each-command: a checkpoint before each line of a real bash or zsh; and the example for tools, as it stands."""

from __future__ import annotations

import ast
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import PATIENCE, ROOT, Lab


def at_hand(lab: Lab) -> dict[str, str]:
    """An environment in which `metamori` is a command, and a HOME of its own."""
    folder = lab.folder / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "metamori").write_text(f"#!/bin/sh\nexec {sys.executable} -P -m metamori \"$@\"\n")
    (folder / "metamori").chmod(0o755)
    (lab.folder / "home").mkdir(exist_ok=True)
    return lab.env | {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(lab.folder / "home"), "TERM": "dumb"}


class Terminal:
    """An interactive shell under `metamori run`, on a terminal."""

    def __init__(self, lab: Lab, env: dict[str, str], shell: str = "bash") -> None:
        (Path(env["HOME"]) / ".bashrc").write_text("PS1='ready> '\nHISTCONTROL=ignoreboth\nfrom_bashrc=yes\n")
        (Path(env["HOME"]) / ".zshrc").write_text(
            "PS1='ready> '\nunsetopt zle prompt_sp prompt_cr\nsetopt hist_ignore_space\nfrom_zshrc=yes\n")
        self.main, side = pty.openpty()
        self.process = subprocess.Popen([*lab.argv("run", "--each-command"), "--", shell], cwd=lab.work, env=env,
                                        stdin=side, stdout=side, stderr=side, start_new_session=True)
        os.close(side)
        self.until("ready> ")

    def until(self, text: str) -> str:
        said, end = "", time.monotonic() + PATIENCE
        while not said.endswith(text):
            assert time.monotonic() < end, said
            said += os.read(self.main, 4096).decode(errors="replace")
        return said

    def type(self, line: str) -> str:
        os.write(self.main, line.encode() + b"\n")
        return self.until("ready> ")

    def end(self) -> None:
        os.write(self.main, b"exit 0\n")
        try:
            while os.read(self.main, 4096):
                pass
        except OSError:
            pass                           # the terminal's other end is closed
        assert self.process.wait(PATIENCE) == 0
        os.close(self.main)


def test_a_real_bash_on_a_terminal(lab: Lab) -> None:
    terminal = Terminal(lab, at_hand(lab))
    assert "yes" in terminal.type("echo $from_bashrc")
    terminal.type("seq 3 > numbers")
    terminal.type("(rm numbers)")
    terminal.type(" echo hidden > secret")
    assert "at checkpoint" in terminal.type("metamori undo")
    assert "no" in terminal.type("ls secret || echo no")
    terminal.type("metamori undo")
    assert "1\r\n2\r\n3\r\n" in terminal.type("cat numbers")
    terminal.type("metamori redo 2")
    assert "hidden" in terminal.type("cat secret numbers")
    terminal.end()
    assert (lab.work / "secret").read_text() == "hidden\n" and not (lab.work / "numbers").exists()
    said = [message for message in lab.messages().values() if message != "before going back"]
    assert said == ["before the first run", "echo $from_bashrc", "seq 3 > numbers", "(rm numbers)",
                    "a line that is not in the history", "ls secret || echo no", "cat numbers", "cat secret numbers",
                    "exit 0", "end of run"]


needs_zsh = pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")


@needs_zsh
def test_a_real_zsh_on_a_terminal(lab: Lab) -> None:
    terminal = Terminal(lab, at_hand(lab), "zsh")
    assert "yes" in terminal.type("echo $from_zshrc $ZDOTDIR")
    terminal.type("seq 3 > numbers")
    terminal.type("(rm numbers)")
    terminal.type(" echo hidden > secret")
    assert "at checkpoint" in terminal.type("metamori undo")
    terminal.type("metamori undo")
    assert "1\r\n2\r\n3\r\n" in terminal.type("cat numbers")
    terminal.type("metamori redo 2")
    assert "hidden" in terminal.type("cat secret")
    terminal.end()
    said = [message for message in lab.messages().values() if message != "before going back"]
    assert said[1:4] == ["echo $from_zshrc $ZDOTDIR", "seq 3 > numbers", "(rm numbers)"]
    assert "echo hidden > secret" in said[4]


@needs_zsh
@pytest.mark.parametrize("how", ["-c", "stdin"])
def test_a_zsh_that_is_not_interactive(lab: Lab, how: str) -> None:
    text = ("echo 1 > a\nf() { echo 2 > b; }; f\nfalse\necho $? > status\n(echo 3 > c)\nmetamori undo\n"
            "zsh -c 'echo 4 > d'\n")
    done = subprocess.run([*lab.argv("run", "--each-command"), "--", "zsh", *(["-c", text] if how == "-c" else [])],
                          cwd=lab.work, env=at_hand(lab), input=text if how == "stdin" else "", capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(lab.work)) == ["a", "b", "d", "status"]
    assert (lab.work / "status").read_text() == "1\n"
    said = list(lab.messages().values())
    assert said[1] == "echo 1 > a" and said[3:6] == ["f", "false", "echo $? > status"]


@pytest.mark.parametrize("how", ["-c", "stdin", "script"])
def test_a_bash_that_is_not_interactive(lab: Lab, how: str) -> None:
    text = "echo 1 > a\necho 2 > b; bash -c 'echo 3 > c'\nfalse\necho $? > status\nmetamori undo\n"
    (lab.folder / "script").write_text(text)
    words = {"-c": ["-c", text], "stdin": [], "script": [str(lab.folder / "script")]}[how]
    done = subprocess.run([*lab.argv("run", "--each-command"), "--", "bash", *words], cwd=lab.work, env=at_hand(lab),
                          input=text if how == "stdin" else "", capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(lab.work)) == ["a", "b", "c"]
    assert list(lab.messages().values())[1:6] == ["echo 1 > a", "echo 2 > b", "bash -c 'echo 3 > c'", "false",
                                                  "echo $? > status"]
    lab.verb("redo")
    assert (lab.work / "status").read_text() == "1\n"


@pytest.mark.parametrize("words", [["sh"], ["bash", "--norc"], ["zsh", "-f"], ["python3", "-c", "1"]])
def test_what_is_no_bash_is_refused(lab: Lab, words: list[str]) -> None:
    done = lab.run(words, "--each-command")
    assert done.returncode == 125 and b"--each-command" in done.stderr


def test_the_example_for_tools(lab: Lab) -> None:
    page = (ROOT / "docs" / "reference" / "json.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1]
    assert len([line for line in code.splitlines() if line]) <= 10
    code += """
assert attempt("echo kept > f", lambda done: done.returncode == 0) is True
assert attempt("echo bad > f; echo more > g; exit 3", lambda done: done.returncode == 0) > 1
assert open("f").read() == "kept\\n"
"""
    (lab.folder / "agent.py").write_text(code)
    done = subprocess.run([*lab.argv("run"), "--", "python3", str(lab.folder / "agent.py")], cwd=lab.work,
                          env=at_hand(lab), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert os.listdir(lab.work) == ["f"]
    lab.verb("redo")
    assert (lab.work / "g").read_text() == "more\n"


def test_all_files_of_the_shells_are_in_the_package() -> None:
    """Also those whose names begin with a point, which a `*` does not mean."""
    package = ROOT / "metamori"
    patterns = re.findall(r'^metamori = (\[.*\])$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    known = {path for pattern in ast.literal_eval(patterns) for path in package.glob(pattern)
             if "*" not in pattern or not path.name.startswith(".")}
    assert {path for path in (package / "cli" / "shells").rglob("*")
            if path.is_file() and path.suffix != ".pyc"} <= known
