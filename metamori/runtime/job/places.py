"""Which folders of a run lie on disks of its own machine: what is there is not what others have at the same path.

Told by the path, from where filesystems are mounted: a file's device changes when the store keeps it. Noted in the
run's store, for whoever folds its records may be on another machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from metamori.errors import MetamoriError
from metamori.runtime.job import folder
from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.tables.record import record

# of any other it cannot be told whether several machines have it
_LOCAL = ("bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs",
          "squashfs", "tmpfs", "vfat", "xfs", "zfs")
_NO_FILES = ("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
             "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "securityfs", "selinuxfs", "sysfs",
             "tracefs")


@record
class Place:
    """dev: the number that the store's filesystem has here. own: of folders, and what is below them, whether they are
    on this machine's own disks, and None where that cannot be told: the longest that fits counts."""

    host: str
    boot: str
    dev: int
    own: tuple[tuple[bytes, bool | None, int], ...] = ()       # and the number of their filesystem

    @property
    def disks(self) -> dict[bytes, int]:
        return {path: dev for path, own, dev in self.own if own}

    def is_own(self, path: bytes) -> bool | None:
        return self.top(path)[1]

    def top(self, path: bytes) -> tuple[bytes, bool | None]:
        """Of these folders the one that it is in."""
        fits = ((path_, own) for path_, own, _ in self.own if is_below(path, path_))
        return max(fits, default=(b"", False), key=lambda each: len(each[0]))


def is_below(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top.rstrip(b"/") + b"/")


def look(store: Store, host: str, folders: Iterable[bytes]) -> Place:
    """folders: that are tracked. MetamoriError where one lies on a filesystem that others may have too, and that is not
    the store's; what is mounted below it may be nobody's concern."""
    dev = store.door.lstat(store.layout.root).st_dev
    mounts = _mounts()
    found: dict[bytes, tuple[bool | None, int]] = {}
    for top in folders:
        under = max((each for each in mounts if is_below(top, each)), key=len, default=b"/")
        for path in (top, *(each for each in mounts if is_below(each, top) and each != top)):
            kind = mounts.get(under if path == top else path, "")
            if kind in _NO_FILES:
                continue
            try:
                here = os.stat(path).st_dev
            except OSError:
                continue
            told = here == dev or kind in _LOCAL
            if not told and path == top:
                raise MetamoriError(f"{os.fsdecode(path)}: with --job tracked folders must lie on the filesystem of "
                                    f"the store, or on a node's own disk; {kind or 'this'} may be either")
            found[path] = (here != dev if told else None, here)
    return Place(host, folder.boot(), dev, tuple((path, *found[path]) for path in sorted(found)))


def _mounts() -> dict[bytes, str]:
    """Where, and of which kind; the last of several at one place is seen."""
    found = {}
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            words = line.split(b" ")
            path = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), words[4])
            found[path] = words[words.index(b"-") + 1].decode()
    return found


def _file(store: Store, name: bytes) -> bytes:
    return os.path.join(store.layout.node(name), b"place")


def note(store: Store, name: bytes, place: Place) -> None:
    """store: the job's."""
    data = {"host": place.host, "boot": place.boot, "dev": place.dev,
            "own": [[path.hex(), own, dev] for path, own, dev in place.own]}
    folder.write_note(store.door, _file(store, name), data, durable=True)


def read(store: Store, name: bytes) -> Place:
    """Of one of the job's runs; where it was killed before it had noted it, nothing has happened in it."""
    return read_in(Store(store.layout.node(name), store.door))


def read_in(node: Store) -> Place:
    """The same, of the run's own store."""
    path = os.path.join(node.layout.root, b"place")
    found = commit.lstat_or_none(node.door, path)
    if found is None or not found.st_size:             # notes were not durable once: a power cut may have emptied it
        return Place("", "", node.door.lstat(node.layout.format).st_dev)
    data = folder.read_note(node.door, path)
    return Place(data["host"], data["boot"], data["dev"],
                 tuple((bytes.fromhex(path), own, dev) for path, own, dev in data["own"]))


def require_alike(store: Store, name: bytes, place: Place) -> None:
    """MetamoriError where the job's runs would mix up their disks. Of two that begin at once, each has noted its place
    before it looks."""
    for other_name in folder.names(store):
        if other_name == name or not folder.is_alive(store, other_name):
            continue
        other = read(store, other_name)
        if not (place.disks and other.disks):
            continue
        if other.host == place.host and other.boot != place.boot:
            raise MetamoriError(f"two machines of this job are called {place.host}, and have files on their own disks")
        for path, dev in place.disks.items():
            if other.host == place.host and other.disks.get(path, dev) != dev:
                raise MetamoriError(f"{os.fsdecode(path)}: another run on {place.host} has another filesystem there")
            if other.host != place.host and other.boot == place.boot and dev in other.disks.values():
                raise MetamoriError(f"{os.fsdecode(path)}: a run on the same machine calls it {other.host}, not "
                                    f"{place.host}")
