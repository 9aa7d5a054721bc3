"""LMDB, unmodified, by pwrite and through its mapping: killed in the middle, restored, and checked by LMDB itself."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Lab, Session

WRITER = Path(__file__).parent / "lmdb_writer.py"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("lmdb") is None, reason="the Python package lmdb is missing")

CHECK = """
import lmdb, sys
env = lmdb.open(sys.argv[1], readonly=True, lock=False, map_size=64 << 20)
with env.begin() as txn:
    pairs = dict(txn.cursor())
    assert len(pairs) == txn.stat()["entries"], "the tree does not hold what it says"
    rounds = {pairs[b"same %d" % i] for i in range(40)}
    assert len(rounds) == 1, rounds
    last = int(rounds.pop())
    assert all(b"%d-%d" % (last, i) in pairs for i in range(300)) or last == 0
    assert not any(b"%d-0" % (last + 1) == key for key in pairs)
print(last)
"""


def last_round(lab: Lab) -> int:
    done = subprocess.run([sys.executable, "-c", CHECK, lab.work / "db"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("way", ["pwrite", "writemap"])
def test_lmdb(lab: Lab, installed: None, way: str) -> None:
    command = [*lab.argv("run"), "--", sys.executable, str(WRITER), "db", way, "16"]
    session = Session(command, lab.work, lab.env, lab.folder / "stderr.lmdb")
    lab.sessions.append(session)
    session.pid, taken = int(session._line()), []
    while (line := session._line()) != "written":
        if line.startswith("reader"):
            assert line == "reader 0"
        else:
            taken.append(tuple(map(int, line.split())))
    outside = [lab.checkpoint() for _ in range(3)]   # between any two instructions of the writer
    session.kill_all()
    assert len(taken) == 4
    for index, number in [*taken[::-1], taken[1]]:
        lab.restore(index)
        assert last_round(lab) == number, f"checkpoint {index}"
    rounds = []
    for index in outside:
        lab.restore(index)
        rounds.append(last_round(lab))
    assert rounds == sorted(rounds) and rounds[0] >= 16
    lab.verb("verify")
