"""What the start of a run, and of a program in it, may cost: modules and instructions, whatever else runs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from lab import Lab

# of these a run of a program that writes a file needs none
LATE = {"argparse", "enum", "gettext", "locale", "re", "shutil", "signal", "typing",
        "subprocess", "platform", "importlib", "dataclasses", "inspect", "difflib", "json", "datetime", "threading",
        "ctypes", "base64", "sortedcontainers", "metamori.store.prune.prune", "metamori.store.prune.merge",
        "metamori.cli.resume", "metamori.cli.opening", "metamori.cli.output",
        "metamori.runtime.lifecycle.process_restart", "metamori.runtime.lifecycle.recover",
        "metamori.runtime.lifecycle.slurm", "metamori.runtime.rollback.rollback",
        "metamori.runtime.recovery.crash_recovery", "metamori.runtime.memory.file_locks", "metamori.store.read.compare",
        "metamori.levels", "numpy", "mpi4py"}
MOST_MODULES = 90                          # of the package: 73 files and 16 folders when this was written
MOST_INSTRUCTIONS_OF_A_RUN = 80_000_000    # more than a bare Python's 30 million
MOST_INSTRUCTIONS = 430_000                # more than natively: 424,000 with glibc 2.36, whose loader is most of it
COMMAND = (str(Path(sys.executable).with_name("metamori")),)


def imported(lab: Lab, *words: str) -> list[str]:
    """By the command, beyond what the interpreter's own start brings along."""
    before = set(_imported(lab, "-c", "pass"))
    return [name for name in _imported(lab, *COMMAND, *words) if name not in before]


def _imported(lab: Lab, *words: str) -> list[str]:
    done = lab.run([sys.executable, "-X", "importtime", *words], native=True)
    assert done.returncode == 0, done.stderr.decode()
    return re.findall(r"^import time: .*\| +(\S+)$", done.stderr.decode(), re.MULTILINE)


def test_a_run_imports_what_it_needs(native_lab: Lab) -> None:
    words = ("run", "--store", str(native_lab.store), "--", "sh", "-c", "echo a > file")
    names = set(imported(native_lab, *words))
    assert "metamori.store.format.records" in names and not names & LATE
    assert len([name for name in names if name.startswith("metamori")]) <= MOST_MODULES


counting = pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not there: nothing counts instructions")


def test_help_imports_no_store(native_lab: Lab) -> None:
    names = imported(native_lab, "--help")
    assert names and not [name for name in names if name.startswith(("metamori.store", "metamori.tables"))]


def instructions(one: Lab, *command: str, native: bool) -> int:
    out = one.folder / "callgrind.out"
    done = one.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q", *command], native=native)
    assert done.returncode == 0, done.stderr.decode()
    found = re.search(r"^totals: (\d+)$", out.read_text(), re.MULTILINE)
    assert found
    return int(found[1])


@counting
def test_a_run_that_changes_nothing(native_lab: Lab) -> None:
    """Its start and its end, without the kernel's part."""
    run = (sys.executable, *COMMAND, "run", "--store", str(native_lab.store), "--", "/bin/true")
    assert native_lab.run([*run], native=True).returncode == 0   # what is not compiled yet is now
    bare = instructions(native_lab, sys.executable, "-c", "pass", native=True)
    shutil.rmtree(native_lab.store)
    assert instructions(native_lab, *run, native=True) - bare <= MOST_INSTRUCTIONS_OF_A_RUN


@counting
def test_what_a_start_adds(lab: Lab, native_lab: Lab) -> None:
    command = "/bin/true"
    native, ours = instructions(native_lab, command, native=True), instructions(lab, command, native=False)
    assert ours > native + 50_000, "the preload library was not there"
    assert ours - native <= MOST_INSTRUCTIONS
