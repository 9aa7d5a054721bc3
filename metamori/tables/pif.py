"""Physical File: the file itself and where its bytes live (thesis 4.2, fig. 4.3; on disk fig. 4.8).

The maps are those of fig. 4.5. A write goes into the map of the running interval and into the cumulative
map; closing the interval starts a new map and keeps the old one in `epochs`, newest last.

Invariants (asserted by `check`): every mapped byte lies below `size`; what the running interval maps, the
cumulative map maps alike; `cut`, the smallest size since the interval began, is at most `size`.
"""

from __future__ import annotations

from metamori.tables.aml import AML, AddressMap
from metamori.tables.lru import Recency
from metamori.tables.record import field, mutable, names_of, record

NO_LIMIT = 2**63 - 1


@record
class PifEntry:
    """A file's state as a checkpoint records it (fig. 4.8). Sizes are bytes, times ns since 1970."""

    inode: int        # object number: given out by the store, never reused
    dev: int          # identity of the real file: device, inode, birth time (0: not known)
    ino: int
    btime_ns: int
    count: int        # FITs that refer to it
    filename: bytes   # a path that it has, or had last
    was_created: int  # interval in which it was created, 0: it was there before
    was_deleted: int  # interval in which it lost its last name, 0: it has one
    size: int
    home_limit: int   # from here on the home holds nothing of this file (zeros, where not buffered)
    cut: int          # smallest size during the interval that the checkpoint closed
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    kept: bytes       # its name in the store's kept folder, b"": it has none


@mutable
class Pif:
    """A live tracked file. Fields as in PifEntry, and its maps."""

    inode: int
    dev: int
    ino: int
    btime_ns: int
    filename: bytes
    size: int
    count: int = 0
    was_created: int = 0
    was_deleted: int = 0
    home_limit: int = NO_LIMIT
    cut: int = -1                    # -1 at birth: size
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    kept: bytes = b""
    current: AddressMap = field(default_factory=AddressMap)
    cumulative: AddressMap = field(default_factory=AddressMap)
    epochs: list[AddressMap] = field(default_factory=list)
    cache: Recency = field(default_factory=lambda: Recency(0))

    def __post_init__(self) -> None:
        if self.cut < 0:
            self.cut = self.size

    def write_range(self, aml: AML) -> list[AML]:
        """Bytes were redirected to the buffer (thesis BTreeInsertSameCkpt and BTreeInsert).

        Returns the pieces of this interval that it overrides: no index needs their buffer bytes.
        """
        freed = self.current.insert(aml)
        self.cumulative.insert(aml)
        self.size = max(self.size, aml.end)
        return freed

    def truncate(self, size: int, *, at_home: bool = False) -> list[AML]:
        """The file was given this size, shorter or longer; returns pieces as write_range does.

        `at_home`: the file itself was given the size too, so that what it has beyond is zeros already.
        """
        if size < 0:
            raise ValueError(f"a size is at least 0 bytes: {size}")
        freed = self.current.cut(size)
        self.cumulative.cut(size)
        self.cut = min(self.cut, size)
        if not at_home and size < self.size:
            self.home_limit = min(self.home_limit, size)
        self.size = size
        return freed

    def entry(self) -> PifEntry:
        """This file as a checkpoint records it: to be taken before `close_epoch` resets `cut`."""
        return PifEntry(self.inode, self.dev, self.ino, self.btime_ns, self.count, self.filename,
                        self.was_created, self.was_deleted, self.size, self.home_limit, self.cut, self.mode,
                        self.uid, self.gid, self.mtime_ns, self.kept)

    def close_epoch(self) -> AddressMap:
        """The interval ends: returns its map, the entries of its offset file, and starts a new one."""
        closed = self.current
        self.epochs.append(closed)
        self.current = AddressMap()
        self.cut = self.size
        return closed

    def reload(self, cumulative: AddressMap, entry: PifEntry) -> None:
        """Continue from a checkpoint: its record and its cumulative map (thesis reloadFileMetaFile).

        ValueError when the record is another file's or the map knows bytes beyond the size.
        """
        if entry.inode != self.inode:
            raise ValueError(f"record of file {entry.inode} for file {self.inode}")
        if any(cumulative.find(entry.size, NO_LIMIT)):
            raise ValueError(f"file {entry.inode} has {entry.size} bytes, its map more")
        for name in names_of(PifEntry):
            setattr(self, name, getattr(entry, name))
        self.cut = entry.size
        self.cumulative = cumulative.copy()
        self.current = AddressMap()
        self.epochs.clear()
        self.cache.clear()

    def check(self) -> None:
        """Assert the invariants; raises AssertionError."""
        for table in (self.current, self.cumulative):
            table.check()
            assert not any(table.find(self.size, NO_LIMIT)), (self.size, table)
        for aml in self.current:
            assert list(AddressMap(self.cumulative.find(aml.start, aml.end))) == [aml], aml
        assert 0 <= self.cut <= self.size, (self.cut, self.size)
        self.cache.check()
