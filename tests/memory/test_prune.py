"""Pruning merges images: every index that is kept goes on as before, those that went are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from comeback import Memory

pytestmark = pytest.mark.usefixtures("installed")

PROGRAM = """
import hashlib, zlib
rows = {}
for i in range(900000):
    rows[i % 3000] = hashlib.md5(("%d" % i).encode() + rows.get(i % 3000, b"")).digest()
    if i % 20000 == 0:
        with open("rows", "a") as file:
            print(i, zlib.crc32(b"".join(rows.values())), file=file)
        print(i, flush=True)
print(zlib.crc32(b"".join(rows.values())))
"""


def test_kept_indexes_go_on(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    case = Memory(tmp_path, ["/usr/bin/python3", script])
    images = case.run_and_kill("80ms", 6, least=4)
    done = case.verb("prune", "--keep-last", "3")
    assert done.returncode == 0, done.stderr
    kept = [entry["index"] for entry in case.log()["checkpoints"] if entry["memory"]]
    assert 0 < len(kept) < len(images)
    assert case.images() == kept, "the images of pruned indexes are gone"
    case.everywhere(kept)
    assert case.verb("restart", str(images[0])).returncode == 13


def test_a_live_run_keeps_the_last(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    case = Memory(tmp_path, ["/usr/bin/python3", script])
    run = case.start("--every", "80ms", "--keep-last", "2")
    assert run.wait(300) == case.native.status, case.errors()
    assert (tmp_path / "out").read_bytes() == case.native.output
    kept = [entry["index"] for entry in case.log()["checkpoints"] if entry["memory"]]
    assert kept and len(kept) <= 2
    case.everywhere(kept)
