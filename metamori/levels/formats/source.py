"""The bytes of one checkpoint file, wherever they are: still in the program's memory, or in a file."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy

from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.setup import aligned_buffers

PAGE = 4096
LONG = 8 << 20                             # bytes of a file that is worth its own window
AT_ONCE = 1 << 30                          # Linux reads at most 0x7ffff000 bytes in a call


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
        self.lent: memoryview | None = None    # where a chunk is put together

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
        """These bytes, with zeros past the end, until the next chunk is asked for; not copied if they are one piece."""
        number = bisect_right(self.ends, place)
        if number < len(self.pieces) and place + length <= self.ends[number]:
            start = place - (self.ends[number] - len(self.pieces[number]))
            return self.pieces[number][start:start + length]
        if length > aligned_buffers.BYTES:
            into = memoryview(bytearray(length))
        else:
            self.lent = self.lent or aligned_buffers.lend()
            into = self.lent[:length]
        self.read(place, into)
        return into

    def close(self) -> None:
        if self.lent is not None:
            aligned_buffers.give_back(self.lent)
            self.lent = None


class FileSource:
    """A file, or a part of one, read as it is asked for; a long one that is not in the page cache past it.

    window: the bytes at `at` of the file, in memory lent by aligned_buffers.py; None while the page cache is read.
    """

    def __init__(self, path: str, start: int = 0, size: int | None = None) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Broken(f"{path}: {error.strerror}") from None
        self.path, self.start = path, start
        self.room = memoryview(b"")
        state = os.fstat(self.fd)
        self.size = max(0, state.st_size - start) if size is None else size
        self.window: memoryview | None = None
        self.at, self.held = 0, 0
        if self.size >= LONG and os.major(state.st_dev) and not _cached(self.fd, start):
            self._go_direct()

    def _go_direct(self) -> None:
        try:
            direct = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError:
            return
        os.close(self.fd)
        self.fd, self.window = direct, aligned_buffers.lend()

    def read(self, place: int, into: memoryview) -> None:
        """Fill the view from this place, with zeros past the end. Broken when the file has become shorter."""
        wanted = max(0, min(len(into), self.size - place))
        done = 0
        while done < wanted:
            done += self._some(self.start + place + done, into[done:wanted])
        if wanted < len(into):
            into[wanted:] = bytes(len(into) - wanted)

    def _some(self, place: int, into: memoryview) -> int:
        try:
            if self.window is None:
                count = os.preadv(self.fd, [into[:AT_ONCE]], place)
            else:
                start = self._look(place, 1)
                count = min(len(into), self.at + self.held - place)
                if count > 0:
                    into[:count] = self.window[start:start + count]
        except OSError as error:
            raise Broken(f"{self.path}: {error.strerror}") from None
        if count <= 0:
            raise Broken(f"{self.path} ends too soon")
        return count

    def _look(self, place: int, length: int) -> int:
        """Have `length` bytes of the file at `place` in the window, if it has them; where they begin there."""
        assert self.window is not None
        if not self.at <= place <= place + length <= self.at + self.held:
            self.at = place // PAGE * PAGE
            self.held = 0                  # an error leaves nothing behind
            try:
                self.held = os.preadv(self.fd, [self.window], self.at)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_RDONLY)   # this device wants more than whole pages
                self.held = os.preadv(self.fd, [self.window], self.at)
        return place - self.at

    def chunk(self, place: int, length: int) -> memoryview:
        """These bytes, with zeros past the end; until the next chunk is asked for."""
        fits = (self.start + place) % PAGE + length <= aligned_buffers.BYTES and place + length <= self.size
        if self.window is not None and fits:
            try:
                start = self._look(self.start + place, length)
            except OSError as error:
                raise Broken(f"{self.path}: {error.strerror}") from None
            if start + length > self.held:
                raise Broken(f"{self.path} ends too soon")
            return self.window[start:start + length]
        if len(self.room) != length:
            self.room = memoryview(bytearray(length))
        self.read(place, self.room)
        return self.room

    def close(self) -> None:
        os.close(self.fd)
        if self.window is not None:
            aligned_buffers.give_back(self.window)
            self.window = None


def _cached(fd: int, place: int) -> bool:
    """Whether the page cache has the byte there (a read that does not wait would fetch it)."""
    page = numpy.frombuffer(mmap.mmap(fd, PAGE, prot=mmap.PROT_READ, offset=place // PAGE * PAGE), numpy.uint8)
    there = ctypes.c_ubyte(1)
    return ctypes.CDLL(None).mincore(ctypes.c_void_p(page.ctypes.data), ctypes.c_size_t(PAGE),
                                     ctypes.byref(there)) != 0 or bool(there.value & 1)


class Steady:
    """A source that is sent: a failure is kept until `finish`, as a sink keeps its own, because others wait for our
    next message meanwhile. Zeros stand for what could not be read; whoever got them hears that nothing came of it."""

    def __init__(self, opened: Callable[[], MemorySource | FileSource]) -> None:
        self.failure, self.size = "", 0
        self._source: MemorySource | FileSource | None = None
        try:
            self._source = opened()
            self.size = self._source.size
        except (Broken, OSError) as error:
            self.failure = str(error) or type(error).__name__

    def chunk(self, place: int, length: int) -> memoryview:
        """These bytes, with zeros past the end; until the next chunk is asked for."""
        if self._source is not None and not self.failure:
            try:
                return self._source.chunk(place, length)
            except (Broken, OSError) as error:
                self.failure = str(error) or type(error).__name__
        return memoryview(bytearray(length))

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def finish(self) -> None:
        """Broken when anything could not be read."""
        if self.failure:
            raise Broken(self.failure)


Source = MemorySource | FileSource
