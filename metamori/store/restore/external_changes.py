"""Recording what somebody else did to the tracked files as an index of its own, before it is moved away from.

Each changed file's whole content goes into the newest buffer as the new index's redo entries, so that this
index stays exact whatever happens to the file later. A file of which only names, mode or owner changed keeps its place.
What it means for the older indexes (holders.py): bytes in place that they resolve to and no undo record has saved are
  * lost when the file was written to (which of them changed nobody can tell), is gone, or another file has its place;
  * where they were when nothing but names, mode or owner changed.
A backing file in the store that was written to by a name outside of the scope has lost them in the same way.
The undo records that say so are durable before head forgets what the files were.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress

from metamori.errors import ChangedOutside, Damaged
from metamori.store.format.records import Identity, Meta, NameEntry, OffsetEntry, Offsets, UndoEntry
from metamori.store.io import xattrs
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import umask
from metamori.store.read.head import identity_now, identity_of, kept_homes, wait_past
from metamori.store.read.holders import Holders
from metamori.store.read.store import Store
from metamori.store.restore import kept_changes, restore
from metamori.tables.pif import NO_LIMIT, PifEntry
from metamori.tables.record import replace

_TRIES = 3


def refused(changed: Iterable[bytes]) -> list[bytes]:
    """Those of the changed paths that only --force may move away from. A look at a repository (`git status`) writes its
    index anew, which is nobody's work: it is saved like the others, and the restore goes on."""
    return [path for path in changed if not (os.path.basename(path) == b"index" and b"/.git/" in path)]


def record(store: Store, reason: str) -> int:
    """The new index, at which head then is; 0 when no tracked path was changed, and none has what head's index does not
    have. The caller holds the lock."""
    kept_changes.give_up(store)
    holders = Holders(store)
    paths = sorted({*holders.changed, *holders.around, *store.left_behind()})
    return _Present(store, reason, holders, paths).commit() if paths else 0


