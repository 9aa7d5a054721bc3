"""A filesystem that a program serves (FUSE), maybe one of the run: a call that only goes there keeps nobody waiting.

One that changes a name of it does: where nothing is found, it is looked for once more with all names held.
"""

from __future__ import annotations

import ctypes
import os
import select
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, Session, wait_until

INIT, LOOKUP, FORGET, GETATTR, STATFS, INTERRUPT, BATCH_FORGET = 26, 1, 2, 3, 17, 36, 42
LINK, FOLDER = 3, 2                        # numbers of what is served; 1 is the root
libc = ctypes.CDLL(None)


def attributes(number: int) -> bytes:
    mode = stat.S_IFLNK | 0o777 if number == LINK else stat.S_IFDIR | 0o755
    return struct.pack("<6Q10I", number, 0, 0, 0, 0, 0, 0, 0, 0, mode, 2, 0, 0, 0, 4096, 0)


class Served:
    """The root, a folder `x` in each folder, and a link `l`. Nothing is remembered by the kernel."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.looked, self.fd = folder, 0, os.open("/dev/fuse", os.O_RDWR)
        words = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"served", bytes(folder), b"fuse", 0, words):
            pytest.skip("no filesystem of a program's own here")

    def end(self) -> None:
        libc.umount2(bytes(self.folder), 2)
        os.close(self.fd)

    def answer(self) -> str:
        """One request, if there is one: the name that it looks up."""
        if not select.select([self.fd], [], [], 0.05)[0]:
            return ""
        request = os.read(self.fd, 1 << 20)
        _, what, self.unique, node = struct.unpack_from("<IIQQ", request)
        if what == LOOKUP:
            return request[40:].rstrip(b"\0").decode()
        replies = {INIT: struct.pack("<4I2H2I2HI7I", 7, 31, 0, 0, 8, 8, 4096, 1, 0, 0, 0, *[0] * 7),
                   GETATTR: struct.pack("<QII", 0, 0, 0) + attributes(node),
                   STATFS: struct.pack("<5Q10I", 0, 0, 0, 0, 0, 4096, 255, 4096, *[0] * 7)}
        if what not in (FORGET, INTERRUPT, BATCH_FORGET):
            self.reply(replies.get(what, b""), 0 if what in replies else -38)
        return ""

    def found(self, name: str) -> None:
        number = {"x": FOLDER, "l": LINK}.get(name, 0)
        entry = struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + attributes(number)
        self.reply(entry if number else b"", 0 if number else -2)

    def reply(self, text: bytes, error: int) -> None:
        os.write(self.fd, struct.pack("<IiQ", 16 + len(text), error, self.unique) + text)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    if os.geteuid() or not os.path.exists("/dev/fuse"):
        pytest.skip("only root mounts one")
    one = Served(tmp_path / "served")
    yield one
    one.end()


def others_go_on(driver: Session, count: int) -> bool:
    """Another thread takes a tracked name, while the first one's call waits for the filesystem."""
    driver.ask(f"begin 1 unlink f{count}")
    try:
        wait_until(lambda: driver.ask("ready 1") == "1", "", 10)
    except AssertionError:
        return False
    return driver.ask("await 1") == "0"


@pytest.mark.parametrize("call", ["chdir {}/x", "chdir {}/none", "rename ../out/d {}/x/d", "link {}/x/l ../out/m"])
def test_a_served_folder_is_walked_into(lab: Lab, served: Served, call: str) -> None:
    """All names were held while the kernel asked who serves it, and whoever does waited for one of them."""
    lab.env.pop("METAMORI_TRACK", None)
    (lab.folder / "out" / "d").mkdir(parents=True)
    for i in range(40):
        (lab.work / f"f{i}").write_text("f")
    driver = lab.start()
    driver.must(["thread 0", "thread 1"])
    driver.ask(f"begin 0 {call.format(served.folder)}")
    count, stuck = 0, []
    while driver.ask("ready 0") != "1":
        if name := served.answer():
            if not stuck and not others_go_on(driver, count):
                stuck.append(name)
            count += 1
            served.found(name)
    assert not stuck and count
    assert driver.ask("await 0") == {"chdir {}/x": "0", "chdir {}/none": "-1 ENOENT"}.get(call, "-1 EXDEV")
    driver.process.kill()
