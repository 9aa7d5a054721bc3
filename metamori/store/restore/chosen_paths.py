"""Some paths as they were at an index, all else as it is: an index of its own, to be moved to (docs/adr/0040).

It grows from the index that the files are at, so that undo takes it back. Of a file whose other names stay as they are,
the chosen names get a file of their own, unless nothing of it differs and it had them together then: what is not chosen
does not change. A folder that is somewhere else now stays there; at its old place another one is made.

It is recorded while the files are elsewhere: every byte that the index asked for has in a buffer is a redo entry here,
those of undo records too, which speak to the indexes before them only. Bytes that are in place stay there; the bytes of
a file of its own, which is not there yet, are copied into the buffer first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable

from metamori.errors import MetamoriError
from metamori.store.format.records import Meta, NameEntry, OffsetEntry, Offsets, PifEntry
from metamori.store.read.compare import same_content
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore.partial_checkpoint import REASON
from metamori.store.restore.restore_plan import Part
from metamori.tables.pif import NO_LIMIT
from metamori.tables.record import replace
from metamori.tables.view import BUFFER, HOME

Save = Callable[[bytes, list[tuple[int, int]]], list[tuple[int, int]]]   # path, ranges -> their places and checksums


class Chosen:
    """What is different from `here` when these paths are as at `there`. Nothing is written before `commit`."""

    def __init__(self, store: Store, here: State, there: State, paths: Collection[bytes]) -> None:
        self._store, self._here, self._there = store, here, there
        self._paths = {*paths, *_missing_folders(here, there, paths)}
        self._elsewhere = {each.inode for each in here.existing()
                           if each.kind == "dir" and each.inode and each.path not in self._paths}
        self._as_then: set[int] = set()        # objects that get their content of then
        self._own: dict[int, int] = {}         # object of then -> which of the new ones its chosen names get
        entries = [self._entry(path) for path in sorted(self._paths)]
        self.names = [each for each in entries if _differ(here.names.get(each.path), each)]
        ends = {each.inode for each in entries if each.kind == "file"}
        was = {entry.inode for path in self._paths if (entry := here.names.get(path)) and entry.kind == "file"}
        self._leaving = {inode for inode in was - ends if self._paths.issuperset(here.paths(inode))}
        self.paths = self._paths.union(*(here.paths(inode) for inode in was | ends if inode > 0))

    @property
    def is_empty(self) -> bool:
        """Whether all of it is as at the index asked for already."""
        return not (self.names or self._as_then)

    @property
    def changed(self) -> list[bytes]:
        """The chosen paths that change, sorted."""
        files = {path for inode in self._as_then for path in self._there.paths(inode)} & self._paths
        return sorted({each.path for each in self.names} | files)

    def _entry(self, path: bytes) -> NameEntry:
        entry = self._there.names.get(path)
        if entry is None:
            return NameEntry(path, "absent")
        now = self._here.names.get(path)
        if entry.kind == "dir" and now is not None and now.kind == "dir":
            return replace(entry, inode=now.inode)
        if entry.kind == "dir" and entry.inode in self._elsewhere:
            return replace(entry, inode=0)
        return replace(entry, inode=self._object(entry.inode)) if entry.kind == "file" else entry

    def _object(self, inode: int) -> int:
        """The file that the chosen names of an object are: itself, or a new one, which has a number below 0 so far."""
        staying = [path for path in self._here.paths(inode) if path not in self._paths]
        same = inode in self._here.pifs and _same(self._store, self._here, self._there, inode)
        if not staying:
            if not (same and self._here.paths(inode)):
                self._as_then.add(inode)
            return inode
        if same and not self._there.pifs[inode].was_deleted and not set(staying).isdisjoint(self._there.paths(inode)):
            return inode
        return -self._own.setdefault(inode, len(self._own) + 1)

    # -- as an index -----------------------------------------------------------------------------

    def after(self) -> tuple[State, Part]:
        """How it will be, as far as that can be said before anything is copied."""
        records = _Records(self, None, 0, 0, self._here.index + 1, lambda _: 0)
        return (self._here.successor([records.made("", None)]),
                Part(self._here.index, frozenset(self.paths), frozenset(records.pifs)))

    def commit(self, message: str, save: Save, *, index: int, process: int, run: int,
               new_object: Callable[[], int], more: Callable[[Meta], Meta] = lambda meta: meta,
               durable: bool = True) -> Part:
        """Record it; files are not touched, nor is head. save: what puts bytes of a file into the run's buffer."""
        store = self._store
        records = _Records(self, store, run, process, index, lambda _: new_object())
        meta, offsets = records.made(message, save)
        if durable and records.copied:
            store.buffers.sync(run)
        store.commit_checkpoint(more(meta), offsets, durable)
        return Part(index, frozenset(self.paths), frozenset(records.pifs))


