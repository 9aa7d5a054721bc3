"""A change right after head was written is told by its time: the clock of files has gone on by then."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from lab import Lab

from metamori.store.format.records import Identity
from metamori.store.read import head
from metamori.store.read import store as stores
from metamori.store.read.store import Store


@pytest.mark.parametrize("ahead_ns", [0, 3_000_000])
def test_the_clock_has_gone_on(tmp_path: Path, ahead_ns: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    found = os.lstat(path)
    noted = Identity(os.fsencode(path), found.st_dev, found.st_ino, 3, found.st_mtime_ns, found.st_ctime_ns + ahead_ns)
    head.wait_past([noted])
    assert time.clock_gettime_ns(head._COARSE) > noted.ctime_ns
    path.write_bytes(b"two")
    assert os.lstat(path).st_mtime_ns > noted.ctime_ns


@pytest.mark.parametrize("tick_ns", [2 * 10**9, 10**9, 10**7])
def test_filesystems_that_keep_whole_seconds(tick_ns: int) -> None:
    written = time.time_ns() // tick_ns * tick_ns
    head.wait_past([Identity(b"/file", 1, 1, 0, 0, written), Identity(b"/none", 0, 0, 0, 0, 0)])
    assert time.clock_gettime_ns(head._COARSE) >= written + tick_ns


def test_no_clock_is_waited_for_long(tmp_path: Path) -> None:
    before = time.monotonic()
    head.wait_past([Identity(b"/file", 1, 1, 0, 0, time.time_ns() + 10**15)])
    assert time.monotonic() - before < 10
    head.wait_past([])


def test_what_the_store_keeps_too(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have a name elsewhere, by which it is written to."""
    lab.run([sys.executable, "-c", "import metamori, os\nopen('file', 'w').write('kept')\n"
             "metamori.checkpoint()\nos.unlink('file')"])
    with Store.open(str(lab.store)) as store:
        [kept] = store.head.kept
        waited = list[int]()
        monkeypatch.setattr(stores, "wait_past", lambda noted: waited.extend(each.ctime_ns for each in noted))
        store.set_head(store.head.index, store.head.kept)
        assert kept.ctime_ns in waited
