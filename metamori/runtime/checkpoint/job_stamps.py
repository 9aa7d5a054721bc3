"""When a run of a job saved its pre-images and noted its names: of several that changed the same thing the earliest
found it as the last checkpoint knows it (docs/adr/0051).

Beside the store's records, in lines of fixed length that are only appended: kind, key (a place in the buffer, or a hash
of the path), time by CLOCK_MONOTONIC_RAW.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct

from metamori.runtime.checkpoint.cut import Cut, Moved
from metamori.store.io import commit
from metamori.store.read.store import Store

_LINE = struct.Struct("<BxxxI QQ")
_PREIMAGE, _NAME = 1, 2
CHECK = 0x6d6a6f62


def note(store: Store, cut: Cut, index: int, durable: bool) -> None:
    """Before the records that they are of."""
    lines = [_LINE.pack(_PREIMAGE, CHECK, each.buffer_start, each.stamp_ns) for each in cut.preimages if each.stamp_ns]
    lines += [_LINE.pack(_NAME, CHECK, hashed(path), touch.stamp_ns)
              for path, touch in cut.touches.items() if touch.stamp_ns]
    if cut.moved:
        _note_moved(store, cut, index, durable)
    if not lines:
        return
    fd = store.door.open(store.layout.stamps, os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
    try:
        end = store.door.fstat(fd).st_size // _LINE.size * _LINE.size
        store.door.pwrite(fd, b"".join(lines), end)
        if durable:
            store.door.fsync(fd)
    finally:
        store.door.close(fd)


def _note_moved(store: Store, cut: Cut, index: int, durable: bool) -> None:
    rows = [[old.hex(), new.hex(), [[path.hex(), ino] for path, ino in inside]] for old, new, inside in cut.moved]
    commit.write_file(store.door, store.layout.moved(index), json.dumps(rows).encode(), durable)


def moved(store: Store, index: int) -> list[Moved]:
    """Folders that were renamed between the run's index before and this one, with all that is in them."""
    try:
        rows = json.loads(commit.read_file(store.door, store.layout.moved(index)))
    except FileNotFoundError:
        return []
    return [(bytes.fromhex(old), bytes.fromhex(new), [(bytes.fromhex(path), ino) for path, ino in inside])
            for old, new, inside in rows]


def hashed(path: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest())


class Stamps:
    """What has been noted; read on as it grows."""

    def __init__(self, store: Store) -> None:
        self._store, self._read = store, 0
        self.preimages: dict[int, int] = {}
        self.names: dict[int, list[int]] = {}   # each time that it was noted, in order

    def refresh(self) -> None:
        try:
            data = commit.read_file(self._store.door, self._store.layout.stamps)
        except FileNotFoundError:
            return
        end = len(data) // _LINE.size * _LINE.size
        for kind, check, key, stamp in _LINE.iter_unpack(data[self._read:end]):
            if check != CHECK:
                continue
            if kind == _PREIMAGE:
                self.preimages.setdefault(key, stamp)
            else:
                self.names.setdefault(key, []).append(stamp)
        self._read = end
