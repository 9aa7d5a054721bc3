"""A restore inside the program (thesis rollbackFitList, rollbackFileList): files and names here, descriptors in C.

The present is worked out as if it were a checkpoint, but not recorded. Names then move as a restore from the command
line moves them. Bytes need not move: the block tables are pointed back at what the index says. Only home bytes beyond
the index's size are saved (if an index knows them) and cut off, so that home sizes stay true.
"""

from __future__ import annotations

import errno
import os
import stat

from metamori._area import lib
from metamori.errors import MetamoriError, NoSuchCheckpoint
from metamori.runtime import ahead, reopen
from metamori.runtime import cut as instants
from metamori.runtime.area import BLOCK, NO_LIMIT, Area
from metamori.runtime.finish import alive
from metamori.runtime.finish import kept_homes as run_homes
from metamori.runtime.fold import Fold
from metamori.runtime.mapped import Capture
from metamori.runtime.session import Session
from metamori.runtime.whereabouts import AcrossFilesystems, arrived, find_names, movable, named, put_aside
from metamori.store import commit, xattrs
from metamori.store.apply import Applier, read_intent, write_intent
from metamori.store.buffers import write_zeros
from metamori.store.door import REAL
from metamori.store.head import kept_homes
from metamori.store.move import clear_stages
from metamori.store.names import NamesPlan
from metamori.store.records import Intent, KeptHome, PifEntry, UndoEntry
from metamori.store.state import State
from metamori.tables.view import BUFFER, HOME, ZERO, Piece, differences


class NotThere(MetamoriError):
    """The process took no part in the checkpoint."""

    errno = errno.ESRCH


class OthersAlive(MetamoriError):
    """Other processes of the run would have to be rolled back too."""

    errno = errno.EBUSY


def roll_back(session: Session, index: int, pid: int, actions) -> None:  # type: ignore[no-untyped-def]
    """Files and names to `index`; `actions` say what the program has to do with its descriptors.

    On success the run stays frozen and the session locked until `go_on`. AcrossFilesystems, before anything changes:
    the store is on another filesystem than a mapped file that lost its name before or after the checkpoint.
    """
    area, store = session.area, session.store
    store.refresh()
    if index < 0 or index not in store.history:
        raise NoSuchCheckpoint(f"there is no checkpoint {index}")
    number = _process_number(session, pid)
    if index == 0 or all(each.process != number for each in store.meta(index).processes):
        raise NotThere(f"this process took no part in checkpoint {index}")
    if session.single:
        store.require_restorable(index)
    _alone(session, pid)
    area.lock_session()
    try:
        area.freeze()
        try:
            _alone(session, pid)           # none was forked in between: a fork is a call that the freeze waits for
            _back_or_as_it_is(session, index)
            reopen.actions_for(session, index, number, actions)
        except BaseException:
            area.thaw()
            raise
    except BaseException:
        area.unlock_session()
        raise


def _alone(session: Session, pid: int) -> None:
    """OthersAlive unless the process is the only one: of the run, and it has no child that is about to join it."""
    if alive(session.area, pid) or any(lib.mm_start_time(child) for child in _children(pid)):
        raise OthersAlive("other processes of the run are alive")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:                    # the thread has ended, or this kernel does not tell
            continue
    return found


def _back_or_as_it_is(session: Session, index: int) -> None:
    """What failed half way is tried once more from its beginning. If it fails for good, the program goes on with what
    there is: names may be those of either state, but every file is found again and nothing of it is lost."""
    try:
        try:
            back(session, index)
        except AcrossFilesystems:
            session.area.head.restoring = 0
            raise
        except (MetamoriError, OSError):
            back(session, index, again=True)
    except AcrossFilesystems:
        raise
    except (MetamoriError, OSError):
        begun = read_intent(session.store, session.store.layout.run_intent)
        if begun is not None:
            arrived(session, begun)
        find_names(session, index)
        commit.remove_file(session.store.door, session.store.layout.run_intent, durable=False)
        session.area.head.restoring = 0
        raise


def go_on(session: Session) -> None:
    """The descriptors are in place. Whatever fails here, the program goes on: it would wait for itself for ever."""
    try:
        session.let_in.close()
        reopen.remove_folders(session)
        session.coming_back.clear()
        for slot in list(session.area.pifs()):
            session.area.drop_if_done(slot)
    finally:
        session.area.thaw()
        session.area.unlock_session()


def _process_number(session: Session, pid: int) -> int:
    for slot in session.area.processes():
        if session.area.process(slot).pid == pid:
            return session.area.process(slot).number
    raise NotThere("this process is no part of the run")


