"""The bytes of one checkpoint file, wherever they are: still in the program's memory, or in a file."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence

from metamori.levels.sealed import Broken


class MemorySource:
    """The pieces of memory that a file was written from; saves reading it again."""

    def __init__(self, pieces: Sequence[memoryview | bytes]) -> None:
        self.pieces = [memoryview(piece) for piece in pieces if len(piece)]
        self.ends: list[int] = []
        total = 0
        for piece in self.pieces:
            total += len(piece)
            self.ends.append(total)
        self.size = total

    def read(self, place: int, into: memoryview) -> None:
        """Fill the view from this place, with zeros past the end."""
        done, number = 0, bisect_right(self.ends, place)
        while done < len(into) and number < len(self.pieces):
            piece = self.pieces[number]
            start = place + done - (self.ends[number] - len(piece))
            part = piece[start:start + len(into) - done]
            into[done:done + len(part)] = part
            done += len(part)
            number += 1
        into[done:] = bytes(len(into) - done)

    def chunk(self, place: int, length: int) -> memoryview:
        """These bytes, with zeros past the end; without a copy where they lie in one piece."""
        number = bisect_right(self.ends, place)
        if number < len(self.pieces) and place + length <= self.ends[number]:
            start = place - (self.ends[number] - len(self.pieces[number]))
            return self.pieces[number][start:start + length]
        into = memoryview(bytearray(length))
        self.read(place, into)
        return into

    def close(self) -> None:
        return


class FileSource:
    """A file, or a part of one, read as it is asked for."""

    def __init__(self, path: str, start: int = 0, size: int | None = None) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Broken(f"{path}: {error.strerror}") from None
        self.path, self.start = path, start
        self.room = memoryview(b"")
        self.size = max(0, os.fstat(self.fd).st_size - start) if size is None else size

    def read(self, place: int, into: memoryview) -> None:
        done, wanted = 0, max(0, min(len(into), self.size - place))
        while done < wanted:
            count = os.preadv(self.fd, [into[done:wanted]], self.start + place + done)
            if count == 0:
                break
            done += count
        into[done:] = bytes(len(into) - done)

    def chunk(self, place: int, length: int) -> memoryview:
        """These bytes, with zeros past the end; until the next chunk is asked for."""
        if len(self.room) != length:
            self.room = memoryview(bytearray(length))
        self.read(place, self.room)
        return self.room

    def close(self) -> None:
        os.close(self.fd)


Source = MemorySource | FileSource
