"""A `metamori` that is killed at its nth operation from when it is told so: one that changes a file, or a message."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

STARTER = r"""
import os, sys

order, left, how = os.environ["KILL_ORDER"], None, 0
read, remove = os.open, os.unlink

def counted(call):
    def before(*args, **named):
        global left, how
        try:
            fd = read(order, os.O_RDONLY)
            left, how = os.read(fd, 40).split()
            left, how = int(left), int(how)
            os.close(fd)
            remove(order)
        except FileNotFoundError:
            pass
        if left is not None:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), how)
        return call(*args, **named)
    return before

def opens(call):
    of_new = counted(call)
    def before(path, flags, *args, **named):
        return (of_new if flags & os.O_CREAT else call)(path, flags, *args, **named)
    return before

for name in ("pwrite", "rename", "link", "unlink", "mkdir", "rmdir", "fsync", "fdatasync", "ftruncate"):
    setattr(os, name, counted(getattr(os, name)))
os.open = opens(os.open)
from metamori.store.io import os_io
os_io._rename_new = counted(os_io._rename_new)
if "--job" in sys.argv:
    from metamori.runtime.job import relays, wire
    if "RELAYS" in os.environ:             # already from so many runs on; and what is said to all counts one by one
        relays.WIDTH = int(os.environ["RELAYS"])
        wire.Server._send = counted(wire.Server._send)
    else:
        wire.Server.send = counted(wire.Server.send)
    wire.Client.send = counted(wire.Client.send)
from metamori.cli.main import main
sys.exit(main())
"""


def argv(words: list[str]) -> list[str]:
    """The command line of lab.argv, for one that can be killed so."""
    assert words[:3] == [sys.executable, "-m", "metamori"], words
    return [sys.executable, "-c", STARTER, *words[3:]]


def order(path: Path, nth: int, how: int = signal.SIGKILL) -> None:
    """Whoever has this path as KILL_ORDER gets a signal at its nth operation from now on; or another order."""
    new = path.with_suffix(".new")
    new.write_text(f"{nth} {int(how)}")
    os.rename(new, path)


NEVER = 10 ** 12
