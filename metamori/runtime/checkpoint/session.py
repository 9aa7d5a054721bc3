"""A live run: the owner of a store's tables and of its run area; what a checkpoint is.

States of a checkpoint: frozen (one instant) -> cut (the next epoch runs, the program goes on) -> durable (pre-images,
buffer, offset file) -> it exists (meta file renamed into place) -> settled (the run area counts from here).
A stop before the fourth leaves no trace but what the next checkpoint takes with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count

from metamori._area import lib
from metamori.errors import MetamoriError
from metamori.runtime.area import launch_record, wal
from metamori.runtime.area.run_area import Area, NotAtRest
from metamori.runtime.checkpoint import auto_prune
from metamori.runtime.checkpoint import snapshot as instants
from metamori.runtime.checkpoint import sync as durable
from metamori.runtime.checkpoint.cut import Cut, look_ahead
from metamori.runtime.checkpoint.delta import Fold
from metamori.runtime.checkpoint.session_state import SessionState
from metamori.runtime.checkpoint.shared_mappings import Capture
from metamori.runtime.checkpoint.write_back import put_home
from metamori.store.format.records import MemoryEntry
from metamori.store.format.row_table import no_collection
from metamori.store.io.os_io import NO_ROOM
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:                          # most runs need none of these
    from metamori._area import mm_looks
    from metamori.runtime.checkpoint.stop_writers import StoppedWriters
    from metamori.runtime.memory.tree import Images


_PASSES_S = 2.0                            # what is waited for that passes


class Session(SessionState):
    """A live run, for whoever takes its checkpoints."""

    def __init__(self, store: Store, area: Area) -> None:
        super().__init__(store, area)
        self.coming_back: list[object] = []  # bytes that the program takes into its streams in a restore
        self.let_in = ExitStack()          # folders opened up until it has its descriptors back
        self.stopped: StoppedWriters | None = None     # those that no freeze holds, where that is asked for
        self.outside = "refuse"            # with memory: what becomes of descriptors that lead out of the run
        self.when_ready: Callable[[], None] | None = None # called before the run is frozen: a job
        self.when_frozen: Callable[[], None] | None = None     # then, before anybody looks at its files
        self.place = -1                    # of the last instant among all that the runs of a job do (job_stamps.py)
        self.when_cut: Callable[[], None] | None = None   # called with the run frozen, before it goes on
        self._records = -1                 # head.records when all that it counts was known here

    def checkpoint(self, message: str = "", reason: str = "checkpoint", with_memory: bool = False) -> int:
        """Take the next checkpoint; its index. NotAtRest when no instant can be had; OSError as the disk gives it;
        NoLiveRun where the run's end came first: the last index stays the last.

        with_memory: of a run with memory; Refused when it cannot be part of it. In single mode what is buffered is
        written back with it.
        """
        with self.area.session_lock():
            self.area.require_going_on()
            self.require_synced()
            return self._next(message, reason, with_memory, self.single)

    def last_checkpoint(self, reason: str, home: bool, over: bool = False) -> int:
        """As `checkpoint`, for whoever ends the run. `home`: with what is buffered written back. over: after it nobody
        does anything in the run."""
        with self.area.session_lock():
            return self._next("", reason, False, home or self.single, over)

    def _next(self, message: str, reason: str, with_memory: bool, home: bool, over: bool = False) -> int:
        """`home`: nobody writes until it is written back, since the commit knows the index's bytes only."""
        with self._frozen_if(home):
            auto_prune.recover(self.store, self.durable)
            index = self._take_with_room(message, reason, with_memory and self._has_memory)
            auto_prune.prune(self)
            if home:
                put_home(self, index)
            if over:
                self.area.flag(lib.MM_OVER)
            return index

    @contextmanager
    def _frozen_if(self, home: bool) -> Iterator[None]:
        """NotAtRest while the files are half way, and nobody is there to carry that through (area/lock_owner.c): before
        anything thaws."""
        if self.area.head.restoring:
            raise NotAtRest("the files are half way in a killed restore: repeat it")
        with self.area.frozen() if home else nullcontext():
            yield

    def take_now(self, reason: str) -> int:
        """The next checkpoint, as the run is: frozen."""
        assert self.area.is_frozen
        self.require_synced()
        return self._take_with_room("", reason, with_memory=False)

    def _take_with_room(self, message: str, reason: str, with_memory: bool) -> int:
        """A disk that is full may be pruned, where that is allowed; what was cut is taken along by the next try."""
        before = self.area.head.unsynced   # at the run's end that hinders nothing; a sync that fails in this try does
        while True:
            try:
                return self._take(message, reason, with_memory)
            except OSError as error:
                if self.has_lost_since(before) or error.errno not in NO_ROOM:
                    raise
                if not auto_prune.has_made_room(self):
                    if self.stopped or not auto_prune.next_makes_room(self):
                        raise
                    break
        with auto_prune.room_given(self.area, least=True):
            index = self._take(message, reason, with_memory)
            auto_prune.has_made_room(self)
        return index

    def _take(self, message: str, reason: str, with_memory: bool = False) -> int:
        self.store.refresh(alone=self._records == self.area.head.records)
        index = self.store.newest + 1
        parent = self.store.state(self.area.head.parent)
        if self.when_ready:
            self.when_ready()
        # with memory it is asked first who may be frozen; beside writers that stand still all is of one instant
        ahead = None if with_memory or self.stopped else look_ahead(self.area)
        deadline = time.monotonic() + _PASSES_S
        for tries in count():
            time.sleep(min(0.05, 0.002 * tries))   # for what passes only while the programs run
            with no_collection():                  # what is made meanwhile is searched for cycles when they run again
                image = self._freeze(index, with_memory)
                try:
                    if self.stopped:
                        self.stopped.require_all()
                    if self.area.head.flags & lib.MM_JOB:
                        self._note_place()
                    cut = self._instant(index, parent, image, ahead)
                    break
                except MetamoriError as error:      # a process was killed while all were held, say
                    if not error.passes:
                        raise
                    if time.monotonic() >= deadline:
                        from metamori.runtime.memory.proc_inspect import Refused

                        raise Refused(str(error)) from None
                finally:
                    ahead = None
                    (image or self.area).thaw()
                    if self.stopped:
                        self.stopped.go()
        self._write(cut, index, message, reason, image.written() if image else (), image)
        instants.settle_cut(self.area, cut, index)
        if cut.half_way:
            from metamori.runtime.checkpoint import half_way  # seldom needed

            half_way.forget(cut.half_way)
        self._records = self.area.head.records
        return index

    def _note_place(self) -> None:
        from metamori.runtime.checkpoint import job_stamps

        if self.when_frozen:
            self.when_frozen()
        else:                              # alone, at its end
            self.place = job_stamps.take_place(self.store.door, job_stamps.order_of(self.store))

    @property
    def _has_memory(self) -> bool:
        return bool(self.area.head.flags & lib.MM_MEMORY)

    def give_up(self, fold: Fold) -> None:
        """Say what others changed before this run came to it; only then does the run area know these files."""
        if lost := fold.given_up():
            self.will_write_records()
            self.store.add_undo(lost, self.store.newest, self.durable)
            for slot in fold.changed_beside:
                self.area.pif(slot).object = fold.objects[slot]

    def _freeze(self, index: int, with_memory: bool) -> Images | None:
        """With memory every process is held, too."""
        if not with_memory:
            self.area.freeze()
            return None
        from metamori.runtime.memory.tree import held

        return held(self.store, self.area, index, self.durable, self.outside)

    def _instant(self, index: int, parent: State, image: Images | None, ahead: mm_looks | None = None) -> Cut:
        """Files, and memory if it is wanted, in one pause."""
        if image:
            image.stop()
        try:
            capture = Capture(self.store, self.area, parent)
            cut = instants.take(self.area, self.store, parent, capture, image.programs if image else None, ahead)
            instants.examine(cut, self.area, parent)
            if image:
                image.taken()
            # the new epoch's writes must not be taken for bytes that the new index does without
            self.area.head.newest = index
            instants.advance(self.area, cut, index)
        except BaseException:
            if image:
                image.give_up()
            raise
        try:
            if self.when_cut:
                self.when_cut()
        finally:
            if image:
                image.go()
        return cut

    def _write(self, cut: Cut, index: int, message: str, reason: str, images: tuple[MemoryEntry, ...] = (),
               of: Images | None = None) -> None:
        self.will_write_records()
        fold = Fold(self.store, self.area, cut, index)
        process = cut.processes[0].process if cut.processes else self.area.head.next_process
        meta, offsets = fold.records(message, reason, process, "single" if self.single else "incremental")
        self.give_up(fold)
        if of:
            meta = replace(meta, memory=images, family=of.family, segments=of.segments)
        meta = replace(meta, launch=launch_record.of_run(self.area) if self._first(cut) else (),
                       bytes_added=meta.bytes_added + sum(image.size for image in images))
        if self.area.head.flags & lib.MM_JOB:
            from metamori.runtime.checkpoint import job_stamps  # few runs are of a job

            job_stamps.note(self.store, cut, index, self.durable, self.place)
        if self.durable:
            with wal.syncing(self.area):
                self._sync(cut, bool(offsets.entries or cut.preimages))
        for after_index, entries in sorted(fold.undo_entries().items()):
            self.store.undo_log.add(tuple(entries), after_index, self.durable, alone=True)
        self.store.commit_checkpoint(meta, offsets, durable=self.durable)

    def _first(self, cut: Cut) -> bool:
        """Whether no checkpoint of this run is below the new one."""
        return not cut.parent or self.store.meta(cut.parent).run != self.area.head.run

    def _sync(self, cut: Cut, buffered: bool) -> None:
        """Everything that the records name: the buffer's new bytes, and those written back."""
        self.store.door.expect("saving", 0)    # each that is long has a size of its own
        if buffered:
            self.store.buffers.sync(self.area.head.run)
        wal.sync(self.area) if any(self.area.mapped()) else wal.name(self.area)
        durable.sync(((pif.home, pif.st) for pif in cut.pifs if pif.st and not pif.home.startswith(b"/proc/")),
                     {os.path.dirname(path) for path in cut.touches}, self.store.door)
