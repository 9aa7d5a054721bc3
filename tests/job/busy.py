"""A program that does random things to the files of a folder of its own, each by a single call: at any instant its
files are as they are after some number of them.

    busy.py SEED COUNT FOLDER
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

NAMES = ["a", "b", "c", "d/a", "d/b", "e/a", "e/d/a"]
FOLDERS = ["d", "e", "e/d", "f"]
Step = tuple[str, str, Any]
_KINDS = ["write"] * 12 + ["open"] * 4 + ["close"] * 3 + ["append"] * 3 + ["cut"] * 2 + [
    "truncate", "empty", "unlink", "rename", "rename", "move", "link", "mkdir", "mkdir", "rmdir", "chmod", "symlink"]


def steps(seed: int, count: int) -> Iterator[Step]:
    """What is done, whatever becomes of it."""
    random_ = random.Random(seed)
    for number in range(count):
        name, what = random_.choice(NAMES), random_.choice(_KINDS)
        more: Any = None
        if what in ("write", "append"):
            size = random_.choice([1, 50, 4096, 5000, 20000])
            more = random_.choice([0, 7, 4096, 9000, 30000]), f"{number}.".encode() * size
            more = more[0], more[1][:size]
        elif what in ("cut", "truncate"):
            more = random_.choice([0, 10, 4096, 5000, 40000])
        elif what in ("rename", "link"):
            more = random_.choice(NAMES)
        elif what == "move":
            name, more = random_.choice(FOLDERS), random_.choice(FOLDERS)
        elif what in ("mkdir", "rmdir"):
            name = random_.choice(FOLDERS)
        elif what == "chmod":
            more = random_.choice([0o600, 0o644, 0o750])
        yield what, name, more


class Player:
    """Does them, in a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._fds: dict[str, int] = {}

    def do(self, step: Step) -> None:
        what, name, more = step
        try:
            getattr(self, f"_{what}")(os.path.join(self.folder, name), name, more)
        except OSError:
            return

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _open(self, path: str, name: str, _: Any) -> None:
        if name not in self._fds:
            self._fds[name] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def _close(self, _path: str, name: str, _: Any) -> None:
        if name in self._fds:
            os.close(self._fds.pop(name))

    def _write(self, _path: str, name: str, more: tuple[int, bytes]) -> None:
        if name in self._fds:              # of a file that may have another name by now, or none
            os.pwrite(self._fds[name], more[1], more[0])

    def _append(self, path: str, _name: str, more: tuple[int, bytes]) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, more[1])
        finally:
            os.close(fd)

    def _cut(self, _path: str, name: str, size: int) -> None:
        if name in self._fds:
            os.ftruncate(self._fds[name], size)

    def _truncate(self, path: str, _name: str, size: int) -> None:
        os.truncate(path, size)

    def _empty(self, path: str, _name: str, _: Any) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))

    def _unlink(self, path: str, _name: str, _: Any) -> None:
        os.unlink(path)

    def _rename(self, path: str, _name: str, to: str) -> None:
        os.rename(path, os.path.join(self.folder, to))

    _move = _rename

    def _link(self, path: str, _name: str, to: str) -> None:
        os.link(path, os.path.join(self.folder, to))

    def _mkdir(self, path: str, _name: str, _: Any) -> None:
        os.mkdir(path)

    def _rmdir(self, path: str, _name: str, _: Any) -> None:
        os.rmdir(path)

    def _chmod(self, path: str, _name: str, mode: int) -> None:
        os.chmod(path, mode)

    def _symlink(self, path: str, _name: str, _: Any) -> None:
        os.symlink("target", path)


def main(seed: int, count: int, folder: str) -> None:
    player, random_ = Player(folder), random.Random(-seed)
    print("ready", flush=True)
    for step in steps(seed, count):
        if random_.random() < 0.1:         # a child does it
            child = os.fork()
            if child == 0:
                player.do(step)
                os._exit(0)
            os.waitpid(child, 0)
            if step[0] in ("open", "close"):
                player.do(step)            # which changes nothing the second time
        else:
            player.do(step)
        if random_.random() < 0.4:
            time.sleep(random_.random() * 0.02)
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
