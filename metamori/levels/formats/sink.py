"""A new file, written from its start to its end and made durable; a failure is kept until the end, because others wait
for our next message meanwhile.

Where the file lies on a device of its own (ext4, xfs), large ones go past the page cache: from an aligned buffer,
which costs a copy (0.14 CPU seconds per GiB here) and not the cache's pages (0.34), and takes half the time until the
file is durable. Nobody reads a checkpoint's file soon. What is no whole page at the end is written in the ordinary way.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable

from metamori.levels.formats import checksummed_file
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.setup import aligned_buffers as room

PAGE = 4096                                # a multiple of every device's block
WORTH_IT = 16 * PAGE                       # less than that is written in the ordinary way


class Sink:
    """States: open -> finished. `put`, or `room` and `filled`, any number of times between."""

    def __init__(self, path: str) -> None:
        self.path, self.failure, self.fd = path, "", -1
        self.size: int | None = None       # what the file is cut to
        self.buffer: memoryview | None = None
        self.held = 0                      # bytes in the buffer
        self.spare = memoryview(b"")       # what room() lent, without a buffer
        self._try(self._open)

    def _open(self) -> None:
        self.fd = checksummed_file.create(self.path)
        if os.major(os.fstat(self.fd).st_dev):
            self.buffer = room.lend()

    def _try(self, work: Callable[[], object]) -> None:
        if not self.failure:
            try:
                work()
            except OSError as error:
                self.failure = f"{self.path}: {error.strerror}"

    def put(self, *pieces: memoryview | bytes) -> None:
        self._try(lambda: self._put(pieces))

    def _put(self, pieces: Iterable[memoryview | bytes]) -> None:
        if self.buffer is None:
            checksummed_file.write(self.fd, pieces)
            return
        for piece in pieces:
            view, at = memoryview(piece), 0
            while at < len(view):
                count = min(len(view) - at, room.BYTES - self.held)
                self.buffer[self.held:self.held + count] = view[at:at + count]
                at += count
                self._held(count)

    def _held(self, more: int) -> None:
        self.held += more
        if self.held == room.BYTES:
            self._flush()

    def _flush(self) -> None:
        """What the buffer holds; whole pages past the page cache, if the filesystem can do that."""
        assert self.buffer is not None
        whole, done = self.held // PAGE * PAGE, 0
        if whole >= WORTH_IT:
            flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
            try:
                fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_DIRECT)
                done = os.write(self.fd, self.buffer[:whole])
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags)
        checksummed_file.write(self.fd, [self.buffer[done:self.held]])
        self.held = 0

    def room(self, length: int) -> memoryview:
        """Where the file's next bytes can be put; filled() says that they are there."""
        if self.buffer is not None and length <= room.BYTES - self.held:
            return self.buffer[self.held:self.held + length]
        if len(self.spare) != length:
            self.spare = memoryview(bytearray(length))
        return self.spare

    def filled(self, part: memoryview) -> None:
        if self.buffer is not None and len(part) <= room.BYTES - self.held:
            self._try(lambda: self._held(len(part)))
        else:
            self.put(part)

    def cut(self, size: int) -> None:
        """The file ends here, whatever is put."""
        self.size = size

    def _end(self) -> None:
        if self.buffer is not None:
            self._flush()
            room.give_back(self.buffer)
            self.buffer = None
        if self.size is not None:
            os.ftruncate(self.fd, self.size)

    def finish(self) -> None:
        """Durable and closed. Broken when anything went wrong."""
        if self.fd >= 0:
            self._try(self._end)
            fd, self.fd = self.fd, -1
            self._try(lambda: checksummed_file.finish(fd))
        if self.failure:
            raise Broken(self.failure)
