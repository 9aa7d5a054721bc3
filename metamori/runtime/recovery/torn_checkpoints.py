"""Checkpoints of a run with --durability process that a power cut has torn: they never happened.

Their records are renamed into place before they are on the disk, so that a name may be there and not what it names.
Such a record is of no use to anybody, and must not keep the run from being completed: what was fsynced is durable.
A checkpoint whose record is there and not all of the bytes that it signs stays, damaged: it tells how names were.
"""

from __future__ import annotations

import os

from metamori.errors import Damaged
from metamori.store.format.layout import parse_record_name
from metamori.store.read.checksums import signed_ranges
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.aml import AML
from metamori.tables.history import spans_text


def drop(store: Store, run: int) -> str:
    """Take away the records of the run's indexes that cannot be read, and of those that grew from them. What a person
    should hear of it, or ""."""
    dropped: set[int] = set()
    while torn := _torn(store, run):
        dropped |= torn
        for raw in store.door.listdir(store.layout.checkpoints):
            name = parse_record_name(raw)
            if name is not None and name.kind != "undo" and name.index in torn:
                store.door.unlink(os.path.join(store.layout.checkpoints, raw))
        store.forget()
    some = "s" * (len(dropped) > 1)
    return f"; nothing is left of checkpoint{some} {spans_text(sorted(dropped))}" if dropped else ""


def verified(store: Store, state: State, runs: set[int] | None) -> dict[int, list[AML]]:
    """Of files that have bytes in the buffers of these runs (None: of any) which are not what was signed: those that
    are. The buffer was not synced; zeros of it may not be written back over old bytes that are intact."""
    checked, found = signed_ranges(store, state.index), dict[int, list[AML]]()
    for inode in state.pifs:
        good, bad = [], False
        for aml in state.maps.get(inode) or ():
            if runs is None or aml.run in runs:
                try:
                    checked.require(aml.run, aml.offset, aml.offset + aml.end - aml.start)
                    good.append(aml)
                except Damaged:
                    bad = True
        if bad:
            found[inode] = good
    return found


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