class _Present:
    def __init__(self, store: Store, reason: str, holders: Holders, paths: list[bytes]) -> None:
        self._store, self._reason, self._holders, self._paths = store, reason, holders, paths
        self._here = store.state(store.head.index)
        self._noted = {each.path: each for each in store.head.identities}
        self._index = store.next_index()
        self._process = store.next_process()
        self._run = restore.newest_run(store)
        self._new: dict[tuple[int, int], int] = {}     # files that head does not know
        self._pifs: dict[int, PifEntry] = {}
        self._seen: dict[bytes, Identity] = {}         # what is recorded of files, and so what head is to note
        self._saved: dict[int, os.stat_result] = {}
        self._redo: list[OffsetEntry] = []
        self._undo: list[UndoEntry] = []

    def commit(self) -> int:
        store = self._store
        names = self._here.with_unplaced(tuple(self._entry(path) for path in self._paths))
        self._give_up_homes()
        if self._redo or self._undo:
            store.buffers.sync(self._run)
        if self._undo:
            store.add_undo(self._undo, store.newest)
        added = sum(entry.end - entry.start for entry in self._redo)
        meta = Meta(self._index, store.head.index, time.time_ns(), "", self._reason, self._run, self._process,
                    bytes_added=added, names=names, pifs=tuple(self._pifs.values()),
                    initial_names=tuple(self._as_folder(path) for path in self._holders.around))
        store.commit_checkpoint(meta, Offsets(self._index, self._process, self._run, tuple(self._redo)))
        homes = kept_homes(store.door, store.layout, store.head, store.state(self._index))
        # what lies in the store stays known as what it was
        store.set_head(self._index, homes, noted=True, touched=set(self._paths), seen=self._seen)
        return self._index

    def _entry(self, path: bytes) -> NameEntry:
        found = lstat_or_none(self._store.door, path) if path not in self._holders.behind else None
        if found is None:
            return NameEntry(path, "absent")
        inode = 0
        if stat.S_ISREG(found.st_mode):
            inode, found = self._content(path, found)
        mode = found.st_mode
        owner = (found.st_uid, found.st_gid, found.st_mtime_ns)
        if stat.S_ISREG(mode):
            return NameEntry(path, "file", inode, mode, *owner, b"", xattrs.read(path))
        if stat.S_ISDIR(mode):
            return NameEntry(path, "dir", self._folder(path, found), mode, *owner, b"", xattrs.read(path))
        if stat.S_ISLNK(mode):
            return NameEntry(path, "symlink", 0, mode, *owner, self._store.door.readlink(path))
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            return NameEntry(path, "other", 0, mode, *owner, b"%d" % found.st_rdev, xattrs.read(path))
        return NameEntry(path, "fifo" if stat.S_ISFIFO(mode) else "other", 0, mode, *owner, b"", xattrs.read(path))

    def _folder(self, path: bytes, found: os.stat_result) -> int:
        """Its number, where only its mode, owner or attributes are others; a new folder has none."""
        entry, noted = self._here.names.get(path), self._noted[path]
        is_known = entry is not None and entry.kind == "dir" and (noted.dev, noted.ino) == (found.st_dev, found.st_ino)
        return entry.inode if entry is not None and is_known else 0

    def _as_folder(self, path: bytes) -> NameEntry:
        """What was a folder that nobody had recorded, at all indexes before: it is where the link leads, as a rule."""
        there = os.path.join(path, b".")
        found = lstat_or_none(self._store.door, there)
        if found is None:
            return NameEntry(path, "dir", 0, stat.S_IFDIR | (0o777 & ~umask()), os.geteuid(), os.getegid(),
                             time.time_ns())
        return NameEntry(path, "dir", 0, found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, b"",
                         xattrs.read(there))

    def _content(self, path: bytes, found: os.stat_result) -> tuple[int, os.stat_result]:
        """Note a file and save its bytes; returns its object number, a new one for a file that head does not know, and
        what it was as it was saved."""
        known = self._holders.known.get(path, 0)
        inode = known or self._new.get((found.st_dev, found.st_ino), 0) or self._store.next_object()
        if inode in self._pifs:
            if inode in self._saved:
                self._seen[path] = identity_of(path, self._saved[inode])
            return inode, self._saved.get(inode, found)
        if known in self._holders.sound:
            self._pifs[inode] = replace(
                self._here.pifs[inode], filename=path, was_deleted=0, cut=NO_LIMIT, mode=found.st_mode,
                uid=found.st_uid, gid=found.st_gid, mtime_ns=found.st_mtime_ns, kept=b"")
            return inode, found
        if known:
            self._undo += kept_changes.given_up(self._holders.copies, inode)
        self._new[(found.st_dev, found.st_ino)] = inode
        store = self._store
        found, place, crc = self._save_still(path, found)
        size, self._saved[inode] = found.st_size, found
        self._seen[path] = identity_of(path, found)
        if size:
            self._redo.append(OffsetEntry(inode, self._process, 0, size, place, place + size, crc))
        created = 0 if known else self._index
        self._pifs[inode] = PifEntry(
            inode, found.st_dev, found.st_ino, store.door.birth_ns(path), 0, path, created, 0, size, NO_LIMIT, 0,
            found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, b"")
        return inode, found

    def _save_still(self, path: bytes, found: os.stat_result) -> tuple[os.stat_result, int, int]:
        """All of a file that nobody writes to meanwhile, and what it is: where somebody does, once more. ChangedOutside
        while he goes on. Whoever writes to it later gives it another time."""
        door, ino = self._store.door, found.st_ino
        if not found.st_size:
            return found, 0, 0
        for _ in range(_TRIES):
            fd = door.open_shut(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                found = door.fstat(fd)     # not before: a file that was shut has got another change time
                if found.st_ino != ino:
                    break
                seen = identity_of(path, found)
                wait_past((seen,))
                with suppress(Damaged):    # it became shorter
                    [(place, crc)] = self._store.buffers.save(self._run, fd, [(0, found.st_size)])
                    if identity_now(door, path) == seen:
                        return found, place, crc
            finally:
                door.close(fd)
        raise ChangedOutside(f"{os.fsdecode(path)} is being changed; run the command again", (path,))

    def _save(self, path: bytes, size: int) -> tuple[int, int]:
        """All of a file: where in the buffer, and its checksum."""
        fd = self._store.door.open_shut(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            [found] = self._store.buffers.save(self._run, fd, [(0, size)])
        finally:
            self._store.door.close(fd)
        return found

    def _give_up_homes(self) -> None:
        """Objects that have no backing file any more. Those of a folder that somebody has moved, and left a link to it
        in its place, are what they were where they are now: they are saved, as what leaves the scope of a run is."""
        kept = {home.inode for home in self._store.head.kept}
        gone = self._holders.given_up | self._holders.moved.keys()
        for inode in sorted(gone - self._pifs.keys() - kept):
            path = self._holders.moved.get(inode)
            size = self._store.door.lstat(path).st_size if path else 0
            if path and size:
                place, crc = self._save(path, size)
                self._undo.append(UndoEntry(inode, 0, size, self._run, place, crc))
            self._undo += kept_changes.given_up(self._holders.copies, inode)
            self._pifs[inode] = replace(self._here.pifs[inode], size=0, cut=0, was_deleted=self._index)
