"""How far a verb is: on a terminal, after a second; each step of the clock here is a tenth of one."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROOT, Lab

from metamori import printed
from metamori.cli import progress
from metamori.config import duration_text

SLOW = """
import itertools, sys
from metamori.cli import main, progress
ticks = itertools.count()
progress.time.monotonic = lambda: next(ticks) / 10
progress.Counting.__init__.__defaults__ = (progress.time.monotonic, True)
raise SystemExit(main.main(sys.argv[1:]))
"""


def at_a_terminal(lab: Lab, *words: object) -> str:
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-c", SLOW, str(words[0]), "--store", str(lab.store), *map(str, words[1:])]
    process = subprocess.Popen(argv, cwd=lab.work, env=lab.env | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while data := os.read(ours, 65536):
            said += data
    except OSError:                        # the other end is closed
        pass
    os.close(ours)
    assert process.wait(120) == 0, said
    return said.decode()


def lines_of(said: str) -> list[str]:
    """What stood there, one after the other, the messages between too."""
    return [line for part in said.split("\r\x1b[K") for line in part.split("\r\n") if line]


def is_shown(what: str, lines: list[str]) -> bool:
    line = re.compile(rf"{what}: [0-9.]+ [KM]?i?B of [0-9.]+ MiB, \d+ (s|min) left …")
    return any(line.fullmatch(each) for each in lines)


OVERWRITES = """
import os, subprocess, sys
for round in range(int(sys.argv[1])):
    for n in range(12):
        with open(f'f{n}', 'r+b') as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(4096 * round)
            file.write(b'%d' % round * (size - 4096 * round))
    subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL) if sys.argv[2:] else None
"""


def files(lab: Lab, rounds: int, *after: object) -> list[object]:
    """Files, and the command that overwrites them so many times."""
    for number in range(12):
        (lab.work / f"f{number}").write_bytes(os.urandom(3 << 20 if number == 0 else 1 << 18))
    program = lab.folder / "program.py"
    program.write_text(OVERWRITES)
    return ["python3", program, rounds, *after]


def test_the_end_of_a_run(lab: Lab) -> None:
    said = at_a_terminal(lab, "run", "--", *files(lab, 1))
    assert is_shown("writing back", lines_of(said)), lines_of(said)
    assert said.endswith("\r\x1b[K")


def test_resume(lab: Lab) -> None:
    take = " ".join(lab.argv("checkpoint"))
    then = ["sh", "-c", f"if [ -e ../once ]; then kill -9 $PPID; else touch ../once; {take}; fi"]
    assert lab.run(files(lab, 2, *then)).returncode == 137
    said = at_a_terminal(lab, "run", "--resume", "--", "true")
    assert any("continuing from checkpoint 1" in line for line in lines_of(said)), said
    assert is_shown("restoring", lines_of(said)), lines_of(said)


def test_nothing_while_the_command_runs(lab: Lab) -> None:
    """Its checkpoints are nobody's to wait for: what it draws stays as it is."""
    command = files(lab, 3, "sh", "-c", f"{' '.join(lab.argv('checkpoint'))}; echo the command >&2")
    said = at_a_terminal(lab, "run", "--every", "0.3", "--", *command)
    assert len(lab.log()["checkpoints"]) > 3
    assert said.startswith(3 * "the command\r\n"), said


def test_prune(lab: Lab) -> None:
    lab.run(files(lab, 4, *lab.argv("checkpoint")))
    said = at_a_terminal(lab, "prune", "--keep-last", 1)
    assert is_shown("merging", lines_of(said)) or is_shown("freeing", lines_of(said)), lines_of(said)
    assert said.endswith("\r\x1b[K")


def test_a_long_file_on_its_way_to_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[str] = []
    monkeypatch.setattr(printed, "progress", shown.append)
    times = iter((0.0, 1.0, 2.0, 4.0, 6.0, 7.0))
    door = progress.Counting(lambda: next(times))
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    os.truncate(fd, 150 << 20)
    door.fdatasync(fd)
    os.close(fd)
    assert shown == ["to the disk: 64 MiB of 150 MiB, 1 s left …", "to the disk: 128 MiB of 150 MiB, 1 s left …",
                     "to the disk: 150 MiB of 150 MiB, 0 s left …"]


@pytest.mark.parametrize(("words", "what"), [
    (["restore", 0], "restoring"), (["restore", 0, "--to", "copy"], "copying"), (["verify"], "verifying"),
    (["cat", 0, "f0"], "reading"),
], ids=["restore", "restore --to", "verify", "cat"])
def test_what_how_much_of_how_much_and_the_time_left(lab: Lab, words: list[object], what: str) -> None:
    lab.run(files(lab, 1))
    said = at_a_terminal(lab, *words)
    assert is_shown(what, lines_of(said)), lines_of(said)
    assert said.endswith("\r\x1b[K")       # the verb's answer takes its place
    quiet = subprocess.run(lab.argv("verify"), cwd=lab.work, env=lab.env, capture_output=True, text=True, check=True)
    assert quiet.stderr == ""


def test_nothing_in_the_first_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[str] = []
    monkeypatch.setattr(printed, "progress", shown.append)
    times = iter((0.0, 0.0, 0.2, 0.5, 0.99, 1.0, 1.1, 60.0, 600.0))
    door = progress.Counting(lambda: next(times))
    door.expect("copying", 900)
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    for _ in range(7):
        door.pwrite(fd, bytes(100), 0)
    os.close(fd)
    assert shown == ["copying: 400 B of 900 B, 1 s left …", "copying: 600 B of 900 B, 30 s left …",
                     "copying: 700 B of 900 B, 3 min left …"]
    assert duration_text(7200) == "2.0 h"
