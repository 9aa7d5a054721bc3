"""A power cut for a run that was watched call by call: what was not synced is taken back, in place.

Invariants of the disk that is played, an ordinary journalling file system:
  * names, sizes and modes reach it in the order in which they were changed, and an fsync of anything brings all so far;
  * the bytes of a file are there as far as it was synced; what came later is there or not, sector by sector;
  * a file does not grow on it before its bytes are there: its size is the synced one, or the one it had.
Two folders are two disks: an fsync on one brings nothing of the other, and each comes back as of an instant of its
own. Files and symbolic links keep their
inodes, because a store knows them by that: one that has gone cannot be brought back, so a disk comes back as of an
instant whose links, and the data's as of one whose files, are all still there (test_power_cut_on_devices.py has the
others). Mapped files of the run area
may hold anything. Times of change cannot be put back: `Times` tells them to whoever asks in this process, and in one
that is started by `told.py`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tracing import Call

from metamori.runtime.area import wal
from metamori.store.io.os_io import REAL

SECTOR = 512
MAPPED = {"header", "processes", "fits", "pifs", "pages", "journal", "strings", "chunks", "frames", "cache"}
SYNCS = ("fsync", "fdatasync", "syncfs")


class Entry(NamedTuple):
    """What a path led to. target: of a symbolic link."""

    ino: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    target: bytes
    born: int


@dataclass
class Names:
    """What the folders said at one instant."""

    at: dict[bytes, Entry] = field(default_factory=dict)


def _of(names: Names, *kinds: int) -> set[tuple[int, int]]:
    return {(entry.ino, entry.born) for entry in names.at.values() if stat.S_IFMT(entry.mode) in kinds}


class Times:
    """Times of change as the disks that came back have them, for each look at a file that is as it came back."""

    def __init__(self, told: dict[tuple[int, int], tuple[int, int]] | None = None) -> None:
        self._told = told or {}                         # by device and inode: the real one, the one to tell

    def play(self, patch: pytest.MonkeyPatch) -> Times:
        for name in ("stat", "lstat", "fstat"):
            patch.setattr(os, name, self._telling(getattr(os, name)))
        return self

    def elsewhere(self, argv: Sequence[str], note: Path) -> list[str]:
        """`python -m metamori ...`, as a process that is told the same."""
        note.write_text(json.dumps(list(self._told.items())))
        return [argv[0], str(Path(__file__).with_name("told.py")), str(note), *argv[argv.index("metamori") + 1:]]

    def _telling(self, look: Any) -> Any:
        def told(*words: Any, **more: Any) -> os.stat_result:
            st: os.stat_result = look(*words, **more)
            real, instead = self._told.get((st.st_dev, st.st_ino), (0, 0))
            if st.st_ctime_ns != real:
                return st
            kind, (seen, rest) = st.__reduce__()        # type: ignore[misc, str-unpack]
            return kind(seen, {**rest, "st_ctime": instead / 1e9, "st_ctime_ns": instead})  # type: ignore[operator]

        return told

    def take_over(self, then: Sequence[Names]) -> None:
        """They are on their disks now."""
        self._told.clear()
        found = [(os.lstat(path), entry) for names in then for path, entry in names.at.items()]
        for st, entry in found:            # all looked at before: a file may have several names
            self._told[st.st_dev, st.st_ino] = (st.st_ctime_ns, entry.ctime_ns)


def below(folder: bytes) -> Iterator[bytes]:
    for at, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            yield os.path.join(at, name)


def look(folder: bytes) -> Names:
    names = Names()
    for path in below(folder):
        try:
            st = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(st.st_mode) else b""
        except FileNotFoundError:
            continue
        names.at[path] = Entry(st.st_ino, st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, target,
                               REAL.birth_ns(path))
    return names


class Watched:
    """What was durable at each call so far on the disks of some folders, the store's last. `seen` is called before a
    call is carried out."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.disks = [Disk(folder) for folder in reversed(folders)]    # the store's first

    def seen(self, call: Call) -> None:
        for disk in self.disks:
            disk.seen(call)

    def cut_power(self, rng: random.Random, times: Times) -> None:
        """Put disks in place that a power cut may have left; nothing of the run is alive."""
        times.take_over([disk.cut_power(rng, others=disk is not self.disks[0]) for disk in self.disks])


