"""What bash, zsh and fish complete: verbs, options and their values, indexes of the store that the line is about, names
as they are. Nothing that a store or a folder holds is executed by a key."""
from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARE = ROOT / "metamori" / "share"
Holds = Callable[[set[str], set[str]], bool]
pytestmark = pytest.mark.usefixtures("installed")


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **variables}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True,
                          timeout=120, check=False)


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints 0 to 11, a file named `data file`, and names that nobody would give a checkpoint."""
    folder = tmp_path_factory.mktemp("history")
    metamori = f"{sys.executable} -m metamori"
    script = f"for n in 1 2 3 4 5 6 7 8 9 10; do echo $n > 'data file'; {metamori} checkpoint; done"
    done = run(*metamori.split(), "run", "--", "sh", "-c", script, cwd=folder, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    for name in ("$(touch executed)", "`touch executed`", "12;touch executed", "x\n13", "*", "\x1b]0;title\x07"):
        (folder / ".metamori" / "checkpoints" / f"{name}.meta.1").touch()
    return folder


INDEXES = {str(number) for number in range(12)} | {"last"}
# the line up to the key, and what is offered: some of it, or exactly that
SOME, EXACTLY = set.issubset, set.__eq__
COMPLETED = [
    ("metamori re", EXACTLY, {"restore", "redo", "restart", "report"}),
    ("metamori run --re", EXACTLY, {"--resume", "--requeue", "--resume-at"}),
    ("metamori run --mode ", EXACTLY, {"incremental", "single"}),
    ("metamori run --on-signal US", EXACTLY, {"USR1", "USR2"}),
    ("metamori restore ", EXACTLY, INDEXES),
    ("metamori restore 1", EXACTLY, {"1", "10", "11"}),
    ("metamori restore --force ", EXACTLY, INDEXES),
    ("metamori restore --store .metamori ", EXACTLY, INDEXES),
    ("metamori restore --store elsewhere ", EXACTLY, set()),
    ("metamori diff 1 ", EXACTLY, INDEXES),
    ("metamori restart ", EXACTLY, INDEXES),
    ("metamori log -n ", EXACTLY, set()),
    ("metamori report ti", EXACTLY, {"timeline"}),
    ("metamori run -- truncat", SOME, {"truncate"}),
]


@pytest.mark.parametrize(("line", "holds", "offered"), COMPLETED)
def test_bash_completes(history: Path, line: str, holds: Holds, offered: set[str]) -> None:
    words, script = line.split(" "), SHARE / "bash-completion" / "completions" / "metamori"
    quoted = " ".join(f"'{word}'" for word in words)
    done = run("bash", "-c", f". {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _metamori; "
               "printf '%s\n' \"${COMPREPLY[@]}\"", cwd=history)
    assert not done.stderr and holds(offered, set(done.stdout.split())), done.stdout


@pytest.mark.parametrize(("line", "holds", "offered"), COMPLETED)
def test_fish_completes(history: Path, line: str, holds: Holds, offered: set[str]) -> None:
    need("fish")
    script = SHARE / "fish" / "vendor_completions.d" / "metamori.fish"
    done = run("fish", "-N", "-c", f"source {script}; complete -C '{line}'", cwd=history)
    found = {each.partition("\t")[0] for each in done.stdout.splitlines()}
    assert not done.stderr and holds(offered, found), done.stdout


class Terminal:
    """An interactive shell on a terminal of its own: without a prompt, wide, so that what is read is what is listed."""

    START = {
        "bash": ["--norc", "-i"], "zsh": ["-f", "-i"], "fish": ["-N", "-i"]}
    BEGIN = {
        "bash": f"PS1=; . {SHARE}/bash-completion/completions/metamori",
        "zsh": f"PS1=; unsetopt zle_bracketed_paste prompt_sp; fpath=({SHARE}/zsh/site-functions $fpath); "
               "autoload -Uz compinit; compinit -u -D; setopt auto_list; unsetopt auto_menu; LISTMAX=9999",
        "fish": f"function fish_prompt; end; source {SHARE}/fish/vendor_completions.d/metamori.fish"}

    def __init__(self, shell: str, folder: Path, path: str = "/usr/bin:/bin") -> None:
        self.end, far = pty.openpty()
        settings = {"PATH": path, "HOME": str(folder), "TERM": "dumb", "COLUMNS": "200", "LC_ALL": "C.UTF-8"}
        self.shell = subprocess.Popen([shell, *self.START[shell]], stdin=far, stdout=far, stderr=far, cwd=folder,
                                      env=settings, start_new_session=True,
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(far)
        self.type(self.BEGIN[shell] + "; echo re''ady\n")
        self.until("ready\r")

    def type(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def until(self, pattern: str) -> None:
        read, deadline = "", time.monotonic() + 60
        while not re.search(pattern, read):
            assert time.monotonic() < deadline, (pattern, read)
            if select.select([self.end], [], [], 1)[0]:
                read += os.read(self.end, 4096).decode(errors="replace")

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self.end)


def test_zsh_completes(history: Path) -> None:
    """A key that has one answer puts it there."""
    need("zsh")
    terminal = Terminal("zsh", history)
    try:
        indexes = r"\s+".join([*map(str, range(1, 12)), "0", "last"])
        for line, answer in (("metamori restore ", indexes), ("metamori restor", "restore "),
                             ("metamori run --resum", "--resume"),
                             ("metamori run --mode sin", "single "), ("metamori report ti", "timeline "),
                             ("metamori run -- truncat", "truncate ")):
            terminal.type(f"{line}\t")
            terminal.until(answer)
            terminal.type("\x15")             # the line is gone
    finally:
        terminal.close()


NAMES = ["a b", "b'q\"", "c$(touch executed)", "d`touch executed`", "e\nline", "f\x1b]0;title\x07", "g;touch executed",
         "h*?[x]", "i\\back", "k~", "l!m", "n=v:w", "o&|<>#", "p\u00e9", "1"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_name_is_completed_as_it_is(history: Path, tmp_path: Path, shell: str) -> None:
    """The key after its first letter, and the program is given exactly this name."""
    need(shell)
    work, program = tmp_path / "work", tmp_path / "metamori"
    shutil.copytree(history / ".metamori", work / ".metamori")
    for name in NAMES:
        (work / name).touch()
    (work / "2").mkdir()                   # an index all the same, and no folder
    program.write_text(f"#!/bin/sh\nprintf '%s\\n/' \"$@\" > '{tmp_path}/given'\necho do''ne\n")
    program.chmod(0o755)
    terminal = Terminal(shell, work, f"{tmp_path}:/usr/bin:/bin")
    try:
        for begins, given in [*((["cat", "3", name[0]], ["cat", "3", name]) for name in NAMES),
                              (["run", "--", "sh", "a"], ["run", "--", "sh", "a b"]),
                              (["run", "--mode=si"], ["run", "--mode=single"]),
                              (["restore", "2"], ["restore", "2"]), (["restore", "1"], ["restore", "1"])]:
            terminal.type(" ".join(["metamori", *begins]) + "\t\n")
            terminal.until("done")
            assert (tmp_path / "given").read_text() == "\n/".join(given) + "\n/", begins
    finally:
        terminal.close()
    assert not list(tmp_path.rglob("executed")) and not list(history.rglob("executed"))
