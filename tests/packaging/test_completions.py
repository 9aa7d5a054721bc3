"""What bash, zsh and fish complete: verbs, options and their values, indexes of the store that the line is about."""
from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
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
    """A folder with checkpoints 0 to 11, and a file named `data file`."""
    folder = tmp_path_factory.mktemp("history")
    metamori = f"{sys.executable} -m metamori"
    script = f"for n in 1 2 3 4 5 6 7 8 9 10; do echo $n > 'data file'; {metamori} checkpoint; done"
    done = run(*metamori.split(), "run", "--", "sh", "-c", script, cwd=folder, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
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


def test_bash_takes_a_name_with_a_space_for_one(history: Path) -> None:
    script = SHARE / "bash-completion" / "completions" / "metamori"
    done = run("bash", "-c", f". {script}; COMP_WORDS=(metamori cat 1 da); COMP_CWORD=3; _metamori; "
               "printf '<%s>' \"${COMPREPLY[@]}\"", cwd=history)
    assert done.stdout == "<data file>"


@pytest.mark.parametrize(("line", "holds", "offered"), COMPLETED)
def test_fish_completes(history: Path, line: str, holds: Holds, offered: set[str]) -> None:
    need("fish")
    script = SHARE / "fish" / "vendor_completions.d" / "metamori.fish"
    done = run("fish", "-N", "-c", f"source {script}; complete -C '{line}'", cwd=history)
    found = {each.partition("\t")[0] for each in done.stdout.splitlines()}
    assert not done.stderr and holds(offered, found), done.stdout


def test_zsh_completes(history: Path) -> None:
    """At a terminal of its own; a key that has one answer puts it there."""
    need("zsh")
    terminal, far = pty.openpty()
    # without a prompt and its signs, wide, so that what is read is what is listed
    begin = (f"PS1=; unsetopt zle_bracketed_paste prompt_sp; fpath=({SHARE}/zsh/site-functions $fpath); "
             "autoload -Uz compinit; compinit -u -D; setopt auto_list; unsetopt auto_menu; LISTMAX=9999; "
             "echo re''ady\n")
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(history), "TERM": "dumb", "COLUMNS": "200"}
    shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=far, stdout=far, stderr=far, cwd=history, env=settings,
                             start_new_session=True)
    os.close(far)

    def until(pattern: str) -> None:
        read, deadline = "", time.monotonic() + 60
        while not re.search(pattern, read):
            assert time.monotonic() < deadline, (pattern, read)
            if select.select([terminal], [], [], 1)[0]:
                read += os.read(terminal, 4096).decode(errors="replace")

    try:
        os.write(terminal, begin.encode())
        until("\nready")
        indexes = r"\s+".join([*map(str, range(1, 12)), "0", "last"])
        for line, answer in (("metamori restore ", indexes), ("metamori restor", "restore "),
                             ("metamori run --resum", "--resume"),
                             ("metamori run --mode sin", "single "), ("metamori report ti", "timeline "),
                             ("metamori run -- truncat", "truncate "), ("metamori cat 1 da", r"data\\ file ")):
            os.write(terminal, f"{line}\t".encode())
            until(answer)
            os.write(terminal, b"\x15")       # the line is gone
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)