class Disk:
    """One filesystem, as far as a folder of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.fsencode(folder)
        self.since: list[Names] = [look(self.folder)]   # since the last sync, that one included
        self.synced: dict[tuple[int, int], bytes] = {}  # by inode and birth
        for path, entry in self.since[0].at.items():
            if stat.S_ISREG(entry.mode):
                self.synced[entry.ino, entry.born] = _content(path)

    def seen(self, call: Call) -> None:
        now = look(self.folder)
        if call.name in SYNCS and os.fsencode(call.path + "/").startswith(self.folder + b"/"):
            # answered before the next call: whoever is told of it is told after this
            self.since = [now]
            for path in now.at if call.name == "syncfs" else {os.fsencode(call.path)} & now.at.keys():
                if stat.S_ISREG(now.at[path].mode):
                    self.synced[now.at[path].ino, now.at[path].born] = _content(path)
        else:
            self.since.append(now)

    def cut_power(self, rng: random.Random, others: bool) -> Names:
        """What it came back as. others: the store is on another disk, where nothing brings files back."""
        self.since.append(look(self.folder))
        then = rng.choice(self._possible((stat.S_IFLNK, stat.S_IFREG) if others else (stat.S_IFLNK,)))
        now = {entry.ino: path for path, entry in self.since[-1].at.items()
               if stat.S_ISREG(entry.mode) or stat.S_ISLNK(entry.mode)}
        content = {ino: _content(path) for ino, path in now.items() if not os.path.islink(path)}
        aside = self.folder + b".aside"
        os.mkdir(aside)
        for ino, path in now.items():                   # so that every file that has a name keeps its inode
            os.link(path, os.path.join(aside, b"%d" % ino), follow_symlinks=False)
        for path in sorted(below(self.folder), reverse=True):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rename(path, os.path.join(aside, b"folder%d" % os.lstat(path).st_ino))
            else:
                os.unlink(path)
        for path, entry in sorted(then.at.items()):
            self._make(path, entry, aside, content, rng)
        shutil.rmtree(aside)
        another_boot(Path(os.fsdecode(self.folder)))
        for path, entry in sorted(then.at.items(), reverse=True):
            if stat.S_ISREG(entry.mode) or stat.S_ISLNK(entry.mode):
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
        return then

    def _possible(self, kinds: tuple[int, ...]) -> list[Names]:
        there = _of(self.since[-1], *kinds)
        return [each for each in self.since if _of(each, *kinds) <= there]

    def _make(self, path: bytes, entry: Entry, aside: bytes, content: dict[int, bytes], rng: random.Random) -> None:
        ino, mode, size, target = entry.ino, entry.mode, entry.size, entry.target
        if stat.S_ISDIR(mode):
            try:
                os.rename(os.path.join(aside, b"folder%d" % ino), path)   # a file may have its number by now
            except FileNotFoundError:
                os.mkdir(path)
        elif stat.S_ISLNK(mode):
            assert os.readlink(os.path.join(aside, b"%d" % ino)) == target
            os.link(os.path.join(aside, b"%d" % ino), path, follow_symlinks=False)
            return
        elif stat.S_ISREG(mode):
            if ino in content:
                os.link(os.path.join(aside, b"%d" % ino), path)
            # of a file that has gone since, what it was when it was synced is all that is known
            synced = self.synced.get((ino, entry.born), b"")
            data = self._torn(path, synced, size, content.get(ino, synced), rng)
            with open(path, "wb") as file:
                file.write(data)
        os.chmod(path, stat.S_IMODE(mode))

    @staticmethod
    def _torn(path: bytes, synced: bytes, size: int, now: bytes, rng: random.Random) -> bytes:
        if os.path.basename(path).decode() in MAPPED and os.path.dirname(path).endswith(b"/run"):
            return b"".join(rng.choice((now[at:at + 4096], bytes(4096), rng.randbytes(4096)))
                            for at in range(0, len(now), 4096))
        if size > len(synced) and rng.random() < .5:
            size = len(synced)
        how = rng.choice(("lost", "kept", "torn"))
        data = bytearray(synced[:size].ljust(size, b"\0"))
        for at in range(0, size, SECTOR):
            if how == "kept" or (how == "torn" and rng.random() < .5):
                end = min(at + SECTOR, size)            # what was written behind this size is not there
                data[at:end] = now[at:end].ljust(end - at, b"\0")
        return bytes(data)


def another_boot(folder: Path) -> None:
    """The machine was started again since the run began."""
    for log in folder.glob("**/run/ahead"):
        data = bytearray(log.read_bytes())
        at = data.find(wal.boot_id(), 0, 4096)
        if at >= 0 and wal.boot_id():
            data[at:at + 4] = b"zzzz"
            length, = struct.unpack_from("=I", data, 4)
            struct.pack_into("=I", data, 8, zlib.crc32(data[12:length]))
            log.write_bytes(data)


def _content(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()
