"""Checkpoints of a run with --durability process that a power cut has torn: they never happened.

Their records are renamed into place before they are on the disk, so that a name may be there and not what it names.
Such a record is of no use to anybody, and must not keep the run from being completed: what was fsynced is durable.
"""

from __future__ import annotations

import os

from metamori.errors import Damaged
from metamori.store.layout import parse_record_name
from metamori.store.store import Store


def drop(store: Store, run: int) -> None:
    """Take away the records of the run's indexes that cannot be read, and of those that grew from them."""
    while torn := _torn(store, run):
        for raw in store.door.listdir(store.layout.checkpoints):
            name = parse_record_name(raw)
            if name is not None and name.kind != "undo" and name.index in torn:
                store.door.unlink(os.path.join(store.layout.checkpoints, raw))
        store.forget()


def _torn(store: Store, run: int) -> set[int]:
    """Indexes are counted upwards: those of the run are above all that others took."""
    readable = [index for index in store.indexes if index]
    below = max((index for index in readable if store.meta(index).run != run), default=0)
    found = {index for index in store.damaged if index > below}
    for index in readable:
        if index > below:
            try:
                store.offsets(index)
            except Damaged:
                found.add(index)
    return found
