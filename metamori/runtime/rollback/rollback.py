"""A restore inside the program (thesis rollbackFitList, rollbackFileList): files and names here, descriptors in C.

The present is worked out as if it were a checkpoint, but not recorded. Names then move as a restore from the command
line moves them. Bytes need not move: the block tables are pointed back at what the index says. Only bytes in place
beyond the index's size are saved (if an index knows them) and cut off, so that sizes in place stay true (file_back.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metamori._area import lib
from metamori.errors import MetamoriError, NoSuchCheckpoint
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint import auto_prune, half_way
from metamori.runtime.checkpoint import snapshot as instants
from metamori.runtime.checkpoint.cut import Cut
from metamori.runtime.checkpoint.cut import look as look_at
from metamori.runtime.checkpoint.delta import Fold
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.checkpoint.shared_mappings import Capture
from metamori.runtime.checkpoint.write_back import gone_from
from metamori.runtime.rollback import descriptors, room
from metamori.runtime.rollback.copied_bytes import TakenOver, Unverified
from metamori.runtime.rollback.file_back import FileBack
from metamori.runtime.rollback.files_beside import arrive, give_attributes
from metamori.runtime.rollback.names_back import Look
from metamori.runtime.rollback.relocate import arrived, find_names, movable, next_time_too, put_aside
from metamori.runtime.rollback.sole_process import require_alone
from metamori.store.format.records import Intent, UndoEntry
from metamori.store.io import commit
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore.redo import Applier, read_intent
from metamori.store.restore.restore import require_no_flags
from metamori.tables.view import HOME

if TYPE_CHECKING:
    from metamori._area import mm_actions


class NotThere(MetamoriError):
    """The process took no part in the checkpoint."""

    errno = errno.ESRCH


def roll_back(session: Session, index: int, pid: int, actions: mm_actions) -> None:
    """Files and names to `index`; `actions` say what the program has to do with its descriptors.

    On success the run stays frozen and the session locked until `go_on`. Before anything changes: Unverified, bytes of
    the index are damaged; Gone, a file that was open then and that no name leads to; AcrossFilesystems, the store is on
    another filesystem than a mapped file that lost its name before or after the checkpoint.
    """
    area, store = session.area, session.store
    store.refresh()
    _require_there(session, index)
    slot = _process_slot(session, pid)
    number = area.process(slot).number
    if index == 0 or all(each.process != number for each in store.meta(index).processes):
        raise NotThere(f"this process took no part in checkpoint {index}")
    if session.single:
        store.require_restorable(index)
    require_alone(session.area, pid)
    with held(session):
        _require_there(session, index)
        # none was forked in between: a fork is a call that the freeze waits for
        require_alone(session.area, pid)
        outside = descriptors.unnamed(session, index, slot)
        descriptors.require_room(session, index, number, actions)
        back_or_as_it_is(session, index)
        descriptors.actions_for(session, index, number, outside, actions)


def _require_there(session: Session, index: int) -> None:
    if index < 0 or index not in session.store.history:
        raise NoSuchCheckpoint(f"there is no checkpoint {index}")


@contextmanager
def held(session: Session, timeout_s: float = 60.0) -> Iterator[None]:
    """The run locked and frozen, and left so: whoever succeeds lets it go. NotAtRest; NoLiveRun where it has ended. A
    prune that a kill interrupted is completed: it has given out numbers of records, and may take an index away."""
    area = session.area
    area.lock_session(timeout_s)
    try:
        area.require_going_on()
        auto_prune.recover(session.store, session.durable)
        area.freeze()
        try:
            yield
        except BaseException:
            area.thaw()
            raise
    except BaseException:
        area.unlock_session()
        raise


def back_or_as_it_is(session: Session, index: int, reopened: bool = True) -> None:
    """What failed half way is tried once more from its beginning. If it fails for good, the program goes on with what
    there is: names may be those of either state, but every file is found again and nothing of it is lost."""
    head = session.area.head
    try:
        try:
            back(session, index, again=bool(head.restoring), reopened=reopened)
        except (MetamoriError, OSError):
            if not head.restoring:         # nothing has moved
                raise
            back(session, index, again=True, reopened=reopened)
    except (MetamoriError, OSError):
        if head.restoring:
            begun = read_intent(session.store, session.store.layout.run_intent)
            if begun is not None:
                arrived(session, begun)
                half_way.note(session.store, session.area, index)
            find_names(session, index)
            head.restoring = 0
        raise


def go_on(session: Session) -> None:
    """The descriptors are in place. Whatever fails here, the program goes on: it would wait for itself for ever."""
    try:
        session.let_in.close()
        descriptors.remove_folders(session)
        session.coming_back.clear()
        for slot in list(session.area.pifs()):
            session.area.drop_if_done(slot)
    finally:
        session.area.thaw()
        session.area.unlock_session()


def _process_slot(session: Session, pid: int) -> int:
    for slot in session.area.processes():
        if session.area.process(slot).pid == pid:
            return slot
    raise NotThere("this process is not part of the run")


def back(session: Session, index: int, again: bool = False, reopened: bool = True) -> None:
    """Files, names and tables to `index`, while nothing of the run moves.

    again: a kill came in the middle of this; it can be done from its beginning, all of every file being pointed anew.
    reopened: the program's descriptors are opened anew afterwards, whatever inodes its files have then.
    """
    area, store = session.area, session.store
    if again:
        _carry_on(session)
    gone = set[bytes]()
    while True:
        cut, undone, now, then = _present_and_index(session, index, again, gone)
        slots = {area.pif(slot).object: slot for slot in area.pifs()}
        look = Look(session, now, then, slots, {entry.inode for each in undone.values() for entry in each}, again)
        if again or _has_all(area, look, now, gone):
            break
    plan, crossing = look.plan(), set[int]()
    anew = {op.inode: op.path for op in plan.ops if op.op == "create"}
    if not again:
        movable(session, plan, reopened)
        crossing = set(plan.across())
        require_no_flags(store, Intent(index, names=tuple(plan.ops)))
    _record_saved(session, cut, undone)    # else room would be counted for bytes as if they were still in place
    _require_all(then, anew)
    checked = TakenOver(store, index)

    def file(inode: int) -> FileBack:
        return FileBack(session, slots[inode], inode, now, then, checked)

    files = {inode: file(inode) for inode in sorted(look.objects | crossing) if inode in slots}
    checked.require([piece for each in files.values() for piece in each.copied(again or each.inode in crossing)])
    room.require(session, [(each.blocks, each.filled) for each in files.values()],
                 sum(each.redirected for each in files.values()))
    area.head.restoring = index + 1        # from here on what a kill leaves is carried through
    _leave_present(session, cut)
    others = look.names_back()
    files |= {inode: file(inode) for inode in sorted(others - files.keys())}
    for each in files.values():
        each.run(again or each.inode in others)
    came = arrive(session, now, then, slots)
    slots |= came
    for inode in came:
        file(inode).run(again=True)
    for inode, pif in then.pifs.items():
        if inode not in slots and inode in look.objects and then.paths(inode) and (again or now.pifs.get(inode) != pif):
            give_attributes(then.paths(inode)[0], pif)
    _have_moved(session, then, slots)
    _now_back(session, index)
    half_way.forget(cut.half_way)
    area.head.restoring = 0


def _has_all(area: Area, look: Look, now: State, gone: set[bytes]) -> bool:
    """Whether what a way back looks at is there. If somebody outside of the run has taken it away or replaced it, and
    the present does not know that (gone), it has to say so: what is at these names would be taken for it."""
    files = gone_from(area, now, look.placed())
    known = len(gone)
    gone.update(files, look.others_gone())
    for slot in {*files.values()}:
        area.touch_pif(slot)
    return len(gone) == known


def _require_all(then: State, anew: Mapping[int, bytes]) -> None:
    """Unverified where files would be made anew of which bytes are nowhere."""
    for inode, path in anew.items():
        for start, end, kind, _, _ in then.pieces(inode):
            if kind == HOME:
                raise Unverified(f"{os.fsdecode(path)}: bytes {start}-{end} of checkpoint {then.index} are lost")


def _carry_on(session: Session) -> None:
    """What was begun of the names is done first."""
    store = session.store
    put_aside(session)
    begun = read_intent(store, store.layout.run_intent)
    if begun is not None:
        Applier(store, session.durable, store.layout.run_intent).run(begun)
        arrived(session, begun)
    next_time_too(session)


def _present_and_index(session: Session, index: int, again: bool, gone: Iterable[bytes],
                       ) -> tuple[Cut, dict[int, list[UndoEntry]], State, State]:
    """The present, cut as for a checkpoint that is not recorded; undo records of it; it and the index as states."""
    area, store = session.area, session.store
    parent = store.state(area.head.parent)
    cut = instants.take(area, store, parent, Capture(store, area, parent)).complete()
    # names may have moved already that no program touched
    for path in {*store.state(cut.parent).names, *store.state(index).names} if again else gone:
        cut.found.setdefault(path, look_at(path))
    fold = Fold(store, area, cut, store.newest + 1)
    meta, offsets = fold.state("", "now", 0, "incremental")
    session.give_up(fold)
    now = store.state(cut.parent).knowing(meta).successor([(meta, offsets)])
    return cut, fold.undo_entries(), now, store.state(index).knowing(meta)


def _record_saved(session: Session, cut: Cut, undone: dict[int, list[UndoEntry]]) -> None:
    """What only the present has kept for an index; where nothing goes back after all, it is as true."""
    area, store = session.area, session.store
    if session.durable and cut.preimages:
        with wal.syncing(area):
            store.buffers.sync(area.head.run)
    session.will_write_records()
    for after_index, entries in sorted(undone.items()):
        if new := [each for each in entries if not _is_said(store, after_index, each)]:
            store.add_undo(new, after_index, durable=session.durable)


def _is_said(store: Store, after_index: int, entry: UndoEntry) -> bool:
    """By a try before this, which was refused."""
    known, shift = store.undo_log.saved_for(entry.inode, after_index), entry.buffer_start - entry.start
    return not any(known.gaps(entry.start, entry.end)) and all(
        (aml.run, aml.offset - aml.start) == (entry.run, shift) for aml in known.find(entry.start, entry.end))


def _leave_present(session: Session, cut: Cut) -> None:
    """Its epoch ends."""
    area = session.area
    instants.advance(area, cut)
    area.head.committed_epoch = cut.epoch
    area.head.committed_block = area.head.next_block
    # the journal stays: what it says of paths that no record knows yet is for the next checkpoint
    next_time_too(session)
    area.head.cut_pending = 0


def _have_moved(session: Session, then: State, slots: Mapping[int, int]) -> None:
    """Files that are in other inodes than the index says: for who looks after a power cut."""
    area = session.area
    for pif in then.pifs.values():
        p = area.pif(slots[pif.inode]) if pif.inode in slots else None
        if p and p.flags & lib.MM_MOVED and (pif.ino, pif.btime_ns) != (p.ino, p.btime_ns):
            wal.moved(area, (pif.dev, pif.ino, pif.btime_ns), (p.dev, p.ino, p.btime_ns))


def _now_back(session: Session, index: int) -> None:
    """The run is at the index. From here on a power cut leaves what is durable on top of it."""
    area, store = session.area, session.store
    area.head.parent = index
    for slot in area.pifs():
        area.pif(slot).ahead_block = 0
    wal.mark(area, lib.MM_AHEAD_BACK, index)
    if session.durable:
        wal.sync(area)
    commit.remove_file(store.door, store.layout.run_intent, durable=False)
    area.head.ways_changed = (area.head.ways_changed + 1) & 0xFFFFFFFF     # folders may have been moved
