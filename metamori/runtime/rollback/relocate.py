"""Where the files of PIFs are, after names have moved under a running program: told to whoever looks for them next.

Where the store is on another filesystem, what comes from it or goes there is a copy, another inode. Descriptors are
opened anew after a restore, so they do not notice; a mapping would.
"""

from __future__ import annotations

import errno
import os

from metamori._area import lib
from metamori.errors import MetamoriError
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import NO_LIMIT, Area
from metamori.runtime.checkpoint.cut import look
from metamori.runtime.checkpoint.dirty_pages import mappings
from metamori.runtime.checkpoint.session import Session
from metamori.store.format.records import Intent
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.restore.name_plan import NamesPlan


class AcrossFilesystems(MetamoriError):
    """A removed or replaced file would have to change filesystems while somebody holds the one that it was."""

    errno = errno.EXDEV


def movable(session: Session, plan: NamesPlan, reopened: bool) -> None:
    """AcrossFilesystems for a file that would become another one, as a copy, while a mapping or a descriptor that is
    not opened anew goes on with the one that it was."""
    area, crossing = session.area, plan.across()
    moving = [p for p in map(area.pif, area.pifs())
              if p.object in crossing or (p.flags & lib.MM_COPIED and p.flags & lib.MM_NAMELESS)]
    mapped = mappings(area, {p.ino for p in moving}) if any(p.flags & lib.MM_HOME for p in moving) else []
    inodes = {each.inode for each in mapped or ()}
    for p in moving:
        if (p.flags & lib.MM_HOME and (mapped is None or p.ino in inodes)) or (p.refs and not reopened):
            path = os.fsdecode(area.pif_path(p))
            raise AcrossFilesystems(f"{path} was removed or replaced, and the store is on another filesystem")


def find_names(session: Session, index: int) -> None:
    """Tell every PIF where its file is, after names were moved for a part."""
    area, store = session.area, session.store
    states = [store.state(area.head.parent), store.state(index)]
    for slot in list(area.pifs()):
        p = area.pif(slot)
        places = {area.pif_path(p): None, **{path: None for state in states for path in state.paths(p.object)}}
        paths = [path for path in places if (st := look(path).st) and (st.st_dev, st.st_ino) == (p.dev, p.ino)]
        aside = b"%d" % p.object
        kept = aside if p.object and commit.exists(store.door, store.layout.kept(aside)) else None
        if paths or kept:
            named(session, slot, paths, kept)


def arrived(session: Session, done: Intent) -> None:
    """What has its own name again may be a copy, another inode: the PIF is told before anybody looks for it."""
    slots = {session.area.pif(slot).object: slot for slot in session.area.pifs()}
    for op in done.names:
        if op.op != "drop" or op.inode not in slots or not op.other:
            continue
        there, before = lstat_or_none(session.store.door, op.other), lstat_or_none(session.store.door, op.path)
        if there and (not before or (there.st_size, there.st_mtime_ns) == (before.st_size, before.st_mtime_ns)):
            named(session, slots[op.inode], [op.other], None)


def next_time_too(session: Session) -> None:
    """Files that were there before the run, of which a restore was the first to hear: each has a number, and no record
    tells what it was. The next checkpoint has to, so it looks at them."""
    area, known = session.area, session.store.state(session.area.head.parent).pifs
    for slot in area.pifs():
        p = area.pif(slot)
        if p.object and p.object not in known and (p.created == 0 or p.refs):
            area.touch_pif(slot)


def put_aside(session: Session) -> None:
    """After a kill between a file's way to where the shim looks for it (`named`) and the word that it is there."""
    for slot in session.area.pifs():
        p = session.area.pif(slot)
        if p.flags & lib.MM_NAMELESS and not p.flags & lib.MM_KEPT:
            st = lstat_or_none(session.store.door, session.store.layout.kept(session.area.kept_name(slot)))
            if st and (st.st_dev, st.st_ino) == (p.dev, p.ino):
                p.flags |= lib.MM_KEPT
                p.flags &= ~lib.MM_COPIED


def named(session: Session, slot: int, paths: list[bytes], kept: bytes | None) -> bool:
    """Tell the PIF where its names are now; a file without one is where the shim looks for it. Whether its backing file
    is another inode than it was."""
    area = session.area
    p = area.pif(slot)
    own = session.store.layout.kept(area.kept_name(slot))
    copied = bool(p.flags & lib.MM_COPIED)
    if paths:
        if p.flags & lib.MM_KEPT:          # one of several names had gone, and nobody had looked for the others
            commit.remove_file(session.store.door, own, durable=False)
        area.set_path(p, paths[0])
        p.flags &= ~(lib.MM_NAMELESS | lib.MM_KEPT | lib.MM_COPIED | lib.MM_LEFT)
        p.deleted = 0
        return _is_now(session, slot, paths[0]) or copied
    p.flags |= lib.MM_NAMELESS
    if not kept:
        if not p.flags & lib.MM_KEPT:
            _is_outside(area, slot)
        return False
    place = session.store.layout.kept(kept)
    other = _is_now(session, slot, place)
    if place != own:                       # a name that says whose file it is goes when the log says so
        if other and session.durable:
            wal.sync(area)
        os.rename(place, own)
    p.flags |= lib.MM_KEPT
    p.flags &= ~(lib.MM_COPIED | lib.MM_LEFT)
    return other or copied


def _is_outside(area: Area, slot: int) -> None:
    """A file that the index does not know, and the store does not keep: if it has a name, that is not in the scope. It
    is as if it had left by that (border.c)."""
    p = area.pif(slot)
    area.drop_frames(slot)
    area.table_clear(p)
    p.fresh_from, p.home_limit, p.cut, p.mtime_ns = 0, NO_LIMIT, 0, 0
    p.flags |= lib.MM_LEFT | lib.MM_HOME | lib.MM_ENGINE
    area.size_is_in_place(p)


def _is_now(session: Session, slot: int, path: bytes) -> bool:
    """The PIF's file is the one of this path. Whether that is another inode than it was, perhaps of the same number."""
    p, st, birth = session.area.pif(slot), session.store.door.lstat(path), session.store.door.birth_ns(path)
    if (p.dev, p.ino) == (st.st_dev, st.st_ino) and (p.btime_ns == birth or not p.btime_ns):
        return False
    wal.moved(session.area, (p.dev, p.ino, p.btime_ns), (st.st_dev, st.st_ino, birth))
    session.area.identify(slot, st.st_dev, st.st_ino, birth)
    session.area.flag(lib.MM_MOVES)
    p.flags |= lib.MM_MOVED
    p.flags &= ~(lib.MM_HOME | lib.MM_ENGINE)      # nobody maps it (`movable`), and no engine has it yet
    if p.flags & lib.MM_MAPPED:
        p.flags &= ~lib.MM_MAPPED
        session.area.relink_mapped()
    return True
