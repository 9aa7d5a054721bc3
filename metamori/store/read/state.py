"""The state of everything tracked at one index: names, files, and where each byte is.

A state is its parent's with the checkpoint's delta folded in; what no checkpoint of the chain speaks of is as
its `initial` entry says, unless it lies in a folder that is not there yet: somebody outside of the runs made it later.
States are values: whoever holds one must not change it.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable

from metamori.store.format.records import FitEntry, Meta, NameEntry, Offsets, PifEntry
from metamori.store.format.row_table import runs
from metamori.store.read.maps import Maps, merged
from metamori.tables.aml import AddressMap
from metamori.tables.view import HOME, NOTHING, Piece, resolve


class State:
    """names: every tracked path, those absent at this index included. pifs: every object that exists or has
    existed at this index. maps: its redirected bytes, where it has any."""

    __slots__ = ("_assumed", "_impossible", "_paths", "_undo_map", "index", "is_doubtful", "maps", "names", "pifs")

    def __init__(self, index: int, undo_map: Callable[[int, int], AddressMap]) -> None:
        self.index = index
        self.is_doubtful = False           # its redirected bytes are not known
        self.names: dict[bytes, NameEntry] = {}
        self.pifs: dict[int, PifEntry] = {}
        self.maps = Maps()
        self._undo_map = undo_map
        self._paths: dict[int, list[bytes]] | None = None
        self._assumed: dict[bytes, int] = {}   # names as they were when first seen, later than here: in that order
        self._impossible: dict[bytes, NameEntry] = {}   # those of them whose folder is not there: absent in `names`

    def pieces(self, inode: int) -> list[Piece]:
        """Where each byte of an object is, covering [0, size). KeyError when the object is not known here."""
        pif = self.pifs[inode]
        saved, known = self.saved(inode), self.maps.get(inode)
        if saved is NOTHING and known is None and 0 < pif.size <= pif.home_limit:   # the most of all files
            return [Piece(0, pif.size, HOME)]
        return resolve(pif.size, pif.home_limit, known or NOTHING, (saved,))

    def saved(self, inode: int) -> AddressMap:
        """What undo records say of an object here; another object as soon as they say something else."""
        return self._undo_map(inode, self.index)

    def surely_like(self, other: State, inode: int) -> bool:
        """Whether each byte of an object is at the same place at both; False where only `pieces` would tell."""
        one, two = self.pifs[inode], other.pifs[inode]
        return (one.size, one.home_limit) == (two.size, two.home_limit) and self.maps.same(other.maps, inode) \
            and self.saved(inode) is other.saved(inode)

    def spoken_of(self, later: State, inode: int) -> list[tuple[int, int]] | None:
        """Byte ranges outside of which an object is at the same places here and at a later state, up to the longer
        one's end; None where only `pieces` would tell. Costs what was said in between, not what there is."""
        one, two = self.pifs[inode], later.pifs[inode]
        ranges = later.maps.since(self.maps, inode)
        if ranges is None or one.home_limit != two.home_limit \
                or self.saved(inode) is not later.saved(inode):
            return None
        sizes = sorted((one.size, two.size))
        if sizes[0] < sizes[1]:
            ranges = merged([*ranges, (sizes[0], sizes[1])])
        del ranges[bisect_left(ranges, (sizes[1],)):]
        if ranges and ranges[-1][1] > sizes[1]:
            ranges[-1] = (ranges[-1][0], sizes[1])
        return ranges

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

    def knowing(self, names: Iterable[NameEntry], pifs: Iterable[PifEntry]) -> State:
        """This state, with what is first seen just now: a copy, the caches of the store stay as they are."""
        new = self._copy(self.index)
        new.add_initial({entry.path: entry for entry in names}, {pif.inode: pif for pif in pifs})
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
        new._assumed, new._impossible = dict(self._assumed), dict(self._impossible)
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
            self.names[path] = names[path]
            self._assumed[path] = len(self.names)   # grows with each
        there: dict[bytes, bool] = {}
        for path in sorted(new):           # a folder before what is in it
            folder = os.path.dirname(path)
            if folder not in there:
                there[folder] = self._may_hold(folder)
            if names[path].kind != "absent" and not there[folder]:
                self.names[path], self._impossible[path] = NameEntry(path, "absent"), names[path]
        for inode, pif in pifs.items():
            self.pifs.setdefault(inode, pif)
        self._paths = None

    def _may_hold(self, folder: bytes) -> bool:
        """Whether a folder is there, or the nearest one around it of which anything is known."""
        while len(folder) > 1 and folder not in self.names:
            folder = os.path.dirname(folder)
        return folder not in self.names or self.names[folder].kind == "dir"

    def successor(self, steps: list[tuple[Meta, Offsets]]) -> State:
        """The state after these checkpoints, each the parent of the next."""
        new = self._copy(steps[-1][0].index)
        for meta, offsets in steps:
            new._fold(meta, offsets)
        for path in sorted(self._impossible):
            if path not in new._assumed:
                del new._impossible[path]
            elif new._may_hold(os.path.dirname(path)):
                new.names[path] = new._impossible.pop(path)
        return new

    def _fold(self, meta: Meta, offsets: Offsets) -> None:
        """C_k = (C_parent cut to cut_k) overridden by D_k."""
        for entry in meta.names:
            self.names[entry.path] = entry
            self._assumed.pop(entry.path, None)
        for pif in meta.pifs:
            self.pifs[pif.inode] = pif
            self.maps.cut(pif.inode, pif.cut)
        for inode, low, high in runs(offsets.entries, 0):
            self.maps.add(inode, offsets.entries, low, high, offsets.run)
