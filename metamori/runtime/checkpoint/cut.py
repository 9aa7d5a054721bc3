"""One instant of the run: what was taken out of the run area while it was frozen (snapshot.py), and what stood at the
names. Most of it is taken by the C side in one pass (area/looks.c) and read only when the run goes on."""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
from collections.abc import Iterator

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import Area, BrokenJournal, Preimage, Touch
from metamori.runtime.area.whereabouts import has_moved, placed
from metamori.store.format.records import InheritedEntry, ProcessEntry
from metamori.store.io.commit import IN_THE_DARK
from metamori.store.io.os_io import REAL
from metamori.store.io.xattrs import Xattrs
from metamori.store.io.xattrs import read as read_xattrs
from metamori.tables.fit import Fit
from metamori.tables.pif import Pif, later
from metamori.tables.record import field, mutable, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_looks, mm_stream_state
    from metamori.runtime.checkpoint.dirty_pages import Watch
    from metamori.store.read.state import State

Identity = tuple[int, int, int]            # device, inode, birth


@mutable
class Found:
    """What stands at a path: its lstat, and the target of a link. st None: nothing."""

    st: os.stat_result | None
    target: bytes = b""
    xattrs: Xattrs = ()
    slot: int = 0                          # the PIF of the file: later its number may be another one's


HALF_WAY = "half-way"                      # notes of restores inside the program that failed so: half_way.py


def half_way_notes(area: Area) -> list[bytes]:
    """Where they are; almost always none."""
    if not os.path.exists(os.path.join(area.path, HALF_WAY)):
        return []
    return [os.fsencode(os.path.join(area.path, name)) for name in os.listdir(area.path) if name.startswith(HALF_WAY)]


def look(path: bytes) -> Found:
    """What stands at a path now. OSError where nobody can tell: that is not the same as nothing."""
    try:
        st = REAL.lstat(path)
        if stat.S_ISLNK(st.st_mode):
            return Found(st, REAL.readlink(path))
        device = stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode)
        return Found(st, b"%d" % st.st_rdev if device else b"", xattrs=read_xattrs(path))
    except OSError as error:
        if error.errno in IN_THE_DARK:
            raise
        return Found(None)


class Looks:
    """What the C side saw of the names noted and the files touched since the last checkpoint; rows in its order.

    Rows are tuples as `struct mm_looked` and `struct mm_cut_file` have their fields. To be made while frozen."""

    _LOOKED = struct.Struct("=QQIIQQQQqqIIII")
    _PREIMAGE, _WRITTEN = struct.Struct("=QQ"), struct.Struct("=QII")
    _FILE = struct.Struct("=IIIIIIIIQQQQQQQQqQq")

    def __init__(self, area: Area, ahead: mm_looks | None = None) -> None:
        assert area.is_frozen
        # paths of the journal are read as they are: where the project has moved since, Python knows
        raw = lib.mm_looks_take(area.pointer, not has_moved(), ffi.NULL if ahead is None else ahead)
        if raw == ffi.NULL:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        self.raw = ahead if ahead is not None and raw == ahead else ffi.gc(raw, lib.mm_looks_free)
        if raw.broken:
            raise BrokenJournal(raw.broken)
        self.area = area
        self._since = area.head.committed_epoch

    def other_notes(self) -> Iterator[Touch]:
        """Of names that stand for something that is not simple, or did."""
        return map(self.area.note, ffi.unpack(self.raw.other_note, self.raw.other_notes))

    def other_files(self) -> list[int]:
        """Slots of those touched that are not simple."""
        return ffi.unpack(self.raw.other_file, self.raw.other_files)

    def preimages(self) -> Iterator[Preimage]:
        return (self.area.preimage(at) for at, _ in self._preimages())

    def with_preimages(self) -> set[int]:
        """Slots."""
        return {slot for _, slot in self._preimages()}

    def partly_written(self) -> list[tuple[int, int, int]]:
        """Blocks of the buffer of which this run has not written over all since; from where to where it has."""
        room = 2 * self.raw.preimages
        while True:
            out = ffi.new("struct mm_written[]", room)
            count = lib.mm_looks_written(self.area.pointer, self.raw, out, room)
            if count <= room:
                return [*self._WRITTEN.iter_unpack(ffi.buffer(out, count * self._WRITTEN.size))]
            room = count

    def have_all_in(self, top: bytes, walked: set[bytes]) -> bool:
        """Whether each name below a folder was looked at: in each folder they are as many."""
        seen, all_in = {top}, lib.mm_looks_all_in(self.raw, top)
        for at, folders, files in REAL.walk(top) if all_in < 0 else ():
            if len(folders) + len(files) != lib.mm_looks_present(self.raw, at):
                return False
            seen.add(at)
        if not all_in:
            return False
        walked |= seen
        return True

    def found(self) -> list[tuple[int, bytes, Found | None]]:
        """Place of the note or 0, path, and what stands there where that is simple."""
        text = bytes(ffi.buffer(self.raw.text, self.raw.text_used))
        return [(row[0], placed(text[row[1]:row[1] + row[2]]), _found(row) if row[3] else None)
                for row in self._looked()]

    def files(self, found: list[tuple[int, bytes, Found | None]]) -> Iterator[tuple[int, Pif | None]]:
        """Slot, and the file where it is simple."""
        for row in self._files():
            (slot, plain, looked, flags, refs, uid, gid, mode, number, dev, ino, btime_ns, created, size, home_limit,
             cut, mtime_ns, old_size, old_mtime_ns) = row
            there = found[looked] if plain else None
            if not there or not there[2] or not there[2].st:
                yield slot, None
                continue
            path, st = there[1], there[2].st
            yield slot, Pif(
                slot, number, dev, ino, btime_ns, flags, created > self._since, created == 0, refs, path, path, size,
                counts_up_to(flags, home_limit, st.st_size), min(cut, size), later(mtime_ns, st.st_mtime_ns), st,
                (old_size, old_mtime_ns, mode, uid, gid), ())

    def _looked(self) -> Iterator[tuple[int, ...]]:
        return self._LOOKED.iter_unpack(ffi.buffer(self.raw.looked, self.raw.names * self._LOOKED.size))

    def _preimages(self) -> Iterator[tuple[int, ...]]:
        return self._PREIMAGE.iter_unpack(ffi.buffer(self.raw.preimage, self.raw.preimages * self._PREIMAGE.size))

    def _files(self) -> Iterator[tuple[int, ...]]:
        return self._FILE.iter_unpack(ffi.buffer(self.raw.file, self.raw.files * self._FILE.size))


