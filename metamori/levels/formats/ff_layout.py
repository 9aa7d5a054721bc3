"""Where FTI-FF (ckpt_io = 3) puts every piece of every variable (FTI manual, FTI File Format, with its worked example).

A container never moves and never changes its size; what a variable grows by goes into a new container, in a new block
with the other variables that grew; a variable that shrank leaves containers half full or empty. Version 1 is the
manual's layout: FB, then per block its metadata and its containers. Version 2 is today's: all containers, then all
metadata, then MF.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

FB, BMD, VMD = 96, 12, 64                  # bytes of the manual's structures
MF, VMD2 = 106, 58                         # and of today's


@dataclass(frozen=True, slots=True)
class Container:
    """A place for a piece of a variable (FTIFF_dbvar)."""

    id: int
    index: int                             # of the variable among the protected ones
    number: int                            # which container of its variable
    content: bool
    dptr: int                              # where the piece lies in the variable
    fptr: int                              # and in the file
    chunk: int                             # bytes used
    size: int
    hash: bytes = bytes(16)


@dataclass(slots=True)
class Layout:
    """The blocks of a file, each with its containers; blocks are only ever added."""

    version: int
    blocks: list[list[Container]] = field(default_factory=list)
    detect: dict[int, Any] = field(default_factory=dict)   # hashes of variables' blocks at the last checkpoint
    path: str = ""                         # the file that has this layout
    index: int = 0

    def metadata(self, block: int) -> int:
        """Bytes of metadata in front of a block."""
        return BMD + VMD * len(self.blocks[block]) if self.version == 1 else 0

    def dbsize(self, block: int) -> int:
        return self.metadata(block) + sum(each.size for each in self.blocks[block])

    def start(self, block: int) -> int:
        """Where a block begins in the file."""
        return (FB if self.version == 1 else 0) + sum(self.dbsize(i) for i in range(block))

    @property
    def end(self) -> int:
        """Where the containers end."""
        return self.start(len(self.blocks))

    @property
    def tail(self) -> int:
        """Bytes of metadata after the containers."""
        if self.version == 1:
            return 0
        return sum(BMD + VMD2 * len(block) for block in self.blocks) + MF

    def containers(self) -> Iterable[Container]:
        return (each for block in self.blocks for each in block)

    def sizes(self) -> dict[int, int]:
        """Bytes of each variable."""
        found: dict[int, int] = {}
        for each in self.containers():
            found[each.id] = found.get(each.id, 0) + each.chunk
        return found


def next_layout(before: Layout | None, wanted: list[tuple[int, int]], version: int) -> Layout:
    """The layout for variables (id, bytes), grown out of the one before."""
    made = Layout(version, [list(block) for block in before.blocks] if before else [])
    made.detect = dict(before.detect) if before else {}
    fresh: list[Container] = []
    for index, (number, size) in enumerate(wanted):
        left, count, room = size, 0, 0
        for block in made.blocks:
            for i, each in enumerate(block):
                if each.id == number:
                    chunk = min(each.size, left)
                    block[i] = replace(each, chunk=chunk, content=chunk > 0)
                    left, count, room = left - chunk, count + 1, room + each.size
        if left or not count:
            fresh.append(Container(number, index, count, left > 0, room, 0, left, left))
    kept = {number for number, _ in wanted}
    for block in made.blocks:              # no more protected: its containers stay, empty
        for i, each in enumerate(block):
            if each.id not in kept:
                block[i] = replace(each, chunk=0, content=False)
    if fresh:
        made.blocks.append(fresh)
        at = made.start(len(made.blocks) - 1) + made.metadata(len(made.blocks) - 1)
        for i, each in enumerate(fresh):
            fresh[i] = replace(each, fptr=at)
            at += each.size
    return made


def hashed(layout: Layout, memory: dict[int, memoryview]) -> None:
    """Give every container with content the MD5 of its piece; one without keeps its old hash."""
    for block in layout.blocks:
        for i, each in enumerate(block):
            if each.content:
                piece = memory[each.id][each.dptr:each.dptr + each.chunk]
                block[i] = replace(each, hash=hashlib.md5(piece, usedforsecurity=False).digest())


def checksum(layout: Layout) -> str:
    """MD5 over the hashes of all pieces, in their order: what today's MF says of the content."""
    total = hashlib.md5(usedforsecurity=False)
    for each in layout.containers():
        if each.content:
            total.update(each.hash)
    return total.hexdigest()
