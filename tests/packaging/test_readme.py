"""README.md: what can be typed is typed, what can be compiled is compiled, each cell of the table names what is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typed
from lab import wait_until
from typed import ROOT

PAGE = (ROOT / "README.md").read_text()
pytestmark = pytest.mark.usefixtures("installed")


def block(begins: str, kind: str = "") -> str:
    """The fenced block whose first line begins so."""
    found = re.search(rf"^```{kind}\n({re.escape(begins)}.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, begins
    return found[1]


def bash(script: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], cwd=folder, env=typed.environment(**more), capture_output=True,
                          text=True, timeout=240, check=False)


def test_the_first_screen_says_how_to_try_it() -> None:
    first = PAGE.splitlines()[:40]
    assert {"make demo", "make test", "pip install"} <= {" ".join(line.split()[:2]) for line in first if line}


def test_the_first_commands_say_what_the_page_shows(tmp_path: Path) -> None:
    typed.compare(typed.typed(typed.steps(PAGE), tmp_path))


@pytest.mark.slow
def test_the_lines_for_an_empty_debian(tmp_path: Path) -> None:
    """Every package has the name that is said, and the rest is typed in a fresh clone with a HOME of its own."""
    install, rest = block("apt update").split("\n", 1)
    if shutil.which("apt-get"):
        names = install.split("--no-install-recommends")[1].split()
        done = bash(f"apt-get install --simulate --no-install-recommends {' '.join(names)}", tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "metamori")], check=True)
    (tmp_path / "home").mkdir()
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    script = (f"set -e\n{rest}mkdir ~/job; cd ~/job\n"
              "metamori run -- sh -c 'echo one > f; metamori checkpoint; echo two > f'; metamori restore 1; cat f")
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path / "home"), **pip}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path / "metamori", env=env, capture_output=True, text=True,
                          timeout=900, check=False)
    assert done.returncode == 0 and done.stdout.endswith("\none\n"), (done.stdout + done.stderr)[-3000:]


def test_the_four_commands(tmp_path: Path) -> None:
    """The second one from another terminal, while the first is alive."""
    first, checkpoint, restore, resume = (line.split("  #")[0].split("     #")[0].strip().replace(" …", "")
                                          for line in block("metamori run -- ./simulate").splitlines())
    (tmp_path / "simulate").write_text("#!/bin/sh\necho begun >> out\nn=0\n"
                                       "until [ -e go ] || [ $((n += 1)) -gt 3000 ]; do sleep 0.02; done\n"
                                       "echo ended >> out\n")
    (tmp_path / "simulate").chmod(0o755)
    run = subprocess.Popen(["bash", "-c", first], cwd=tmp_path, env=typed.environment())
    out = tmp_path / "out"                 # it is there before there is a line in it
    wait_until(lambda: out.exists() and out.read_text() == "begun\n", "it has begun")
    done = bash(checkpoint, tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    (tmp_path / "go").touch()
    assert run.wait(100) == 0
    assert (tmp_path / "out").read_text() == "begun\nended\n"
    assert bash(restore, tmp_path).returncode == 0
    assert (tmp_path / "out").read_text() == "begun\n"
    done = bash(resume, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "begun\nbegun\nended\n", "the run that was restored ended by itself"


def test_the_c_lines(tmp_path: Path) -> None:
    lines = block("#include <metamori.h>", "c")
    include, body = lines.split("\n", 1)
    (tmp_path / "p.c").write_text(f"""{include}
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #define FAILED 1
        static void put(const char *text) {{ FILE *f = fopen("f", "w"); fputs(text, f); fclose(f); }}
        static int tried(void) {{ put("wrong"); return FAILED; }}
        int main(void) {{ char now[8] = ""; put("right");
        {body}
        FILE *f = fopen("f", "r"); return fscanf(f, "%7s", now) != 1 || strcmp(now, "right"); }}
    """)
    done = bash("cc -Wall -Werror $(metamori config --cflags) p.c -o p && metamori run -- ./p", tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_python_lines(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import metamori\ndef solve(step): open('f', 'w').write('wrong')\ndef converged(): return False\n"
        "open('f', 'w').write('right')\n" + block("with metamori.trial", "python") +
        "assert open('f').read() == 'right'\n")
    done = bash(f"metamori run -- {sys.executable} p.py", tmp_path)
    assert done.returncode == 0, done.stderr


def test_each_cell_names_tests_and_pages_that_are_there() -> None:
    rows = re.findall(r"^\| ([\w ]+\?) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    asked = ["threads?", "trees of processes?", "MPI?", "GPU?", "root?", "overhead?", "Slurm?", "not rolled back?"]
    assert [row[0] for row in rows] == asked
    makefile = (ROOT / "Makefile").read_text()
    for question, _, where in rows:
        named = re.findall(r"`([^`]+)`|\]\(([^)]+)\)", where)
        assert named, question
        for quoted, linked in named:
            name = quoted or linked
            if name.startswith("make "):
                assert re.search(rf"^{name.split()[1]}:", makefile, re.MULTILINE), name
            else:
                assert (ROOT / name).exists(), (question, name)


def test_what_it_costs_is_of_the_page_of_figures() -> None:
    rows = [line for line in PAGE.split("## What it costs")[1].split("\n## ")[0].splitlines() if line[:1] == "|"]
    assert len(rows) > 5 and set(rows) <= set((ROOT / "docs/figures.md").read_text().splitlines())
