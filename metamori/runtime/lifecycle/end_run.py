"""The end of a run: the last index, then the buffered bytes are written back; also after everything was killed."""

from __future__ import annotations

from metamori._area import lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint import auto_prune, outside
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.checkpoint.write_back import gone_from, kept_homes, make_durable
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import REAL
from metamori.store.prune import spare
from metamori.store.restore import restore, resume_point
from metamori.store.restore.resume_point import END
from metamori.tables.pif import later, nearest_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from metamori._area import mm_pif
    from metamori.store.format.records import PifEntry

_ELSEWHERE = lib.MM_NAMELESS | lib.MM_LEFT | lib.MM_COPIED

__all__ = ["END", "close", "close_if_empty", "finish", "has_staying"]


def has_staying(area: Area) -> bool:
    """Whether a process is there that does not just end: once the run is over its calls are the kernel's alone."""
    return area.has_unborn() or any(not area.process(slot).leaving for slot in area.processes())


def close_if_empty(area: Area) -> bool:
    """From here on nobody joins, unless somebody is there: its next program could not, even for a moment."""
    if has_staying(area):
        return False
    with area.session_lock():              # who waits for that may be the one that stays
        area.flag(lib.MM_CLOSED)
        if has_staying(area):
            area.flag(clear=lib.MM_CLOSED)
        return bool(area.head.flags & lib.MM_CLOSED)


def finish(session: Session, reason: str, killed: bool, over: bool = False) -> int:
    """The run's last index, and what is written back with it; the run area stays. Returns the index.

    over: threads of the run may still be there; whatever they do from here on is the kernel's alone.

    Killed with isolation (or in single mode) nothing is written back: names go back to those of the last commit.
    """
    area, store = session.area, session.store
    store.refresh()                        # the program's own runtime may have moved the head
    committed = store.head.index
    if area.head.restoring:                # killed in a restore inside the program: it is carried through
        from metamori.runtime.rollback import rollback

        with area.session_lock(), area.frozen():
            rollback.back(session, area.head.restoring - 1, again=True)
    area.give_room(checkpoint=False)
    _take_up(session)
    if not (killed and area.head.flags & lib.MM_ISOLATE):
        return session.last_checkpoint(reason, home=True, over=over)
    index = session.last_checkpoint(reason, home=False) if not session.single else _last_single(session, reason)
    with area.session_lock():
        make_durable(session, index)
        _leave_at(session, index, committed)
    return index


def _take_up(session: Session) -> None:
    """What somebody outside of the run has made of its files since the last checkpoint that knew them, and the run has
    not used again, is in its last one: they would be cut, or stretched, to what they were."""
    area, store = session.area, session.store
    if area.head.flags & lib.MM_JOB or not area.head.parent:   # others of the job say so themselves
        return
    isolated = area.head.flags & (lib.MM_ISOLATE | lib.MM_SINGLE) == lib.MM_ISOLATE
    with area.session_lock():
        now = store.state(area.head.parent)
        slots = {slot: area.pif(slot) for slot in area.pifs()}
        for slot in slots.keys() - area.dirty():
            p = slots[slot]
            if p.object in now.pifs and not p.flags & _ELSEWHERE:
                st = lstat_or_none(REAL, area.pif_path(p))
                if st is not None and (st.st_dev, st.st_ino) == (p.dev, p.ino) and (
                        _is_changed(p, now.pifs[p.object], st, isolated)) and (
                        not p.btime_ns or REAL.birth_ns(area.pif_path(p)) in (0, p.btime_ns)):
                    area.touch_pif(slot)
        known, noted = {p.object for p in slots.values()}, store.noted()
        names = [path for path, entry in now.names.items()
                 if entry.kind == "file" and entry.inode not in known and path not in noted]
        if names:
            from metamori.runtime.rollback import files_beside  # of files that the run has never opened to write to

            files_beside.take_up(session, files_beside.changed_beside(session, now, set(names)))


def _is_changed(p: mm_pif, was: PifEntry, st: os.stat_result, isolated: bool) -> bool:
    if p.flags & lib.MM_VIRTUAL:
        another = st.st_size < outside.needed(was, isolated, p.created == 0, p.flags, p.old_size)
    else:
        another = st.st_size != was.size
    return another or (st.st_mode, st.st_uid, st.st_gid) != (was.mode, was.uid, was.gid) or (
        later(p.mtime_ns, nearest_ns(st.st_mtime_ns)) != was.mtime_ns)


def _last_single(session: Session, reason: str) -> int:
    with session.area.session_lock():
        return session._take("", reason)


def _comes_back(session: Session) -> bool:
    """The run's program, or it has come back before."""
    store, head = session.store, session.area.head
    with_memory = next((index for index in reversed(store.history.indexes) if index and store.meta(index).memory), 0)
    return head.tree.processes > 0 or (with_memory > 0 and store.meta(with_memory).run == head.run)


def _leave_at(session: Session, index: int, committed: int) -> None:
    """The killed state stays in the store; the user's files are those of the last commit."""
    store, area = session.store, session.area
    # names are at `index`, bytes in place still at `committed`: only names and attributes have to move. Not so of files
    # that were settled, or were about to be when their process was killed: then only their pre-images tell of it
    settled = [p.object for p in map(area.pif, area.pifs()) if p.flags & lib.MM_SETTLED or p.saved]
    restore.move_names(store, index, committed, settled, area.head.run, True, kept_homes(session),
                    None if area.pids() else area.retire, is_all_known=True,
                    but=gone_from(area, store.state(index)))


def close(session: Session, killed: bool = False) -> None:
    """Everything is in place and nobody is left: the run area goes, and what the store held beside the files' own
    names."""
    if killed and session.area.head.tree.sysv[0].taken and _comes_back(session):
        from metamori.runtime.memory import sysv

        sysv.drop_unreachable(session.area)
    rules, first = auto_prune.rules(session.area), session.area.head.first_index
    session.area.remove()
    restore.sweep_kept(session.store)
    spare.hold(session.store)              # of the room that the run area had
    if rules:
        from metamori.store.prune import prune

        prune.prune(session.store, rules, session.stays | resume_point.needs(session.store), first=first)
