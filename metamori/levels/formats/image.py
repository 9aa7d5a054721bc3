"""A checkpoint's memory, block by block: what each block's bytes are (a hash) and which checkpoint's file holds them.

Invariants: every block of every variable has exactly one place, in the file of this index or of an earlier one of the
same level; a file never changes once its index exists. So going back to any index reads its blocks where its own table
says, and a checkpoint in which 5 % changed adds 5 % (the thesis's address mapping list, for memory).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import xxhash

from metamori.levels.formats.checksummed_file import Broken, Sealed
from metamori.levels.setup.variables import Variable

Digest = Callable[[memoryview], int]
fast: Digest = xxhash.xxh3_64_intdigest


def digests(memory: memoryview, block: int, digest: Digest = fast) -> numpy.ndarray:
    """The hash of each block; the last one may be shorter."""
    count = -(-len(memory) // block)
    return numpy.fromiter((digest(memory[at:at + block]) for at in range(0, len(memory), block)), numpy.uint64, count)


@dataclass(slots=True)
class Blocks:
    """One variable's blocks at an index."""

    about: dict[str, Any]
    hash: numpy.ndarray                    # u64, XXH3
    where: numpy.ndarray                   # u32: index whose file holds the block
    at: numpy.ndarray                      # u64: its place there
    detect: numpy.ndarray | None = None    # u64: hashes of another kind by which changes were looked for

    @property
    def size(self) -> int:
        return int(self.about["bytes"])

    def runs(self, block: int) -> Iterator[tuple[int, int, int, int]]:
        """(index, place, start in the variable, bytes) of pieces as long as possible."""
        count = len(self.where)
        if not count:
            return
        breaks = numpy.flatnonzero((numpy.diff(self.where.astype(numpy.int64)) != 0)
                                   | (numpy.diff(self.at.astype(numpy.int64)) != block)) + 1
        edges = [0, *breaks.tolist(), count]
        for first, last in itertools.pairwise(edges):
            start = first * block
            yield int(self.where[first]), int(self.at[first]), start, min(last * block, self.size) - start


