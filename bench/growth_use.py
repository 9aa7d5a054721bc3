"""What users wait for as their files and ranges grow: programs and verbs as anybody runs them, in CPU seconds.

Of n files one is another, of n ranges one is written to again, and yet all of it is in front of Metamori. Pauses are
the longest time, in ms, that one write of another thread took during a checkpoint.
"""
from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bench import measure

SIZES = (100, 1_000, 10_000)
_COMMON = """
import os, sys, time
from metamori import checkpoint, restore
n, taken = int(sys.argv[1]), time.process_time
def cpu(what, work):
    start = taken()
    found = work()
    print(what, taken() - start, sep="\\t")
    return found
"""
# each prints its lines: what, and CPU seconds of the program while Metamori worked
_FILES = _COMMON + """
os.mkdir("d")
for each in range(n):
    with open(f"d/{each}", "w") as file: file.write("x" * 100)
for each in range(8):
    with open("d/5", "r+") as file: file.write(str(each))
    then = checkpoint()
with open("d/5", "r+") as file: file.write("z")
cpu("restore inside, 1 of n files", lambda: restore(then))
with open("d/6", "r+") as file: file.write("z")
cpu("checkpoint, 1 of n files", checkpoint)
"""
_NEW = """
import os, sys, threading, time
from metamori import checkpoint
n, longest, over = int(sys.argv[1]), 0, False
def beat():
    global longest
    fd, last = os.open("beat", os.O_WRONLY | os.O_CREAT), time.monotonic()
    while not over:
        os.pwrite(fd, b"x", 0)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        time.sleep(0.0005)
beside = threading.Thread(target=beat)
beside.start()
checkpoint()
for each in range(n):
    if each % 1000 == 0: os.mkdir(f"d{each // 1000}")
    with open(f"d{each // 1000}/{each}", "w") as file: file.write("x" * 100)
for what in ("n new files", "1 of n files"):
    longest = 0
    checkpoint()
    print(f"pause, {what}, ms", longest * 1e3, sep="\t")
    with open("d0/5", "r+") as file: file.write("z")
over = True
beside.join()
"""
_KEEP = _COMMON + """
os.mkdir("d")
for each in range(n):
    with open(f"d/{each}", "w") as file: file.write("x" * 100)
for each in range(5):
    checkpoint()
with open("d/5", "r+") as file: file.write("z")
cpu("checkpoint with --keep-last 4, 1 of n files", checkpoint)
"""
_RANGES = _COMMON + """
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, n * 8192)
checkpoint()
for part in range(10):
    for at in range(part, n, 10): os.pwrite(fd, b"a" * 100, at * 8192 + 50)
    checkpoint()
for each in range(2):
    os.pwrite(fd, b"b", 77)
    then = checkpoint()
    os.pwrite(fd, b"c", 77)
    if each: cpu("restore inside, 1 of n ranges", lambda: restore(then))
    else: restore(then)
"""
_EARLIER = _COMMON + """
fd = os.open("f", os.O_RDWR)
then = checkpoint()
for at in range(n): os.pwrite(fd, b"d" * 100, at * 8192 + 50)
cpu("restore inside, n ranges of an earlier run", lambda: restore(then))
"""


def one_run(folder: Path, count: int) -> measure.Numbers:
    def script(text: str, *options: str) -> measure.Numbers:
        command = [sys.executable, "-c", text, str(count)]
        done = measure.timed([measure.metamori(), "run", *options, "--", *command], folder)
        rows = (line.split("\t") for line in done.output.splitlines())
        return {what if what.endswith(", ms") else f"{what}, CPU s": float(value) for what, value in rows}

    def verb(what: str, *words: str) -> measure.Numbers:
        return {f"{what}, CPU s": measure.timed([measure.metamori(), *words], folder).cpu_s}

    def begin() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    begin()
    found = script(_KEEP, "--keep-last", "4")
    begin()
    found |= script(_FILES) | verb("run that changes nothing, n files", "run", "--", "true")
    begin()
    found |= script(_NEW)
    begin()
    found |= script(_RANGES)
    found |= verb("diff, n/10 ranges", "diff", "5", "6") | verb("restore, 1 of n ranges", "restore", "--", "-2")
    found |= verb("restore back", "restore", "last") | script(_EARLIER)
    with open(folder / "f", "r+b") as file:
        file.write(b"somebody else")
    return found | verb("log, a file of n ranges lost", "log")


def variants(folder: Path, largest: int, only_largest: bool) -> dict[str, tuple[Path, int]]:
    counts = SIZES[:largest][-1 if only_largest else 0:]
    return {f"as used, n = {count:,}": (folder / f"used{count}", count) for count in counts}