def back(session: Session, index: int, again: bool = False, reopened: bool = True) -> None:
    """Files, names and tables to `index`, while nothing of the run moves.

    again: a kill came in the middle of this; it can be done from its beginning, all of every file being pointed anew.
    reopened: the program's descriptors are opened anew afterwards, whatever inodes its files have then.
    """
    area, store = session.area, session.store
    area.head.restoring = index + 1
    if again:
        put_aside(session)
        begun = read_intent(store, store.layout.run_intent)
        if begun is not None:
            Applier(store, session.durable, store.layout.run_intent).run(begun)
            arrived(session, begun)
    parent = store.state(area.head.parent)
    cut = instants.take(area, store.layout.kept_folder, parent.paths, Capture(store, area, parent))
    if again:                              # names may have moved already that no program touched
        for path in {*store.state(cut.parent).names, *store.state(index).names}:
            cut.found.setdefault(path, instants.look(path))
    fold = Fold(store, area, cut, store.newest + 1)
    meta, offsets = fold.state("", "now", 0, "incremental")
    now = store.state(cut.parent).knowing(meta.initial_names, meta.initial_pifs).successor([(meta, offsets)])
    then = store.state(index).knowing(meta.initial_names, meta.initial_pifs)
    if not again:
        movable(session, _names(session, now, then), reopened)
    if session.durable and cut.preimages:
        store.buffers.sync(area.head.run)
    session.will_write_records()
    for after_index, entries in sorted(fold.undo_entries().items()):
        store.add_undo(entries, after_index, durable=session.durable)
    instants.advance(area, cut)
    area.head.committed_epoch = cut.epoch
    area.head.committed_block = area.head.next_block
    # the journal stays: what it says of paths that no record knows yet is for the next checkpoint
    area.head.cut_pending = 0
    others = _names_back(session, now, then)
    slots = {area.pif(slot).object: slot for slot in area.pifs() if area.pif(slot).object}
    for inode in sorted({*then.pifs, *now.pifs}):
        if inode in slots:
            _Rollback(session, slots[inode], inode, now, then).run(again or inode in others)
    for inode, pif in then.pifs.items():
        if inode not in slots and then.paths(inode):
            _give_attributes(then.paths(inode)[0], pif)
    for pif in then.pifs.values():
        p = area.pif(slots[pif.inode]) if pif.inode in slots else None
        if p and p.flags & lib.MM_MOVED and (pif.ino, pif.btime_ns) != (p.ino, p.btime_ns):
            ahead.moved(area, (pif.dev, pif.ino, pif.btime_ns), (p.dev, p.ino, p.btime_ns))
    area.head.parent = index
    _now_back(area, index, session.durable)
    commit.remove_file(store.door, store.layout.run_intent, durable=False)
    area.head.restoring = 0


def _now_back(area: Area, index: int, durable: bool) -> None:
    """From here on a power cut leaves what is durable on top of the index."""
    for slot in area.pifs():
        area.pif(slot).ahead_block = 0
    ahead.mark(area, lib.MM_AHEAD_BACK, index)
    if durable:
        ahead.sync(area)


def _names(session: Session, now: State, then: State) -> NamesPlan:
    """What brings the names back, also of files that are kept in the store."""
    store = session.store
    kept = {home.inode: home for home in kept_homes(store.door, store.layout, store.head, now)}
    kept.update({home.inode: home for home in run_homes(session)})
    # put aside by an earlier restore and never opened for writing, or by this one before it was killed
    for inode in {*then.pifs, *now.pifs}:
        if inode not in kept and os.path.exists(store.layout.kept_by_move(inode)):
            kept[inode] = KeptHome(inode, b"%d" % inode)
    return NamesPlan(store.door, store.layout, now, then, tuple(kept.values()))


def _names_back(session: Session, now: State, then: State) -> set[int]:
    """The files that are other inodes afterwards: copies, since the store is on another filesystem."""
    store = session.store
    plan = _names(session, now, then)
    intent = Intent(then.index, names=tuple(plan.ops), xattrs=tuple(xattrs.plan(now, then)))
    clear_stages(store, intent)
    write_intent(store, intent, session.durable, store.layout.run_intent)
    Applier(store, session.durable, store.layout.run_intent).run(intent)
    slots = {session.area.pif(slot).object: slot for slot in session.area.pifs()}
    homes_after = {home.inode: home.name for home in plan.kept}
    return {inode for inode in {*now.pifs, *then.pifs}
            if inode in slots and named(session, slots[inode], then.paths(inode), homes_after.get(inode))}