@dataclass(slots=True)
class Image:
    """All variables at an index."""

    index: int
    block: int
    variables: dict[int, Blocks]

    def needs(self) -> list[int]:
        """The indexes whose files this one reads, its own always among them."""
        found = {self.index}
        for each in self.variables.values():
            found.update(numpy.unique(each.where).tolist())
        return sorted(found)

    def trailer(self) -> tuple[dict[str, Any], dict[str, numpy.ndarray]]:
        """As a sealed file's trailer has it."""
        parts = list(self.variables.values())
        def join(name: str, dtype: type) -> numpy.ndarray:
            return numpy.concatenate([numpy.empty(0, dtype), *(getattr(each, name) for each in parts)]).astype(dtype)
        return ({"index": self.index, "block": self.block, "variables": [each.about for each in parts]},
                {"hash": join("hash", numpy.uint64), "where": join("where", numpy.uint32),
                 "at": join("at", numpy.uint64)})

    @classmethod
    def of(cls, sealed: Sealed) -> Image:
        """From a trailer."""
        image = cls(int(sealed.about["index"]), int(sealed.about["block"]), {})
        start = 0
        for about in sealed.about["variables"]:
            end = start + -(-about["bytes"] // image.block)
            image.variables[about["id"]] = Blocks(about, sealed.arrays["hash"][start:end],
                                                  sealed.arrays["where"][start:end], sealed.arrays["at"][start:end])
            start = end
        return image


Suspects = Callable[[Variable, int], numpy.ndarray | None]


def everything(variable: Variable, blocks: int) -> numpy.ndarray | None:
    """Any block may have changed."""
    return None


def next_image(variables: Iterable[Variable], before: Image | None, index: int, block: int,
               suspects: Suspects = everything, detect: Digest | None = None) -> tuple[Image, list[memoryview]]:
    """The image of the present, and the pieces of memory that its own file must hold, in their order there.

    before: the image of which this is an increment. suspects: blocks that can have changed since, as a mask.
    detect: the hash that decides whether a block changed, if not XXH3.
    """
    image, pieces, place = Image(index, block, {}), [], 0
    for variable in variables:
        old = before.variables.get(variable.id) if before and before.block == block else None
        blocks = _look(variable, old, block, suspects, detect)
        changed = blocks.where == 0
        order = numpy.flatnonzero(changed)
        if len(order):
            lengths = numpy.full(len(order), block, numpy.uint64)
            if order[-1] == len(changed) - 1:
                lengths[-1] = variable.size - (len(changed) - 1) * block
            ends = numpy.cumsum(lengths)
            blocks.where[order] = index
            blocks.at[order] = ends - lengths + numpy.uint64(place)
            place += int(ends[-1])
            pieces += _pieces(variable.memory, order, block)
        image.variables[variable.id] = blocks
    return image, pieces


def _pieces(memory: memoryview, order: numpy.ndarray, block: int) -> list[memoryview]:
    breaks = numpy.flatnonzero(numpy.diff(order) != 1) + 1
    edges = [0, *breaks.tolist(), len(order)]
    return [memory[int(order[a]) * block:(int(order[b - 1]) + 1) * block] for a, b in itertools.pairwise(edges)]


def _look(variable: Variable, old: Blocks | None, block: int, suspects: Suspects, detect: Digest | None) -> Blocks:
    """The present blocks; `where` is 0 for those whose bytes `old` does not have."""
    memory, count = variable.memory, -(-variable.size // block)
    same = 0                               # blocks that both have, in the same length
    if old is not None:
        both = min(variable.size, old.size)
        same = count if variable.size == old.size else both // block
    mask = suspects(variable, count) if old is not None else None
    if mask is None:
        hashes = digests(memory, block, detect or fast)
    else:                                  # blocks that were not written have the hash that they had
        known = old.detect if detect else old.hash  # type: ignore[union-attr]
        mask = mask.copy()
        mask[same:] = True
        hashes = numpy.empty(count, numpy.uint64)
        if known is None:
            mask[:] = True
        else:
            hashes[:same] = known[:same]
        for i in numpy.flatnonzero(mask).tolist():
            hashes[i] = (detect or fast)(memory[i * block:(i + 1) * block])
    where, at = numpy.zeros(count, numpy.uint32), numpy.zeros(count, numpy.uint64)
    found = Blocks(variable.about(), hashes, where, at)
    if old is not None and same:
        known = old.detect if detect else old.hash
        if known is not None:
            equal = hashes[:same] == known[:same]
            where[:same][equal] = old.where[:same][equal]
            at[:same][equal] = old.at[:same][equal]
    if detect:                             # integrity is always XXH3, of the blocks that are written
        found.detect = hashes
        found.hash = numpy.zeros(count, numpy.uint64)
        keep = where != 0
        if old is not None:
            found.hash[:same][keep[:same]] = old.hash[:same][keep[:same]]
        for i in numpy.flatnonzero(~keep).tolist():
            found.hash[i] = fast(memory[i * block:(i + 1) * block])
    return found


AT_ONCE = 256 << 10                        # stays in the processor's cache


def check(sealed: Sealed, read: Callable[[int, int], memoryview]) -> None:
    """Compare the file's data with its own blocks' hashes; `read` gives (place, bytes). Broken."""
    image = Image.of(sealed)
    step = max(1, AT_ONCE // image.block)
    for each in image.variables.values():
        own = numpy.flatnonzero(each.where == image.index)
        if not len(own):
            continue
        places, expected, start = each.at[own], each.hash[own], int(each.at[own[0]])
        end = start + len(own) * image.block
        if own[-1] == len(each.where) - 1:     # the last block of a variable may be a short one
            end -= len(each.where) * image.block - each.size
        if (places != numpy.arange(len(own), dtype=numpy.uint64) * image.block + start).any():
            raise Broken(f"{sealed.path}: the blocks of variable {each.about['id']} do not lie one after another")
        for first in range(0, len(own), step):
            place = start + first * image.block
            found = digests(read(place, min(step * image.block, end - place)), image.block)
            if (found != expected[first:first + step]).any():
                raise Broken(f"{sealed.path}: the bytes at {place} do not have their checksum")
