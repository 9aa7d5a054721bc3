"""One instant of the run, copied out of the run area while it is frozen. What can wait is left for delta.py.

Everything is counted from the last checkpoint that was written to its end: a checkpoint that failed half way, or a
process killed in the middle of one, leaves its changes to the next.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from metamori._area import ffi, lib
from metamori.runtime.area import name_journal, wal, whereabouts
from metamori.runtime.area.run_area import BLOCK, NO_LIMIT, Area, proc_folder
from metamori.runtime.checkpoint.cut import (
    Cut,
    Looks,
    counts_up_to,
    flags_of,
    half_way_notes,
    look,
    program,
    removed_folder,
    start,
    unflushed_bytes,
)
from metamori.runtime.checkpoint.shared_mappings import Capture, is_copied, now_a_copy, release
from metamori.store.format.records import FitEntry, InheritedEntry, ProcessEntry
from metamori.store.io.os_io import REAL
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.fit import OTHER_CLOSE_ON_EXEC, Fit
from metamori.tables.pif import Pif, later, nearest_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_looks, mm_pif

_REGULAR_OPEN_FLAGS = 0o17777777
_ANY_SIZE = 1 << 62                        # no file is longer


def _buffer_path(area: Area) -> str:
    return os.path.join(os.path.dirname(area.path), "buffer", str(area.head.run))


def take(area: Area, store: Store, parent: State, capture: Capture, held: Mapping[int, bytes] | None = None,
         ahead: mm_looks | None = None) -> Cut:
    """The instant; the caller advances the epoch afterwards. capture: of what changed unseen since the parent.
    held: the program of each process, when all are; whoever holds them looks whether all still live. ahead: of
    `look_ahead`, just now."""
    assert area.is_frozen
    head, kept_folder = area.head, store.layout.kept_folder
    cut = Cut(head.parent, head.epoch, head.next_block, head.journal_tail)
    buffer = os.open(_buffer_path(area), os.O_RDWR | os.O_CLOEXEC)
    try:
        area.write_back_all(buffer)
        if os.fstat(buffer).st_size < head.next_block * BLOCK:
            os.ftruncate(buffer, head.next_block * BLOCK)   # what was reserved and never written reads as zeros
    finally:
        os.close(buffer)
    _processes(area, cut, area.slots() if held else area.processes(), held or {})
    cut.followed = wal.followed(area) if head.flags & lib.MM_MOVES else {}
    looks = cut.looks = Looks(area, ahead)
    for touch in looks.other_notes():
        cut.touches[touch.path] = cut.note(touch)
        cut.found[touch.path] = cut.look(touch.path)
    cut.half_way = half_way_notes(area)
    if cut.half_way:
        from metamori.runtime.checkpoint import half_way  # seldom needed

        for path in half_way.paths(store, head.parent, cut.half_way):
            cut.found.setdefault(path, cut.look(path))
    if head.flags & lib.MM_JOB:
        cut.partly_written = looks.partly_written()
    places = _Places(cut, store, parent)
    others = list(dict.fromkeys((*looks.other_files(), *area.mapped())))
    if any(area.may_have_changed_unseen(slot) for slot in others):
        cut.preimages = [*looks.preimages()]
    for slot in looks.with_preimages():
        if capture.knows(slot) or not area.pif(slot).object:
            # what the buffer still has is not there: whoever was about to write it back was killed
            cut.in_place[slot] = area.noted_blocks(area.pif(slot), in_place=True)
    cut.watch = release(area, others)
    for slot in others:
        _other_name(area, slot, cut, places, kept_folder)
        pif = _pif(area, slot, cut, kept_folder, parent)
        if not pif.st and head.flags & lib.MM_JOB and area.pif(slot).epoch <= head.committed_epoch:
            cut.elsewhere.append(slot)     # another run of the job has taken it away, and this one was not at it
            continue
        if not (pif.st or pif.flags & (lib.MM_VIRTUAL | lib.MM_NAMELESS) or head.flags & lib.MM_JOB
                or _as_last_seen(area, pif, parent, kept_folder)):
            cut.elsewhere.append(slot)
            continue
        if pif.flags & lib.MM_MAPPED:
            where = cut.watch.candidates(slot)
            pif.captured = capture.of(slot, pif.home, pif.size, pif.cut, cut.preimages, where)
        # never checkpointed while mapped: wholly in place, and stays; of one that only a descriptor leads to,
        # nobody knows the bytes once that may be closed
        elif (area.may_have_changed_unseen(slot) and pif.cut and capture.knows(slot)) or _only_open(area, pif):
            at_home = min(pif.size, pif.home_limit)
            pif.captured = capture.of(slot, pif.home, at_home, pif.cut, cut.preimages, None)
        now_a_copy(area, slot, pif.size)
        cut.pifs.append(pif)
    cut.captured_bytes = capture.stored
    return cut


def _only_open(area: Area, pif: Pif) -> bool:
    """Whether its bytes are in place in a file that no name leads to, here or in the store. In a job it has a name that
    another run gave it."""
    return pif.home.startswith(b"/proc/") and not area.head.flags & lib.MM_JOB


class _Below:
    """Paths by the folder that they are in, at any depth; sorted when first asked."""

    def __init__(self, paths: Callable[[], Iterable[bytes]]) -> None:
        self._paths = paths
        self._sorted: list[bytes] = []

    def all_in(self, folder: bytes) -> list[bytes]:
        self._sorted = self._sorted or sorted(set(self._paths()))
        return self._sorted[bisect_left(self._sorted, folder + b"/"):bisect_left(self._sorted, folder + b"0")]


def examine(cut: Cut, area: Area, parent: State) -> None:
    """Look at what moved along with a renamed folder, and at all that is in a new one, while nothing moves.

    What comes later is of the next interval: nothing keeps it for this index.
    """
    known = parent.names
    found = cut.examined = dict(cut.found)
    cut.is_examined = True
    arrived = {(f.st.st_dev, f.st.st_ino): path for path, f in found.items() if f.st and stat.S_ISDIR(f.st.st_mode)}
    below = _Below(lambda: (*known, *cut.complete().touches))
    for path, touch in cut.touches.items():
        if not stat.S_ISDIR(touch.mode):
            continue
        new = arrived.get((touch.dev, touch.ino))
        if new == path:
            continue                       # it stands where it stood: who changed a name in it has noted that
        if new and touch.btime_ns and cut.born_ns(new) not in (0, touch.btime_ns):
            new = None                     # it was removed, and one made since has its number
        if new and area.head.flags & lib.MM_JOB:
            cut.moved.append((path, new, _inside(new)))
        for inner in below.all_in(path):
            for each in (inner, new + inner[len(path):]) if new else (inner,):
                if each not in cut.examined:
                    cut.examined[each] = cut.look(each)
    folders = {(touch.dev, touch.ino) for touch in cut.touches.values() if stat.S_ISDIR(touch.mode)}
    walked, there_again = set[bytes](), set[bytes]()
    for path, there_now in list(cut.examined.items()):
        st = there_now.st
        if path not in known and st and stat.S_ISDIR(st.st_mode) and (st.st_dev, st.st_ino) not in folders \
                and path not in walked and not (cut.looks and cut.looks.have_all_in(path, walked)):
            _arrived_with(cut, area, path, walked)
        if st and stat.S_ISDIR(st.st_mode) and path in known and known[path].kind != "dir":
            there_again.add(path)
    for inner in (*parent.unplaced_in(there_again), *cut.shared_with(parent)):
        if inner not in cut.examined:
            cut.examined[inner] = cut.look(inner)
    unmet = {*cut.elsewhere, *(pif.slot for pif in cut.pifs if not (pif.st or pif.flags & lib.MM_NAMELESS))}
    for path, there_now in cut.examined.items():
        if there_now.st and stat.S_ISREG(there_now.st.st_mode):
            there_now.slot = slot = there_now.slot or _pif_there(cut, area, path, there_now.st)
            if slot and area.pif(slot).flags & lib.MM_LEFT:
                _is_back(cut, area, slot, path, parent)
            elif slot in unmet and not area.head.flags & lib.MM_JOB:   # somebody outside of the run has moved it here
                _is_at(cut, area, slot, path, parent)


def _pif_there(cut: Cut, area: Area, path: bytes, st: os.stat_result) -> int:
    """The PIF of a file that stands at a path. Somebody else (in a job another run) may have removed one, and made
    another that has got its number."""
    slot = area.find_pif(st.st_dev, st.st_ino)
    return area.find_pif(st.st_dev, st.st_ino, cut.born_ns(path)) if slot else 0


def _inside(folder: bytes) -> list[tuple[bytes, int]]:
    """All that is in a folder, with its number: other runs of the job know names in it that this one does not."""
    found = []
    for at, folders, files in REAL.walk(folder):
        for path in (os.path.join(at, name) for name in (*folders, *files)):
            st = look(path).st
            if st:
                found.append((path[len(folder) + 1:], st.st_ino))
    return found


def _is_back(cut: Cut, area: Area, slot: int, path: bytes, parent: State) -> None:
    """A file that had left the scope has a name in it again, of a process that was killed before it said so: what
    `is_back` of border.c does."""
    p = area.pif(slot)
    area.touch_pif(slot)
    p.fresh_from = p.cut = p.deleted = 0
    p.flags &= ~(lib.MM_NAMELESS | lib.MM_LEFT)
    _is_at(cut, area, slot, path, parent)


def _is_at(cut: Cut, area: Area, slot: int, path: bytes, parent: State) -> None:
    area.set_path(area.pif(slot), path)
    cut.elsewhere = [each for each in cut.elsewhere if each != slot]
    here = _pif(area, slot, cut, os.path.join(os.path.dirname(os.fsencode(area.path)), b"kept"), parent)
    here.captured = next((each.captured for each in cut.pifs if each.slot == slot), None)
    cut.pifs = [*(each for each in cut.pifs if each.slot != slot), here]


def _arrived_with(cut: Cut, area: Area, folder: bytes, walked: set[bytes]) -> None:
    """A folder that the run made, and maybe renamed since: all that is in it, and in the scope, came with it."""
    cut.complete()
    for at, folders, files in REAL.walk(folder):
        walked.add(at)
        for name in (*folders, *files):
            path = os.path.join(at, name)
            if path not in cut.examined and area.in_scope(path):
                cut.examined[path] = look(path)
                cut.came_along.add(path)


class _Places:
    """The touched paths, for whoever looks for a file: a checkpoint may have ten thousand of both."""

    def __init__(self, cut: Cut, store: Store, parent: State) -> None:
        self._cut, self._store, self._parent = cut, store, parent
        self._by_identity: dict[tuple[int, int], bytes] | None = None   # where the cut found files, once somebody asks
        self._known: dict[tuple[int, int], list[int]] = {}   # the parent's files, once somebody asks

    def of(self, pif: mm_pif, first: bytes) -> Iterator[bytes]:
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

    def _objects(self, pif: mm_pif) -> Iterator[int]:
        """What a file may be that the run has just come to: whoever looks there sees whether it is that."""
        if not self._known:
            for inode, known in self._parent.pifs.items():
                self._known.setdefault((whereabouts.device(known.dev), known.ino), []).append(inode)
        yield from self._known.get((pif.dev, pif.ino), ())
        yield self._store.find_object(pif.dev, pif.ino, pif.btime_ns)


def _other_name(area: Area, slot: int, cut: Cut, places: _Places, kept_folder: bytes) -> None:
    """A file that lost one of several names is known by another now, and needs no link in the store."""
    p = area.pif(slot)
    if p.flags & lib.MM_NAMELESS:
        return
    first = area.pif_path(p)
    for path in places.of(p, first):
        st = cut.look(path).st
        if st and _is_there(cut, p, path, st):
            if path != first:              # somebody outside of the run may have moved it: nobody has noted that
                cut.found.setdefault(first, cut.look(first))
                area.set_path(p, path)
            copied = is_copied(p) and not p.root and p.size == st.st_size
            # in single mode a commit follows, which has to reach the file that the program reads: no copy may back it
            redirected = not copied and p.flags & (lib.MM_VIRTUAL | lib.MM_HOME) and not area.head.flags & lib.MM_SINGLE
            if p.flags & lib.MM_KEPT and not (p.flags & lib.MM_COPIED and redirected):
                if copied:             # as mm_by_another_name
                    isolated = area.head.flags & lib.MM_ISOLATE and not p.flags & lib.MM_SETTLED
                    p.fresh_from, p.home_limit = NO_LIMIT if isolated else p.size, NO_LIMIT
                    area.size_is_in_place(p)
                p.flags &= ~(lib.MM_KEPT | lib.MM_COPIED)
                with suppress(FileNotFoundError):      # killed before somebody else's file was taken there (take.c)
                    os.unlink(os.path.join(kept_folder, area.kept_name(slot)))
            return


def _is_there(cut: Cut, pif: mm_pif, path: bytes, st: os.stat_result) -> bool:
    """Whether it is the file, and not one that has got its number since, which may be a fifo, too."""
    is_it = stat.S_ISREG(st.st_mode) and (st.st_dev, st.st_ino) == (pif.dev, pif.ino)
    return is_it and (not pif.btime_ns or cut.born_ns(path) in (0, pif.btime_ns))


def _pif(area: Area, slot: int, cut: Cut, kept_folder: bytes, parent: State) -> Pif:
    head, p = area.head, area.pif(slot)
    path = area.pif_path(p)
    home, st = b"", None
    kept = os.path.join(kept_folder, area.kept_name(slot))
    for candidate in (path, kept) if not p.flags & lib.MM_NAMELESS else (kept,):
        found = cut.look(candidate)
        a_copy = is_copied(p) and candidate == kept and not area.may_have_changed_unseen(slot)
        if found.st and (a_copy or _is_there(cut, p, candidate, found.st)):
            home, st = candidate, found.st
            break
    if not p.flags & lib.MM_NAMELESS:
        cut.found.setdefault(path, cut.look(path))
    if st is None and not p.flags & lib.MM_LEFT:
        home, st = _open_home(area, slot, p)
        if st and head.flags & lib.MM_JOB and not p.flags & lib.MM_NAMELESS:
            home = _renamed(area, cut, p, home)
            path = area.pif_path(p)
    itself = st if st and (st.st_dev, st.st_ino) == (p.dev, p.ino) else None
    size = p.size if p.flags & lib.MM_VIRTUAL else st.st_size if st else 0
    return Pif(
        slot, p.object, p.dev, p.ino, p.btime_ns, p.flags, p.created > head.committed_epoch, p.created == 0,
        p.refs, path, home, size, counts_up_to(p.flags, p.home_limit, itself.st_size if itself else size),
        min(p.cut, p.cut_before, size),
        later(p.mtime_ns, nearest_ns(st.st_mtime_ns) if st else 0), st,
        (p.old_size, p.old_mtime_ns, p.old_mode, p.old_uid, p.old_gid),
        # the parent may be of a branch that does not know it: all is new to that
        area.ranges(p, *((head.committed_epoch + 1, head.committed_block) if p.object in parent.pifs else (0, 0))),
        held=None if itself or not st else _open_home(area, slot, p)[1],
        tail=NO_LIMIT if p.flags & lib.MM_VIRTUAL else p.size)


def _as_last_seen(area: Area, pif: Pif, parent: State, kept_folder: bytes) -> bool:
    """A file that has names, none of which a run has used: by one of them it may be met again, and was never empty.
    False: the run has made it since, and what it is like nobody can see; it is met as a file that was not known."""
    p, known, copy = area.pif(pif.slot), parent.pifs.get(pif.object), None
    if p.flags & lib.MM_COPIED:            # the copy is what it was when it lost the last name that was known
        copy = look(os.path.join(kept_folder, area.kept_name(pif.slot))).st
    pif.size, mtime_ns = (copy.st_size, copy.st_mtime_ns) if copy else (known.size, known.mtime_ns) if known \
        else pif.old[:2]
    pif.cut, pif.mtime_ns = min(p.cut, p.cut_before, pif.size), later(p.mtime_ns, mtime_ns)
    return bool(copy or known or pif.preexisting)


def _renamed(area: Area, cut: Cut, pif: mm_pif, link: bytes) -> bytes:
    """Where a file is that another run of the job has renamed, if it has a name; from here on it is known by that."""
    try:
        path = os.readlink(link)
    except OSError:                        # whoever had it open was killed just now
        return link
    st = cut.look(path).st if area.in_scope(path) else None    # else it has left, and no index will know it by that
    if not st or (st.st_dev, st.st_ino) != (pif.dev, pif.ino):
        return link
    area.set_path(pif, path)
    return path


def _open_home(area: Area, slot: int, pif: mm_pif) -> tuple[bytes, os.stat_result | None]:
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


def _processes(area: Area, cut: Cut, slots: Iterable[int], programs: Mapping[int, bytes]) -> None:
    supervisor = area.head.supervisor
    for slot in slots:
        process = area.process(slot)
        if process.outside == lib.MM_OUTSIDE_PROXY:
            continue
        pid = process.pid
        folder = b"/proc/%d" % pid if pid in programs else proc_folder(pid)
        exe = programs[pid] if pid in programs else program(folder)
        cut.processes.append(ProcessEntry(process.number, pid, process.start_time, exe))
        groups: dict[int, list[int]] = {}
        descriptors = area.descriptors(slot)
        for fd, fit in sorted(descriptors.items()):
            groups.setdefault(fit, []).append(fd)
        for fit, fds in groups.items():
            entry = _fit(area, slot, fit, fds, folder)
            if entry is not None:
                known = area.fit(fit).slot
                file = _followed(area, known) if known else _unlinked(area, entry, b"%s/fd/%d" % (folder, fds[0]))
                cut.fits.append(Fit(entry, file))
        if not supervisor:
            _inherited(cut, process.number, {0, 1, 2} - descriptors.keys(), folder)
    if supervisor and cut.processes:       # a shell has its own elsewhere while it starts a redirected command
        _inherited(cut, cut.processes[0].process, {0, 1, 2}, proc_folder(supervisor))


def _inherited(cut: Cut, process: int, fds: Collection[int], folder: bytes) -> None:
    """Standard descriptors on regular files from outside the run, for restore --stdio."""
    for fd in sorted(fds):
        link = b"%s/fd/%d" % (folder, fd)
        with suppress(OSError):
            st = os.stat(link)
            if stat.S_ISREG(st.st_mode):
                cut.inherited.append(InheritedEntry(process, fd, os.readlink(link), st.st_size, st.st_dev, st.st_ino))


def _fit(area: Area, process_slot: int, fit_slot: int, fds: list[int], folder: bytes) -> FitEntry | None:
    process, f = area.process(process_slot), area.fit(fit_slot)
    pid = process.pid
    try:
        words = start(b"%s/fdinfo/%d" % (folder, fds[0])).split(None, 4)
        filename = os.readlink(b"%s/fd/%d" % (folder, fds[0]))
    except OSError:
        return None
    if not filename.startswith(b"/"):      # a socket or the like: the C library closed the file by a call of its own
        return None
    position = f.position if f.owned else int(words[1])
    state = ffi.new("struct mm_stream_state *")
    stream, ungetc, unflushed = 0, b"", b""
    if f.stream_type and f.process == process_slot and lib.mm_stream_peek(pid, f.stream, state) == 0:
        stream = f.stream
        position -= state.unread
        ungetc = bytes(ffi.buffer(state.pushed, state.pushed_count))
        unflushed = unflushed_bytes(pid, state)
        fds = sorted(fds, key=lambda fd: fd != state.fd)   # the stream's own comes first
    flags = int(words[3], 8)
    others: tuple[int, ...] = ()
    if len(fds) > 1:
        each = [flags_of(b"%s/fdinfo/%d" % (folder, fd), flags) for fd in fds]
        flags = each[0]
        others = tuple(
            fd | OTHER_CLOSE_ON_EXEC if (it ^ each[0]) & os.O_CLOEXEC else fd for fd, it in zip(fds[1:], each[1:]))
    mode = f.mode
    if filename.endswith(b" (deleted)"):
        filename = filename.removesuffix(b" (deleted)")
        removed = removed_folder(b"%s/fd/%d" % (folder, fds[0]))
        if removed is not None:
            filename, mode = b"", removed
    return FitEntry(
        process.number, "stream" if stream else "descriptor", fds[0], stream, flags & _REGULAR_OPEN_FLAGS,
        ffi.string(f.stream_attributes), mode, filename, position, 0, 0,
        state.flags | state.skip << 32 if stream else 0, 0, f.dev, f.ino, others, ungetc, unflushed,
        0 if state.flags & lib.MM_STREAM_UNBUFFERED else -1 if state.flags & lib.MM_STREAM_LINE_BUFFERED else BLOCK)


def _followed(area: Area, slot: int) -> int:
    """The PIF of an open file; 0 of one that left the scope: like any other there it is opened again by its path."""
    return 0 if area.pif(slot).flags & lib.MM_LEFT else slot


def _unlinked(area: Area, fit: FitEntry, link: bytes) -> int:
    """The PIF of a file that was opened for reading, before the run unlinked it and so came to know it; 0: none."""
    slot = area.find_pif(fit.dev, fit.ino)
    try:
        if not slot and os.stat(link).st_nlink == 0:   # of which only a copy is left: its number alone says nothing
            slot = area.find_pif(fit.dev, fit.ino, REAL.birth_ns(link, follow=True))
    except OSError:
        return 0
    if not slot or not area.pif(slot).flags & lib.MM_KEPT:
        return 0
    if area.pif(slot).flags & lib.MM_COPIED:
        return slot
    found = look(os.path.join(os.fsencode(os.path.dirname(area.path)), b"kept", area.kept_name(slot))).st
    return slot if found and (found.st_dev, found.st_ino) == (fit.dev, fit.ino) else 0


def advance(area: Area, cut: Cut, index: int = 0) -> None:
    """The next epoch begins. Nothing of the cut is forgotten before `settle_cut`.

    index: of the checkpoint that this is; 0: of none."""
    assert area.is_frozen
    head = area.head
    if index:
        cut.mark = wal.mark(area, lib.MM_AHEAD_CUT, index)
    saved = bool(cut.looks and lib.mm_looks_cut(area.pointer, cut.looks.raw))
    # one that was not found (in a job another run has renamed it) may come back: an index knows all that it has
    for slot in cut.elsewhere:
        lib.mm_pif_cut(area.pointer, slot, _ANY_SIZE)
    for pif in cut.pifs:
        is_known = pif.st or pif.flags & lib.MM_VIRTUAL
        lib.mm_pif_cut(area.pointer, pif.slot, pif.size if is_known else _ANY_SIZE)
        saved = saved or bool(area.pif(pif.slot).saved)
    if head.next_block == head.epoch_block and saved:
        area.take_blocks(1)                # what was noted by that number (settle.c) would count as saved later too
    head.cut_pending = 1
    head.dirty = 0
    head.epoch += 1
    head.epoch_block = head.next_block


def settle_cut(area: Area, cut: Cut, index: int) -> None:
    """The checkpoint is written: the next one starts from here.

    The parent first: killed in here, what the next one counts once more is true of this parent too, while what it
    counts no more would be missing in a child of the one before."""
    head = area.head
    head.newest = index
    head.parent = index
    for pif in cut.pifs:
        area.pif(pif.slot).cut_before = NO_LIMIT
    head.committed_epoch = cut.epoch
    head.committed_block = cut.next_block
    journal = head.committed_journal
    head.committed_journal = cut.journal_end
    head.cut_pending = 0
    area.free_journal(journal, cut.journal_end)
    if cut.watch:
        cut.watch.keep()
    wal.forget(area, cut.mark)
    name_journal.forget(os.path.join(area.path, "notes"), cut.journal_end)
