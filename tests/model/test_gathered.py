"""Writes of every size over old data, in sequence and at random, whole blocks and parts: what gathers in frames before
it reaches the disk buffer (shim_c/src/buffer.c) is read back by the writer, by another thread and by another process
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


@pytest.mark.parametrize("options", [(), ("--cache-size", "0"), ("--isolate",), ("--durability", "process")],
                         ids=" ".join)
def test_whatever_gathers_is_there(lab: Lab, tmp_path: Path, options: tuple[str, ...]) -> None:
    seed = 11 + len(options)
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    for name, length in (("one", 900_000), ("two", 300_123)):
        (lab.work / name).write_bytes(bytes(range(251)) * (length // 251))
    done = lab.run([sys.executable, "-c", PROGRAM, seed, wanted], "--ignore", f"{wanted}/*", *options)
    assert done.returncode == 0, done.stderr.decode()
    last = int(done.stdout)
    for index in ("end", *range(last, 0, -1), last):
        if index != "end":
            lab.restore(int(index))
        for name in ("one", "two"):
            assert (lab.work / name).read_bytes() == (wanted / f"{name}.{index}").read_bytes(), (index, name)
