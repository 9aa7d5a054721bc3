"""A `metamori` that is killed at its nth operation from when it is told so: one that changes a file, or a message. Or
that operation fails, and all later ones too ("always"), as on a disk that is full, or away."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

STARTER = r"""
import os, sys

order, left, how, always = os.environ["KILL_ORDER"], None, 0, False
read, remove = os.open, os.unlink

def counted(call):
    def before(*args, **named):
        global left, how, always
        try:
            fd = read(order, os.O_RDONLY)
            left, how, *more = os.read(fd, 40).split()
            left, how, always = int(left), int(how), bool(more)
            os.close(fd)
            remove(order)
        except FileNotFoundError:
            pass
        if left is not None:
            left -= 1
            if left == 0 or (always and left < 0):
                if how < 0:
                    with open(order + ".done", "a"):
                        raise OSError(-how, os.strerror(-how))
                os.kill(os.getpid(), how)
        return call(*args, **named)
    return before

def opens(call):
    of_new = counted(call)
    def before(path, flags, *args, **named):
        makes = flags & os.O_CREAT and not ("FAILS" in os.environ and os.path.exists(path))
        return (of_new if makes else call)(path, flags, *args, **named)
    return before

names = os.environ.get("FAILS", "pwrite,rename,link,unlink,mkdir,rmdir,fsync,fdatasync,ftruncate")
for name in names.split(","):
    setattr(os, name, counted(getattr(os, name)))
os.open = opens(os.open)
from metamori.store.io import os_io
os_io._rename_new = counted(os_io._rename_new)
if "--job" in sys.argv and "FAILS" not in os.environ:
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


def order(path: Path, nth: int, how: int = signal.SIGKILL, more: str = "") -> None:
    """Whoever has this path as KILL_ORDER gets a signal at its nth operation from now on, or the error -how; or another
    order."""
    new = path.with_suffix(".new")
    new.write_text(f"{nth} {int(how)} {more}")
    os.rename(new, path)


NEVER = 10 ** 12
