"""Files that no process of the run has opened for writing, when files go back to an index while the run lives.

Those whose bytes differ get a PIF of their own, so that their block table can be pointed at the index like any other's.
A reader that has such a file open finds the PIF at its next call.
"""

from __future__ import annotations

import stat
from collections.abc import Container, Iterable

from metamori._area import lib
from metamori.runtime.area.run_area import NO_LIMIT, Touch
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.checkpoint.write_back import gone_from
from metamori.store.format.records import PifEntry
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import REAL
from metamori.store.read.apart import objects_between
from metamori.store.read.head import kept_homes
from metamori.store.read.state import State
from metamori.tables.pif import nearest_ns


def adopt(session: Session, index: int) -> None:
    """A PIF for every file that both states know and of which bytes or attributes differ."""
    area, store = session.area, session.store
    now, then = store.state(area.head.parent), store.state(index)
    known = {area.pif(slot).object for slot in area.pifs()}
    kept = {home.inode: store.layout.kept(home.name)
            for home in kept_homes(store.door, store.layout, store.head, now)}
    for inode in sorted(objects_between(store.undo_log, now, then) - known):
        paths = now.paths(inode)
        home = paths[0] if paths else kept.get(inode)
        if home is None or inode not in then.pifs or inode not in now.pifs:
            continue
        if now.pifs[inode] == then.pifs[inode] and not any(now.differences(then, inode)):
            continue
        _new_pif(session, inode, home)


def changed_beside(session: Session, now: State, paths: Container[bytes] | None) -> list[bytes]:
    """Tracked files (of `paths`) that nobody of this run has used since the index that it is at, and that are not as
    they were then, and those that it has used and that are gone: somebody else has changed them."""
    area = session.area
    known = {area.pif(slot).object for slot in area.pifs()}
    touched = {touch.path for touch in area.journal(area.head.committed_journal) if isinstance(touch, Touch)}
    noted = {each.path: (each.dev, each.ino) for each in session.store.head.identities}
    found = []
    for path, entry in now.names.items():
        if entry.kind != "file" or entry.inode in known or path in touched or (paths is not None and path not in paths):
            continue
        was, st = now.pifs[entry.inode], lstat_or_none(REAL, path)
        if st is not None and stat.S_ISREG(st.st_mode):
            if (st.st_size, nearest_ns(st.st_mtime_ns)) == (was.size, was.mtime_ns):
                continue
            here = (st.st_dev, st.st_ino)  # the run has used it by another of its names?
            if noted.get(path) == here and area.find_pif(*here, REAL.birth_ns(path)):
                continue
        found.append(path)
    dirty = set(area.dirty())
    found += [path for path, slot in gone_from(area, now).items()
              if path not in touched and slot not in dirty and (paths is None or path in paths)]
    return sorted(found)


def take_up(session: Session, changed: Iterable[bytes]) -> None:
    """The next index holds these files as they are: the run comes to them now."""
    for path in changed:
        st = lstat_or_none(REAL, path)
        if st is not None and stat.S_ISREG(st.st_mode) and (slot := _new_pif(session, 0, path)):
            session.area.touch_pif(slot)


def arrive(session: Session, now: State, then: State, known: dict[int, int]) -> dict[int, int]:
    """Slots by object of files that are new to the branch that the run is on; names have moved already. What these
    files hold is not known: the index has to be put in place from beginning to end."""
    found = {}
    for inode in sorted(then.pifs.keys() - now.pifs.keys() - known.keys()):
        paths = then.paths(inode)
        slot = _new_pif(session, inode, paths[0]) if paths else 0
        if slot:
            found[inode] = slot
    return found


def _new_pif(session: Session, inode: int, home: bytes) -> int:
    """The slot; 0 where there is nothing at `home`, or a file that is tracked already."""
    area = session.area
    found = lstat_or_none(REAL, home)
    if found is None or not stat.S_ISREG(found.st_mode):
        return 0
    if area.find_pif(found.st_dev, found.st_ino, REAL.birth_ns(home)):
        return 0
    slot = area.new_pif(home, home)
    p = area.pif(slot)
    p.object = inode
    p.old_size, p.old_mtime_ns = found.st_size, nearest_ns(found.st_mtime_ns)
    p.old_mode, p.old_uid, p.old_gid = found.st_mode, found.st_uid, found.st_gid
    p.fresh_from = found.st_size
    if area.head.flags & lib.MM_ISOLATE:
        p.fresh_from, p.home_limit = NO_LIMIT, found.st_size
    return slot


def give_attributes(path: bytes, pif: PifEntry) -> bool:
    """Owner, mode and time as far as the user may; whether the time is as it was."""
    try:
        mode = stat.S_IMODE(pif.mode)
        if not _own(path, pif):            # first: chown takes set-user-id bits away
            mode &= ~(stat.S_ISUID | stat.S_ISGID)     # another owner's are not ours to give
        found = REAL.lstat(path)
        if stat.S_IMODE(found.st_mode) != mode:
            REAL.chmod(path, mode)
        if found.st_mtime_ns != pif.mtime_ns:
            REAL.set_mtime(path, pif.mtime_ns)
    except (FileNotFoundError, PermissionError):
        return False
    return True


def _own(path: bytes, pif: PifEntry) -> bool:
    """Whether it has this owner now."""
    found = REAL.lstat(path)
    if (found.st_uid, found.st_gid) != (pif.uid, pif.gid):
        try:
            REAL.chown(path, pif.uid, pif.gid)
        except PermissionError:
            return False
    return True
