"""The rover (rover.py) as a program that does one thing at a time, as it is told: `act`, `look`, or a checkpoint.

    insider.py SEED OUTSIDE FOLDER...
"""

from __future__ import annotations

import os
import pickle
import random
import stat
import struct
import sys
from dataclasses import dataclass
from typing import BinaryIO

from rover import Rover


@dataclass(frozen=True)
class Entry:
    """What is at a name. data: a file's bytes, a link's target."""

    kind: str
    number: int
    mode: int = 0
    data: bytes = b""
    mtime_ns: int = 0

    def __repr__(self) -> str:
        return f"<{self.kind} {self.number} {self.mode:o} {len(self.data)} B {hash(self.data) & 0xffffff:06x}>"


Tree = dict[str, Entry]
ABSENT = Entry("absent", 0)


def entry(path: str) -> Entry:
    st = os.lstat(path)
    mode = stat.S_IMODE(st.st_mode)
    if stat.S_ISLNK(st.st_mode):
        return Entry("link", st.st_ino, 0, os.readlink(path).encode())
    if stat.S_ISDIR(st.st_mode):
        return Entry("folder", st.st_ino, mode)
    if not stat.S_ISREG(st.st_mode):
        return Entry("other", st.st_ino, mode)
    with open(path, "rb") as file:
        return Entry("file", st.st_ino, mode, file.read(), st.st_mtime_ns)


def tree(folders: list[str]) -> Tree:
    found: Tree = {}
    for folder in folders:
        for where, inner, files in os.walk(folder):
            inner[:] = sorted(name for name in inner if name != ".metamori")
            for path in (os.path.join(where, name) for name in inner + sorted(files)):
                found[path] = entry(path)
    return found


def send(to: BinaryIO, what: object) -> None:
    data = pickle.dumps(what)
    to.write(struct.pack("<Q", len(data)) + data)
    to.flush()


def receive(source: BinaryIO) -> object:
    head = source.read(8)
    assert len(head) == 8, "it has ended"
    return pickle.loads(source.read(struct.unpack("<Q", head)[0]))


def main(seed: str, outside: str, *folders: str) -> None:
    import metamori

    rover = Rover(random.Random(int(seed)), list(folders), outside)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "act":
            send(sys.stdout.buffer, rover.act())
        elif words[0] == "look":
            send(sys.stdout.buffer, tree([*folders, outside]))
        elif words[0] == "checkpoint":
            send(sys.stdout.buffer, metamori.checkpoint())
        elif words[0] == "let_go":
            rover.let_go()
            send(sys.stdout.buffer, 0)
        elif words[0] == "restore":
            rover.let_go()
            try:
                metamori.restore(int(words[1]))
                send(sys.stdout.buffer, 0)
            except OSError as error:
                send(sys.stdout.buffer, error.errno)


if __name__ == "__main__":
    main(*sys.argv[1:])
