"""`cp -al` of tracked files: a further name is no change of what is in them."""

from __future__ import annotations

import os
import subprocess

from lab import Lab


def test_a_linked_copy_is_not_stored(lab: Lab) -> None:
    (lab.work / "f").write_bytes(os.urandom(300_000))
    assert lab.run(["sh", "-c", "printf x | dd of=f conv=notrunc 2>&-; echo 1 > g"]).returncode == 0
    subprocess.run(["cp", "-al", lab.work, lab.folder / "backup"], check=True)
    assert lab.run(["true"]).returncode == 0
    assert sum(path.stat().st_blocks * 512 for path in (lab.store / "buffer").iterdir()) < 100_000
    lab.verb("verify")
    lab.restore(0)
    lab.restore(1)
    assert (lab.work / "f").read_bytes()[:1] == b"x"


def test_a_linked_one_beside_a_changed_one(lab: Lab) -> None:
    assert lab.run(["sh", "-c", "printf 1234 > f; printf 5678 > g"]).returncode == 0
    os.link(lab.work / "f", lab.folder / "f")
    (lab.work / "g").write_text("mine")
    assert lab.run(["true"]).returncode == 0
    recorded = next(index for index, message in lab.messages().items() if message == "start of run")
    lab.restore(recorded)
    assert (lab.work / "f").read_text() == "1234" and (lab.work / "g").read_text() == "mine"
