"""Filesystems that --dir is not on, mounted for as long as the bench runs, on loop devices or in memory; as root only.

Not /dev/shm for a tmpfs: what lies there is not tracked.
"""
from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import machine

IMAGE_BYTES = 8 << 30                      # sparse
# "journaled" is an ext4, whatever that of --dir is: without a journal it looks long for the number of a new file, since
# none is given that another file has had in the last seconds: 18 to 280 us for the same call.
MAKE = {"ext4": ["mkfs.ext4", "-q", "-F"], "journaled": ["mkfs.ext4", "-q", "-F", "-O", "has_journal"],
        "xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"]}
_CLONE_NEWNS = 0x20000


class Missing(Exception):
    """This machine cannot have the filesystem, and why."""


def own_mounts() -> None:
    """Mounts made from here on are this process's and its children's, and end with them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise Missing(f"no mounts of our own: {os.strerror(ctypes.get_errno())}")
    _do("mount", "--make-rprivate", "/")


@contextmanager
def filesystem(kind: str, here: Path) -> Iterator[Path]:
    """A folder on such a filesystem: `here`, or one below it that is mounted now."""
    if machine.filesystem(here) == kind:
        yield here
    else:
        with tempfile.TemporaryDirectory(prefix="metamori-bench-", dir=here) as name:
            image, folder = Path(name, "image"), Path(name, kind)
            _mount(kind, image, folder)
            try:
                yield folder
            finally:
                _do("umount", "-l", str(folder))


def _mount(kind: str, image: Path, folder: Path) -> None:
    if os.geteuid() != 0:
        raise Missing("only root can mount a filesystem")
    own_mounts()
    folder.mkdir()
    if kind == "tmpfs":
        return _do("mount", "-t", "tmpfs", "-o", "size=75%", "none", str(folder))
    image.touch()
    os.truncate(image, IMAGE_BYTES)
    if kind not in MAKE:
        raise Missing(f"there is no {kind} here")
    _do(*MAKE[kind], str(image))
    return _do("mount", "-o", "loop", str(image), str(folder))


def _do(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True,
                       env=os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{command[0]}: {getattr(error, 'stderr', None) or error}".strip()) from None
