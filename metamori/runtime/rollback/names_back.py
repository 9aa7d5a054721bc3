"""Which names and files a restore inside the program looks at, and the names' way back.

What a run has in front of it may be a hundred thousand files of which one is another: all but what may not be the same
at both states is left alone (store/read/apart.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from metamori._area import lib
from metamori.runtime.checkpoint.delta import kind_of
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.checkpoint.write_back import kept_homes as run_homes
from metamori.runtime.rollback.relocate import named
from metamori.store.format.records import Intent
from metamori.store.io.commit import lstat_or_none
from metamori.store.read import apart
from metamori.store.read.head import kept_homes
from metamori.store.read.state import State
from metamori.store.restore.name_plan import NamesPlan, xattr_ops
from metamori.store.restore.redo import Applier, write_intent
from metamori.store.restore.restore import clear_stages


class Look:
    """What of two states a way back looks at: what may not be the same; everything, once more after a stop.

    objects: whose bytes or attributes; and those of `saved`, of which pre-images were taken since the last checkpoint.
    """

    def __init__(self, session: Session, now: State, then: State, slots: dict[int, int], saved: set[int],
                 again: bool) -> None:
        self._session, self._slots = session, slots
        self._now, self._then = self._named = now, then
        self.objects = {*now.pifs, *then.pifs}
        if not again:
            undo_log = session.store.undo_log
            found = apart.between(undo_log, now, then)
            self._named = now.only(found.paths, ()), then.only(found.paths, ())
            # of a file that has lost bytes it is known only after a look whether the index has them
            self.objects = (found.objects | saved | undo_log.given_up()) & self.objects

    def plan(self) -> NamesPlan:
        """What brings the names back, also of files that are kept in the store."""
        store = self._session.store
        kept = {home.inode: home for home in kept_homes(store.door, store.layout, store.head, self._now)}
        kept.update({home.inode: home for home in run_homes(self._session)})
        return NamesPlan(store.door, store.layout, *self._named, tuple(kept.values()))

    def others_gone(self) -> Iterator[bytes]:
        """Names at which there is nothing any more, or something of another kind."""
        for path, entry in self._named[0].names.items():
            if entry.kind not in ("absent", "other"):
                found = lstat_or_none(self._session.store.door, path)
                if found is None or kind_of(found.st_mode) != entry.kind:
                    yield path

    def names_back(self) -> set[int]:
        """The files that are other inodes afterwards: copies, since the store is on another filesystem."""
        session, store, then = self._session, self._session.store, self._then
        plan = self.plan()
        intent = Intent(then.index, names=tuple(plan.ops), xattrs=tuple(xattr_ops(*self._named)))
        clear_stages(store, intent)
        write_intent(store, intent, session.durable, store.layout.run_intent)
        Applier(store, session.durable, store.layout.run_intent).run(intent)
        homes_after = {home.inode: home.name for home in plan.kept} | self._open_then_and_left()
        return {inode for inode in self.placed()
                if named(session, self._slots[inode], then.paths(inode), homes_after.get(inode))}

    def _open_then_and_left(self) -> dict[int, bytes]:
        """Files that the program has open without a name at the index, and that another branch has taken out of the
        scope: what is out there stays as it is, so they are made anew in the store, empty for now."""
        area, store, made = self._session.area, self._session.store, {}
        for inode, slot in self._slots.items():
            pif = self._then.pifs.get(inode)
            if pif and pif.kept and pif.count and area.pif(slot).flags & lib.MM_LEFT and not self._then.paths(inode):
                made[inode] = b"%d" % inode
                store.door.close(store.door.open(store.layout.kept(made[inode]), os.O_CREAT | os.O_RDWR, 0o600))
        return made

    def placed(self) -> list[int]:
        """Files with a PIF that may be elsewhere: none that has only the name it had, and nobody open."""
        area, unusual = self._session.area, lib.MM_NAMELESS | lib.MM_KEPT | lib.MM_COPIED | lib.MM_LEFT | lib.MM_MOVED
        found = {entry.inode for state in self._named for entry in state.names.values()}
        found |= self.objects
        found.update(inode for inode, slot in self._slots.items()
                     if (p := area.pif(slot)).refs or p.flags & unusual)
        return sorted(inode for inode in found
                      if inode in self._slots and (inode in self._now.pifs or inode in self._then.pifs))
