"""Set-user-id and set-group-id bits of what an ordinary user writes: the kernel takes them with his program's writes,
and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import Lab
from stops import Stops
from test_shut_files import AS_NOBODY, NOBODY, act, lab  # noqa: F401  a fixture

PROGRAM = """
import fcntl, mmap, os
checkpoint = (lambda: 0) if os.environ.get("NATIVE") else __import__("metamori").checkpoint

def fails(call, *words):
    try:
        call(*words)
    except OSError as error:
        return error.errno

def opened(path, flags=os.O_RDWR):
    fd = os.open(path, flags)
    print(oct(os.stat(path).st_mode))
    os.close(fd)

def mapped(path):
    fd = os.open(path, os.O_RDWR)
    mmap.mmap(fd, 100).close()
    os.close(fd)

def by_mode(path, mode):
    os.chmod(path, mode)
    os.close(os.open(path, os.O_RDWR))

def by_descriptor():
    os.fchmod(writer.fileno(), 0o644)
    os.fchmod(writer.fileno(), 0o6777)
    os.pwrite(writer.fileno(), b"x", 9000)

def amid():
    checkpoint()
    writer.write(b"x")

with open("other", "w") as other:
    other.write("other text")
CALLS = {
    "nothing": lambda path: None,
    "neither": lambda path: opened(path, 3),
    "both": opened,
    "append": lambda path: opened(path, os.O_WRONLY | os.O_APPEND),
    "create": lambda path: opened(path, os.O_WRONLY | os.O_CREAT),
    "refused": lambda path: fails(os.truncate, path, 1 << 62),
    "shorter": lambda path: os.truncate(path, 5),
    "emptied": lambda path: opened(path, os.O_WRONLY | os.O_TRUNC),
    "mapped": mapped,
    "checkpoint": lambda path: (checkpoint(), opened(path)),
    "group": lambda path: by_mode(path, 0o2745),
    "locking": lambda path: by_mode(path, 0o2744),
    "write": lambda path: writer.write(b"x"),
    "none": lambda path: writer.write(b""),
    "beyond": lambda path: os.pwrite(writer.fileno(), b"x", 100000),
    "cut": lambda path: os.ftruncate(writer.fileno(), 5),
    "copy": lambda path: os.copy_file_range(os.open("other", os.O_RDONLY), writer.fileno(), 5),
    "send": lambda path: os.sendfile(writer.fileno(), os.open("other", os.O_RDONLY), 0, 5),
    "descriptor": lambda path: by_descriptor(),
    "amid": lambda path: amid(),
}
for path, call in CALLS.items():
    writer = open(path, "r+b", 0)
    writer.seek(3)
    writer.write(b"new" * 30)
    writer.seek(30000)
    writer.write(b"z" * 5000)
    os.chmod(path, 0o6777)
    call(path)
    with open(path, "rb") as reader:
        print(path, oct(os.stat(path).st_mode), hash(reader.read()))
"""
NAMES = PROGRAM.split("CALLS = {")[1].split("}\nfor")[0]


def played(lab: Lab, *options: str, native: bool = False) -> tuple[str, list[tuple[str, int, bytes]]]:  # noqa: F811
    """What the program says, and what is there in the end."""
    subprocess.run(["sh", "-c", "rm -rf -- *"], cwd=lab.work, check=True)
    for line in NAMES.split("\n    "):
        if line.strip():
            path = lab.work / line.strip().split('"')[1]
            path.write_text("a" * 20000)
            os.chown(path, 65534, 65534)
    words = [] if native else [*lab.argv("run"), *options, "--"]
    lab.env["PYTHONHASHSEED"] = "1"
    said = act(lab, *words, sys.executable, "-c", PROGRAM, native=native)
    return said, [(path.name, path.stat().st_mode, path.read_bytes()) for path in files(lab.work)]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("options", [(), ("--isolate",), ("--mode", "single")], ids=["default", "isolated", "single"])
def test_only_the_programs_writes_take_set_id_bits(lab: Lab, options: tuple[str, ...]) -> None:  # noqa: F811
    natively = played(lab, native=True)
    assert played(lab, *options) == natively
    act(lab, *lab.argv("verify"))


BESIDE = """
import os, threading
with open("file", "r+b", 0) as file:
    file.write(b"new" * 3000)
os.chmod("file", 0o6777)
reader = os.open("file", os.O_RDONLY)
opener = threading.Thread(target=lambda: os.close(os.open("file", os.O_RDWR)))
opener.start()
while not os.path.exists("go"):
    pass
taker = threading.Thread(target=lambda: CALL)
taker.start()
opener.join(); taker.join()
print(oct(os.stat("file").st_mode))
"""


@pytest.mark.parametrize("call", ['os.chmod("file", 0o777)', "os.fchmod(reader, 0o777)", 'os.chown("file", -1, 65534)'])
def test_bits_that_another_thread_takes_meanwhile(lab: Lab, call: str) -> None:  # noqa: F811
    """What is written back for who opens the file takes them, and they are given again. So were another's."""
    path = lab.work / "file"
    path.write_text("a" * 20000)
    os.chown(path, NOBODY, NOBODY)
    stops = Stops(lab.folder / "stops")
    stops.arm("home.moved")
    for each in (stops.folder, stops.folder / "home.moved"):
        os.chown(each, NOBODY, NOBODY)
    words = [*AS_NOBODY, *lab.argv("run"), "--", sys.executable, "-c", BESIDE.replace("CALL", call)]
    env = lab.env | stops.env | {"HOME": "/tmp"}
    with subprocess.Popen(words, cwd=lab.work, env=env, stdout=subprocess.PIPE, text=True) as run:
        stops.wait("home.moved")
        (lab.work / "go").touch()
        time.sleep(0.5)                    # it is done, or waits: nothing tells
        stops.go("home.moved")
        assert run.communicate(timeout=60)[0] == "0o100777\n"
