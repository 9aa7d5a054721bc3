"""What a checkpoint says again without a signature keeps the one that it had, when who gave it is pruned."""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from lab import Lab

MIB = 1 << 20
SIZE = 12 * MIB
LONG = [f"pwrite 3 {MIB} {at * MIB} 3" for at in range(4, 9)]


def scattered(rng: random.Random) -> list[str]:
    """Blocks all over the file, and a long stretch of it."""
    return [f"pwrite 3 {rng.randrange(1, 9) * 4096} {rng.randrange(SIZE // 4096 - 16) * 4096} 2" for _ in range(60)] + [
        f"pwrite 3 65536 {10 * MIB + at * 65536} 1" for at in range(16)]


def flip(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def data(path: str) -> list[int]:
    """A byte of each stretch of data."""
    found, at, size = [], 0, os.path.getsize(path)
    with open(path, "rb") as file:
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            found.append(at + 100)
            at = os.lseek(file.fileno(), at, os.SEEK_HOLE)
    return found


def seen(lab: Lab, index: int) -> bytes:
    words = lab.argv("cat", index, lab.work / "f")
    return subprocess.run(words, env=lab.env, capture_output=True, check=True).stdout


@pytest.mark.parametrize("isolated", [False, True], ids=["", "isolated"])
def test_damage_is_found_after_a_prune(lab: Lab, isolated: bool) -> None:
    """A run redirects, signed; the next writes a long piece in place, and says the rest again; the first goes."""
    (lab.work / "f").write_bytes(os.urandom(SIZE))
    session = lab.start()
    session.must(["open f rw", *scattered(random.Random(1))])
    assert session.end() == 0
    session = lab.start()
    session.must(["open f rw", *LONG])
    assert session.end() == 0
    last = (lab.work / "f").read_bytes()
    if isolated:                           # killed, it goes back: what it found in place is said by its place
        session = lab.start("--isolate")
        session.must(["open f rw", *scattered(random.Random(2)), "checkpoint", "pwrite 3 100 100 7"])
        session.kill_all()
        lab.verb("log")
        assert (lab.work / "f").read_bytes() == last
    newest = max(lab.messages())
    content = seen(lab, newest)
    lab.verb("prune", "--keep-last", 1)
    lab.verb("verify")
    assert seen(lab, newest) == content
    buffers = lab.store / "buffer"
    damaged = 0
    for name in sorted(os.listdir(buffers)):
        path = str(buffers / name)
        for at in data(path)[:6]:
            flip(path, at)
            if lab.verb("verify", code=None).returncode == 0:
                to = lab.folder / "out"
                done = lab.verb("restore", newest, "--to", to, code=None)
                assert done.returncode or (to / "f").read_bytes() == content, (name, at)
                subprocess.run(["rm", "-rf", str(to)], check=True)
            else:
                damaged += 1
            flip(path, at)
    lab.verb("verify")
    assert damaged
