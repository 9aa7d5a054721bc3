"""The store of a live run is removed, or only its run area: what can still be done.

The run area and the disk buffer are mapped and open here, so what was redirected is not lost with their names. It is
written back to the files at once, without pre-images: nothing is left that could hold any. From then on the
run is told (MM_GONE) to follow no more files and names; the program goes on as without Metamori. What is opened between
the removal and that moment is written back at the end.

So it is with a run of a job that was taken for dead: its others have completed it. Their indexes need what is in its
files, and it tells them which of these its program writes over (job/folder.py).
"""

from __future__ import annotations

import os
import stat

from metamori._area import lib
from metamori.runtime.area.run_area import BLOCK, NO_LIMIT, Area, proc_folder
from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.tables.pif import folded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from metamori._area import mm_pif

    class Job(Protocol):
        """runtime/job/member.py."""

        def outlives(self, files: list[tuple[int, int]], is_over: bool) -> None: ...

_PIECE = 1 << 20


class Watch:
    """Made when the run begins; whoever follows the run asks it each second."""

    def __init__(self, store: Store, area: Area) -> None:
        self._store, self._area = store, area
        self._header = os.path.join(os.fsencode(area.path), b"header")
        self._began = self._now()
        self._lengths: dict[int, tuple[int, int, int]] = {}    # in a job: inode, birth, up to where others need it
        try:
            self._buffer = os.open(store.layout.buffer(area.head.run), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._buffer = -1              # gone already

    def _now(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self._header)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def is_gone(self) -> bool:
        """Whether the run area is no longer where it was. A disk that does not answer is none that is gone."""
        if self._began and self._now() == self._began:
            return False
        return not commit.exists(self._store.door, os.path.dirname(self._header)) or self._now() != self._began

    def close(self) -> None:
        if self._buffer >= 0:
            os.close(self._buffer)
            self._buffer = -1

    def write_back(self, job: Job | None = None, is_over: bool = False) -> list[bytes]:
        """What is redirected goes into the files, and nothing is redirected any more. Files where that failed."""
        area, failed = self._area, []
        area.flag(lib.MM_GONE)
        area.freeze()
        try:
            for slot in list(area.pifs()):
                p = area.pif(slot)
                try:
                    self._put(slot, p)
                except OSError:
                    if not p.flags & lib.MM_NAMELESS:    # of those nobody is left who could read it
                        failed.append(area.pif_path(p))
            area.flag(clear=lib.MM_ISOLATE | lib.MM_SINGLE)
        finally:
            area.thaw()
        if job:
            self.tell(job, is_over)
        return failed

    def tell(self, job: Job, is_over: bool = False) -> None:
        """What was overwritten: the library sets `fresh_from` then (engine/preimage.c)."""
        found = []
        for slot, (ino, btime_ns, length) in self._lengths.items():
            pif = self._area.pif(slot)
            if pif.ino != ino or pif.fresh_from < length:
                found.append((ino, btime_ns))
        job.outlives(found, is_over)

    def _need(self, slot: int, pif: mm_pif) -> None:
        """In a job. What was overwritten since the last index of the run may have been since others completed it."""
        if slot in self._lengths or not self._began or pif.dev != self._began[0]:
            return
        try:
            fd = self._home(pif)
        except OSError:                    # it was removed, or anybody sees by its name that it is another
            return
        length = os.fstat(fd).st_size
        os.close(fd)
        since = pif.saved or pif.flags & lib.MM_MAPPED or (not pif.fresh_from and pif.created != self._area.head.epoch)
        self._lengths[slot] = pif.ino, pif.btime_ns, NO_LIMIT if since else length
        pif.fresh_from = length

    def _put(self, slot: int, pif: mm_pif) -> None:
        area = self._area
        if pif.root or pif.flags & lib.MM_VIRTUAL:
            fd = self._home(pif)
            try:
                self._copy(slot, pif, fd)
            finally:
                os.close(fd)
        area.drop_frames(slot)
        area.table_clear(pif)
        area.size_is_in_place(pif)
        pif.home_limit, pif.mtime_ns = NO_LIMIT, 0
        if area.head.flags & lib.MM_JOB:
            self._need(slot, pif)
        else:
            pif.fresh_from = 0

    def _copy(self, slot: int, pif: mm_pif, fd: int) -> None:
        virtual = bool(pif.flags & lib.MM_VIRTUAL)
        size = pif.size if virtual else os.fstat(fd).st_size
        if virtual and pif.home_limit < os.fstat(fd).st_size:
            os.ftruncate(fd, pif.home_limit)      # past it the file has zeros, whatever is in place
        lib.mm_cache_leave(self._area.pointer, slot, self._writable())
        tail = NO_LIMIT if virtual else pif.size
        for start, end, _, buffer in folded(self._area.ranges(pif, 0, 0), 0, BLOCK, size, tail).find(0, size):
            for at in range(start, end, _PIECE):
                data = os.pread(self._buffer, min(_PIECE, end - at), buffer + at - start)
                os.pwrite(fd, data + bytes(min(_PIECE, end - at) - len(data)), at)
        if virtual:
            os.ftruncate(fd, size)

    def _writable(self) -> int:
        """The buffer has no name any more, and may be opened all the same."""
        writable = os.open(f"/proc/self/fd/{self._buffer}", os.O_RDWR | os.O_CLOEXEC)
        os.close(self._buffer)
        self._buffer = writable
        return writable

    def _home(self, pif: mm_pif) -> int:
        """By its name, or through a process that has it open."""
        path = self._area.pif_path(pif)
        for candidate in (path, *self._descriptors()):
            try:
                found = os.stat(candidate)
                if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) == (pif.dev, pif.ino):
                    return os.open(candidate, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue
        raise FileNotFoundError(2, "no file has these bytes", path)

    def _descriptors(self) -> list[bytes]:
        found = []
        for slot in self._area.processes():
            folder = proc_folder(self._area.process(slot).pid) + b"/fd/"
            try:
                found += [folder + name for name in os.listdir(folder)]
            except OSError:
                continue
        return found
