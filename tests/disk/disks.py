"""Small file systems of their own, for tests that fill them. They need root: mounting is its privilege."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

MB = 1 << 20


class NoMount(Exception):
    """Why it cannot be mounted here, with a message."""


def _do(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoMount(f"{words[0]}: {done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def mounted(folder: Path, kind: str, megabytes: int, options: str = "", make: Sequence[str] = ()) -> Iterator[Path]:
    """A file system of this kind and size, mounted at folder/disk; `make` is said to mkfs too. NoMount."""
    if os.getuid() != 0:
        raise NoMount("mounting a file system needs root")
    disk, image = folder / "disk", folder / "image"
    disk.mkdir()
    if kind == "tmpfs":
        _do("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", disk)
    else:
        with image.open("wb") as file:
            file.truncate(megabytes * MB)
        _do(f"mkfs.{kind}", "-q", *(["-m", "0", "-F"] if kind == "ext4" else ["-f"]), *make, image)
        _do("mount", "-o", ",".join(filter(None, ["loop", options])), image, disk)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


def fill(folder: Path, leave: int = 0) -> Path:
    """Somebody else's file, which takes all the room that there is. ext4 gives room back when its journal is written,
    so it is filled again then."""
    path = folder / "filler"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for piece in (MB, 4096, 256) * 3:
            while free(folder) > leave + piece:
                try:
                    if os.write(fd, bytes(piece)) < piece:
                        break
                except OSError:
                    break
            with suppress(OSError):
                os.fsync(fd)
    finally:
        os.close(fd)
    return path