# of notes: a few hundred names; in the tests' build however little there is
AHEAD_BYTES = 0 if "METAMORI_CHECKED" in os.environ else 1 << 15
_AT_ONCE_MS = 50


def look_ahead(area: Area) -> mm_looks | None:
    """What the C side sees of what has been noted and touched so far, where it is much, while the run goes on: frozen,
    it waits only for what happens meanwhile (adr/0063). None: it has to wait for all."""
    head = area.head
    if head.journal_tail - head.committed_journal < AHEAD_BYTES or area.is_frozen or has_moved() \
            or head.flags & lib.MM_JOB or head.untracked:
        return None
    # no call is under way that has noted something, and not done it yet; a long one holds up the others once, not twice
    if lib.mm_freeze(area.pointer, _AT_ONCE_MS) != 0:
        return None
    try:
        until = head.journal_tail
        head.cut_pending = 1
        head.dirty = 0
        head.epoch += 1
    finally:
        lib.mm_thaw(area.pointer)
    raw = lib.mm_looks_ahead(area.pointer, until)
    return None if raw == ffi.NULL else ffi.gc(raw, lib.mm_looks_free)


def counts_up_to(flags: int, home_limit: int, in_place: int) -> int:
    """Where the bytes in place of a file end that count: of one that the kernel knows the size of, where it does. Of
    others the program reads zeros where somebody outside of the run has cut some off."""
    return min(home_limit, in_place) if flags & lib.MM_VIRTUAL else max(home_limit, in_place)


def _found(row: tuple[int, ...]) -> Found:
    dev, ino, size, nlink, mtime_ns, ctime_ns, mode, uid, gid, slot = row[4:]
    if not mode:
        return Found(None)
    st = os.stat_result((
        mode, ino, dev, nlink, uid, gid, size, 0, mtime_ns // 10**9, ctime_ns // 10**9,
        0.0, mtime_ns / 1e9, ctime_ns / 1e9, 0, mtime_ns, ctime_ns, 0, 0, 0))
    return Found(st, slot=slot)


Moved = tuple[bytes, bytes, list[tuple[bytes, int]]]   # from where, to where, and all that is in it, by number


