"""FTI's POSIX format (ckpt_io = 1), and the content of an MPI-IO file (2): variables one after another, sealed.

An increment holds only the blocks that changed; its trailer says where all the others are (image.py).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from metamori.levels.formats import checksummed_file, image
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.image import Blocks, Digest, Image
from metamori.levels.formats.sink import Sink
from metamori.levels.formats.source import FileSource, MemorySource, Source
from metamori.levels.setup.variables import Variable

AT_ONCE = 1 << 20                          # bytes of a piece (chunks)


def md5(block: memoryview) -> int:
    return int.from_bytes(hashlib.md5(block, usedforsecurity=False).digest()[:8], "little")


def crc32(block: memoryview) -> int:
    return zlib.crc32(block)


DETECT: dict[int, Digest] = {0: md5, 1: crc32}   # dcp_mode


@dataclass(slots=True)
class Written:
    """One rank's part of a checkpoint, on its way into a file."""

    source: Source
    checksum: str
    needs: list[int]
    image: Any = None                      # what the next checkpoint of this level is an increment of
    plan: Any = None                       # what the format has to remember between preparing and writing


class Plain:
    """Writes and reads; the images of each level's last checkpoint are its caller's to keep."""

    increments, names = True, True

    def prepare(self, variables: Iterable[Variable], before: Image | None, index: int, block: int,
                suspects: image.Suspects = image.everything, detect: Digest | None = None) -> Written:
        """The content of the index's file; nothing is copied or written yet."""
        made, pieces = image.next_image(variables, before, index, block, suspects, detect)
        about, arrays = made.trailer()
        end, digest = checksummed_file.trailer(sum(map(len, pieces)), about, arrays)
        return Written(MemorySource([*pieces, end]), digest, made.needs(), made)

    def write(self, written: Written, path: str) -> None:
        """Write the file and make it durable."""
        assert isinstance(written.source, MemorySource)
        sink = Sink(path)
        sink.put(*written.source.pieces)
        sink.finish()

    def check(self, path: str, checksum: str, start: int = 0, size: int | None = None) -> None:
        """Whether the file is the one that was written, every byte of it. Broken."""
        found = checksummed_file.read(path, start, size)
        if found.digest != checksum:
            raise Broken(f"{path} is another checkpoint's file")
        file = FileSource(path, start, size)
        try:
            image.check(found, file.chunk)
        finally:
            file.close()

    def load(self, index: int, place: Callable[[int], tuple[str, int, int | None]]) -> Saved:
        """What an index holds; `place` tells where an index's file is (path, start, size)."""
        return Saved(Image.of(checksummed_file.read(*place(index))), place)


@dataclass(slots=True)
class Saved:
    """The memory of an index, ready to be read."""

    image: Image
    place: Callable[[int], tuple[str, int, int | None]]

    @property
    def sizes(self) -> dict[int, int]:
        return {number: each.size for number, each in self.image.variables.items()}

    def about(self, number: int) -> dict[str, Any]:
        return self.image.variables[number].about

    def read(self, number: int, memory: memoryview) -> None:
        """Fill a variable's memory. Broken when it is not there whole, or is larger than the memory."""
        blocks = self.image.variables.get(number)
        if blocks is None:
            raise Broken(f"checkpoint {self.image.index} has no variable {number}")
        if blocks.size > len(memory):
            raise Broken(f"variable {number} has room for {len(memory)} bytes, and its checkpoint {blocks.size}")
        with self._runs(blocks) as runs:
            for file, at, start, length in runs:
                file.read(at, memory[start:start + length])

    def chunks(self, number: int) -> Iterator[tuple[int, memoryview]]:
        """A variable's bytes in pieces that need not be in memory together, each with its place; until the next one."""
        with self._runs(self.image.variables[number]) as runs:
            for file, at, start, length in runs:
                for done in range(0, length, AT_ONCE):
                    yield start + done, file.chunk(at + done, min(AT_ONCE, length - done))

    @contextmanager
    def _runs(self, blocks: Blocks) -> Iterator[Iterator[tuple[FileSource, int, int, int]]]:
        """(file, place in it, start in the variable, bytes) of pieces as long as possible. Broken."""
        files: dict[int, FileSource] = {}

        def look() -> Iterator[tuple[FileSource, int, int, int]]:
            for index, at, start, length in blocks.runs(self.image.block):
                if index not in files:
                    files[index] = FileSource(*self.place(index))
                if at + length > files[index].size:
                    raise Broken(f"{files[index].path} ends too soon")
                yield files[index], at, start, length
        try:
            yield look()
        finally:
            for file in files.values():
                file.close()
