"""Which images make up the memory of a process at an index: its own, the one that it is based on, and so on.

A process has its number, as programs know it, for as long as it lives, also where it came back as another one; the
store's number of it is then a new one.
"""

from __future__ import annotations

from collections.abc import Container

from metamori.errors import Damaged
from metamori.store.format.records import MemoryEntry
from metamori.store.read.store import Store


def entry_of(store: Store, index: int, pid: int) -> MemoryEntry:
    """Of a process at an index. Damaged without."""
    found = next((each for each in store.meta(index).memory if each.pid == pid), None)
    if found is None:
        raise Damaged(f"checkpoint {index} does not hold the memory of process {pid}, which a later one is based on")
    return found


def chain(store: Store, index: int, pid: int, but: Container[int] = ()) -> list[tuple[int, MemoryEntry]]:
    """Index and entry of each image, the newest first; to the complete one, or the last that is not based on `but`."""
    found = [(index, entry_of(store, index, pid))]
    while (base := found[-1][1].base) and base not in but:
        found.append((base, entry_of(store, base, pid)))
    return found
