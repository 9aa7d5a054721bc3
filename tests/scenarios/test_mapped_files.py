"""Mappings, asynchronous engines and O_DIRECT: natively and under Metamori the same answers, signals and files."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROGRAMS, Compile
from lab import Lab

CASES = re.findall(r"CASE\((\w+)\)", (PROGRAMS / "maps.c").read_text().partition("cases[] = {")[2])


def prepare(folder: Path) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    content = bytes(i // 7 % 251 for i in range(65536))
    for name in ("data", "later"):
        (folder / name).write_bytes(content)
    return {name: (folder / name).read_bytes() for name in ("data", "later")}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.in_turn("case")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("case", CASES)
def test_same_as_natively(lab: Lab, compiled: Compile, case: str, options: list[str]) -> None:
    program, alone = compiled("maps"), lab.folder / "alone"
    prepare(alone)
    before = prepare(lab.work)
    native = subprocess.run([program, case], cwd=alone, env=lab.env, capture_output=True, timeout=60, check=False)
    assert native.returncode not in (98, 99)
    done = lab.run([program, case], *options)
    status = native.returncode if native.returncode >= 0 else 128 - native.returncode
    assert (done.stdout, done.returncode) == (native.stdout, status), done.stderr.decode()
    lab.restore(lab.log()["checkpoints"][-1]["index"])   # with --isolate a kill commits nothing
    assert files(lab.work) == files(alone)
    lab.restore(1)
    assert files(lab.work) == before
    lab.restore(0)
    assert files(lab.work) == before
    lab.verb("verify")


def test_stores_of_a_running_program_keep_the_order_that_msync_gives_them(lab: Lab, compiled: Compile) -> None:
    session = lab.start(driver=compiled("order"))
    session.pid = int(session._line())
    indexes = [lab.checkpoint() for _ in range(4)]
    session.kill_program()
    notes = []
    for index in indexes:
        lab.restore(index)
        words = struct.unpack("<205824I", (lab.work / "data").read_bytes())
        notes.append(words[204800])
        assert notes[-1] <= min(words[:204800:64]), f"checkpoint {index}"
    assert notes == sorted(notes)


def test_a_checkpoint_stores_what_changed_and_no_more(lab: Lab) -> None:
    """32 MB mapped, three pages stored into: three blocks."""
    (lab.work / "old").write_bytes(os.urandom(32 << 20))
    session = lab.start()
    fd = session.ask("open old rw")
    slot = session.ask(f"map {fd} 1000000 rw shared 16777216")
    session.ask("checkpoint")
    for number in range(3):
        assert session.ask(f"poke {slot} 5 {number * 200000} {number}") == "0"
    index = session.ask("checkpoint")
    assert session.ask("checkpoint")
    assert session.end() == 0
    added = {each["index"]: each["bytes"] for each in lab.log()["checkpoints"]}
    assert added[int(index)] == 3 * 4096 and added[int(index) + 1] == 0
    stored = sum(path.stat().st_blocks * 512 for path in lab.store.rglob("*") if path.is_file())
    assert stored < 40 << 20               # the pre-image, once; after the end nothing is needed of the run area


def test_a_read_only_mapping_costs_no_copy(lab: Lab) -> None:
    """LMDB's way: a shared mapping for reading of a descriptor that writes with pwrite."""
    (lab.work / "old").write_bytes(os.urandom(32 << 20))
    session = lab.start()
    fd = session.ask("open old rw")
    slot = session.ask(f"map {fd} 1000000 r shared 0")
    indexes = []
    for number in range(3):
        session.ask(f"pwrite {fd} 100 {number * 100000} {number}")
        assert session.ask(f"peek {slot} 100 {number * 100000}") == session.ask(f"pread {fd} 100 {number * 100000}")
        indexes.append((int(session.ask("checkpoint")), (lab.work / "old").read_bytes()))
    assert session.end() == 0
    stored = sum(path.stat().st_blocks * 512 for path in lab.store.rglob("*") if path.is_file())
    assert stored < 4 << 20
    for index, content in indexes:
        lab.restore(index)
        assert (lab.work / "old").read_bytes() == content


def read_by_a_checkpoint(lab: Lab) -> int:
    """Bytes."""
    script = ("import sys\nfrom metamori.cli.main import main\nmain(sys.argv[1:])\n"
              "print(*open('/proc/self/io').readline().split())")
    words = lab.argv("checkpoint")[3:]
    return int(subprocess.check_output([sys.executable, "-c", script, *words], env=lab.env, text=True).split()[-1])


