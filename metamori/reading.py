"""A store as other programs read it: its history, what differs between two indexes, a file as it was at one.

The command line with --json says the same; this is for Python programs that would rather not parse.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, overload

from metamori.errors import MetamoriError
from metamori.tables.record import record

if TYPE_CHECKING:
    from metamori.store.read.compare import Change
    from metamori.store.read.store import Store

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


@record
class Checkpoint:
    """An index of the history. bytes: what it added to the store. Index 0, the state before the first run, has neither
    parent nor time."""

    index: int
    parent: int | None
    time: datetime | None
    message: str
    bytes: int
    files: int
    has_memory: bool


class History:
    """The checkpoints of a store, oldest first; made by `metamori.open_store`, closed by `with`.

    Not for several threads at once. A live run's store can be read; `refresh` looks for what it has added since.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sizes: tuple[object, dict[int, int]] | None = None

    def __enter__(self) -> History:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._store.__exit__(kind, error, trace)

    def close(self) -> None:
        self._store.close()

    @property
    def path(self) -> str:
        """Of the store; absolute."""
        return self._store.path

    @property
    def head(self) -> int:
        """The index that the user's files are at."""
        return self._store.head.index

    def refresh(self) -> bool:
        """Look for checkpoints that others have added; whether there are any."""
        return self._store.refresh()

    def __len__(self) -> int:
        return len(self._store.indexes)

    def __iter__(self) -> Iterator[Checkpoint]:
        return map(self.__getitem__, self._store.indexes)

    def __contains__(self, index: object) -> bool:
        return index in self._store.indexes

    def __getitem__(self, index: int) -> Checkpoint:
        """NoSuchCheckpoint when there is none (also of an index that was pruned)."""
        self._store.require(index)
        if index == 0:
            return Checkpoint(0, None, None, "before the first run", 0, 0, False)
        meta = self._store.meta(index)
        return Checkpoint(index, meta.parent, datetime.fromtimestamp(meta.time_ns / 1e9, UTC),
                          meta.message or meta.reason, self._bytes(index), len(meta.pifs), bool(meta.memory))

    def _bytes(self, index: int) -> int:
        from metamori.store.read import sizes

        known = (self._store.newest, self._store.undo_log.last(), self._store.head)
        if self._sizes is None or self._sizes[0] != known:
            self._sizes = known, sizes.by_index(self._store)
        return self._sizes[1][index]

    def children(self, index: int) -> tuple[int, ...]:
        """The indexes that grew from this one, oldest first: more than one where somebody went back to it."""
        self._store.require(index)
        return self._store.history.children(index)

    def paths(self, index: int) -> list[str]:
        """Every tracked regular file that was there at an index; absolute, sorted."""
        self._store.require(index)
        return [os.fsdecode(entry.path) for entry in self._store.state(index).existing() if entry.kind == "file"]

    def diff(self, first: int, second: int) -> list[Change]:
        """Which files, names and byte ranges differ, by path: what (A added, D gone, M changed), ranges half open."""
        from metamori.store.read.compare import compare

        for index in (first, second):
            self._store.require(index)
        return list(compare(self._store, first, second))

    @overload
    def open(self, index: int, path: _Path) -> io.BufferedReader: ...
    @overload
    def open(self, index: int, path: _Path, encoding: str) -> io.TextIOWrapper: ...
    def open(self, index: int, path: _Path, encoding: str | None = None) -> io.BufferedReader | io.TextIOWrapper:
        """A tracked file as it was at an index, seekable; text when an encoding is given.

        path: relative ones count from the current folder. FileNotFoundError when it was not there.
        """
        self._store.require(index)
        raw = os.path.abspath(os.fsencode(path))
        names = self._store.state(index).names
        real = os.path.join(os.path.realpath(os.path.dirname(raw)), os.path.basename(raw))
        entry = names.get(raw) or names.get(real)
        if entry is None or entry.kind == "absent":
            raise FileNotFoundError(2, f"not there at checkpoint {index}, or never touched by a run", os.fsdecode(raw))
        if entry.kind != "file":
            raise MetamoriError(f"{os.fsdecode(raw)} was not a regular file at checkpoint {index}")
        reader: io.BufferedReader = io.BufferedReader(_Content(self._store, index, entry.inode),
                                                        1 << 16)
        return reader if encoding is None else io.TextIOWrapper(reader, encoding)


class _Content(io.RawIOBase):
    """The bytes of a file at an index, as a raw stream."""

    def __init__(self, store: Store, index: int, inode: int) -> None:
        from metamori.store.read.reader import Reader

        self._reader, self._position = Reader(store, index, inode), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._reader.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._reader.read(self._position, self._position + len(view))
        view[:len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._reader.__exit__()
        super().close()
