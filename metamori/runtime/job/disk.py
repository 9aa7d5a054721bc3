"""The files on the own disk of a job's machine: an ordinary store of their own, <store>/disks/<host> (docs/adr/0061).

It has a record beside each of the job's in which something there changed, of the same time: that is how a checkpoint of
the job is found in it. Its record comes first, and counts for none without the job's.

States of a disk:
  at rest      its head says where its files are. Another index of the job's store may be meant: `bring` comes before
               any command of a job there
  in a job     `bring` has noted the job's number; each checkpoint of the job is folded into it
  left         none of its runs lives, and one was killed and completed on another machine, which cannot see the disk.
               Copies of their stores lie in left/, as they were before: who is there next completes them. Nothing is
               folded until then; a run of the job that begins there does it before the job's next checkpoint
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from metamori.errors import ChangedOutside, Damaged, StoreBusy
from metamori.runtime.checkpoint.job_stamps import Stamps
from metamori.runtime.job import folder, places
from metamori.runtime.job.fold import JobFold
from metamori.runtime.job.part import Part
from metamori.runtime.lifecycle import child_loop
from metamori.runtime.lifecycle.recover import finish_if_needed
from metamori.store.format import files
from metamori.store.format.records import Head, Identity
from metamori.store.io import commit
from metamori.store.io.buffers import BLOCK_BYTES
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.head import identity_of, is_of_another, kept_homes, kept_now
from metamori.store.read.holders import Losses
from metamori.store.read.store import Store
from metamori.store.restore import external_changes, partial_checkpoint, restore
from metamori.store.restore.resume_point import BEFORE_RESTORE, BEFORE_RUN
from metamori.tables.record import replace

LOCK_S = 60.0
SAY_S = 5.0
_ELSEWHERE = b"elsewhere"                  # in the store of a run that was completed on another machine
OUTSIDE = (BEFORE_RUN, BEFORE_RESTORE, partial_checkpoint.REASON)        # why there are records that are not of a job


class Disk:
    """Of one machine. `store` is its own; `of` the job's."""

    def __init__(self, of: Store, host: str, store: Store) -> None:
        self.of, self.host, self.store = of, host, store
        self._left = os.path.join(store.layout.root, b"left")
        self.processes: dict[tuple[bytes, int], int] = {}
        self._times: dict[int, int] = {}

    # -- which of its indexes is meant ---------------------------------------------------------------

    def at(self, index: int) -> int:
        """What an index of the job's store is here."""
        return self._of(index, self._noted(), {})

    def all(self) -> dict[int, int]:
        """The same of each of them."""
        noted, found = self._noted(), dict[int, int]()
        for index in sorted(self.of.indexes):
            found[index] = self._of(index, noted, found)
        return found

    def _of(self, index: int, noted: dict[int, int], known: dict[int, int]) -> int:
        times = self._taken()
        for each in self.of.history.chain(index):
            if each in noted or each in known:
                return noted[each] if each in noted else known[each]
            if each and (found := times.get(self.of.meta(each).time_ns)) is not None:
                return found
        return 0

    def _taken(self) -> dict[int, int]:
        """The records by their times; each is read once."""
        self.store.refresh()
        there = {*self.store.indexes} - {0}
        known = {*self._times.values()}
        if not known <= there:             # some were pruned
            self._times = {time_ns: index for time_ns, index in self._times.items() if index in there}
        for index in there - known:
            self._times[self.store.meta(index).time_ns] = index
        return self._times

    def note_at(self, more: dict[int, int]) -> None:
        """Where the records' times do not say it."""
        self._write("at", {str(index): here for index, here in (self._noted() | more).items()})

    def note_all(self) -> None:
        """Before indexes of the job's store are pruned: what those that stay are here."""
        self.note_at(self.all())
        if self.is_left:                   # these are to be at what is completed then
            since = self._read("left/since")
            self._write("left/since", since | {"later": self._later(since)})

    def _later(self, since: dict[str, Any]) -> list[int]:
        """The job's newest index, if it came after its first run here was left, and what has grown from it."""
        last = self._last_of(since["run"])
        first = {*since.get("later", [last] if last > since["index"] else [])}
        return [index for index in sorted(self.of.indexes) if first & {*self.of.history.chain(index)}]

    def _last_of(self, run: int) -> int:
        return max((index for index in self.of.indexes if index and self.of.meta(index).run == run), default=0)

    def _noted(self) -> dict[int, int]:
        return {int(index): here for index, here in self._read("at").items()}

    def used(self) -> frozenset[int]:
        """What the indexes of the job's store are here, and what somebody had made of it. A record of which the job's
        never came counts for none, and nothing is kept for it."""
        own = (each for each in self.store.indexes if each and self.store.meta(each).reason in OUTSIDE)
        return frozenset({*own, *self.all().values()})

    # -- notes -----------------------------------------------------------------------------------------

    def _write(self, name: str, data: dict[str, Any]) -> None:
        folder.write_note(self.store.door, os.path.join(self.store.layout.root, os.fsencode(name)), data, durable=True)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return folder.read_note(self.store.door, os.path.join(self.store.layout.root, os.fsencode(name)))
        except FileNotFoundError:
            return {}

    @property
    def job_run(self) -> int:
        """Of the job that it is in, or was in last."""
        run: int = self._read("job").get("run", 0)
        return run

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_left(self) -> bool:
        return commit.exists(self.store.door, os.path.join(self._left, b"since"))

    @contextmanager
    def locked(self, let_go: Callable[[], None] | None = None) -> Iterator[None]:
        """StoreBusy. let_go: where it is waited without end, what ends that."""
        began, said = time.monotonic(), False
        while True:
            try:
                self.store.lock()
                break
            except StoreBusy:
                waited = time.monotonic() - began
                if let_go:
                    let_go()
                elif waited > LOCK_S:
                    raise
                if waited > SAY_S and not said:
                    said = True
                    child_loop.say(f"waiting for the store {self.store.path}: who has it may be restoring the files")
                time.sleep(0.02)
        try:
            yield
        finally:
            self.store.unlock()

    # -- a checkpoint ----------------------------------------------------------------------------------

    def fold(self, parts: list[Part], live: Iterable[bytes], parent: int, run: int, reason: str, message: str,
             time_ns: int, durable: bool) -> list[str]:
        """Of the runs of this machine; the caller has the lock of the job's store. live: of all machines. What a
        person should hear."""
        if self.is_left:
            for part in parts:             # what they did comes after what the killed one did
                assert not part.live       # counter.py has asked one of them
                self.leave(part.name, {})
            return []
        with self.locked():
            self._make_buffer(run)
            self.store.refresh()
            base = self._base(parent, run)
            here, after, said = base, self.of.newest + 1, list[str]()
            if parts := [part for part in parts if not is_of_elsewhere(part.store)]:      # `complete` has done those
                fold = self._joined(parts, live, base, run, self.processes)
                here, said = fold.commit(message, reason, durable, time_ns), fold.said
            if (here == base and base != self.at(parent)) or after in self._noted():    # by a try that came to nothing
                self.note_at({after: here})
            return said

    def _joined(self, parts: list[Part], live: Iterable[bytes], base: int, run: int,
                processes: dict[tuple[bytes, int], int]) -> JobFold:
        """With what is mapped: of the newest record that is there, for the note of it comes before."""
        notes = [each for each in self._read("job").get("mapped", []) if each[0] in self.store.indexes]
        mapped = folder.unpacked(notes[-1][1]) if notes else {}

        def note(index: int, after: folder.Mapped) -> None:
            if after or notes:
                self._write("job", self._read("job") | {"mapped": [*notes[-1:], (index, folder.packed(after))]})

        return JobFold(self.store, parts, base, run, mapped, live, processes, own=self.of, note=note)

    def _base(self, index: int, run: int) -> int:
        """What its files grew from at an index of that job's: until something has changed, where they were when it
        began. That may be what somebody else had made of them; or what was completed there since that index."""
        here, head = self.at(index), self.store.head.index
        if not here or self.store.meta(here).run != run:
            return head
        return max(here, head) if head and self.store.meta(head).run == run else here

    def _make_buffer(self, run: int) -> None:
        """Its first block is nobody's."""
        if not self.store.buffers.size(run):
            fd = self.store.buffers.writer(run)
            self.store.door.ftruncate(fd, BLOCK_BYTES)
            self.store.door.close(fd)

    # -- the end of a job ------------------------------------------------------------------------------

    def leave(self, name: bytes, upto: dict[bytes, int]) -> None:
        """Before a run of this machine is completed, or folded, elsewhere. upto: what was folded of each so far."""
        os.makedirs(self._left, 0o700, exist_ok=True)
        if not self.is_left:
            self._note_left(self.job_run, self.of.newest, upto)
        target, new = os.path.join(self._left, name), os.path.join(self._left, b"." + name)
        node = self.of.layout.node(name)
        if not commit.exists(self.store.door, target):
            shutil.rmtree(new, ignore_errors=True)
            folder.copy(node, new)
            os.rename(new, target)
        commit.write_file(self.store.door, os.path.join(node, _ELSEWHERE), b"", durable=False)

    def mark_left(self) -> None:
        """Whoever left these may have died before it did; the job goes on."""
        for name in self.store.door.listdir(self._left) if self.is_left else ():
            if commit.exists(self.store.door, node := self.of.layout.node(name)):
                commit.write_file(self.store.door, os.path.join(node, _ELSEWHERE), b"", durable=False)

    def _note_left(self, run: int, index: int, upto: dict[bytes, int]) -> None:
        """index: the job's newest when the first was left; upto: what is folded of each."""
        self._write("left/since", {"run": run, "index": index,
                                   "upto": {os.fsdecode(name): number for name, number in upto.items()}})

    def end(self, index: int, names: list[bytes], durable: bool) -> None:
        """The job is over, at this index. names: of this machine's runs, whose own heads say what its files are, but
        of those that were completed elsewhere."""
        nodes = [Store.open(self.of.layout.node(name), door=self.store.door) for name in names]
        nodes = [node for node in nodes if not is_of_elsewhere(node)]
        if self.is_left:
            for node in nodes:             # nothing of these is new but their heads
                target = os.path.join(self._left, os.path.basename(node.layout.root))
                if not commit.exists(self.store.door, target):
                    os.rename(node.layout.root, target)
            return
        with self.locked():
            here = self._base(index, self.job_run)
            if here != self.at(index):
                self.note_at({index: here})
            self._set_head(here, nodes, durable)

    def _set_head(self, index: int, nodes: list[Store], durable: bool) -> None:
        """As Store.set_head, without looking: what the runs have seen at their ends counts, of each once, the last
        first."""
        store, job = self.store, self._read("job")
        told = job.get("told", [])
        nodes = [node for node in nodes if node.newest and os.path.basename(node.path) not in told]
        seen = {each.path: each for each in store.head.identities}
        parts = [Part(b"", node, Stamps(node), places.read_in(node), node.newest - 1, node.newest) for node in nodes]
        by_place = all([part.has_places() for part in parts])
        of_job = dict(seen) if told else {}
        for node in [part.store for part in sorted(parts, key=lambda part: part.when(part.upto, by_place))]:
            for each in node.head.identities:
                if not (is_of_another(each) and (known := of_job.get(each.path)) and known.ino):
                    of_job[each.path] = each       # else another of the job has made what this one did not expect
        seen |= of_job
        state = store.state(index)

        def noted(path: bytes) -> Identity:
            each = seen.get(path)
            if each and (each.ino or state.names[path].kind != "absent"):
                return each
            return Identity(path, 0, 0, 0, 0, 0)       # what one run missed, another of the job has removed

        identities = tuple(map(noted, sorted(state.names)))
        homes = kept_homes(store.door, store.layout, store.head, state)
        head = Head(index, identities, tuple(kept_now(store.door, store.layout, each) for each in homes),
                    store.newest, store.undo_log.last())
        commit.write_file(store.door, store.layout.head, files.encode_head(head, store.layout.id), durable)
        over = max([job.get("over", 0), *(node.meta(node.newest).time_ns for node in nodes)])
        self._write("job", job | {"told": told + [os.path.basename(node.path) for node in nodes], "over": over})
        store.refresh()

    # -- on its machine --------------------------------------------------------------------------------

    def complete(self, ended: Sequence[Store] = ()) -> list[str]:
        """Here what was left; the caller has its lock. ended: other runs of this machine, where the job goes on. Lines
        for a person."""
        over = self._left + b".over"
        shutil.rmtree(over, ignore_errors=True)
        if not self.is_left:
            return []
        since = self._read("left/since")
        run, upto, said, parts, nodes = since["run"], since["upto"], [], [], []
        for name in sorted(self.store.door.listdir(self._left)):
            if name == b"since" or name.startswith(b"."):
                continue
            node = Store.open(os.path.join(self._left, name))
            node.lock()
            try:
                if text := finish_if_needed(node):
                    said.append(f"{os.fsdecode(name)}: {text}")
                node.refresh()
            finally:
                node.unlock()
            nodes.append(node)
            before = upto.get(os.fsdecode(name), 0)
            if node.newest > before:
                parts.append(Part(name, node, Stamps(node), places.read_in(node), before, node.newest, live=False))
        later = self._later(since)
        here = self._base(max(later, default=self._last_of(run)), run)
        if parts:
            self._make_buffer(run)
            fold = self._joined(parts, (), here, run, {})
            here = fold.commit("", "killed", True, time.time_ns())
            said += fold.said
        if later:                          # of before that it is something else
            self.note_at(dict.fromkeys(later, here))
        done = {os.path.basename(node.path): node.newest for node in nodes}
        self._write("left/since", since | {"upto": upto | done})
        for node in nodes:                 # each link less is another change time: head is noted after it
            shutil.rmtree(node.layout.kept_folder, ignore_errors=True)
        self._set_head(here, [*nodes, *ended], True)
        os.rename(self._left, over)        # at once: a part of it would be completed again
        shutil.rmtree(over)
        return said

    def look_again(self) -> None:
        """On its machine, after a job. Who has noted a file by one name knows nothing of what another run did by other
        names; what is as the index says, and was not changed since all were over, is what they have left."""
        store, job = self.store, self._read("job")
        if not (over := job.pop("over", 0)):
            return
        head, state = store.head, store.state(store.head.index)

        def seen(noted: Identity) -> Identity:
            entry, found = state.names.get(noted.path), lstat_or_none(store.door, noted.path)
            pif = state.pifs.get(entry.inode) if entry and entry.kind == "file" else None
            if not pif or not found or found.st_ctime_ns > over:
                return noted
            now = identity_of(noted.path, found)
            is_it = (now.dev, now.ino) == (noted.dev, noted.ino) and (now.size, now.mtime_ns) == (
                pif.size, pif.mtime_ns) and (found.st_mode, found.st_uid, found.st_gid) == (pif.mode, pif.uid, pif.gid)
            return now if is_it else noted

        identities = tuple(map(seen, head.identities))
        if identities != head.identities:
            head = replace(head, identities=identities)
            commit.write_file(store.door, store.layout.head, files.encode_head(head, store.layout.id))
            store.refresh()
        self._write("job", job)

    def require_movable(self, index: int) -> None:
        """To an index of the job's store: ChangedOutside, Damaged before anything is touched."""
        if self.is_at(index):
            return
        instead = f"'metamori restore --force {index}' here"
        if refused := external_changes.refused(self.store.changed_outside()):
            raise ChangedOutside(f"{_listed(refused)}: modified outside Metamori, on the node's own disk; {instead} "
                                 "saves that state, then restores", tuple(refused))
        if lost := Losses(self.store).at(self.at(index)):
            raise Damaged(f"{_listed(lost)}, on the node's own disk: lost for checkpoint {index}; {instead} restores "
                          "the rest")

    def is_at(self, index: int) -> bool:
        """Of the job's store: whether its files are there, or at what is left of it, and a person has taken that."""
        head = self.store.head.index
        return self.at(index) == head or self._read("taken") == {"for": index, "here": head}

    def move(self, index: int) -> list[bytes]:
        """Its files to an index of the job's store, but for what is lost; the caller has its lock. What that is."""
        if self.is_at(index):
            return []
        here = self.at(index)
        losses = Losses(self.store)
        lost, paths = losses.objects(here), losses.at(here)
        external_changes.record(self.store, BEFORE_RESTORE)
        target = partial_checkpoint.without(self.store, here, lost) if lost else here
        restore.move_home(self.store, target)
        if lost:
            self._write("taken", {"for": index, "here": target})
        return paths


def is_of_elsewhere(node: Store) -> bool:
    return commit.exists(node.door, os.path.join(node.layout.root, _ELSEWHERE))


def _listed(paths: list[bytes]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(os.fsdecode(each) for each in paths[:5]) + more
