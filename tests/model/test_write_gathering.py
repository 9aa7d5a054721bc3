"""Writes of every size over old data, in sequence and at random, whole blocks and parts: what gathers in frames before
it reaches the disk buffer (engine/buffer.c) is read back by the writer, by another thread and by another process
as a byte array says, and every checkpoint holds what the array held then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lab import ROOT, Lab

PROGRAM = f"""
import os, random, sys, threading
sys.path.insert(0, {str(ROOT)!r})
import metamori
seed, folder = int(sys.argv[1]), sys.argv[2]
chance = random.Random(seed)
fds = [os.open(name, os.O_RDWR) for name in ("one", "two")]
models = [bytearray(open(name, "rb").read()) for name in ("one", "two")]
sizes = [1, 100, 511, 2048, 4095, 4096, 4097, 6000, 8192, 12288, 32768, 65535, 65536, 65537, 200000]
common = [4096, 8192]

def check(which, at, count):
    # a position of its own, so large ones take no lock
    found = os.pread(fds[which], count, at)
    assert found == bytes(models[which][at:at + count]), (seed, which, at, count)

def write(which, at, count):
    data = random.Random(at * 7 + count + step).randbytes(count)
    assert os.pwrite(fds[which], data, at) == count
    model = models[which]
    if len(model) < at:
        model.extend(bytes(at - len(model)))
    model[at:at + count] = data

