"""The files that a checkpoint speaks of, and the folders of its names, on the disk: each by itself, or, where there are
many on one filesystem, all of it at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from metamori.store.io.os_io import MANY, REAL, Door, can_be_whole


def sync(homes: Iterable[tuple[bytes, os.stat_result]], folders: Collection[bytes],
         door: Door = REAL) -> None:
    """Regular files, each with what stood there at the instant of the checkpoint; and folders.

    The program has gone on since: a file that was renamed, replaced or unlinked meanwhile, or whose owner may not open
    it, is made durable together with all of its filesystem. A folder that is gone is a change of the one around it.
    """
    by_device: dict[int, dict[bytes, int]] = {}
    for path, st in homes:
        by_device.setdefault(st.st_dev, {})[path] = st.st_ino
    whole = set()
    for device, files in by_device.items():
        many = len(files) > MANY and can_be_whole(device)
        if many or not all(_file(path, device, ino, door) for path, ino in files.items()):
            _all_of(device, files, door)
            whole.add(device)
    for folder in folders:
        if not whole or _device(folder) not in whole:
            _folder(folder)


def _all_of(device: int, files: Iterable[bytes], door: Door) -> None:
    """The whole filesystem: by a file or a folder around one that is still there."""
    for path in files:
        for at in _and_around(path):
            fd = _opened(at, os.O_RDONLY)
            if fd < 0:
                continue
            try:
                if os.fstat(fd).st_dev == device:
                    door.syncfs(fd)
                    return
            finally:
                os.close(fd)
    os.sync()                              # nothing of it can be opened


def _and_around(path: bytes) -> Iterator[bytes]:
    while True:
        yield path
        if path == os.path.dirname(path):
            return
        path = os.path.dirname(path)


def _device(path: bytes) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return 0


def _opened(path: bytes, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1


def _file(path: bytes, device: int, ino: int, door: Door) -> bool:
    """Whether it is durable now: it still has its name, and could be opened."""
    fd = _opened(path, os.O_RDONLY)
    if fd < 0:
        return False
    try:
        st = os.fstat(fd)
        if (st.st_dev, st.st_ino) != (device, ino):
            return False
        door.fdatasync(fd)
        return True
    finally:
        os.close(fd)


def _folder(path: bytes) -> None:
    for at in _and_around(path):
        fd = _opened(at, os.O_RDONLY | os.O_DIRECTORY)
        if fd >= 0:
            try:
                os.fdatasync(fd)
                return
            finally:
                os.close(fd)
    os.sync()
