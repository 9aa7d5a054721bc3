"""Locks of the process are dropped with any descriptor of their file that it closes: Metamori closes none."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from lab import Lab

ASKED = """
import fcntl, os, resource, sys
def locked(paths):
    "How many of them another process finds locked."
    pid, n = os.fork(), 0
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for path in paths:
        with open(path, "r+") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                n += 1
    os._exit(n)
"""
# so many files that some share a place in tables of 1,024
MANY = ASKED + """
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
import metamori
files = [open(f"f{n}", "w+b", buffering=0) for n in range(1100)]
for file in files:
    file.write(bytes(8000))
metamori.checkpoint()
for n in (*range(70), *range(1020, 1100)):
    fcntl.lockf(files[n], fcntl.LOCK_EX)
for n in range(70):
    files[n].close()
late = range(1020, 1100)
for n in late:
    files[n].truncate(100)
print(locked([f"f{n}" for n in late]), locked([f"f{n}" for n in range(70)]))
"""
# a file that the run has not written to yet
BY_NAME = ASKED + """
path = sys.argv[1]
file = open(path, "rb")
fcntl.lockf(file, fcntl.LOCK_SH)
found = []
for length in (5000, 3000):
    os.truncate(path, length)
    found.append(locked([path]))
before = len(os.listdir("/proc/self/fd"))
for _ in range(20):
    os.truncate(path, 2000)
found.append(len(os.listdir("/proc/self/fd")) - before)
file.close()
found.append(locked([path]))
print(*found)
"""
# one that can only be read for now, since it runs
EXECUTED = ASKED + """
import subprocess
tool = os.open("tool", os.O_RDONLY)
fcntl.lockf(tool, fcntl.LOCK_SH)
runs = subprocess.Popen(["./tool", "60"])
os.rename("tool", sys.argv[1])
runs.kill()
runs.wait()
found = [locked([sys.argv[1]])]
os.rename(sys.argv[1], "tool")
os.truncate("tool", 5000)
found.append(locked(["tool"]))
print(*found)
with open("tool", "wb") as file:
    file.write(b"written")
"""
# it is looked into before it is executed, and copied where the store is on another filesystem
STARTED = ASKED + """
file = open("tool", "rb")
fcntl.lockf(file, fcntl.LOCK_SH)
child = os.posix_spawn("./tool", ["tool"], os.environ)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), locked(["tool"]), flush=True)
inner = f"/proc/{os.getpid()}/fd/{file.fileno()}"
os.rename("other", "tool")
print(locked([inner]), flush=True)
own = open("other", "w+b")
fcntl.lockf(own, fcntl.LOCK_EX)
os.set_inheritable(own.fileno(), True)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
WRITTEN = """
import os, subprocess
reads = os.open("tool", os.O_RDONLY)
for flags in (os.O_WRONLY, os.O_RDWR | os.O_APPEND):
    writes = os.open("tool", flags)
    os.pwrite(writes, b"# written", 6000)
    os.close(writes)
    print(subprocess.run(["./tool"]).returncode, os.pread(reads, 9, 6000))
"""
OPTIONS = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=str)


@OPTIONS
def test_two_files_of_one_place(lab: Lab, options: list[str]) -> None:
    """Closing one, once the other was locked without the descriptor of ours that a cut needs."""
    done = lab.run([sys.executable, "-c", MANY], *options, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"80 0\n", b"")


@OPTIONS
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_file_cut_by_its_name(lab: Lab, tmp_path: Path, options: list[str], where: str) -> None:
    """Once it was opened for that, and closed again."""
    path = (lab.work if where == "inside" else tmp_path) / "readers"
    path.write_bytes(bytes(8000))
    done = lab.run([sys.executable, "-c", BY_NAME, path], *options, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1 1 0 0\n", b"")


def test_a_program_that_runs_is_moved_away(lab: Lab, tmp_path: Path) -> None:
    """It is locked as before, and what could only be read then does not stand for it when it is cut later."""
    lab.env.pop("METAMORI_TRACK", None)
    shutil.copy(shutil.which("sleep") or "", lab.work / "tool")
    done = lab.run([sys.executable, "-c", EXECUTED, tmp_path / "moved"])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1 1\n", b"")
    assert (lab.work / "tool").read_bytes() == b"written"


def script(lab: Lab) -> None:
    (lab.work / "tool").write_text("#!/bin/sh\nexit 7\n" + "# padding\n" * 900)
    (lab.work / "tool").chmod(0o755)


@OPTIONS
@pytest.mark.parametrize("store", ["beside", "elsewhere"])
def test_a_program_that_is_locked(lab: Lab, options: list[str], store: str) -> None:
    """Started, replaced, and locked over an exec."""
    script(lab)
    (lab.work / "other").write_bytes(bytes(8000))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        if store == "elsewhere":
            lab.store = Path(memory) / "store"
        after = ASKED + 'print(locked(["other"]))'
        done = lab.run([sys.executable, "-c", STARTED, after], *options, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"7 1\n1\n1\n", b"")


@OPTIONS
def test_a_program_that_was_written_is_executed(lab: Lab, options: list[str]) -> None:
    """By who has it open to read it: what we open of it meanwhile does not write."""
    script(lab)
    done = lab.run([sys.executable, "-c", WRITTEN], *options, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"7 b'# written'\n" + b"7 b'# written'\n", b"")