def test_a_checkpoint_reads_what_changed_and_no_more(lab: Lab) -> None:
    """Where the kernel tells which pages were stored into, a mapped file of 32 MB is not compared."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 7):
        pytest.skip("the kernel does not tell which pages of a shared mapping were written (Linux 6.7 does)")
    (lab.work / "old").write_bytes(os.urandom(32 << 20))
    session = lab.start()
    fd = session.ask("open old rw")
    slot = session.ask(f"map {fd} 1000000 rw shared 16777216")
    lab.checkpoint()
    for number in range(3):
        assert session.ask(f"poke {slot} 5 {number * 200000} {number}") == "0"
        assert session.ask(f"pwrite {fd} 5 {number * 300000} {number}") == "5"
    assert session.ask(f"childpoke {slot} 5 700000 7") == "0"
    lab.checkpoint()                       # the child took what it knew with it: this one compares
    assert session.ask(f"poke {slot} 5 900000 9") == "0"
    assert read_by_a_checkpoint(lab) < 16 << 20
    assert session.end() == 0
    content = (lab.work / "old").read_bytes()
    lab.restore(2)
    changed = (lab.work / "old").read_bytes()
    at = 16777216 + 900000
    assert changed[:at] + content[at:at + 5] + changed[at + 5:] == content != changed
    lab.restore(3)
    assert (lab.work / "old").read_bytes() == content


def test_a_checkpoint_does_not_read_holes(lab: Lab) -> None:
    """A file that is mapped no longer is compared as a whole."""
    old = lab.work / "old"
    size, low, high = 1 << 30, 16 << 20, 512 << 20
    old.write_bytes(b"first")
    os.truncate(old, size)
    session = lab.start()
    fd = session.ask("open old rw")
    slots = [session.ask(f"map {fd} 1000000 rw shared {at}") for at in (low, high)]
    assert session.ask(f"poke {slots[0]} 5 10 1") == "0"
    lab.checkpoint()
    assert session.ask(f"poke {slots[1]} 5 700000 2") == "0"
    for slot in slots:
        assert session.ask(f"unmap {slot} 1000000 0") == "0"
    assert read_by_a_checkpoint(lab) < 16 << 20
    assert session.end() == 0

    def parts() -> list[bytes]:
        with old.open("rb") as file:
            return [os.pread(file.fileno(), 1000000, at) for at in (0, low, high, size - 1000000)]

    content, zeros = parts(), bytes(1000000)
    assert content[2] != zeros
    for index, first, second in ((1, content[1], zeros), (2, content[1], content[2]), (0, zeros, zeros)):
        lab.restore(index)
        assert old.stat().st_size == size
        assert parts() == [content[0], first, second, zeros], f"checkpoint {index}"


WITHIN_ITS_LIMIT = """
import mmap, os, resource
other = os.open("other", os.O_RDWR)
os.pwrite(other, b"redirected" * 10000, 0)
fd = os.open("mapped", os.O_RDWR)
os.pwrite(fd, b"x" * 3000, 13000)
mmap.mmap(fd, 20000, prot=mmap.PROT_READ)
resource.setrlimit(resource.RLIMIT_FSIZE, (30000, resource.RLIM_INFINITY))
print(os.pwrite(fd, b"m" * 9000, 9000))
"""


def test_a_pre_image_is_saved_within_a_limit_on_file_sizes(lab: Lab) -> None:
    """The limit is the program's: the log of pre-images lifts it once more, and does not put it back too early."""
    (lab.work / "mapped").write_bytes(b"o" * 20000)
    (lab.work / "other").write_bytes(b"o" * 100000)
    done = lab.run([sys.executable, "-c", WITHIN_ITS_LIMIT])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"9000\n", b"")
    assert (lab.work / "mapped").read_bytes() == b"o" * 9000 + b"m" * 9000 + b"o" * 2000
    lab.restore(0)
    assert (lab.work / "mapped").read_bytes() == b"o" * 20000


BACK_TWICE = """
import metamori, mmap, os
file = open("old", "r+b", 0)
first = metamori.checkpoint()
memory = mmap.mmap(file.fileno(), 0)
second = metamori.checkpoint()
memory[4096:4099] = b"NEW"
metamori.checkpoint()
memory.close()
metamori.checkpoint()
metamori.restore(second)
metamori.restore(first)
assert open("old", "rb").read() == b"o" * 20000
print(metamori.checkpoint())
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_back_to_when_it_was_mapped_and_then_before(lab: Lab, options: list[str]) -> None:
    """The pre-image, saved once, is what both indexes have: one by a map, the other by an undo record alone.
    What is made from the other must not count on the map."""
    (lab.work / "old").write_bytes(b"o" * 20000)
    done = lab.run([sys.executable, "-c", BACK_TWICE], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "old").read_bytes() == b"o" * 20000
    last = int(done.stdout)
    for index, new in ((last - 2, True), (last, False), (last - 1, True), (1, False), (2, False), (0, False)):
        lab.restore(index)
        assert (lab.work / "old").read_bytes() == (b"o" * 4096 + b"NEW" * new).ljust(20000, b"o"), index
    lab.verb("verify")


GOES = {
    "renamed": ["rename data away"],
    "removed": ["unlink data"],
    "removed and kept open": ["dup 3", "unlink data"],
    "replaced": ["rename later data"],
    "a name lost": ["link data other", "checkpoint", "unlink data"],
    "exchanged": ["rename data third", "rename later data", "rename third later"],
    "in a folder that moved": ["mkdir in", "rename data in/data"],
}


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("checked", [False, True], ids=["", "checkpoint before the kill"])
@pytest.mark.parametrize("how", GOES)
def test_what_came_home_early_goes_back_after_a_kill_wherever_the_file_is(lab: Lab, how: str, checked: bool) -> None:
    """A mapped file is written in place although the run is isolated; its name changes before the kill."""
    before = prepare(lab.work)
    session = lab.start("--isolate")
    session.must(["checkpoint", "open data rw", "map 3 65536 rw shared 0", "poke 0 3000 5000 1"])
    session.must(["pwrite 3 700 40000 2"])
    session.must([*GOES[how], "poke 0 100 20000 3", "msync 0", *["checkpoint"] * checked])
    there = tree(lab.work)
    session.kill_program()
    newest = lab.log()["checkpoints"][-1]["index"]
    assert files(lab.work) == before
    for index in (newest, 1, newest, 0):
        lab.restore(index)
        assert tree(lab.work) == (there if index == newest else before), index
    lab.verb("verify")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
