"""Files back to an index for a resumed job: its processes are new, and keep the descriptors that they have.

The same walk as a restore inside the program (rollback.back), with two differences: nobody's descriptors are put back,
and files that no process of this run has opened take part too. Those get a PIF of their own, so that their block table
can be pointed at the index like any other's. A reader that has such a file open finds the PIF at its next call.
"""

from __future__ import annotations

import os
import stat

from metamori._area import lib
from metamori.errors import NoSuchCheckpoint
from metamori.runtime.area.run_area import NO_LIMIT
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.rollback.rollback import back, go_on, held
from metamori.store.io.os_io import REAL
from metamori.store.read.head import kept_homes
from metamori.tables.view import differences


def files_back(session: Session, index: int) -> None:
    """Files and names of all of the run's processes to `index`. NoSuchCheckpoint, NotAtRest."""
    area, store = session.area, session.store
    store.refresh()
    if index <= 0 or index not in store.history:
        raise NoSuchCheckpoint(f"there is no checkpoint {index}")
    if session.single:
        store.require_restorable(index)
    with held(area):
        adopt(session, index)
        back(session, index, reopened=False)
    go_on(session)


def adopt(session: Session, index: int) -> None:
    """A PIF for every file whose bytes differ and that no process of this run has opened for writing."""
    area, store = session.area, session.store
    now, then = store.state(area.head.parent), store.state(index)
    known = {area.pif(slot).object for slot in area.pifs()}
    kept = {home.inode: store.layout.kept(home.name)
            for home in kept_homes(store.door, store.layout, store.head, now)}
    for inode in sorted({*then.pifs, *now.pifs} - known):
        paths = now.paths(inode)
        home = paths[0] if paths else kept.get(inode)
        if home is None or inode not in then.pifs or inode not in now.pifs:
            continue
        same_bytes = not any(differences(now.pieces(inode), then.pieces(inode)))
        if same_bytes and now.pifs[inode] == then.pifs[inode]:
            continue
        _new_pif(session, inode, home)


def _new_pif(session: Session, inode: int, home: bytes) -> None:
    area = session.area
    try:
        found = os.lstat(home)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or area.find_pif(found.st_dev, found.st_ino, REAL.birth_ns(home)):
        return
    slot = area.new_pif(home, home)
    p = area.pif(slot)
    p.object = inode
    p.old_size, p.old_mtime_ns = found.st_size, found.st_mtime_ns
    p.old_mode, p.old_uid, p.old_gid = found.st_mode, found.st_uid, found.st_gid
    p.fresh_from = found.st_size
    if area.head.flags & lib.MM_ISOLATE:
        p.fresh_from, p.home_limit = NO_LIMIT, found.st_size
