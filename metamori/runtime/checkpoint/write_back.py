"""A commit: the buffered bytes of a run go into their files, and the run area starts from a clean table."""

from __future__ import annotations

import os
from collections.abc import Container

from metamori._area import lib
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import BLOCK, CHUNK, NO_LIMIT, Area
from metamori.runtime.checkpoint import sync
from metamori.runtime.checkpoint.session_state import SessionState
from metamori.store.format.layout import parse_record_name
from metamori.store.format.records import KeptHome
from metamori.store.format.row_table import no_collection
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import REAL
from metamori.store.read.state import State
from metamori.store.restore import restore, safety_copies
from metamori.tables.aml import AML, AddressMap
from metamori.tables.pif import folded
from metamori.tables.view import HOME


def pending(area: Area) -> dict[int, AddressMap]:
    """By object: the bytes whose truth is not in place (also where the file holds what no longer belongs to the
    file)."""
    found: dict[int, AddressMap] = {}
    run = area.head.run
    for slot in area.pifs():
        p = area.pif(slot)
        if not p.object or not (p.root or p.flags & lib.MM_VIRTUAL or p.mtime_ns):
            continue
        found[p.object] = folded(area.ranges(p, 0, 0), run, BLOCK)
        if p.flags & lib.MM_VIRTUAL and p.home_limit < p.size:
            for start, end in list(found[p.object].gaps(p.home_limit, p.size)):
                found[p.object].insert(AML(start, end, run, start))
    return found


def kept_homes(session: SessionState) -> list[KeptHome]:
    """Files without a name whose backing file the run put into the store, whatever branch knows them: those that a
    program of it removed, and those that a restore put aside, which no program of it may ever have opened."""
    area, layout, found = session.area, session.store.layout, []
    noted = {each.inode for each in session.store.head.kept}   # such a file has come back from outside of the scope
    for slot in area.pifs():
        p = area.pif(slot)
        if not p.object or not p.flags & lib.MM_KEPT or not (p.flags & lib.MM_NAMELESS or p.object in noted):
            continue
        for name in (area.kept_name(slot), b"%d" % p.object):   # the second in the middle of a restore
            if os.path.exists(layout.kept(name)):
                found.append(KeptHome(p.object, name))
                break
    known = noted.union(each.inode for each in found)
    aside = (int(name) for name in session.store.door.listdir(layout.kept_folder) if name.isdigit())
    return found + [KeptHome(inode, b"%d" % inode) for inode in sorted(aside) if inode not in known]


def gone_from(area: Area, state: State, objects: Container[int] | None = None) -> dict[bytes, int]:
    """Names at which a file that the run has used (one of these) is no more, and its PIF: somebody outside of the run
    has taken it away, or put another there, maybe with its number, or has cut off what the state needs. In a job others
    do so, and say it."""
    found = dict[bytes, int]()
    for slot in () if area.head.flags & lib.MM_JOB else area.pifs():
        p = area.pif(slot)
        if not p.object or p.flags & (lib.MM_NAMELESS | lib.MM_LEFT) or (
                objects is not None and p.object not in objects):
            continue
        for path in state.paths(p.object):
            st = lstat_or_none(REAL, path)
            if st is None or (st.st_dev, st.st_ino) != (p.dev, p.ino) or (
                    p.btime_ns and REAL.birth_ns(path) not in (0, p.btime_ns)) or (
                    st.st_size < min(state.pifs[p.object].size, state.pifs[p.object].home_limit)
                    and any(piece.kind == HOME for piece in state.pieces(p.object, st.st_size))):
                found[path] = slot
    return found


def put_home(session: SessionState, index: int) -> None:
    """Commit: every buffered byte is written back; the run area starts from a clean table. The index is the newest.

    Durable whatever --durability says: with the run area goes the only other place of bytes that were fsynced.
    """
    area, store = session.area, session.store
    area.freeze()
    try:
        area.give_room(redirected=False, checkpoint=False)
        make_durable(session, index)
        with no_collection():
            aside, due = {each.inode for each in store.head.kept}, pending(area)
            restore.commit_home(store, index, due, save_preimages=not session.single, run=area.head.run,
                             durable=True, kept=kept_homes(session), but=gone_from(area, store.state(index), due))
            # after the commit, which has the room that is left; of a job whoever ends it does (runtime/job/finish.py)
            if not session.single and not area.head.flags & lib.MM_JOB:
                came = aside - {each.inode for each in store.head.kept}
                only = safety_copies.of_run(store, area.head.run) | came
                safety_copies.keep(store, index, area.head.run, clone=session.durable, only=only)
        _all_at_home(area)
        size = store.buffers.size(area.head.run)
        area.head.next_block = max(area.head.next_block, -(-size // CHUNK) * (CHUNK // BLOCK))
        area.head.epoch_block = area.head.committed_block = area.head.next_block
    finally:
        area.thaw()


def make_durable(session: SessionState, index: int) -> None:
    """What a commit is made from, before its list is written: with --durability process neither the records of the run
    are on the disk yet nor its buffer, nor the names that a prune gave. In single mode those of the commit before
    are. Undo records of the run are of indexes from its start on."""
    area, store = session.area, session.store
    if session.durable:
        return
    store.buffers.sync(area.head.run)
    start = wal.began(area.path)
    first = index if session.single or start is None else start.index
    names = ((raw, parse_record_name(raw)) for raw in store.door.listdir(store.layout.checkpoints))
    paths = [store.layout.record(raw) for raw, name in names if name is not None and name.index >= first]
    sync.sync([(path, os.lstat(path)) for path in paths], {store.layout.checkpoints, store.layout.root})


def _all_at_home(area: Area) -> None:
    isolated = bool(area.head.flags & lib.MM_ISOLATE)
    for slot in area.pifs():
        p = area.pif(slot)
        if p.flags & lib.MM_NAMELESS:      # only its descriptors lead to it: its bytes stay where they are
            continue
        area.drop_frames(slot)
        area.table_clear(p)
        if p.flags & lib.MM_VIRTUAL and not p.flags & lib.MM_COPIED:
            area.size_is_in_place(p)
            p.fresh_from = NO_LIMIT if isolated else p.size
            if isolated:                   # past this the file in place has nothing
                p.home_limit = p.size
        if not isolated:
            p.home_limit = NO_LIMIT
        # MM_SETTLED stays: what is appended is written back at once, so a restore or a kill has something to take back
        p.mtime_ns = 0
