"""Where what a run area speaks of is by now: it may be completed when its project lies in another folder, or when the
disks have other numbers, as after another mount or start of the machine."""

from __future__ import annotations

from collections.abc import Iterable

from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import REAL

_moved: tuple[bytes, bytes] | None = None
_devices: dict[int, int] = {}


def moved(before: bytes, now: bytes) -> None:
    """The project of the run area that this process completes lies in another folder by now; its paths are absolute."""
    global _moved
    _moved = (before, now) if before and before != now else None


def has_moved() -> bool:
    """Whether paths are to be read by `placed`."""
    return _moved is not None


def placed(path: bytes) -> bytes:
    """Where a path that the run area knows leads now."""
    if _moved and path.startswith(_moved[0]) and path[len(_moved[0]):][:1] in (b"", b"/"):
        return _moved[1] + path[len(_moved[0]):]
    return path


def renumbered(devices: dict[int, int]) -> None:
    """What the device numbers that the run area knows are now; {}: what they were."""
    _devices.clear()
    _devices.update((was, now) for was, now in devices.items() if was != now)


def device(number: int) -> int:
    """What a device number that the run area knows is now."""
    return _devices.get(number, number)


def devices_of(noted: Iterable[tuple[bytes, int, int, int]]) -> dict[int, int]:
    """Numbers of devices, and what they are now, by files that still are where they were: path, device, inode number
    and birth of each. What one of them has still stays: the others are in a snapshot that is mounted in that place."""
    found: dict[int, int] = {}
    for path, dev, ino, btime_ns in noted:
        if found.get(dev) != dev and btime_ns:
            st = lstat_or_none(REAL, path)
            if st is not None and st.st_ino == ino and REAL.birth_ns(path) == btime_ns:
                found[dev] = dev if st.st_dev == dev else found.get(dev, st.st_dev)
    return found
