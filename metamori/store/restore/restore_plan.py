"""What has to be done to the user's files so that they are at another index: worked out, nothing touched.

For each object that has a name at the target, or that a program had open which can continue from there, the pieces
that its backing file holds now are set against those that the target wants. Where they differ:
  want BUFFER   the buffer's bytes are written back;
  want ZERO     zeros are;
  want HOME     nothing: a byte that resolves to HOME is there, whatever index we are at;
  want LOST     nothing can be done; the caller decides.
Bytes in place that go away thereby, and that no undo record covers for the newest index, are saved first: those that
head resolves to HOME.

The file of an object without a name at head may lack what the run had redirected, so of such a file only
HOME pieces are trusted: it counts as HOME from end to end. The same is true at a run's end (`plan_commit`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Container, Iterable, Iterator
from itertools import chain

from metamori.store.format.records import NO_LIMIT, Intent, KeptHome, PifEntry, SizeOp, WriteOp, XattrOp
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.head import kept_homes, require_kept
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore.name_plan import NamesPlan, xattr_ops
from metamori.tables.aml import AddressMap
from metamori.tables.record import field, mutable, record
from metamori.tables.view import BUFFER, HOME, LOST, ZERO, Difference, Piece, differences

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from metamori.tables.record import NamedTuple

_ONE_SAVE = 1 << 20                    # whoever needs a part of it checks all of it


class Save(NamedTuple):
    """Bytes in place [start, end) of an object, at `path` now, that have to be saved before they go."""

    inode: int
    path: bytes
    start: int
    end: int


@mutable
class Plan:
    """An intent, what has to be saved before it, what cannot be had, and notes for a person. exposed: files of others
    whose old bytes more users may read than then: their mode is not ours to change."""

    target: int
    intent: Intent
    saves: list[Save] = field(default_factory=list)
    lost: list[tuple[bytes, int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exposed: list[bytes] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.intent.names or self.intent.writes or self.intent.sizes or self.intent.xattrs)


@record
class Part:
    """What of an index is to be put in place: these paths and the content of these objects. All else stays as it is,
    also external modifications. paths: all names that such a file has now among them."""

    index: int
    paths: frozenset[bytes]
    objects: frozenset[int]


class _Content:
    """Collects writes, sizes and saves, object by object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes: list[WriteOp] = []
        self.sizes: list[SizeOp] = []
        self.saves: list[Save] = []
        self.lost: list[tuple[bytes, int, int]] = []

    def compare(
        self, inode: int, home: bytes, path: bytes, found: Iterable[Difference], size: int
    ) -> bool:
        """`home` is where the object's bytes are now, `path` where they will be; `found`: how what the file has differs
        from what it is to have. Whether bytes change.

        `size` is that of the backing file. It may be more than what is known of it: an isolated run has left the
        file as it was.
        """
        before = len(self.writes)
        gone: list[tuple[int, int]] = []
        for start, end, here, there in found:
            if here is not None and here.kind == HOME and (there is None or there.kind not in (HOME, LOST)):
                gone.append((start, end))
            if there is None:
                continue
            if there.kind == BUFFER:
                self.writes.append(WriteOp(inode, path, start, end, there.run, there.offset))
            elif there.kind == ZERO and (here is not None or start < size):
                self.writes.append(WriteOp(inode, path, start, end, 0, 0))
            elif there.kind == LOST:
                self.lost.append((path, start, end))
            elif there.kind == HOME and here is None and end > size:
                self.lost.append((path, max(start, size), end))
        self._save(inode, home, gone)
        return len(self.writes) > before

    def _save(self, inode: int, home: bytes, gone: list[tuple[int, int]]) -> None:
        """What no undo record has, in file order; short ranges that meet are saved as one."""
        covered = self._store.undo_log.saved_for(inode, self._store.newest) if gone else ()
        low = high = -1
        for start, end in chain.from_iterable(covered.gaps(*each) for each in gone) if covered else gone:
            if start == high and end - low <= _ONE_SAVE:
                high = end
                continue
            if low < high:
                self.saves.append(Save(inode, home, low, high))
            low, high = start, end
        if low < high:
            self.saves.append(Save(inode, home, low, high))

    def finish(self, path: bytes, pif: PifEntry, found: os.stat_result | None, changed: bool) -> None:
        """Size, mode, owner and time, when the file does not have them or is about to be written."""
        wanted = (pif.size, stat.S_IMODE(pif.mode), pif.uid, pif.gid, pif.mtime_ns)
        if changed or found is None or wanted != (
                found.st_size, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns):
            self.sizes.append(SizeOp(pif.inode, path, pif.size, pif.mode, pif.uid, pif.gid, pif.mtime_ns))

    def finish_in_place(self, path: bytes, pif: PifEntry, found: os.stat_result, changed: bool) -> None:
        """The same of a file that has its size already: what somebody outside of the run appends now stays."""
        time = max(pif.mtime_ns, found.st_mtime_ns) if found.st_size > pif.size else pif.mtime_ns
        wanted = (stat.S_IMODE(pif.mode), pif.uid, pif.gid, time)
        if changed or wanted != (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns):
            self.sizes.append(SizeOp(pif.inode, path, NO_LIMIT, pif.mode, pif.uid, pif.gid, time))

    def capabilities(self, there: State) -> Iterator[XattrOp]:
        """What the kernel takes from a file that is written to, or given away, and that it is to have."""
        for each in self.sizes:
            entry = there.said_of(each.inode)
            if entry is not None and any(name == b"security.capability" for name, _ in entry.xattrs):
                yield XattrOp(each.path, entry.xattrs)


