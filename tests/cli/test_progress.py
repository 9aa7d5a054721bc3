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

from metamori.cli import output, progress

SLOW = """
import itertools, sys
from metamori.cli import main, progress
ticks = itertools.count()
progress.time.monotonic = lambda: next(ticks) / 10
progress.Counting.__init__.__defaults__ = (progress.time.monotonic,)
raise SystemExit(main.main(sys.argv[1:]))
"""


def at_a_terminal(lab: Lab, *words: object) -> str:
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-c", SLOW, str(words[0]), "--store", str(lab.store), *map(str, words[1:])]
    process = subprocess.Popen(argv, cwd=lab.work, env=lab.env | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=theirs)
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


@pytest.mark.parametrize(("words", "what"), [
    (["restore", 0], "restoring"), (["restore", 0, "--to", "copy"], "copying"), (["verify"], "verifying"),
    (["cat", 0, "f0"], "reading"),
], ids=["restore", "restore --to", "verify", "cat"])
def test_what_how_much_of_how_much_and_the_time_left(lab: Lab, words: list[object], what: str) -> None:
    for number in range(12):
        (lab.work / f"f{number}").write_bytes(os.urandom(3 << 20 if number == 0 else 1 << 18))
    program = lab.folder / "program.py"
    program.write_text("import os\nfor n in range(12):\n    with open(f'f{n}', 'r+b') as file:\n"
                       "        size = os.fstat(file.fileno()).st_size\n        file.write(b'x' * size)\n")
    lab.run(["python3", program])
    said = at_a_terminal(lab, *words)
    lines = [line for line in said.split("\r\x1b[K") if line]
    line = re.compile(rf"{what}: [0-9.]+ [KM]?i?B of [0-9.]+ MiB, \d+ (s|min) left …")
    assert any(line.fullmatch(each) for each in lines), lines
    assert said.endswith("\r\x1b[K")       # the verb's answer takes its place
    quiet = subprocess.run(lab.argv("verify"), cwd=lab.work, env=lab.env, capture_output=True, text=True, check=True)
    assert quiet.stderr == ""


def test_nothing_in_the_first_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[str] = []
    monkeypatch.setattr(output, "progress", shown.append)
    times = iter((0.0, 0.0, 0.2, 0.5, 0.99, 1.0, 1.1, 60.0, 600.0))
    door = progress.Counting(lambda: next(times))
    door.expect("copying", 900)
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    for _ in range(7):
        door.pwrite(fd, bytes(100), 0)
    os.close(fd)
    assert shown == ["copying: 400 B of 900 B, 1 s left …", "copying: 600 B of 900 B, 30 s left …",
                     "copying: 700 B of 900 B, 3 min left …"]
    assert progress._duration(7200) == "2.0 h"
