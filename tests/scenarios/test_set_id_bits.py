"""Set-user-id and set-group-id bits of what an ordinary user writes: the kernel takes them with his program's writes,
and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Lab
from test_shut_files import act, lab  # noqa: F401  a fixture

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