def _give_attributes(path: bytes, pif: PifEntry) -> bool:
    """Mode, owner and time as far as the user may; whether all of them."""
    try:
        found = REAL.lstat(path)
        if stat.S_IMODE(found.st_mode) != stat.S_IMODE(pif.mode):
            REAL.chmod(path, stat.S_IMODE(pif.mode))
        if (found.st_uid, found.st_gid) != (pif.uid, pif.gid):
            REAL.chown(path, pif.uid, pif.gid)
        if found.st_mtime_ns != pif.mtime_ns:
            REAL.set_mtime(path, pif.mtime_ns)
    except (FileNotFoundError, PermissionError):
        return False
    return True


class _Rollback:
    """The bytes of one file."""

    def __init__(self, session: Session, slot: int, inode: int, now: State, then: State) -> None:
        self.session, self.area, self.store = session, session.area, session.store
        self.slot, self.inode, self.now, self.then = slot, inode, now, then
        self.p = self.area.pif(slot)
        self.run_number = self.area.head.run

    def run(self, again: bool) -> None:
        pif = self.then.pifs.get(self.inode)
        if pif is None:
            return
        # a file of another branch: what the table says of it is of no use, all of it is pointed anew
        have = self.now.pieces(self.inode) if self.inode in self.now.pifs and not again else []
        want = self.then.pieces(self.inode)
        changes = list(differences(have, want))
        attributes = self.now.pifs.get(self.inode) != pif
        if not again and not changes and not attributes:
            return
        self.area.touch_pif(self.slot)
        self.area.drop_frames(self.slot)   # written back by the cut
        if self.p.flags & lib.MM_HOME:
            self._at_home(pif, [(start, end, there) for start, end, _, there in changes if there is not None])
            return
        # put home in isolation, and mapped no more: as in incremental mode, some bytes at home and some in the buffer
        settled = bool(self.p.flags & lib.MM_SETTLED)
        # what no name led to was not committed
        if self.session.single and not settled and self.then.paths(self.inode):
            self._committed(pif)
            return
        isolated = bool((self.area.head.flags & lib.MM_ISOLATE and not settled) or self.p.flags & lib.MM_COPIED)
        if isolated:
            self._resize_virtual(pif.size, pif.home_limit)
        else:
            self._resize_home(pif.size)
        # pieces are compared by place: what the home held in between is looked up by then's own view of it
        self._point([(start, end, there) for start, end, _, there in changes if there is not None], pif.size)
        self.p.cut = self.p.cut_before = NO_LIMIT
        if not isolated:
            self.p.fresh_from = pif.size
        self._attributes(pif)

    def _committed(self, pif: PifEntry) -> None:
        """In single mode the index is the last commit: home has exactly its bytes, what is buffered is dropped."""
        self.area.table_clear(self.p)
        if not self.p.flags & lib.MM_COPIED:
            self.p.flags &= ~lib.MM_VIRTUAL
        self.p.size = self.p.home_limit = pif.size
        self.p.cut = self.p.cut_before = NO_LIMIT
        self._attributes(pif)

    def _at_home(self, pif: PifEntry, changes: list[tuple[int, int, Piece]]) -> None:
        """A file that is mapped: its bytes go back at home, where the mapping sees them, once those that an index
        knows by their home alone are saved."""
        fd = REAL.open(self._home(), os.O_RDWR)
        try:
            found = os.fstat(fd).st_size
            known = min(found, self.p.fresh_from)
            ranges = [(start, min(end, known)) for start, end, there in changes if there.kind != HOME and start < known]
            if pif.size < known:
                ranges.append((pif.size, known))
            self._keep(fd, ranges)
            os.ftruncate(fd, pif.size)
            for start, end, there in changes:
                if there.kind == ZERO:
                    write_zeros(self.store.door, fd, start, end)
            self.store.buffers.copy_out(fd, ((there.run, there.offset, end - start, start)
                                             for start, end, there in changes if there.kind == BUFFER))
        finally:
            os.close(fd)
        self.area.table_clear(self.p)
        self.p.flags &= ~lib.MM_VIRTUAL
        self.p.home_limit = NO_LIMIT
        self.p.fresh_from = 0 if self.p.flags & lib.MM_MAPPED else pif.size
        self.p.cut = self.p.cut_before = 0
        self._attributes(pif)

    def _attributes(self, pif: PifEntry) -> None:
        if _give_attributes(self._home(), pif):
            self.p.mtime_ns = 0

    def _resize_virtual(self, size: int, home_limit: int) -> None:
        if not self.p.flags & lib.MM_VIRTUAL:
            self.p.flags |= lib.MM_VIRTUAL
            self.area.head.virtual_count += 1
        self.p.size, self.p.home_limit = size, home_limit
        self.area.table_clear(self.p, -(-size // BLOCK))

    def _home(self) -> bytes:
        paths = self.then.paths(self.inode)
        if paths:
            return paths[0]
        return self.store.layout.kept(self.area.kept_name(self.slot))

    def _resize_home(self, size: int) -> None:
        path = self._home()
        try:
            fd = REAL.open(path, os.O_RDWR)
        except PermissionError:
            mode = stat.S_IMODE(REAL.lstat(path).st_mode)
            REAL.chmod(path, mode | 0o600)
            fd = REAL.open(path, os.O_RDWR)
            REAL.chmod(path, mode)
        except FileNotFoundError:
            return
        try:
            found = os.fstat(fd).st_size
            known = min(found, self.p.fresh_from)
            if size < known:               # some index knows these bytes: saved before they go
                self._keep(fd, [(size, known)])
            if size != found or self.p.flags & lib.MM_VIRTUAL:
                self.area.table_clear(self.p, -(-size // BLOCK))
            if size != found:
                os.ftruncate(fd, size)
        finally:
            os.close(fd)
        if self.p.flags & lib.MM_VIRTUAL:
            self.p.flags &= ~lib.MM_VIRTUAL
            self.p.home_limit = NO_LIMIT

    def _keep(self, fd: int, ranges: list[tuple[int, int]]) -> None:
        """An undo record of home bytes that are about to go."""
        entries = []
        for start, end in ranges:
            place = self._save(fd, start, end)
            crc = self.store.buffers.checksum(self.run_number, place, end - start)
            entries.append(UndoEntry(self.inode, start, end, self.run_number, place, crc))
        if entries:
            self.session.will_write_records()
            self.store.add_undo(entries, self.store.newest, durable=self.session.durable)

    def _save(self, fd: int, start: int, end: int) -> int:
        place = self.area.take_blocks(-(-(end - start) // BLOCK)) * BLOCK
        with open(self.store.layout.buffer(self.run_number), "r+b", buffering=0) as buffer:
            if os.fstat(buffer.fileno()).st_size < place + (end - start):
                os.ftruncate(buffer.fileno(), -(-(place + end - start) // BLOCK) * BLOCK)
            at = start
            while at < end:
                data = os.pread(fd, min(1 << 20, end - at), at)
                os.pwrite(buffer.fileno(), data, place + at - start)
                at += len(data)
        if self.session.durable:
            self.store.buffers.sync(self.run_number)
        return place

    # -- the block table -------------------------------------------------------------------------

    def _point(self, changes: list[tuple[int, int, Piece]], size: int) -> None:
        """Table entries for everything that differs: whole blocks by reference, the rest put together anew."""
        done = -1                          # blocks up to here are right already
        for start, end, piece in changes:
            first, last = max(start // BLOCK, done + 1), -(-end // BLOCK)
            while first < last:
                count = self._by_reference(first, last, piece, size)
                if not count:
                    self._assemble(first, size)
                    count = 1
                first += count
                done = first - 1

    def _by_reference(self, first: int, last: int, piece: Piece, size: int) -> int:
        """Point as many whole blocks as possible at the piece; how many."""
        low, high = first * BLOCK, min(last * BLOCK, size)
        if low < piece.start or high > piece.end:
            high = min(high, piece.end) // BLOCK * BLOCK
        if low < piece.start or high <= low:
            return 0
        count = -(-(high - low) // BLOCK)
        if piece.kind == HOME:
            self.area.table_set(self.p, first, 0, count)
            return count
        place = piece.offset + low - piece.start
        recorded = self.then.maps.get(self.inode)
        if piece.kind != BUFFER or piece.run != self.run_number or place % BLOCK or recorded is None:
            return 0
        if any(recorded.gaps(low, high)):  # known from an undo record only: the next index must say so itself
            return 0
        self.area.table_set(self.p, first, place // BLOCK, count)
        return count

    def _assemble(self, block: int, size: int) -> None:
        """One block as it was at the index, into a new buffer block of this epoch."""
        low, high = block * BLOCK, min((block + 1) * BLOCK, size)
        data = bytearray(BLOCK)
        for piece in self.then.pieces(self.inode):
            start, end = max(low, piece.start), min(high, piece.end)
            if start >= end:
                continue
            if piece.kind == BUFFER:
                data[start - low:end - low] = self.store.buffers.read(
                    piece.run, piece.offset + start - piece.start, end - start)
            elif piece.kind == HOME:
                with open(self._home(), "rb", buffering=0) as home:
                    found = os.pread(home.fileno(), end - start, start)
                data[start - low:start - low + len(found)] = found
        place = self.area.take_blocks(1)
        with open(self.store.layout.buffer(self.run_number), "r+b", buffering=0) as buffer:
            os.pwrite(buffer.fileno(), data, place * BLOCK)
        self.area.table_set(self.p, block, place, 1)
