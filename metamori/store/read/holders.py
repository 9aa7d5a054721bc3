"""What holds the bytes of a file: a buffer, else its backing file; and of which files nothing does any more.

Bytes of an index that no buffer has are in the backing file only: the user's own file, or one in the kept folder. Head
has noted which file each was (device, inode, size, time of its last write). One that is not that any more, or is
gone, holds nothing: what only it held is lost. Another mode, owner or name (a change time alone) loses nothing.

What head noted counts while no run lives, and beside one of what it has not used (runtime/area/unwritten.py). `present`
makes what was found so durable before head is written anew.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from metamori.store.format.records import NO_LIMIT, Identity, NameEntry
from metamori.store.io import commit
from metamori.store.read.apart import objects_between, unlike
from metamori.store.read.copies import last_copies
from metamori.store.read.head import (
    NamesNow,
    as_far_as_noted,
    born_then,
    is_as_noted,
    may_be_another,
    same_bytes,
)
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.view import HOME, LOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sortedcontainers import SortedSet

_NAMED_MAX = 3
_FIRST_LOOK = 1 << 16


class Holders:
    """A look at every backing file that head knows.

    changed: tracked paths that are not as noted, whatever it is of them, and folders around some that nobody had
    recorded and that are none any more. known: those at which a file is that head knows, not always by that path.
    places: of objects whose backing file has the bytes that head noted, where it is. sound: these objects; given_up:
    the others; copies: what the store has copied of those: it counts from now on. around: folders that nobody had
    recorded and that are none any more, or behind a link. behind: paths that are seen through a link only, and which
    object that is, if any;
    moved: of objects that are found in this way alone, the path.
    """

    def __init__(self, store: Store) -> None:
        self._store, head = store, store.head
        here = store.state(head.index, doubtful=True)
        noted: dict[tuple[int, int], tuple[int, Identity]] = {}
        named: set[int] = set()
        for identity in head.identities:
            entry = here.names.get(identity.path)
            if entry is not None and entry.kind == "file":
                named.add(entry.inode)
                noted[(identity.dev, identity.ino)] = entry.inode, identity
        self.changed: list[bytes] = []
        self.known: dict[bytes, int] = {}
        self.places: dict[int, bytes] = {}
        self.behind: dict[bytes, int] = {}
        alike: Counter[tuple[int, int]] | None = None          # files of a size and time, once somebody asks
        names = NamesNow(store.door, store.scope_folders())
        there = names.look(identity.path for identity in head.identities)
        for identity, (now, seen) in zip(head.identities, there, strict=True):
            now = as_far_as_noted(identity, now)
            entry = here.names.get(identity.path)
            if seen.ino and not now.ino:
                self.behind[identity.path] = entry.inode if entry and entry.kind == "file" and same_bytes(
                    identity, seen) else 0
            inode, then = noted.get((now.dev, now.ino), (0, identity)) if now.ino else (0, identity)
            if now != identity:
                self.changed.append(identity.path)
                born = store.door.birth_ns(identity.path) if inode else 0
                if not born_then(here.pifs.get(inode), now.dev, now.ino, born, then.ctime_ns):
                    inode = 0
                elif inode and (entry is None or entry.inode != inode) and may_be_another(
                        here.pifs.get(inode), now.dev, now.ino, born):
                    alike = alike or Counter((each.size, each.mtime_ns) for _, each in noted.values())
                    if alike[then.size, then.mtime_ns] > 1:    # an archive that was unpacked anew, say
                        inode = 0
                if inode:
                    self.known[identity.path] = inode
            if inode and same_bytes(then, now):
                self.places.setdefault(inode, identity.path)
        self.around = [path for path in names.replaced + names.inner if path not in here.names]
        self.behind.update(dict.fromkeys(names.inner, 0))
        if names.replaced:
            self.changed = sorted({*self.changed, *(path for path in names.replaced if path not in here.names)})
        self.moved = {inode: path for path, inode in self.behind.items() if inode and inode not in self.places}
        self.places.update(self.moved)
        for kept in head.kept:
            named.add(kept.inode)
            if is_as_noted(store.door, store.layout, kept):
                self.places.setdefault(kept.inode, store.layout.kept(kept.name))
        self.named = named
        self.sound = self.places.keys()
        self.given_up = named - self.sound
        self.copies = last_copies(store, here, self.given_up)
        for inode, entries in self.copies.items():
            store.undo_log.assume(inode, entries, store.newest)


class Losses:
    """Which files of an index cannot be restored exactly. Asked for one index after another it looks at what is not the
    same at both."""

    def __init__(self, store: Store, holders: Holders | None = None) -> None:
        from sortedcontainers import SortedSet  # what only looks at backing files does without

        self._store = store
        unfinished = any(commit.exists(store.door, path) for path in store.layout.unfinished)
        self._holders = None if unfinished else holders or Holders(store)   # not as head noted, with reason
        if unfinished:
            store.undo_log.refresh()       # a live run may have noted what it found cut off
        self._beside = store.changed_beside(None) if unfinished and store.changed_beside else set[int]()
        self._suspects = store.undo_log.given_up() | (self._holders.given_up if self._holders else self._beside)
        self._state: State | None = None   # the one last asked for, the names of its files, and what is lost there
        self._named: dict[int, set[bytes]] = {}
        self._gone: set[int] = set()
        self._paths: SortedSet = SortedSet()    # of what is lost

    def objects(self, index: int) -> list[int]:
        """Those that have a name at an index and of which some byte is lost."""
        self._go_to(self._store.state(index))
        return sorted(inode for inode in self._gone if self._named.get(inode))

    def at(self, index: int) -> list[bytes]:
        """Their paths at the index, sorted."""
        self._go_to(self._store.state(index))
        return [*self._paths]

    def _go_to(self, state: State) -> None:
        before, self._state = self._state, state
        if before is state:
            return
        anew = set(state.pifs) if before is None else objects_between(self._store.undo_log, before, state)
        lost = {inode for inode in anew if self._is_suspect(inode) and inode in state.pifs
                and any(self._lost(state, inode, _FIRST_LOOK))}
        for inode in anew:
            if (inode in self._gone) != (inode in lost):
                (self._paths.update if inode in lost else self._paths.difference_update)(self._named.get(inode, ()))
        self._gone = (self._gone - anew) | lost
        self._name(before.names if before is not None else {}, state.names)

    def _name(self, before: dict[bytes, NameEntry], names: dict[bytes, NameEntry]) -> None:
        for path in unlike(before, names):
            was, entry = before.get(path), names.get(path)
            if was is not None and was.kind == "file":
                self._named[was.inode].discard(path)
                self._paths.discard(path)
            if entry is not None and entry.kind == "file":
                self._named.setdefault(entry.inode, set()).add(path)
                if entry.inode in self._gone:
                    self._paths.add(path)

    def _is_suspect(self, inode: int) -> bool:
        """Neither head's nor kept: only buffers can have its bytes."""
        return inode in self._suspects or (self._holders is not None and inode not in self._holders.named)

    def _lost(self, state: State, inode: int, step: int = NO_LIMIT) -> Iterator[tuple[int, int]]:
        """In file order, looked for in so many bytes first, and then in more at a time: most of a file may be lost."""
        size, at = state.pifs[inode].size, 0
        at_home = inode not in self._beside if self._holders is None else inode in self._holders.sound
        while at < size:
            for piece in state.pieces(inode, at, min(at + step, size)):
                if piece.kind == LOST or (piece.kind == HOME and not at_home):
                    yield piece.start, piece.end
            at, step = at + step, step * 8

    def ranges(self, index: int) -> list[tuple[bytes, int, int]]:
        """The lost bytes of each path, sorted."""
        state = self._store.state(index)
        return sorted((path, start, end) for inode in self.objects(index) for start, end in self._lost(state, inode)
                      for path in state.paths(inode))


def sentence(index: int, paths: Iterable[bytes], text: Callable[[bytes], str] = os.fsdecode) -> str:
    """What a person is told of an index with losses."""
    return f"checkpoint {index} cannot be restored exactly: {listed(paths, text)} lost"


def listed(paths: Iterable[bytes], text: Callable[[bytes], str] = os.fsdecode) -> str:
    """`a, b and 3 more are`."""
    all_of = [*paths]
    more = f" and {len(all_of) - _NAMED_MAX} more" if len(all_of) > _NAMED_MAX else ""
    return ", ".join(map(text, all_of[:_NAMED_MAX])) + more + (" is" if len(all_of) == 1 else " are")
