"""What is said to be over is over after a power cut, and what was durable before stays so. On an ext4 that writes its
journal when it is told to, or every second. Needs root, as mounting does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from rewind import another_boot
from test_power_cut_on_devices import Disk, do


@pytest.fixture
def disk(tmp_path: Path, lab: Lab) -> Iterator[Disk]:
    """The store's."""
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    found = Disk(tmp_path / "of_store", "ext4")
    lab.store = found.at / "store"
    yield found
    found.close()


def test_a_run_that_has_ended_is_not_completed_once_more(lab: Lab, disk: Disk) -> None:
    """Its buffer would be written over what somebody has made of the file since."""
    do("mount", "-o", "remount,commit=600", disk.at)
    file, copy = lab.work / "f", disk.image.with_name("copy")
    file.write_bytes(os.urandom(200_000))
    for seed in range(2):
        session = lab.start()
        session.must(["open f rw", f"pwrite 3 50000 8192 {seed}"])
        assert session.end() == 0
    with file.open("r+b") as changed:
        changed.seek(12000)
        changed.write(b"mine" * 1000)
        os.fsync(changed.fileno())
    mine = file.read_bytes()
    disk.copy(copy)
    with disk.instead(copy):
        another_boot(disk.at)
        lab.verb("log")
        assert file.read_bytes() == mine


@pytest.mark.parametrize("waits", [True, False], ids=["killed later", "killed at once"])
def test_a_prune_leaves_what_was_durable(lab: Lab, disk: Disk, waits: bool) -> None:
    """With --durability process its records have names in the journal before they are on the disk."""
    do("mount", "-o", "remount,commit=1", disk.at)
    file, copy = lab.work / "f", disk.image.with_name("copy")
    content = os.urandom(200_000)
    file.write_bytes(content)
    session = lab.start()                  # of power: index 1
    session.must(["open f rw", "pwrite 3 50000 8192 1", "pwrite 3 5000 200000 1"])
    assert session.end() == 0
    first = file.read_bytes()
    for index in (0, 1):                   # what it has appended is in a record of its own, that a prune merges
        lab.restore(index)
    session = lab.start("--durability", "process", "--keep-last", 1)
    session.must(["open f rw"])
    for seed in range(2, 6):
        session.must([f"pwrite 3 60000 4096 {seed}", "pwrite 3 5000 210000 1", "checkpoint", "ftruncate 3 205000"])
    if waits:
        time.sleep(2.5)                    # the journal is written, what was not synced is not
    disk.copy(copy)
    session.kill_all()
    os.sync()
    with disk.instead(copy):
        another_boot(disk.at)
        lab.verb("log")
        lab.restore(1, "--force")
        assert file.read_bytes() == first
        lab.restore(0)
        assert file.read_bytes() == content
