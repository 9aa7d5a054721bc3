"""Indexes that a run may have spoiled whose run area was removed while it was alive.

It may have overwritten bytes of all of them in place, made and removed files, and nothing is left that says so.
"""

from __future__ import annotations

from metamori.errors import Damaged
from metamori.store.io import commit
from metamori.store.read.catalog import Catalog


def up_to(store: Catalog) -> int:
    """The newest index of which nobody knows what a run has done to its files; -1: there is none."""
    alive, run_area = store.layout.alive, store.layout.run_area
    here = (run_area, store.layout.nodes)
    was_alive = commit.exists(store.door, alive) and not any(commit.exists(store.door, each) for each in here)
    if was_alive and commit.exists(store.door, alive):    # asked twice: a run that ends takes `alive` away first
        return store.newest
    try:
        text = commit.read_file(store.door, store.layout.lost)
    except FileNotFoundError:
        return -1
    return int(text) if text.strip().isdigit() else store.newest


def require_none(store: Catalog, index: int) -> None:
    """Damaged when nobody knows what a run has done to an index's files."""
    if index <= (lost := up_to(store)):
        raise Damaged("a run's own records were removed while it was alive: what it did to the files is not known, "
                      f"and checkpoints up to {lost} may have lost data")


def note(store: Catalog) -> None:
    """For good: indexes that come after this are not concerned. The caller holds the lock."""
    if (lost := up_to(store)) >= 0:
        commit.write_file(store.door, store.layout.lost, b"%d\n" % lost)
        commit.remove_file(store.door, store.layout.alive)
