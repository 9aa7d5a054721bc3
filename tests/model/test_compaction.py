"""Blocks written at random and then read and written in sequence: what lies in the buffer in many pieces is written as
one piece again (shim_c/src/engine/compact.c), beside checkpoints that another thread makes, with memory that ends too
early, and in a child; a byte array says what is right."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from lab import ROOT, Lab

PROGRAM = f"""
import ctypes, errno, mmap, os, random, sys, threading
sys.path.insert(0, {str(ROOT)!r})
import metamori
seed, folder = int(sys.argv[1]), sys.argv[2]
chance = random.Random(seed)
fd = os.open("file", os.O_RDWR)
model = bytearray(open("file", "rb").read())
BLOCKS = len(model) // 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.pread.argtypes = libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
libc.pread.restype = libc.pwrite.restype = ctypes.c_ssize_t
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
memory = mmap.mmap(-1, 1 << 20)
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
GOOD = 96 << 10                       # the rest of it may not be touched
assert libc.mprotect(place + GOOD, len(memory) - GOOD, 0) == 0

def write(at, data):
    assert os.pwrite(fd, data, at) == len(data)
    if len(model) < at + len(data):
        model.extend(bytes(at + len(data) - len(model)))
    model[at:at + len(data)] = data

def check(at, count):
    assert os.pread(fd, count, at) == bytes(model[at:at + count]), (seed, at, count)

def read_all(step):
    for at in range(0, len(model), step):
        check(at, step)
    os.lseek(fd, 0, 0)
    assert b"".join(iter(lambda: os.read(fd, step), b"")) == bytes(model)

def into_bad_memory(count):
    at, room = chance.randrange(len(model) - count), chance.randrange(0, count)
    done = libc.pread(fd, place + GOOD - room, count, at)
    if room == 0:
        assert done == -1 and ctypes.get_errno() == errno.EFAULT
    else:
        assert done == room, (seed, at, count, room, done)
        assert memory[GOOD - room:GOOD] == bytes(model[at:at + room])

def from_bad_memory(count):
    at, room = chance.randrange(BLOCKS - count // 4096) * 4096, chance.randrange(0, count)
    data = chance.randbytes(room)
    memory[GOOD - room:GOOD] = data
    done = libc.pwrite(fd, place + GOOD - room, count, at)
    if done < 0:
        assert ctypes.get_errno() == errno.EFAULT and room < 4096, (seed, at, room)
    else:                              # how much of it differs between filesystems; it is what it says
        assert 0 < done <= room
        model[at:at + done] = data[:done]
    check(at, count)

index = 0
for turn in range(6):
    order = list(range(BLOCKS))
    chance.shuffle(order)
    for block in order[:BLOCKS * 3 // 4 if turn % 2 else BLOCKS]:
        size = chance.choice((4096, 4096, 4096, 512, 3000, 8192))
        write(block * 4096 + (chance.randrange(4096) if size == 3000 else 0), chance.randbytes(size))
    for size in (65536, 12288, 40000, 200000):
        read_all(size)
    for _ in range(20):
        into_bad_memory(chance.choice((8192, 65536, 90000)))
        from_bad_memory(chance.choice((16384, 65536, 90112)))
    # in sequence again, while checkpoints are made
    def checkpoints():
        for _ in range(12):
            metamori.checkpoint()
    maker = threading.Thread(target=checkpoints)
    if turn == 2:
        maker.start()
    unit = (65536, 16384, 1 << 20, 40960, 32768, 65536)[turn]
    for at in range(0, BLOCKS * 4096, unit):
        write(at, chance.randbytes(min(unit, BLOCKS * 4096 - at)))
        if chance.random() < 0.3:
            check(max(0, at - 100000), 131072)
        if chance.random() < 0.1:
            write(chance.randrange(BLOCKS) * 4096, chance.randbytes(4096))
    if turn == 2:
        maker.join()
    read_all(65536)
    if turn == 3:
        os.ftruncate(fd, len(model) - 70000)
        del model[-70000:]
        BLOCKS = len(model) // 4096
        read_all(65536)
        child = os.fork()
        if child == 0:
            try:
                read_all(65536)
                read_all(8192)
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, seed
    index = metamori.checkpoint()
    with open(f"{{folder}}/{{index}}", "wb") as file:
        file.write(model)
print(index)
"""


@pytest.mark.parametrize("options", [(), ("--isolate",), ("--cache-size", "0")], ids=" ".join)
def test_scattered_blocks_are_what_was_written(lab: Lab, tmp_path: Path, options: tuple[str, ...]) -> None:
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    (lab.work / "file").write_bytes(bytes(range(251)) * 6000)
    done = lab.run([sys.executable, "-c", PROGRAM, 5 + len(options), wanted], "--exclude", f"{wanted}/*", *options)
    assert done.returncode == 0, done.stderr.decode()
    last = int(done.stdout)
    indexes = sorted(map(int, os.listdir(wanted)), reverse=True)
    assert indexes[0] == last
    for index in (*indexes, last):
        lab.restore(index)
        assert (lab.work / "file").read_bytes() == (wanted / str(index)).read_bytes(), index
