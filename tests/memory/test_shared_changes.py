"""Memory that several processes share: an image holds what has changed of it, whoever changed it, and however."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comeback import TAKEN, Memory, came_back, run_of

from metamori.runtime.memory.images import all_of_it
from metamori.store.read.store import Store

pytestmark = pytest.mark.usefixtures("installed")
STEPS = 24

PROGRAM = """
import mmap, random, zlib
chance, steps = random.Random(int(sys.argv[1])), int(sys.argv[2])
PAGE, PAGES, WORKERS = 4096, 96, 3
name = f"/dev/shm/metamori-changes-{os.getpid()}"
fds = [-1, os.memfd_create("m"), os.open(name, os.O_RDWR | os.O_CREAT, 0o600)]
for fd in fds[1:]:
    os.ftruncate(fd, PAGE * PAGES)
maps = [mmap.mmap(fd, PAGE * PAGES) for fd in fds]

def do(what, which, page, value):
    at, fd = page * PAGE, fds[which]
    length = min(1 + value % 5, PAGES - page) * PAGE
    if what == "write":
        maps[which][at:at + length] = bytes([value]) * length
    elif what == "touch":
        maps[which][at + value] = value
    elif what == "again":                               # as it is
        maps[which][at:at + length] = maps[which][at:at + length]
    elif what == "punch":
        maps[which].madvise(mmap.MADV_REMOVE, at, length)
    elif what == "pwrite" and fd >= 0:
        os.pwrite(fd, bytes([value ^ 255]) * length, at)
    elif what == "move" and fd >= 0:
        maps[which].close()
        maps[which] = mmap.mmap(fd, PAGE * PAGES)

def worker(orders, answers):
    while line := os.read(orders, 32):
        what, *numbers = line.split()
        do(what.decode(), *map(int, numbers))
        os.write(answers, b".")
    os._exit(0)

def hired():
    theirs, to = os.pipe()
    answers, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        for each in workers:
            os.close(each[1]), os.close(each[2])
        os.close(to)
        worker(theirs, ours)
    os.close(theirs), os.close(ours)
    return pid, to, answers

def dismissed(pid, to, answers):
    os.close(to), os.close(answers)
    os.waitpid(pid, 0)

workers = []
for _ in range(WORKERS):
    workers.append(hired())
for step in range(steps):
    for _ in range(chance.randrange(6)):
        what = chance.choice(["write", "write", "touch", "touch", "again", "punch", "pwrite", "move", "end"])
        who, which = chance.randrange(-1, WORKERS), chance.randrange(3)
        numbers = which, chance.randrange(PAGES), chance.randrange(256)
        if who < 0:
            do(what, *numbers)
        elif what == "end":
            dismissed(*workers.pop(who))
            workers.append(hired())
        else:
            os.write(workers[who][1], f"{what} {numbers[0]} {numbers[1]} {numbers[2]}".ljust(32).encode())
            os.read(workers[who][2], 1)
    taken()
    print(step, *map(zlib.crc32, maps), flush=True)
for each in list(workers):
    workers.remove(each)
    dismissed(*each)
os.unlink(name)
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))])
def test_shared_memory_changed_at_random(tmp_path: Path, seed: int) -> None:
    """By several processes, by mappings and descriptors; some end, and others begin. Pruned, too."""
    (tmp_path / "script").write_text(TAKEN + PROGRAM)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script", seed, STEPS])
    run_of(case)
    assert case.errors().count("taken") == STEPS, case.errors()
    came_back(case, STEPS, STEPS // 2, 1)
    assert case.verb("prune", "--keep-last", "8").returncode == 0
    kept = case.images()                   # the last ones are of the branch from the first
    assert len(kept) < STEPS
    came_back(case, kept[0], kept[len(kept) // 2], kept[-1])


LARGE = """
import mmap
size = 32 << 20
m = mmap.mmap(-1, size)
m[:] = bytes(range(256)) * (size >> 8)
workers = []
for worker in range(2):
    there, go = os.pipe()
    back, done = os.pipe()
    if os.fork() == 0:
        os.close(go)
        while line := os.read(there, 1):
            m[worker << 20:(worker << 20) + 5] = b"work" + line
            os.write(done, b".")
        os._exit(0)
    os.close(there)
    workers.append((go, back))
for step in b"abcd":
    for go, back in workers:
        os.write(go, bytes([step]))
        os.read(back, 1)
    taken()
    print(m[:6], m[1 << 20:(1 << 20) + 6], flush=True)
"""


@pytest.mark.skipif(all_of_it() != "", reason="this kernel keeps no record of changes")
def test_only_what_has_changed_is_saved(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(TAKEN + LARGE)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"])
    run_of(case)
    with Store.open(str(case.store)) as store:
        sizes = [sum(os.stat(store.layout.memory(index, each.process)).st_size for each in store.meta(index).memory)
                 for index in range(1, 5)]
    assert sizes[0] > 32 << 20 > 6 * max(sizes[1:]), sizes
    came_back(case, 4, 2)


ALIKE = """
import mmap, struct
PAGE, BITS = 4096, [(0, 63), (4, 28)]                   # of two words of a page, 32 bytes apart
m = mmap.mmap(-1, PAGE)
m[:] = bytes(range(256)) * (PAGE >> 8)
for step in range(2):
    taken()
    print(step, m[:40].hex(), flush=True)
    for word, bit in BITS:
        value, = struct.unpack_from("Q", m, word * 8)
        struct.pack_into("Q", m, word * 8, value ^ 1 << bit)
"""


def test_a_page_that_differs_in_two_bits(tmp_path: Path) -> None:
    """Its hash was the same, so the next image had the page as it had been."""
    (tmp_path / "script").write_text(TAKEN + ALIKE)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"])
    run_of(case)
    came_back(case, 2, 1)
