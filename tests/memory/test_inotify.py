"""Watches of inotify: they come back under their numbers, or the checkpoint is refused and says why."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from comeback import Memory, built, comes_back
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")


def test_they_come_back(tmp_path: Path) -> None:
    """Of files, folders and links, with gaps in their numbers; by two processes; the restart itself is no event, and
    what is written to a watched file still is."""
    case = Memory(tmp_path, [built(tmp_path, "inotify.c"), "work"])
    case.may_refuse = lambda line: "holds unread events" in line
    comes_back(case, "150ms")


CASES = {"unread": "is of inotify and holds unread events",
         "moved": "/watched, whose name is gone, or another's by now"}


def started(case: Memory) -> subprocess.Popen[bytes]:
    (case.work / "go").unlink()
    run = case.start()
    wait_until(lambda: b"ready" in (case.folder / "out").read_bytes() or run.poll() is not None, "it is ready")
    return run


@pytest.mark.parametrize("what", CASES)
def test_what_cannot_is_named(tmp_path: Path, what: str) -> None:
    case = Memory(tmp_path, [built(tmp_path, "inotify.c"), what], setup={"go": b""})
    run = started(case)
    try:
        done = case.verb("checkpoint")
        assert done.returncode == 1 and CASES[what] in done.stderr.decode(), done
        (case.work / "go").touch()
        assert run.wait(300) == 0, case.errors()
        assert (tmp_path / "out").read_bytes() == case.native.output
    finally:
        run.kill()
    assert case.images() == []


def test_what_it_watched_is_not_there(tmp_path: Path) -> None:
    """Out of the scope, so nobody puts it back: said before anything is touched."""
    (tmp_path / "outside").mkdir()
    place = tmp_path / "outside" / "folder"
    place.mkdir()
    program = tmp_path / "program.py"
    program.write_text(f"import ctypes, os, time\nlibc = ctypes.CDLL(None)\nwatcher = libc.inotify_init1(0)\n"
                       f"assert libc.inotify_add_watch(watcher, {os.fsencode(place)!r}, 0x100) == 1\nprint('ready')\n"
                       f"import sys\nsys.stdout.flush()\nwhile not os.path.exists('go'):\n    time.sleep(0.02)\n"
                       f"open({str(place / 'new')!r}, 'w').close()\nprint(os.read(watcher, 99)[16:19])\n")
    case = Memory(tmp_path, ["/usr/bin/python3", program], setup={"go": b""})
    (place / "new").unlink()
    run = started(case)
    try:
        assert case.verb("checkpoint").returncode == 0
        case.kill(run)
        run.wait(300)
    finally:
        run.kill()
    shutil.rmtree(place)
    done = case.verb("restart", "1")
    assert done.returncode == 1 and b"/folder, which it watched, is not there" in done.stderr, done
    place.mkdir()
    (case.work / "go").touch()
    done = case.verb("restart", "--force", "1")
    assert done.returncode == 0 and done.stdout == b"b'new'\n", done