def make_plan(store: Store, target: int, part: Part | None = None, recorded: State | None = None) -> Plan:
    """From head to `target`, or to a part of it. recorded: its state, where it is not in the store yet. Raises
    ChangedOutside where something untracked is in the way."""
    head = store.head
    here, there = store.state(head.index, doubtful=True), recorded or store.state(target)
    if part is not None:
        here, there = here.only(part.paths, part.objects), there.only(part.paths, part.objects)
    names = NamesPlan(store.door, store.layout, here, there, head.kept)
    changed = {each.inode: each for each in store.changed_kept()}
    kept = {each.inode: store.layout.kept(each.name) for each in head.kept}
    after = {each.inode: store.layout.kept(each.name) for each in names.kept}
    content, ours, exposed = _Content(store), list[bytes](), list[bytes]()
    user, held = os.geteuid(), _held_open(store, target, after) if recorded is None else set()
    for inode in sorted(there.pifs):
        paths = there.paths(inode) or ([after[inode]] if inode in held else _unseen(there, inode, after))
        if not paths:
            continue
        home, found = _held(store, here, inode, kept.get(inode))
        own = len(here.paths(inode)) + (inode in kept)     # names of ours
        if not there.paths(inode) and inode not in held and (
                not found or found.st_nlink <= own or inode in changed):
            continue
        if inode in changed:
            require_kept(store.door, store.layout, changed[inode])
        size = found.st_size if found is not None else 0
        if user not in (0, there.pifs[inode].uid) and (found is None or found.st_uid == user):
            ours.append(paths[0])
        if home and here.paths(inode) and inode in here.pifs and not here.is_doubtful:
            different = here.differences(there, inode)
        else:                              # of a file without a name its size is all that is known
            different = iter(differences(whole_home(size), there.pieces(inode)))
        written = content.compare(inode, home, paths[0], different, size)
        if written and found is not None and user not in (0, found.st_uid) and (
                found.st_mode & ~there.pifs[inode].mode & (stat.S_IRGRP | stat.S_IROTH)):
            exposed.append(paths[0])
        content.finish(paths[0], there.pifs[inode], found, written)
    intent = Intent(target, tuple(content.writes), tuple(content.sizes), tuple(names.ops), names.kept,
                    (*xattr_ops(here, there), *content.capabilities(there)))
    if ours:
        from metamori.store.read.holders import listed  # a run that begins needs none of it

        names.notes.append(f"{listed(sorted(ours))} yours now: only root can give files back to others")
    return Plan(target, intent, content.saves, content.lost, names.notes, exposed)


