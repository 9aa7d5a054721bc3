"""Backing files in the store that were written to by another name, outside of the scope, since head was written.

Which of their bytes were changed nobody can tell: what only they held is lost. They are the others' alone from then on:
their name in the store goes, so that no restore writes what an index had over what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable

from metamori.store.format.records import NO_LIMIT, KeptHome, UndoEntry
from metamori.store.io import commit
from metamori.store.read.copies import Copies, last_copies
from metamori.store.read.store import Store
from metamori.tables.view import BUFFER, ZERO


def give_up(store: Store, changed: Iterable[KeptHome] | None = None) -> None:
    """These, or all. No index is about to have them, so none is made. The caller holds the lock."""
    homes = {each.name: each for each in (store.changed_kept() if changed is None else changed)}
    if not homes:
        return
    copies = last_copies(store, store.state(store.head.index, doubtful=True), {each.inode for each in homes.values()})
    store.add_undo([entry for each in homes.values() for entry in given_up(copies, each.inode)], store.newest)
    store.set_head(store.head.index, tuple(each for each in store.head.kept if each.name not in homes), noted=True)
    for name in homes:
        commit.remove_file(store.door, store.layout.kept(name), durable=False)


def give_up_where_it_costs_nothing(store: Store, index: int) -> None:
    """Those of which an index has a name and, in buffers, every byte: it can be gone to."""
    changed = store.changed_kept()
    if not changed:
        return
    there = store.state(index)
    named = [each for each in changed if there.paths(each.inode)]
    copies = last_copies(store, store.state(store.head.index, doubtful=True), {each.inode for each in named})
    for inode, entries in copies.items():
        store.undo_log.assume(inode, entries, store.newest)
    give_up(store, [each for each in named
                    if all(piece.kind in (BUFFER, ZERO) for piece in there.pieces(each.inode))])


def given_up(copies: Copies, inode: int) -> list[UndoEntry]:
    """Of every byte that no undo record has: it is in a copy, or nowhere."""
    return [*copies.get(inode, ()), UndoEntry(inode, 0, NO_LIMIT, 0, 0)]