position = [0, 0]
for step in range(600):
    which = chance.random() < 0.3
    end = len(models[which])
    kind = chance.random()
    if kind < 0.55:                                    # a sequence goes on
        count = chance.choice(common if chance.random() < 0.8 else sizes)
        at = position[which] if position[which] < end else 0
        write(which, at, count)
        position[which] = at + count
    elif kind < 0.75:
        count = chance.choice(sizes)
        at = chance.randrange(end)
        write(which, at // 4096 * 4096 if chance.random() < 0.6 else at, count)
    elif kind < 0.93:
        check(which, chance.randrange(end), chance.choice(sizes))
    elif kind < 0.95:
        os.ftruncate(fds[which], at := chance.randrange(end // 2, end))
        del models[which][at:]
    elif kind < 0.97:
        os.fsync(fds[which])
    elif kind < 0.985:
        wrong = []
        def other(which=which):
            try:
                for at in range(0, len(models[which]), 65536):
                    check(which, at, 65536)
            except AssertionError as error:
                wrong.append(error)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not wrong, wrong
    elif (child := os.fork()) == 0:
        try:
            check(which, 0, len(models[which]))
            os._exit(0)
        except BaseException:
            os._exit(1)
    else:
        assert os.waitpid(child, 0)[1] == 0, (seed, step)
    if step % 97 == 96:
        index = metamori.checkpoint()
        for name, model in zip(("one", "two"), models):
            with open(f"{{folder}}/{{name}}.{{index}}", "wb") as file:
                file.write(model)
for which in (0, 1):
    check(which, 0, len(models[which]))
for name, model in zip(("one", "two"), models):
    with open(f"{{folder}}/{{name}}.end", "wb") as file:
        file.write(model)
print(index)
"""


@pytest.mark.parametrize("options", [(), ("--cache-size", "0"), ("--cache-size", "128K"), ("--isolate",),
                                     ("--durability", "process")], ids=" ".join)
def test_whatever_gathers_is_there(lab: Lab, tmp_path: Path, options: tuple[str, ...]) -> None:
    seed = 11 + len(options)
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    for name, length in (("one", 900_000), ("two", 300_123)):
        (lab.work / name).write_bytes(bytes(range(251)) * (length // 251))
    done = lab.run([sys.executable, "-c", PROGRAM, seed, wanted], "--exclude", f"{wanted}/*", *options)
    assert done.returncode == 0, done.stderr.decode()
    last = int(done.stdout)
    for index in ("end", *range(last, 0, -1), last):
        if index != "end":
            lab.restore(int(index))
        for name in ("one", "two"):
            assert (lab.work / name).read_bytes() == (wanted / f"{name}.{index}").read_bytes(), (index, name)


SMALL = f"""
import os, random, sys
sys.path.insert(0, {str(ROOT)!r})
from metamori.runtime.area.run_area import CHUNK, Area
store, budget, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
area, chance = Area(store), random.Random(budget + size)
names = ("one", "two")
fds = [os.open(name, os.O_RDWR) for name in names]
models = [bytearray(open(name, "rb").read()) for name in names]
slots = {{area.pif_path(area.pif(slot)): slot for slot in area.pifs()}}
slots = [slots[os.fsencode(os.path.abspath(name))] for name in names]
most = [0, 0]
for step in range(3000):
    which, count = chance.randrange(2), chance.choice([1, size, size])
    at = chance.randrange(len(models[which]) - count)
    text = chance.randbytes(count)
    assert os.pwrite(fds[which], text, at) == count
    models[which][at:at + count] = text
    assert area.pif(slots[which]).frames * CHUNK <= max(budget, CHUNK), step
    most[which] = max(most[which], area.pif(slots[which]).frames)
    if step % 50 == 49:
        at = chance.randrange(len(models[which]) - 9000)
        assert os.pread(fds[which], 9000, at) == models[which][at:at + 9000], step
assert all(held * CHUNK == max(budget // CHUNK * CHUNK, CHUNK) for held in most), most
assert "libmetamori_rt" not in open("/proc/self/maps").read(), "Python was started for a write"
for fd, model in zip(fds, models):
    assert os.pread(fd, len(model), 0) == model
for name, model in zip(names, models):
    with open(sys.argv[4] + "/" + name, "wb") as file:
        file.write(model)
"""


@pytest.mark.in_turn("budget")
@pytest.mark.parametrize("budget", [0, 128 << 10, 300 << 10, 1 << 20])
@pytest.mark.parametrize("size", [512, 3000])
def test_the_budget_is_a_bound_and_needs_no_python(lab: Lab, tmp_path: Path, budget: int, size: int) -> None:
    """Small pieces at random over two old files: each fills its budget to the last frame and never holds more; no
    runtime is started for it, and every byte is there, in the run and after it."""
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    for name in ("one", "two"):
        (lab.work / name).write_bytes(bytes(range(251)) * 20_000)
    done = lab.run([sys.executable, "-c", SMALL, lab.store, budget, size, wanted],
                   "--exclude", f"{wanted}/*", "--cache-size", budget)
    assert done.returncode == 0, done.stderr.decode()
    for name in ("one", "two"):
        assert (lab.work / name).read_bytes() == (wanted / name).read_bytes(), name
    index = lab.log()["head"]
    lab.restore(0)
    for name in ("one", "two"):
        assert (lab.work / name).read_bytes() == bytes(range(251)) * 20_000, name
    lab.restore(index)
    for name in ("one", "two"):
        assert (lab.work / name).read_bytes() == (wanted / name).read_bytes(), name


BEGUN = """
import os
fd = os.open("one", os.O_RDWR)
whole = [bytes([65 + i]) * 4096 for i in range(6)]
for i, block in enumerate(whole):                  # few in this interval: straight to the disk buffer
    assert os.pwrite(fd, block, i * 4096) == 4096
assert os.pwrite(fd, b"small", 0) == 5             # the chunk they lie in gets a frame
assert os.pread(fd, 6 * 4096, 0) == b"small" + whole[0][5:] + b"".join(whole[1:])
"""


@pytest.mark.parametrize("options", [(), ("--cache-size", "0"), ("--isolate",)], ids=" ".join)
def test_a_frame_holds_what_its_chunk_has(lab: Lab, options: tuple[str, ...]) -> None:
    """A small write over the first of several blocks that are in the disk buffer already brings the others along."""
    (lab.work / "one").write_bytes(bytes(100_000))
    done = lab.run([sys.executable, "-c", BEGUN], *options)
    assert done.returncode == 0, done.stderr.decode()
    assert (lab.work / "one").read_bytes() == (
        b"small" + b"A" * 4091 + b"".join(bytes([66 + i]) * 4096 for i in range(5)) + bytes(100_000 - 6 * 4096))
