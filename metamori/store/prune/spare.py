"""Room that a full disk leaves to prune: a file of zeros in the store, removed before the first new record is written.

It is as long as a prune of one index at a time needs: the merged records of two. Held again after each prune and at
the end of each run; a store without one, after a kill or on a disk without room, is whole.
"""

from __future__ import annotations

import os
from contextlib import suppress

from metamori.store.io import commit
from metamori.store.io.os_io import NO_ROOM as NO_ROOM
from metamori.store.read.store import Store

_LEAST = 1 << 16
_MOST = 1 << 24
_ZEROS = bytes(_LEAST)


def hold(store: Store) -> None:
    """As much as there is room for; the caller holds the lock."""
    wanted = min(_MOST, _LEAST + 4 * _newest_record_bytes(store))
    with suppress(OSError):
        fd = store.door.open(store.layout.spare, os.O_WRONLY | os.O_CREAT, commit.PRIVATE_FILE)
        try:
            store.door.fchmod(fd, commit.PRIVATE_FILE)   # whatever the umask
            at = store.door.fstat(fd).st_size
            while at < wanted:
                store.door.pwrite(fd, _ZEROS[:wanted - at], at)
                at += len(_ZEROS)
        finally:
            store.door.close(fd)


def give_up(store: Store) -> None:
    commit.remove_file(store.door, store.layout.spare, durable=False)


def _newest_record_bytes(store: Store) -> int:
    if not store.newest:
        return 0
    meta = store.meta(store.newest)
    paths = (store.layout.meta(meta.index, meta.process), store.layout.offset(meta.index, meta.process))
    return sum(found.st_size for path in paths if (found := commit.lstat_or_none(store.door, path)))
