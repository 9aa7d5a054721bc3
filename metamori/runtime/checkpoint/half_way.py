"""Restores inside the program that failed for good when names had moved: which names those are is kept in the run area
until a checkpoint has looked at them, for no call of the program has touched them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint.cut import HALF_WAY
from metamori.store.io import commit
from metamori.store.io.os_io import REAL
from metamori.store.read.store import Store
from metamori.store.restore.redo import read_intent


def note(store: Store, area: Area, target: int) -> None:
    """The redo list is the note: no room is needed for it."""
    place = os.fsencode(os.path.join(area.path, HALF_WAY))
    REAL.rename(store.layout.run_intent, place + b".%d" % target if commit.exists(REAL, place) else place)


def paths(store: Store, parent: int, noted: Iterable[bytes]) -> set[bytes]:
    """All that either state had names for: where a folder has moved, it took along what was in it."""
    targets = {intent.target for each in noted if (intent := read_intent(store, each))}
    return {path for index in (parent, *targets) for path in store.state(index).names}


def forget(noted: Iterable[bytes]) -> None:
    for each in sorted(noted, reverse=True):               # the one that is looked for last
        commit.remove_file(REAL, each, durable=False)