@mutable
class Cut:
    """One instant."""

    parent: int
    epoch: int
    next_block: int
    journal_end: int
    time_ns: int = field(default_factory=time.time_ns)
    pifs: list[Pif] = field(default_factory=list)
    touches: dict[bytes, Touch] = field(default_factory=dict)
    preimages: list[Preimage] = field(default_factory=list)
    in_place: dict[int, list[tuple[int, int]]] = field(default_factory=dict)   # by slot: what may be written over there
    found: dict[bytes, Found] = field(default_factory=dict)
    fits: list[Fit] = field(default_factory=list)
    processes: list[ProcessEntry] = field(default_factory=list)
    inherited: list[InheritedEntry] = field(default_factory=list)
    captured_bytes: int = 0               # that it stored of files whose bytes change unseen
    watch: Watch | None = None
    mark: int = 0                         # where the log of what is durable says so
    moved: list[Moved] = field(default_factory=list)       # in a job: renamed folders
    elsewhere: list[int] = field(default_factory=list)     # slots of files that others have moved: not in the index
    partly_written: list[tuple[int, int, int]] = field(default_factory=list)      # in a job: job_stamps.py
    looked: dict[bytes, Found] = field(default_factory=dict)   # every path that was looked at in this instant
    examined: dict[bytes, Found] = field(default_factory=dict)   # found, and what folders have taken along
    is_examined: bool = False
    came_along: set[bytes] = field(default_factory=set)   # of it what is in folders of the run: not there before
    followed: dict[Identity, Identity] = field(default_factory=dict)   # what restores made other inodes
    half_way: list[bytes] = field(default_factory=list)        # notes of restores that failed half way: half_way.py
    looks: Looks | None = None            # what is simple of touches, found, pifs and preimages, until `complete`
    _real: dict[bytes, bool] = field(default_factory=dict)
    _born: dict[bytes, int] = field(default_factory=dict)

    def look(self, path: bytes) -> Found:
        """What stands at a path, asked for once: nothing moves while the run is frozen."""
        found = self.looked.get(path)
        if found is None:
            found = self.looked[path] = look(path) if self._is_real(os.path.dirname(path)) else Found(None)
        return found

    def born_ns(self, path: bytes) -> int:
        """When what stands there was made, asked for once."""
        if path not in self._born:
            self._born[path] = REAL.birth_ns(path)
        return self._born[path]

    def note(self, touch: Touch) -> Touch:
        """With the numbers that its file has by now."""
        now = self.followed.get((touch.dev, touch.ino, touch.btime_ns))
        return replace(touch, dev=now[0], ino=now[1], btime_ns=now[2]) if now else touch

    def shared_with(self, parent: State) -> Iterator[bytes]:
        """Known names of the symbolic links, fifos and devices that were looked at by another name: they have changed
        with it."""
        several = {(found.st.st_dev, found.st.st_ino) for found in self.examined.values() if found.st
                   and found.st.st_nlink > 1 and not stat.S_ISREG(found.st.st_mode)
                   and not stat.S_ISDIR(found.st.st_mode)}
        for entry in parent.existing() if several else ():
            if entry.kind not in ("file", "dir") and entry.path not in self.examined:
                st = self.look(entry.path).st
                if st and (st.st_dev, st.st_ino) in several:
                    yield entry.path

    def complete(self) -> Cut:
        """All of it, in the order in which it was noted. It takes its time, which the frozen run need not wait for."""
        looks, self.looks = self.looks, None
        if looks is None:
            return self
        rows = looks.found()
        touches = {path: self.touches[path] if there is None else self.note(looks.area.note(at))
                   for at, path, there in rows if at}
        here = ((path, there or self.found.get(path)) for _, path, there in rows)
        found = {path: there for path, there in here if there}
        others = {pif.slot: pif for pif in self.pifs}
        pifs = [pif or others.pop(slot, None) for slot, pif in looks.files(rows)]
        self.touches, self.found = touches, found | self.found
        self.pifs = [*(pif for pif in pifs if pif), *others.values()]
        self.preimages = self.preimages or [*looks.preimages()]
        self.looked = self.found | self.looked
        if self.is_examined:
            self.examined = self.found | self.examined
        return self

    def _is_real(self, folder: bytes) -> bool:
        """Not where a link took a folder's place: what it leads to has names of its own."""
        if folder not in self._real:
            known = lib.mm_is_real(folder, len(folder))
            self._real[folder] = known == 1 if known else os.path.realpath(folder) == folder
        return self._real[folder]


# -- what the kernel says of a process and its descriptors -----------------------------------------------------------


def program(folder: bytes) -> bytes:
    try:
        return os.readlink(folder + b"/exe")
    except OSError:
        return b""


def flags_of(path: bytes, otherwise: int) -> int:
    """open(2) flags of a description, with FD_CLOEXEC of this descriptor of it."""
    try:
        return int(start(path).split(None, 4)[3], 8)
    except OSError:                        # the C library has closed it by a call of its own
        return otherwise


def start(path: bytes) -> bytes:
    """Of what /proc says there; the run stands still meanwhile."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 256)
    finally:
        os.close(fd)


def removed_folder(link: bytes) -> int | None:
    """The mode of a folder without a name, or None: it is something else."""
    try:
        st = os.stat(link)
    except OSError:
        return None
    return stat.S_IMODE(st.st_mode) if stat.S_ISDIR(st.st_mode) and st.st_nlink == 0 else None


_STREAM_BUFFER = 1 << 26                   # a longer one is none: the program has written over its stream's fields


def unflushed_bytes(pid: int, state: mm_stream_state) -> bytes:
    """Bytes written to a stream that are still in the program's memory."""
    count = state.unflushed
    if not 0 < count <= _STREAM_BUFFER:
        return b""
    room = ffi.new("char[]", count)
    got = lib.mm_peek(pid, state.unflushed_at, room, count)
    return bytes(ffi.buffer(room, got)) if got > 0 else b""
