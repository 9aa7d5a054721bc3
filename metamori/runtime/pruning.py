"""A live run prunes itself: after its checkpoints, and when a write finds the disk full. Under the session lock.

What it needs beside the indexes: its parent, the buffer from its last checkpoint on, pre-images of the journal
that no record holds yet, and the homes of its files. The head, which is the index that the run began at, goes
along with it; with isolation it stays, since the homes are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metamori._area import lib
from metamori.errors import MetamoriError
from metamori.runtime.area import BLOCK, Area, Preimage
from metamori.store.head import lstat_or_none
from metamori.store.store import Store
from metamori.tables.retention import Rules

if TYPE_CHECKING:                          # what prunes is imported when there is something to prune
    from metamori.store import prune as stored
    from metamori.store.shape import Live


def recover(store: Store, durable: bool = True) -> None:
    """Complete a prune that was interrupted, if there is one."""
    if lstat_or_none(store.door, store.layout.prune):
        from metamori.store import prune as stored

        stored.recover(store, durable)


def rules(area: Area) -> Rules:
    return Rules(area.head.keep_last, 0.0, area.head.max_bytes)


def prune(session) -> None:  # type: ignore[no-untyped-def]
    """After a checkpoint, which exists whatever comes of this; what fails is tried again after the next."""
    found = rules(session.area)
    try:
        if found and _is_due(session.store, found):
            _prune(session, found)
    except (MetamoriError, OSError) as error:
        session.said = f"nothing was pruned: {error}"


def make_room(session) -> int:  # type: ignore[no-untyped-def]
    """A write found the disk full: 1 when something could be freed."""
    with session.area.session():
        return int(has_made_room(session))


def has_made_room(session) -> bool:  # type: ignore[no-untyped-def]
    """Prune as far as the disk needs it: never below --keep-last, else the oldest first, the newest never."""
    found = rules(session.area)
    if not found:
        return False
    session.area.give_room(records=True)
    session.store.refresh()
    while len(session.store.indexes) > 1:
        count = max(found.keep_last, len(session.store.indexes) - 1 if found.max_bytes else 1)
        try:
            done = _prune(session, Rules(keep_last=count))
        except (MetamoriError, OSError):
            return False                   # not even room to say what goes: what the disk said stands
        if not done.dropped or done.before > done.after:
            return done.before > done.after
    return False


def _is_due(store: Store, found: Rules) -> bool:
    if found.max_bytes:
        from metamori.store import prune as stored

        return stored.disk_bytes(store) > found.max_bytes
    return len(store.indexes) > found.keep_last


def _prune(session, found: Rules) -> stored.Result:  # type: ignore[no-untyped-def]
    from metamori.store import prune as stored

    store, area = session.store, session.area
    indexes = store.indexes
    isolated = bool(area.head.flags & lib.MM_ISOLATE)
    oldest_kept = indexes[max(0, len(indexes) - found.keep_last)] if found.keep_last else indexes[len(indexes) // 2]
    if not isolated and store.head.index < oldest_kept:
        store.carry_head(area.head.parent, session.durable)
    done = stored.prune(store, found, {area.head.parent}, _needs(area), durable=session.durable)
    for slot in list(area.pifs()):
        p = area.pif(slot)
        if p.flags & lib.MM_NAMELESS and not p.refs and p.object not in done.used \
                and p.epoch <= area.head.committed_epoch:
            area.forget_pif(slot)
    return done


def _needs(area: Area) -> Live:
    from metamori.store.shape import Live

    head = area.head
    journal = [(each.buffer_start, each.buffer_start + each.end - each.start)
               for each in area.journal(head.committed_journal) if isinstance(each, Preimage)]
    homes = frozenset(area.kept_name(slot) for slot in area.pifs() if area.pif(slot).flags & lib.MM_KEPT)
    return Live(head.run, head.committed_block * BLOCK, tuple(journal), homes)