def _held_open(store: Store, target: int, homes: dict[int, bytes]) -> set[int]:
    """Files without a name that a program had open whose memory the index holds, too: it reads them when it is back."""
    meta = store.meta(target) if target else None
    return {fit.inode for fit in meta.fits if fit.inode in homes} if meta and meta.memory else set()


def _unseen(there: State, inode: int, homes: dict[int, bytes]) -> list[bytes]:
    """The store's own name of a file that has one besides which no run has used: the bytes are the same. Where some are
    lost, somebody else has written there, and that stays."""
    wanted = inode in homes and there.has_unseen_name(inode) and all(p.kind != LOST for p in there.pieces(inode))
    return [homes[inode]] if wanted else []


def _held(
    store: Store, here: State, inode: int, kept: bytes | None
) -> tuple[bytes, os.stat_result | None]:
    """An object's backing file, and its lstat; b"" and None when it has none."""
    paths = here.paths(inode)
    home = paths[0] if paths else kept
    found = lstat_or_none(store.door, home) if home else None
    if home is None or found is None or not stat.S_ISREG(found.st_mode):
        return b"", None
    return home, found


def whole_home(size: int) -> list[Piece]:
    """The pieces of a file of which nothing is known but its size in bytes."""
    return [Piece(0, size, HOME)] if size else []


def plan_commit(
    store: Store, index: int, pending: dict[int, AddressMap] | None = None, kept: Iterable[KeptHome] = (),
    but: Container[bytes] = frozenset(),
) -> Plan:
    """Write back what the run redirected: names are at `index` already, files lack the BUFFER bytes.

    `pending` says which buffered bytes of which objects; None: all of all that the index has. but: names
    at which there are other files.
    """
    there = store.state(index)
    # what head noted of a file that this run has had open since is no longer what it has to be
    homes = {home.inode: home for home in (*kept_homes(store.door, store.layout, store.head, there), *kept)
             if not there.paths(home.inode)}
    places = {inode: store.layout.kept(home.name) for inode, home in homes.items()}
    content = _Content(store)
    for inode in sorted(there.pifs if pending is None else pending):
        paths = [path for path in there.paths(inode) or _unseen(there, inode, places) if path not in but]
        found = lstat_or_none(store.door, paths[0]) if paths else None
        if found is None or not stat.S_ISREG(found.st_mode) or (not there.paths(inode) and found.st_nlink == 1):
            continue
        pieces = there.pieces(inode)
        want = pieces if pending is None else _only(pieces, pending[inode])
        have = whole_home(found.st_size)
        changed = content.compare(inode, paths[0], paths[0], differences(have, want), found.st_size)
        pif = there.pifs[inode]
        has_its_size = pif.home_limit == NO_LIMIT and found.st_size >= pif.size
        (content.finish_in_place if has_its_size else content.finish)(paths[0], pif, found, changed)
    intent = Intent(index, tuple(content.writes), tuple(content.sizes), (),
                    tuple(homes[inode] for inode in sorted(homes)), tuple(content.capabilities(there)))
    return Plan(index, intent, content.saves, content.lost)


