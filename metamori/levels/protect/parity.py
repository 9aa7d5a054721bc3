"""L3: the parity file beside each member's own, and how both come back."""

from __future__ import annotations

from typing import Any

import numpy

from metamori.levels.formats import checksummed_file
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.image import fast
from metamori.levels.formats.sink import Sink
from metamori.levels.formats.source import FileSource, Steady
from metamori.levels.protect import erasure


class _Writer:
    """A parity file as it grows: rows, then their hashes under a seal."""

    def __init__(self, path: str, sizes: list[int]) -> None:
        self.sizes = sizes
        self.sink, self.bytes = Sink(path), 0
        self.hashes: list[int] = []

    def filled(self, part: memoryview) -> None:
        self.hashes.append(fast(part))
        self.bytes += len(part)
        self.sink.filled(part)

    def room(self, length: int) -> memoryview:
        return self.sink.room(length)

    def finish(self) -> None:
        end, _ = checksummed_file.trailer(self.bytes, {"sizes": self.sizes, "code": _CODE},
                                {"hash": numpy.array(self.hashes, numpy.uint64)})
        self.sink.put(end)
        self.sink.finish()


_CODE = "ISA-L cauchy1"


def encode(comm: Any, source: Steady, path: str) -> None:
    """Code the group's files and keep this member's parity at `path`. Broken, once everybody has everything."""
    sizes = comm.allgather(source.size)
    writer = _Writer(path, sizes)
    erasure.encode(comm, source.chunk, max(sizes), writer)
    writer.finish()
    source.finish()


def check(path: str) -> list[int]:
    """The sizes of the group's files, if every byte of the parity has its checksum. Broken."""
    found = checksummed_file.read(path)
    if found.about.get("code") != _CODE:
        raise Broken(f"{path} is parity of another code")
    count = len(found.arrays["hash"])
    step = found.data_bytes // count if count else 0
    file = FileSource(path)
    try:
        for i, expected in enumerate(found.arrays["hash"].tolist()):
            if fast(file.chunk(i * step, step)) != expected:
                raise Broken(f"{path}: row {i} does not have its checksum")
    finally:
        file.close()
    return list(found.about["sizes"])


def bring_back(comm: Any, own: str, path: str, own_well: list[bool], parity_well: list[bool],
               sizes: list[int]) -> bool:
    """Rebuild lost files and parities of a group; False when more than half of all is gone."""
    n, rank = comm.size, comm.rank
    lost, parity_lost = [not well for well in own_well], [not well for well in parity_well]
    if sum(lost) + sum(parity_lost) > n:
        return False
    if not any(lost) and not any(parity_lost):
        return True
    file = Steady(lambda: FileSource(own)) if own_well[rank] else None
    parity = Steady(lambda: FileSource(path)) if parity_well[rank] else None
    sink = None if file else Sink(own)
    writer = None if parity else _Writer(path, sizes)
    erasure.decode(comm, file.chunk if file else _nothing, parity.chunk if parity else _nothing, lost, parity_lost,
                   max(sizes), sink, writer)
    for each in (file, parity):
        if each:
            each.close()
    if sink:
        sink.cut(sizes[rank])
        sink.finish()
    if writer:
        writer.finish()
    for each in (file, parity):
        if each:
            each.finish()
    return True


def _nothing(place: int, length: int) -> memoryview:
    raise AssertionError("a lost file is not read")
