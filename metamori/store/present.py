"""Recording what somebody else did to the tracked files as an index of its own, before it is moved away from.

Each changed file's whole content goes into the newest buffer as the new index's redo entries, so that this
index stays exact whatever happens to the file later. What it means for the older indexes:
  * a file changed in place: home bytes that they resolve to may or may not have been overwritten; nobody can
    tell, so they are taken to be as they are now, and lost beyond the present end;
  * a file that is gone, or has another file in its place: the home bytes that they resolve to are lost.
"""

from __future__ import annotations

import os
import stat
import time

from metamori.store import move, xattrs
from metamori.store.head import born_then, lstat_or_none, objects_at
from metamori.store.records import Meta, NameEntry, OffsetEntry, Offsets, UndoEntry
from metamori.store.store import Store
from metamori.tables.pif import NO_LIMIT, PifEntry
from metamori.tables.record import replace


def record(store: Store, reason: str) -> int:
    """The new index, at which head then is; 0 when nothing was changed. The caller holds the lock."""
    changed = store.changed_outside()
    return _Present(store, reason, changed).commit() if changed else 0


class _Present:
    def __init__(self, store: Store, reason: str, changed: list[bytes]) -> None:
        self._store, self._reason, self._changed = store, reason, changed
        self._here = store.state(store.head.index)
        self._index = store.next_index()
        self._process = store.next_process()
        self._run = move.newest_run(store)
        self._objects = objects_at(store.door, store.layout, store.head, self._here)
        self._pifs: dict[int, PifEntry] = {}
        self._redo: list[OffsetEntry] = []
        self._undo: list[UndoEntry] = []

    def commit(self) -> int:
        store = self._store
        names = tuple(self._entry(path) for path in self._changed)
        self._give_up_homes()
        if self._redo or self._undo:
            store.buffers.sync(self._run)
        if self._undo:
            store.add_undo(self._undo, store.newest)
        added = sum(entry.end - entry.start for entry in self._redo)
        meta = Meta(self._index, store.head.index, time.time_ns(), "", self._reason, self._run, self._process,
                    bytes_added=added, names=names, pifs=tuple(self._pifs.values()))
        store.commit_checkpoint(meta, Offsets(self._index, self._process, self._run, tuple(self._redo)))
        store.set_head(self._index)
        return self._index

    def _entry(self, path: bytes) -> NameEntry:
        found = lstat_or_none(self._store.door, path)
        if found is None:
            return NameEntry(path, "absent")
        mode = found.st_mode
        owner = (found.st_uid, found.st_gid, found.st_mtime_ns)
        if stat.S_ISREG(mode):
            return NameEntry(path, "file", self._content(path, found), mode, *owner, b"", xattrs.read(path))
        if stat.S_ISDIR(mode):
            return NameEntry(path, "dir", 0, mode, *owner, b"", xattrs.read(path))
        if stat.S_ISLNK(mode):
            return NameEntry(path, "symlink", 0, mode, *owner, self._store.door.readlink(path))
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            return NameEntry(path, "other", 0, mode, *owner, b"%d" % found.st_rdev, xattrs.read(path))
        return NameEntry(path, "fifo" if stat.S_ISFIFO(mode) else "other", 0, mode, *owner, b"", xattrs.read(path))

    def _content(self, path: bytes, found: os.stat_result) -> int:
        """Save a file's bytes; returns its object number, a new one for a file that head does not know."""
        known = self._known(path, found)
        inode = known or self._store.next_object()
        if inode in self._pifs:
            return inode
        self._objects[(found.st_dev, found.st_ino)] = inode, 0
        store, size = self._store, found.st_size
        if size:
            fd = store.door.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                [(place, crc)] = store.buffers.save(self._run, fd, [(0, size)])
            finally:
                store.door.close(fd)
            self._redo.append(OffsetEntry(inode, self._process, 0, size, place, place + size, crc))
            if known:
                self._undo.append(UndoEntry(inode, 0, size, self._run, place, crc))
        if known:
            self._undo.append(UndoEntry(inode, size, NO_LIMIT, 0, 0))
        created = 0 if known else self._index
        self._pifs[inode] = PifEntry(
            inode, found.st_dev, found.st_ino, store.door.birth_ns(path), 0, path, created, 0, size, NO_LIMIT, 0,
            found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns, b"")
        return inode

    def _known(self, path: bytes, found: os.stat_result) -> int:
        """The object that a file is; 0 for a new file, also for one that got a removed file's inode."""
        inode, changed_ns = self._objects.get((found.st_dev, found.st_ino), (0, 0))
        born = self._store.door.birth_ns(path)
        return inode if born_then(self._here.pifs.get(inode), found.st_dev, found.st_ino, born, changed_ns) else 0

    def _give_up_homes(self) -> None:
        """Objects that had a changed name and are nowhere any more."""
        kept = {each.inode for each in self._store.head.kept}
        for path in self._changed:
            inode = self._here.names[path].inode if self._here.names[path].kind == "file" else 0
            if not inode or inode in self._pifs or inode in kept:
                continue
            if not any(self._is_at(inode, other) for other in self._here.paths(inode)):
                self._pifs[inode] = replace(self._here.pifs[inode], size=0, cut=0, was_deleted=self._index)
                self._undo.append(UndoEntry(inode, 0, NO_LIMIT, 0, 0))

    def _is_at(self, inode: int, path: bytes) -> bool:
        found = lstat_or_none(self._store.door, path)
        return found is not None and stat.S_ISREG(found.st_mode) and self._known(path, found) == inode