def plan_names(
    store: Store, here: int, target: int, settled: Collection[int] = (), kept: Iterable[KeptHome] = (),
    is_all_known: bool = False, but: Container[bytes] = frozenset()
) -> Plan:
    """Names and attributes from one index to another, for files that hold the target's bytes all along.

    `settled`: those that were written all the same (mapped shared, or about to leave the scope); their bytes go
    back too. is_all_known: what the indexes say the same of is as it was, or somebody else's doing, and stays.
    but: as in `plan_commit`.
    """
    now, then = store.state(here), store.state(target)
    homes = {home.inode: home for home in (*kept, *kept_homes(store.door, store.layout, store.head, now))
             if not now.paths(home.inode)}
    if is_all_known:
        now, then = _not_the_same(now, then, settled)
    now, then, anew = _without_gone(store, now, then, homes, but)
    names = NamesPlan(store.door, store.layout, now, then, homes.values(), yields=True)
    places = {inode: [store.layout.kept(home.name)] for inode, home in homes.items()}
    after = {home.inode: [store.layout.kept(home.name)] for home in names.kept}
    content = _Content(store)
    for inode in sorted(then.pifs):
        paths = then.paths(inode)
        if paths and names.blocked:        # what has no place left is in the store
            paths = [path for path in paths if path not in names.blocked] or after.get(inode, [])
        if not paths:
            continue
        home = (now.paths(inode) or places.get(inode) or paths)[0]
        found, changed = lstat_or_none(store.door, home), False
        if inode in anew:
            found, changed = None, content.compare(inode, b"", paths[0], differences([], then.pieces(inode)), 0)
        elif inode in settled and found is not None and stat.S_ISREG(found.st_mode):
            different = differences(whole_home(found.st_size), then.pieces(inode))
            changed = content.compare(inode, home, paths[0], different, found.st_size)
        content.finish(paths[0], then.pifs[inode], found if home == paths[0] else None, changed)
    intent = Intent(target, tuple(content.writes), tuple(content.sizes), tuple(names.ops), names.kept,
                    tuple(op for op in xattr_ops(now, then) if op.path not in names.blocked))
    return Plan(target, intent, content.saves, content.lost, names.notes)


def _not_the_same(now: State, then: State, besides: Iterable[int]) -> tuple[State, State]:
    """Both with no more than the names of which they may not say the same, their files, those of which the attributes
    are not the same, and some besides."""
    from metamori.store.read.apart import paths_between, unlike  # after a kill only

    paths = paths_between(now, then)
    files = {entry.inode for state in (now, then) for path in paths
             if (entry := state.names.get(path)) is not None and entry.kind == "file"}
    files.update(unlike(now.pifs, then.pifs), besides)
    paths = paths.union(*(state.paths(inode) for state in (now, then) for inode in files))
    return now.only(paths, files), then.only(paths, files)


def _without_gone(store: Store, now: State, then: State, homes: Container[int], but: Container[bytes],
                  ) -> tuple[State, State, set[int]]:
    """Both without the files, or names of them, that somebody else has taken away or replaced: they are not made anew,
    empty as they would be, but stay away, and are found to be gone. And those that are nowhere (they left the scope, or
    somebody took them away by another name) of which the store has all: they are made anew."""
    gone = {entry.path: entry.inode for entry in now.existing() if entry.kind == "file" and not (
        entry.path not in but and (found := lstat_or_none(store.door, entry.path)) and stat.S_ISREG(found.st_mode))}
    nowhere = {inode for inode in gone.values() if all(path in gone for path in now.paths(inode))}
    anew = {inode for inode in then.pifs if then.paths(inode) and not now.paths(inode) and inode not in homes}
    lost = {inode for inode in anew if any(piece.kind in (HOME, LOST) for piece in then.pieces(inode))}
    nowhere |= lost
    if gone or nowhere:
        stays = {path for path, entry in then.names.items()
                 if entry.kind != "file" or (entry.inode not in nowhere and gone.get(path) != entry.inode)}
        now, then = now.only(now.names.keys() - gone, now.pifs), then.only(stays, then.pifs)
    return now, then, anew - lost


def _only(pieces: list[Piece], pending: AddressMap) -> list[Piece]:
    """The pieces with BUFFER bytes that are not pending taken for HOME: they are in place already."""
    wanted: list[Piece] = []
    for piece in pieces:
        if piece.kind != BUFFER:
            wanted.append(piece)
            continue
        at = piece.start
        for aml in pending.find(piece.start, piece.end):
            if at < aml.start:
                wanted.append(Piece(at, aml.start, HOME))
            wanted.append(piece.clip(aml.start, aml.end))
            at = aml.end
        if at < piece.end:
            wanted.append(Piece(at, piece.end, HOME))
    return wanted


