"""The state of everything tracked at one index: names, files, and where each byte is.

A state is its parent's with the checkpoint's delta folded in; what no checkpoint of the chain speaks of is as
its `initial` entry says, unless it lies in a folder, or names a file, that is not there yet: somebody outside of the
runs made it later.
States are values: whoever holds one must not change it.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set

from metamori.store.format.records import NO_LIMIT, FitEntry, Meta, NameEntry, Offsets, PifEntry
from metamori.store.format.row_table import runs
from metamori.store.io.os_io import umask
from metamori.store.read.maps import Maps, merged
from metamori.tables.aml import AddressMap
from metamori.tables.view import HOME, NOTHING, Difference, Piece, differences, resolve

_FEW = 8                                   # one of so many is few: not worth a way through all


def parents(path: bytes) -> Iterator[bytes]:
    """The folders around a path, the nearest first."""
    while len(path := os.path.dirname(path)) > 1:
        yield path


class State:
    """names: every tracked path, those absent at this index included. pifs: every object that exists or has
    existed at this index. maps: its redirected bytes, where it has any."""

    __slots__ = ("_assumed", "_impossible", "_paths", "_undo_map", "around", "index", "is_doubtful", "maps", "names",
                 "pifs")

    def __init__(self, index: int, undo_map: Callable[[int, int], AddressMap]) -> None:
        self.index = index
        self.is_doubtful = False           # its redirected bytes are not known
        self.names: dict[bytes, NameEntry] = {}
        self.pifs: dict[int, PifEntry] = {}
        self.maps = Maps()
        self._undo_map = undo_map
        self._paths: dict[int, list[bytes]] | None = None
        self._assumed: dict[bytes, int] = {}   # names as they were when first seen, later than here: in that order
        self.around: set[bytes] = set()    # folders around names at which something is, or was
        self._impossible: dict[bytes, NameEntry] = {}   # those whose folder, or file, is not there: absent in `names`

    def pieces(self, inode: int, start: int = 0, end: int = NO_LIMIT) -> list[Piece]:
        """Where each byte of an object is, covering [start, end) as far as it reaches. KeyError when the object is not
        known here."""
        pif = self.pifs[inode]
        is_part, end = start > 0 or end < pif.size, min(end, pif.size)
        saved, known = self.saved(inode), self.maps.part(inode, start, end) if is_part else self.maps.get(inode)
        if saved is NOTHING and known is None and start < end <= pif.home_limit:   # the most of all files
            return [Piece(start, end, HOME)]
        return resolve(end, pif.home_limit, known or NOTHING, (saved,), start)

    def parts(self, inode: int, ranges: Sequence[tuple[int, int]]) -> Iterator[list[Piece]]:
        """The pieces of each of these ranges, which are in file order, none meeting another. Few of them are looked up
        one by one, many on one way through the file."""
        if len(ranges) < _FEW or len(ranges) * _FEW < len(self.saved(inode)) + len(self.maps.get(inode) or NOTHING):
            yield from (self.pieces(inode, start, end) for start, end in ranges)
            return
        pieces, at = self.pieces(inode, ranges[0][0], ranges[-1][1]), 0
        for start, end in ranges:
            found: list[Piece] = []
            while at < len(pieces) and pieces[at].start < end:
                if pieces[at].end > start:
                    found.append(pieces[at].clip(start, end))
                at += 1
            if at and pieces[at - 1].end > end:
                at -= 1                    # the next range begins in it
            yield found

    def saved(self, inode: int) -> AddressMap:
        """What undo records say of an object here; another object as soon as they say something else."""
        return self._undo_map(inode, self.index)

    def apart(self, other: State, inode: int) -> list[tuple[int, int]]:
        """Byte ranges outside of which an object is at the same places at both, up to the longer one's end, sorted,
        none meeting another. Costs what was said in between, where one grew from the other."""
        one, two = self.pifs[inode], other.pifs[inode]
        ranges = [] if self.maps.same(other.maps, inode) else self.maps.apart(other.maps, inode)
        longer = max(one.size, two.size)
        more = self.saved(inode).apart(other.saved(inode))
        more += ((min(pair), max(pair)) for pair in ((one.size, two.size), (one.home_limit, two.home_limit)))
        if any(start < end for start, end in more):
            ranges = merged(ranges + more)
        del ranges[bisect_left(ranges, (longer,)):]
        if ranges and ranges[-1][1] > longer:
            ranges[-1] = (ranges[-1][0], longer)
        return ranges

    def differences(self, other: State, inode: int) -> Iterator[Difference]:
        """As `differences` of the object's pieces here and at `other`."""
        ranges = self.apart(other, inode)
        for have, want in zip(self.parts(inode, ranges), other.parts(inode, ranges), strict=True):
            yield from differences(have, want)

    def paths(self, inode: int) -> list[bytes]:
        """The object's names at this index, sorted; none for an object that only a descriptor holds."""
        if self._paths is None:
            self._paths = {}
            for path in sorted(self.names):
                entry = self.names[path]
                if entry.kind == "file":
                    self._paths.setdefault(entry.inode, []).append(path)
        return self._paths.get(inode, [])

    def has_unseen_name(self, inode: int) -> bool:
        """A file lost all names that the runs used, and not its last: it is read by one that nobody told us of."""
        pif = self.pifs.get(inode)          # a restore inside the program may have gone to before it was made
        return bool(pif and pif.kept and not pif.was_deleted and not self.paths(inode))

    def said_of(self, inode: int) -> NameEntry | None:
        """The name that tells a file's extended attributes: of several one that a checkpoint up to here speaks of,
        else the first seen, since the file may have got others before the next name was."""
        paths = self.paths(inode)
        return self.names[min(paths, key=lambda path: self._assumed.get(path, -1))] if paths else None

    def assumed(self) -> list[bytes]:
        """Names that were first seen later than this."""
        return [*self._assumed]

    def is_unplaced(self, path: bytes) -> bool:
        return path in self._impossible

    def unplaced_in(self, folders: Set[bytes]) -> list[bytes]:
        """Names that are not there since one of these folders is not. Who records one has to say of each what it is
        then: what was seen at it was in another folder."""
        return [path for path in self._impossible if not folders.isdisjoint(parents(path))] if folders else []

    def with_unplaced(self, names: tuple[NameEntry, ...]) -> tuple[NameEntry, ...]:
        """What a record says of names, and that those of its folders of which it says nothing are not there."""
        inner = set(self.unplaced_in({each.path for each in names if each.kind == "dir"}))
        inner.difference_update([each.path for each in names])
        return names + tuple(NameEntry(path, "absent") for path in sorted(inner))

    def assumed_otherwise(self, other: State) -> set[bytes]:
        """Names that were first seen later than one of the two states, and not than the other."""
        return self._assumed.keys() ^ other._assumed.keys()

    def knowing(self, meta: Meta) -> State:
        """This state, with what is first seen just now: the caches of the store stay as they are."""
        new_names = {entry.path: entry for entry in meta.initial_names if entry.path not in self.names}
        new_pifs = {pif.inode: pif for pif in meta.initial_pifs if pif.inode not in self.pifs}
        if not new_names and not new_pifs:
            return self
        new = self._copy(self.index)
        new.add_initial(new_names, new_pifs)
        return new

    def only(self, paths: Container[bytes], inodes: Container[int]) -> State:
        """These names and objects of it: a copy."""
        new = self._copy(self.index)
        new.is_doubtful = self.is_doubtful
        new.names = {path: entry for path, entry in self.names.items() if path in paths}
        new.pifs = {inode: pif for inode, pif in self.pifs.items() if inode in inodes}
        return new

    def _copy(self, index: int) -> State:
        new = State(index, self._undo_map)
        new.names, new.pifs, new.maps = dict(self.names), dict(self.pifs), self.maps.copy()
        new._assumed, new._impossible, new.around = dict(self._assumed), dict(self._impossible), set(self.around)
        return new

    def reachable(self, fits: Iterable[FitEntry]) -> set[int]:
        """Objects that something leads to here: a name, or a descriptor of `fits`. No other can ever be read again."""
        found = {entry.inode for entry in self.names.values() if entry.kind == "file"}
        found.update(fit.inode for fit in fits)
        found.update(inode for inode, pif in self.pifs.items() if pif.count or self.has_unseen_name(inode))
        return found

    def existing(self) -> list[NameEntry]:
        """What is there at this index, sorted by path: a folder comes before what is in it."""
        return [self.names[path] for path in sorted(self.names) if self.names[path].kind != "absent"]

    def add_initial(self, names: dict[bytes, NameEntry], pifs: dict[int, PifEntry]) -> None:
        """Learn of paths and objects that were first seen by a later checkpoint, maybe of another branch."""
        new = [path for path in names if path not in self.names]
        for path in new:
            self.names[path] = entry = names[path]
            if path in self.around:
                self.names[path] = self._taken_away(entry)
            self._assumed[path] = len(self.names)   # grows with each
            self._is_in_folders((entry,))
        for inode, pif in pifs.items():
            self.pifs.setdefault(inode, pif)
        for path in [path for path, entry in self._impossible.items() if entry.kind == "file" and entry.inode in pifs]:
            self.names[path] = self._impossible.pop(path)      # the file is known only now
            new.append(path)
        self._without_place(new)
        self._paths = None

    def _is_in_folders(self, names: Iterable[NameEntry]) -> list[bytes]:
        """Those around something that is there, and around nothing before."""
        new = []
        for entry in names:
            folder = entry.path
            while entry.kind != "absent" and (folder := folder[:folder.rfind(b"/")]) and folder not in self.around:
                self.around.add(folder)
                new.append(folder)
        return new

    def _taken_away(self, entry: NameEntry) -> NameEntry:
        """What was a folder, as something is in it here, and was none when it was first seen itself: somebody outside
        of the runs has taken it away in between. What it was like nobody knows."""
        if entry.kind == "dir":
            return entry
        inside = next((each for path, each in self.names.items()
                       if path.startswith(entry.path + b"/") and each.kind != "absent"), None)
        return entry if inside is None else NameEntry(
            entry.path, "dir", 0, stat.S_IFDIR | (0o777 & ~umask()), os.geteuid(), os.getegid(), inside.mtime_ns)

    def _without_place(self, paths: Iterable[bytes]) -> list[bytes]:
        """Those of these names, assumed ones, that cannot be there, since their folder or file is not: they are not."""
        there: dict[bytes, bool] = {}
        found = []
        for path in sorted(each for each in paths if self.names[each].kind != "absent"):   # a folder first
            folder, entry = os.path.dirname(path), self.names[path]
            if folder not in there:
                there[folder] = self._may_hold(folder)
            if not (there[folder] and self._has_file_of(entry)):
                self.names[path], self._impossible[path] = NameEntry(path, "absent"), entry
                found.append(path)
        return found

    def _is_folder(self, path: bytes) -> bool:
        return path in self.names and self.names[path].kind == "dir"

    def _has_file_of(self, entry: NameEntry) -> bool:
        """Whether what a name is said to be exists: somebody may have given it to a file that was made after this."""
        return entry.kind != "file" or entry.inode in self.pifs

    def _may_hold(self, folder: bytes) -> bool:
        """Whether a folder is there, or the nearest one around it of which anything is known."""
        while len(folder) > 1 and folder not in self.names:
            folder = os.path.dirname(folder)
        return folder not in self.names or self.names[folder].kind == "dir"

    def successor(self, steps: list[tuple[Meta, Offsets]]) -> State:
        """The state after these checkpoints, each the parent of the next."""
        new = self._copy(steps[-1][0].index)
        changed: set[bytes] = set()
        for meta, offsets in steps:
            new._fold(meta, offsets)
            changed.update([entry.path for entry in meta.names])
        for path in sorted(self._impossible):
            if path not in new._assumed:
                del new._impossible[path]
            elif new._may_hold(os.path.dirname(path)) and new._has_file_of(self._impossible[path]):
                new.names[path] = new._impossible.pop(path)
                changed.add(path)
        gone = {path for path in changed if self._is_folder(path) and not new._is_folder(path)}
        if gone:
            changed.update(new._without_place([path for path in new._assumed if not gone.isdisjoint(parents(path))]))
        if self._paths is not None and len(changed) * _FEW <= len(new.names):
            new._paths = self._paths_after(new, changed)
        return new

    def _paths_after(self, new: State, changed: Iterable[bytes]) -> dict[int, list[bytes]]:
        """The paths of a successor, by object."""
        assert self._paths is not None
        found = dict(self._paths)
        for path in changed:
            was, now = self.names.get(path), new.names[path]
            if was is not None and was.kind == "file":
                found[was.inode] = [each for each in found[was.inode] if each != path]
            if now.kind == "file":
                found[now.inode] = sorted({*found.get(now.inode, ()), path})
        return found

    def _fold(self, meta: Meta, offsets: Offsets) -> None:
        """C_k = (C_parent cut to cut_k) overridden by D_k."""
        for entry in meta.names:
            self.names[entry.path] = entry
            self._assumed.pop(entry.path, None)
        for path in self._is_in_folders(meta.names):
            if path in self._assumed:
                self.names[path] = self._taken_away(self.names[path])
        for pif in meta.pifs:
            self.pifs[pif.inode] = pif
            self.maps.cut(pif.inode, pif.cut)
        for inode, low, high in runs(offsets.entries, 0):
            self.maps.add(inode, offsets.entries, low, high, offsets.run)
