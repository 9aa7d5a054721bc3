"""What the pictures are drawn of, read from a store in one walk over its tree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from metamori.printed import line_text, name_text
from metamori.store.format.records import Meta, NameEntry, Offsets, PifEntry, Undo
from metamori.store.read import sizes
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.aml import AML, AddressMap
from metamori.tables.history import History
from metamori.tables.record import record

MEMORY = b"(the program's memory)"
NAMELESS = b"(files without a name)"
_ABSENT = NameEntry(b"", "absent")


@record
class Checkpoint:
    """An index. bytes: what it added to the store. parent: None for 0."""

    index: int
    parent: int | None
    time_ns: int
    message: str
    reason: str
    bytes: int
    files: int
    has_memory: bool


@record
class Touch:
    """What an index did to a file: byte ranges, half open, and its size afterwards; None: it was gone.

    The ranges are those that were written: bytes may have been written as they were.
    """

    ranges: tuple[tuple[int, int], ...]
    size: int | None


@dataclass(slots=True)
class Facts:
    """By path, then by index: what was touched, and which bytes of the store are the file's."""

    store: str
    head: int
    history: History
    checkpoints: list[Checkpoint] = field(default_factory=list)
    touched: dict[bytes, dict[int, Touch]] = field(default_factory=dict)
    stored: dict[bytes, Counter[int]] = field(default_factory=dict)
    sizes_before: dict[bytes, int | None] = field(default_factory=dict)  # at 0
    disk_bytes: int = 0  # what the store takes on its filesystem

    def shown(self, path: bytes) -> str:
        """A path for a person: as seen from the folder that the store is in."""
        folder = os.fsencode(os.path.dirname(self.store)).rstrip(b"/") + b"/"
        return name_text(path.removeprefix(folder))

    def sizes(self, path: bytes) -> dict[int, int | None]:
        """A file's size at every index, None where it is not there."""
        found: dict[int, int | None] = {}
        touches = self.touched.get(path, {})
        for each in self.checkpoints:
            if each.index in touches:
                found[each.index] = touches[each.index].size
            else:
                before = self.sizes_before.get(path)
                found[each.index] = before if each.parent is None else found.get(each.parent, before)
        return found


def gather(store: Store) -> Facts:
    """Reads records only, no content. Damaged when one cannot be read."""
    facts = Facts(store.path, store.head.index, store.history, disk_bytes=disk_bytes(store.path))
    owner: dict[int, bytes] = {}
    taken = sizes.by_index(store)
    facts.checkpoints.append(Checkpoint(0, None, 0, "", "start", taken[0], 0, False))
    undos: dict[int, list[Undo]] = {}
    for undo in store.undos:
        undos.setdefault(undo.after_index, []).append(undo)
    start = store.root_state()
    pending = [(child, start) for child in reversed(store.history.children(0))]
    while pending:
        index, before = pending.pop()
        meta, offsets = store.meta(index), store.offsets(index)
        now = before.successor([(meta, offsets)])
        facts.checkpoints.append(Checkpoint(
            index, meta.parent, meta.time_ns, line_text(meta.message), meta.reason, taken[index], len(meta.pifs),
            bool(meta.memory)))
        written = _written(meta, offsets, undos)
        for path in sorted({entry.path for entry in meta.names} | set(_paths(meta.pifs, now))):
            touch = _touch(before, now, path, written)
            if touch is not None:
                facts.touched.setdefault(path, {})[index] = touch
            if now.names[path].kind == "file":
                owner[now.names[path].inode] = path
        for redo in offsets.entries:
            facts.stored.setdefault(owner.get(redo.inode, NAMELESS), Counter())[index] += redo.end - redo.start
        if meta.memory:
            facts.stored.setdefault(MEMORY, Counter())[index] += sum(image.size for image in meta.memory)
        pending += [(child, now) for child in reversed(store.history.children(index))]
    facts.checkpoints.sort(key=lambda each: each.index)
    for path in facts.touched:
        facts.sizes_before[path] = _size(start, start.names.get(path, _ABSENT))
    _saved(store, facts, owner)
    return facts


def _saved(store: Store, facts: Facts, owner: dict[int, bytes]) -> None:
    """As it counts for `log`."""
    for index, inode, nbytes in sizes.saved(store):
        facts.stored.setdefault(owner.get(inode, NAMELESS), Counter())[index] += nbytes


def _paths(pifs: Iterable[PifEntry], now: State) -> Iterator[bytes]:
    """A path of each file: the one it was last used by, else any that it has."""
    for pif in pifs:
        entry = now.names.get(pif.filename)
        if entry is not None and entry.kind == "file" and entry.inode == pif.inode:
            yield pif.filename
        else:
            yield from now.paths(pif.inode)[:1]


def _written(meta: Meta, offsets: Offsets, undos: dict[int, list[Undo]]) -> dict[int, AddressMap]:
    """By object: what the interval redirected, and what it overwrote in place after saving it in its own buffer.
    A commit changes nothing and saves too: at a run's end, after its last index, or with each index of single mode."""
    found: dict[int, AddressMap] = {}
    for redo in offsets.entries:
        found.setdefault(redo.inode, AddressMap()).insert(AML(redo.start, redo.end, 1, redo.start))
    for undo in undos.get(meta.index - 1, ()) if meta.mode == "incremental" else ():
        for entry in undo.entries:
            if entry.run == meta.run:
                found.setdefault(entry.inode, AddressMap()).insert(AML(entry.start, entry.end, 1, entry.start))
    return found


def _touch(before: State, now: State, path: bytes, written: dict[int, AddressMap]) -> Touch | None:
    old, new = before.names.get(path, _ABSENT), now.names.get(path, _ABSENT)
    if new.kind != "file":
        return Touch((), None) if old.kind == "file" else None
    pif = now.pifs[new.inode]
    if old.kind != "file" or old.inode != new.inode or old.inode not in before.pifs:
        return Touch(((0, pif.size),) if pif.size else (), pif.size)
    ranges = written.get(new.inode, AddressMap())
    kept = min(pif.size, _kept(before.pifs[old.inode], pif))
    if kept < pif.size:
        ranges.insert(AML(kept, pif.size, 1, kept))
    found = tuple((aml.start, aml.end) for aml in ranges.find(0, pif.size))
    return Touch(found, pif.size) if found or pif.size != before.pifs[old.inode].size else None


def _kept(old: PifEntry, new: PifEntry) -> int:
    """How many bytes from its start a file kept, apart from those that were written."""
    return old.size if new == old else min(old.size, new.cut)


def _size(state: State, entry: NameEntry) -> int | None:
    return state.pifs[entry.inode].size if entry.kind == "file" and entry.inode in state.pifs else None


def disk_bytes(folder: str) -> int:
    """What a folder's files take on their filesystem; those that go meanwhile do not count."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total
