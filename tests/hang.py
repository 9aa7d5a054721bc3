"""A command that does not end: where each of its threads stands, before all of it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on, as far as they are alive."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return [each for child in found for each in (child, *descendants(child))]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().replace("\0", " ")
    except OSError as error:               # ended, or not ours to look at
        return f"({error.strerror})"


def _stands(pid: int) -> str:
    folder = Path(f"/proc/{pid}")
    lines = [f"{pid}: {_read(folder / 'cmdline')[:200]}"]
    for task in sorted((folder / "task").glob("*")):
        state = _read(task / "stat").rpartition(") ")[2][:1]
        lines.append(f"  {task.name} {_read(task / 'comm')}: {state}, in {_read(task / 'wchan')}, "
                     f"call {_read(task / 'syscall')}")
    if shutil.which("gdb"):
        asked = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 25"],
                               capture_output=True, text=True, errors="replace", timeout=60, check=False,
                               stdin=subprocess.DEVNULL)
        lines += [f"  {line}" for line in asked.stdout.splitlines() if line.startswith(("#", "Thread"))]
    return "\n".join(lines)


def run(argv: Sequence[str], timeout: float, given: bytes, **how: object) -> subprocess.CompletedProcess[bytes]:
    """As subprocess.run with its output captured. Beyond `timeout` seconds an AssertionError says where it stands."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)
    try:
        out, err = process.communicate(given, timeout=timeout)
    except subprocess.TimeoutExpired:
        all_of_it = [process.pid, *descendants(process.pid)]
        where = "\n".join(map(_stands, all_of_it))
        for pid in {*all_of_it, *descendants(process.pid)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"no end after {timeout:.0f} s; its processes stand at\n{where}") from None
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
