"""The end of a run: the last index, then the buffered bytes are written back; also after everything was killed."""

from __future__ import annotations

import os

from metamori._area import lib
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import BLOCK, CHUNK, NO_LIMIT, Area
from metamori.runtime.checkpoint import auto_prune, sync
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.lifecycle.resume_point import END
from metamori.store.format.layout import parse_record_name
from metamori.store.format.records import KeptHome
from metamori.store.format.row_table import no_collection
from metamori.store.restore import restore, safety_copies
from metamori.tables.aml import AML, AddressMap

__all__ = ["END", "alive", "close", "finish", "kept_homes", "pending", "put_home"]


def pending(area: Area) -> dict[int, AddressMap]:
    """By object: the bytes whose truth is not in place (also where home holds what no longer belongs to the file)."""
    found: dict[int, AddressMap] = {}
    run = area.head.run
    for slot in area.pifs():
        p = area.pif(slot)
        if not p.object or not (p.root or p.flags & lib.MM_VIRTUAL or p.mtime_ns):
            continue
        found[p.object] = AddressMap(AML(block * BLOCK, (block + count) * BLOCK, run, buffer * BLOCK)
                                     for block, buffer, count in area.ranges(p, 0, 0))
        if p.flags & lib.MM_VIRTUAL and p.home_limit < p.size:
            for start, end in list(found[p.object].gaps(p.home_limit, p.size)):
                found[p.object].insert(AML(start, end, run, start))
    return found


def kept_homes(session: Session) -> list[KeptHome]:
    """Files without a name whose home the run put into the store, whatever branch knows them: those that a program of
    it removed, and those that a restore put aside, which no program of it may ever have opened."""
    area, layout, found = session.area, session.store.layout, []
    for slot in area.pifs():
        p = area.pif(slot)
        if not p.object or not p.flags & lib.MM_KEPT or not p.flags & lib.MM_NAMELESS:
            continue
        for name in (area.kept_name(slot), b"%d" % p.object):   # the second in the middle of a restore
            if os.path.exists(layout.kept(name)):
                found.append(KeptHome(p.object, name))
                break
    known = {each.inode for each in found} | {each.inode for each in session.store.head.kept}
    aside = (int(name) for name in session.store.door.listdir(layout.kept_folder) if name.isdigit())
    return found + [KeptHome(inode, b"%d" % inode) for inode in sorted(aside) if inode not in known]


def put_home(session: Session, index: int) -> None:
    """Commit: every buffered byte is written back; the run area starts from a clean table. The index is the newest.

    Durable whatever --durability says: with the run area goes the only other place of bytes that were fsynced.
    """
    area, store = session.area, session.store
    area.freeze()
    try:
        area.give_room()
        _make_durable(session, index)
        with no_collection():
            restore.commit_home(store, index, pending(area), save_preimages=not session.single, run=area.head.run,
                             durable=True, kept=kept_homes(session))
            if not session.single:         # after the commit, which has the room that is left
                safety_copies.keep(store, index, area.head.run, clone=session.durable)
        _all_at_home(area)
        size = store.buffers.size(area.head.run)
        area.head.next_block = max(area.head.next_block, -(-size // CHUNK) * (CHUNK // BLOCK))
        area.head.epoch_block = area.head.committed_block = area.head.next_block
    finally:
        area.thaw()


def _make_durable(session: Session, index: int) -> None:
    """What a commit is made from, before its list is written: with --durability process neither the records of the run
    are on the disk yet nor its buffer. In single mode those of the commit before are."""
    area, store = session.area, session.store
    if session.durable:
        return
    store.buffers.sync(area.head.run)
    start = wal.began(area.path)
    first = index if session.single or start is None else start.index + 1
    names = ((raw, parse_record_name(raw)) for raw in store.door.listdir(store.layout.checkpoints))
    paths = [store.layout.record(raw) for raw, name in names if name is not None and name.index >= first]
    sync.sync([(path, os.lstat(path)) for path in paths], {store.layout.checkpoints})


def _all_at_home(area: Area) -> None:
    isolated = bool(area.head.flags & lib.MM_ISOLATE)
    for slot in area.pifs():
        p = area.pif(slot)
        if p.flags & lib.MM_NAMELESS:      # only its descriptors lead to it: its bytes stay where they are
            continue
        area.drop_frames(slot)
        area.table_clear(p)
        if p.flags & lib.MM_VIRTUAL and not p.flags & lib.MM_COPIED:
            p.flags &= ~lib.MM_VIRTUAL
            p.fresh_from = NO_LIMIT if isolated else p.size
            if isolated:                   # past this the home has nothing
                p.home_limit = p.size
        if not isolated:
            p.home_limit = NO_LIMIT
        # MM_SETTLED stays: what is appended is written back at once, so a restore or a kill has something to take back
        p.mtime_ns = 0


def finish(session: Session, reason: str, killed: bool, over: bool = False) -> int:
    """The run's last index, and what comes home with it; the run area stays. Returns the index.

    over: threads of the run may still be there; whatever they do from here on is the kernel's alone.

    Killed with isolation (or in single mode) nothing comes home: names go back to those of the last commit.
    """
    area, store = session.area, session.store
    store.refresh()                        # the program's own runtime may have moved the head
    committed = store.head.index
    if area.head.restoring:                # killed in a restore inside the program: it is carried through
        from metamori.runtime.rollback import rollback

        with area.session():
            rollback.back(session, area.head.restoring - 1, again=True)
    area.give_room(records=True)
    if not (killed and area.head.flags & lib.MM_ISOLATE):
        return session.checkpoint("", reason, home=True, over=over)
    index = session.checkpoint("", reason) if not session.single else _last_single(session, reason)
    with area.session():
        _make_durable(session, index)
        _leave_at(session, index, committed)
    return index


def _last_single(session: Session, reason: str) -> int:
    with session.area.session():
        return session._take("", reason)


def _leave_at(session: Session, index: int, committed: int) -> None:
    """The killed state stays in the store; the user's files are those of the last commit."""
    store, area = session.store, session.area
    # names are at `index`, homes still at `committed`: only names and attributes have to move
    settled = [area.pif(slot).object for slot in area.pifs() if area.pif(slot).flags & lib.MM_SETTLED]
    restore.move_names(store, index, committed, settled, area.head.run, True, kept_homes(session),
                    None if alive(area) else area.retire)


def close(session: Session) -> None:
    """Everything is home and nobody is left: the run area goes, and what the store held beside the files' own names."""
    rules, first = auto_prune.rules(session.area), session.area.head.first_index
    session.area.remove()
    restore.sweep_kept(session.store)
    if rules:
        from metamori.store.prune import prune

        prune.prune(session.store, rules, first=first)


def alive(area: Area, but: int = 0) -> list[int]:
    """Pids of the run's processes, without one."""
    return [area.process(slot).pid for slot in area.processes() if area.process(slot).pid != but]