class _Records:
    """The records of one. Without a store nothing is read or copied, and places of copies are made up."""

    def __init__(self, chosen: Chosen, store: Store | None, run: int, process: int, index: int,
                 number: Callable[[int], int]) -> None:
        self._chosen, self._store, self._run, self._process, self._index = chosen, store, run, process, index
        self._numbers = {-own: number(own) or -own for own in chosen._own.values()}
        self._rows: list[OffsetEntry] = []
        self.pifs: dict[int, PifEntry] = {}
        self.copied = 0

    def made(self, message: str, save: Save | None) -> tuple[Meta, Offsets]:
        chosen, here, there = self._chosen, self._chosen._here, self._chosen._there
        names = tuple(replace(each, inode=self._numbers[each.inode]) if each.inode < 0 else each
                      for each in chosen.names)
        for inode in sorted(chosen._as_then):
            self._content(inode, inode, None)
            self.pifs[inode] = replace(there.pifs[inode], cut=0, count=0, was_deleted=0, kept=b"",
                                       filename=there.paths(inode)[0])
        for inode, own in sorted(chosen._own.items()):
            new = self._numbers[-own]
            self._content(inode, new, save)
            path = next(each.path for each in names if each.inode == new)
            self.pifs[new] = replace(there.pifs[inode], inode=new, dev=0, ino=0, btime_ns=0, count=0, filename=path,
                                     was_created=self._index, was_deleted=0, home_limit=0, cut=0, kept=b"")
        for inode in sorted(chosen._leaving):
            old = here.pifs[inode]
            self.pifs[inode] = replace(old, cut=NO_LIMIT, count=0, was_deleted=old.was_deleted or self._index)
        meta = Meta(self._index, here.index, time.time_ns(), message, REASON, self._run, self._process,
                    bytes_added=self.copied, names=here.with_unplaced(names), pifs=tuple(self.pifs.values()))
        return meta, Offsets(self._index, self._process, self._run, tuple(sorted(self._rows)))

    def _content(self, inode: int, target: int, save: Save | None) -> None:
        """The buffered bytes of an object as at the index asked for. Of a new one all, through `save`."""
        pieces = self._chosen._there.pieces(inode)
        for piece in pieces:
            if piece.kind == BUFFER:
                self._row(target, piece.start, piece.end, piece.run, piece.offset)
        home = [(piece.start, piece.end) for piece in pieces if piece.kind == HOME] if target != inode else []
        places = save(self._chosen._here.paths(inode)[0], home) if save and home else [(0, 0)] * len(home)
        for (start, end), (place, crc) in zip(home, places, strict=True):
            self._rows.append(OffsetEntry(target, self._process, start, end, place, place + end - start, crc))
            self.copied += end - start

    def _row(self, inode: int, start: int, end: int, run: int, place: int) -> None:
        stop, crc = place + end - start, 0
        if self._store is not None:
            self._store.checked(self._chosen._there.index).require(run, place, stop)
            crc = self._store.buffers.checksum(run, place, stop - place)
        self._rows.append(OffsetEntry(inode, self._process, start, end, place, stop, crc,
                                      run if run != self._run else 0))


def _same(store: Store, one: State, other: State, inode: int) -> bool:
    """Whether an object has the same content, mode, owner and time at both."""
    first, second = one.pifs[inode], other.pifs[inode]
    if (first.size, first.mode, first.uid, first.gid, first.mtime_ns) != (
            second.size, second.mode, second.uid, second.gid, second.mtime_ns):
        return False
    return same_content(store, one, other, inode)


def _differ(one: NameEntry | None, other: NameEntry) -> bool:
    """Whether a path is something else. The time of a folder is that of whatever was last made in it."""
    if one is None or one.kind != other.kind:
        return other.kind != (one.kind if one else "absent")
    if other.kind == "absent":
        return False
    if other.kind == "file":
        return (one.inode, one.xattrs) != (other.inode, other.xattrs)
    if other.kind == "dir":
        return (one.mode, one.uid, one.gid, one.xattrs) != (other.mode, other.uid, other.gid, other.xattrs)
    return one != other


def _missing_folders(here: State, there: State, paths: Iterable[bytes]) -> set[bytes]:
    """Folders around paths that are to be, which were there then and are not now. MetamoriError."""
    found: set[bytes] = set()
    chosen = set(paths)
    for path in paths:
        if path not in there.names or there.names[path].kind == "absent":
            continue
        folder = os.path.dirname(path)
        while len(folder) > 1 and folder not in found | chosen:
            now, then = here.names.get(folder), there.names.get(folder)
            if now is not None and now.kind not in ("dir", "absent"):
                raise MetamoriError(f"{os.fsdecode(folder)} is no folder now; restore it too")
            if now is not None and now.kind == "absent" and then is not None and then.kind == "dir":
                found.add(folder)
            folder = os.path.dirname(folder)
    return found
