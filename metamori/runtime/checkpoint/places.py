"""Where a file is that is not where the run knew it to be. What was redirected of one that somebody outside of the run
has moved follows it there."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

from metamori._area import lib
from metamori.runtime.area import whereabouts
from metamori.runtime.area.run_area import Area, proc_folder
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import REAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_pif
    from metamori.runtime.checkpoint.cut import Cut
    from metamori.store.read.state import State
    from metamori.store.read.store import Store

_MOST = 10_000                             # names that are looked at: programs may wait for it


def is_redirected(pif: mm_pif) -> bool:
    """Whether something of a file is not in place, and a name of it is where that has to go. One that a link in the
    store leads to has its place; a copy there is none."""
    elsewhere = pif.flags & (lib.MM_NAMELESS | lib.MM_LEFT) or pif.flags & (lib.MM_KEPT | lib.MM_COPIED) == lib.MM_KEPT
    return bool((pif.root or pif.flags & lib.MM_VIRTUAL) and not elsewhere)


def is_at(pif: mm_pif, path: bytes) -> bool:
    """Whether the file is there now, and not one that has got its number since."""
    st = lstat_or_none(REAL, path)
    return st is not None and stat.S_ISREG(st.st_mode) and (st.st_dev, st.st_ino) == (pif.dev, pif.ino) and (
        not pif.btime_ns or REAL.birth_ns(path) in (0, pif.btime_ns))


class Nearby:
    """The files around, by inode number, as of one instant: who is asked for several walks once."""

    def __init__(self, area: Area) -> None:
        self._area, self._left = area, _MOST
        self._store = os.path.dirname(os.fsencode(area.path))
        self._walked = set[bytes]()
        self._found: dict[int, list[bytes]] = {}

    def of(self, slot: int, pif: mm_pif, path: bytes) -> Iterator[bytes]:
        """Where a file may be that was at a path: as who has it open knows, in its folder, below that, then in those
        around it, as far as the run tracks them."""
        home, st = open_home(self._area, slot, pif)
        if st and not st.st_nlink:
            return                         # somebody has removed it
        with suppress(OSError):
            yield from self._right(pif, [os.readlink(home)])
        folder = path
        while folder != b"/" and self._area.in_scope(folder := os.path.dirname(folder)):
            self._walk(folder, pif.dev)
            yield from self._right(pif, self._found.get(pif.ino, ()))

    def _right(self, pif: mm_pif, paths: Iterable[bytes]) -> Iterator[bytes]:
        return (path for path in paths if self._area.in_scope(path) and is_at(pif, path))

    def _walk(self, top: bytes, dev: int) -> None:
        due = deque([top])
        while due and self._left > 0:
            folder = due.popleft()
            self._left -= 1
            st = lstat_or_none(REAL, folder)
            if folder == self._store or folder in self._walked or st is None or st.st_dev != dev:
                continue                   # nobody moves a file to another filesystem
            self._walked.add(folder)
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    self._left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        due.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        self._found.setdefault(entry.inode(), []).append(entry.path)


class Places:
    """The touched paths, for whoever looks for a file: a checkpoint may have ten thousand of both."""

    def __init__(self, area: Area, cut: Cut, store: Store, parent: State) -> None:
        self._area, self._cut, self._store, self._parent, self._near = area, cut, store, parent, Nearby(area)
        self._by_identity: dict[tuple[int, int], bytes] | None = None   # where the cut found files, once somebody asks
        self._known: dict[tuple[int, int], list[int]] = {}   # the parent's files, once somebody asks

    def of(self, slot: int, pif: mm_pif, first: bytes) -> Iterator[bytes]:
        """Where a file may be that was at `first`."""
        yield first
        for inode in (pif.object,) if pif.object else self._objects(pif):
            yield from self._parent.paths(inode)
        if self._by_identity is None:
            self._by_identity = {}
            for path, found in self._cut.complete().found.items():
                if found.st:
                    self._by_identity.setdefault((found.st.st_dev, found.st.st_ino), path)
        if (pif.dev, pif.ino) in self._by_identity:
            yield self._by_identity[pif.dev, pif.ino]
        if is_redirected(pif) and not self._area.head.flags & lib.MM_JOB:
            yield from self._near.of(slot, pif, first)

    def _objects(self, pif: mm_pif) -> Iterator[int]:
        """What a file may be that the run has just come to: whoever looks there sees whether it is that."""
        if not self._known:
            for inode, known in self._parent.pifs.items():
                self._known.setdefault((whereabouts.device(known.dev), known.ino), []).append(inode)
        yield from self._known.get((pif.dev, pif.ino), ())
        yield self._store.find_object(pif.dev, pif.ino, pif.btime_ns)


def open_home(area: Area, slot: int, pif: mm_pif) -> tuple[bytes, os.stat_result | None]:
    """A file that only a descriptor still holds: through that descriptor."""
    for process in area.slots():
        pid = area.process(process).pid
        for fd, fit in area.descriptors(process).items():
            if area.fit(fit).slot == slot:
                path = b"%s/fd/%d" % (proc_folder(pid), fd)
                try:
                    st = os.stat(path)
                except OSError:
                    continue
                if (st.st_dev, st.st_ino) == (pif.dev, pif.ino):
                    return path, st
    return b"", None
