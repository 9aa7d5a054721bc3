"""The memory of all processes of a run, at one instant: held together, saved each by itself, or not at all.

Each process is asked to park; when all are parked the kernel is asked about them, their images and the files are taken
side by side, and all run on. A process that begins, becomes another program or ends meanwhile is waited for: the next
try finds what came of it. So is whoever has to accept a connection: those that have sent over it stay parked meanwhile.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from itertools import count

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import Area, proc_folder
from metamori.runtime.memory import family, nameless, open_files, proc_inspect, segments
from metamori.runtime.memory.images import Image
from metamori.runtime.memory.proc_inspect import NotBegun, NotYet, Refused
from metamori.runtime.memory.proc_look import Looks
from metamori.store.format import layout
from metamori.store.format.records import FamilyEntry, MemoryEntry, SegmentEntry
from metamori.store.read.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Concatenate, ParamSpec

    from metamori._area import Array

    P = ParamSpec("P")

_BEGINS_S = 2.0                            # that a process may take to begin, or to accept connections
_BACK_S = 30.0                             # to come back
_NOBODY: frozenset[tuple[int, int]] = frozenset()


def held(store: Store, area: Area, index: int, durable: bool, outside: str) -> Images:
    """The run is frozen, every thread of every process is parked: what just begins, or becomes another program, is
    waited for. Refused, NotAtRest, NotBegun."""
    _await_back(area)
    deadline, kept = time.monotonic() + _BEGINS_S, _NOBODY
    try:
        for tries in count():
            area.freeze()                  # NotAtRest
            found = Images(store, area, index, durable, outside)
            is_late = time.monotonic() >= deadline
            try:
                found.hold(kept, waits=not is_late)
                return found
            except BaseException as error:
                found.thaw()
                kept = found.kept
                if not isinstance(error, NotBegun):
                    raise
                if is_late and isinstance(error, NotYet):
                    raise Refused(str(error)) from None
                if is_late:
                    raise
                if isinstance(error, NotYet):
                    found.await_vforks(deadline)
            time.sleep(min(0.02, 0.002 * (tries + 1)) if kept else 0.002)
    except BaseException:
        _let_go(area, kept)
        raise
    raise AssertionError


def _let_go(area: Area, kept: frozenset[tuple[int, int]]) -> None:
    alive = [slot for slot, pid in kept if area.process(slot).pid == pid]
    lib.mm_memory_go(area.pointer, ffi.new("uint32_t[]", alive), len(alive))


def _await_back(area: Area) -> None:
    """Processes that come back open their files by calls that a freeze holds up, with every signal blocked."""
    tree, deadline = area.head.tree, time.monotonic() + _BACK_S
    while tree.back < tree.processes and not tree.lost and time.monotonic() < deadline:
        time.sleep(0.002)


def _unless_one_ends(what: Callable[Concatenate[Images, P], None]) -> Callable[Concatenate[Images, P], None]:
    """NotBegun, when a process is killed that is just looked at: nothing is left of it in /proc."""
    def looks(images: Images, /, *args: P.args, **named: P.kwargs) -> None:
        try:
            what(images, *args, **named)
        except (FileNotFoundError, ProcessLookupError):    # files are open for a while after memory is gone
            images.require_none(lib.mm_proc_ended(_pids(images.all), len(images.all)))
            raise
    return looks


def _slots(images: Sequence[Image]) -> Array[int]:
    return ffi.new("uint32_t[]", [image.slot for image in images])


def _pids(images: Sequence[Image]) -> Array[int]:
    return ffi.new("uint32_t[]", [image.pid for image in images])


class Images:
    """Of all processes. The run is frozen until `go` or `give_up`."""

    family: tuple[FamilyEntry, ...] = ()
    segments: tuple[SegmentEntry, ...] = ()
    is_frozen = True
    run: open_files.Run | None = None
    kept = _NOBODY                         # by slot and number: those that stay parked when it did not go well

    def __init__(self, store: Store, area: Area, index: int, durable: bool, outside: str) -> None:
        self.store, self.area, self.index, self.durable, self.outside = store, area, index, durable, outside
        self.all: list[Image] = []
        self.failed: list[Exception] = []
        self.looks: Looks | None = None
        self.stats: dict[bytes, os.stat_result] = {}           # of mapped files

    @_unless_one_ends
    def hold(self, kept: frozenset[tuple[int, int]] = _NOBODY, waits: bool = True) -> None:
        """Every thread of every process parked. Refused, NotAtRest; NotBegun: not yet, all run on but `self.kept`.
        kept: those that were parked before; waits: for connections to be accepted."""
        self.kept = kept
        if self.area.has_unborn():
            raise NotBegun("a process of the program has just begun")
        self.all = self._processes()
        for image in self.all:
            image.require_ready()
        try:
            for image in self.all:
                image.meet_stopped()
        except BaseException:
            self.go()
            raise
        claimed = self.area.head.tree.claimed
        ffi.buffer(claimed)[:] = bytes(8 * len(claimed))
        asked = self._but_kept(self.all)
        lib.mm_memory_ask(self.area.pointer, _slots(asked), _pids(asked), len(asked))
        self._each_held()
        try:
            self.run = run = open_files.Run(len(self.all), self.outside, self._known, self.area.path,
                                            self.area.head.tree.signals != 0)
            self.looks = looks = Looks([(image.pid, image.memory) for image in self.all], proc_inspect.unseen)
            for image, seen in zip(self.all, looks.first(), strict=True):
                image.look(seen)
                run.add(image.opens)
            for image, child in family.strangers(self.all):
                name = proc_inspect.name_of(child)
                raise NotYet(f"{image.named} has a child that is not tracked: {name} ({child})")
            if run.sockets and waits:
                self._require_accepted(run)
        except BaseException:
            self._look_away()
            self.go()
            raise
        self.kept = _NOBODY

    def await_vforks(self, deadline: float) -> None:
        """Who waits for a child that has its memory cannot park; the child may wait for whom a freeze holds up."""
        while time.monotonic() < deadline and any(lib.mm_proc_in_vfork(image.pid) for image in self.all):
            time.sleep(0.002)

    def _but_kept(self, images: Sequence[Image]) -> list[Image]:
        return [image for image in images if (image.slot, image.pid) not in self.kept]

    def _require_accepted(self, run: open_files.Run) -> None:
        """NotBegun: whoever listens runs on, and meets no more than what there is. Who closed a connection is not
        known: all others are kept. But of those that have a socket that listens one at least runs."""
        from metamori.runtime.memory import socket_connections  # which few programs need

        run.inside = socket_connections.inside(run.sockets, run.sent)
        left = run.inside.left if self.outside == "refuse" else ()     # else that may be lost
        if not left and not run.inside.senders:
            return
        has = {inode: {each.pid for each in run.all if each.inode == inode and stat.S_ISSOCK(each.st.st_mode)}
               for inode in run.inside.senders | run.inside.servers}
        clients = set().union(*(has[inode] for inode in run.inside.senders))
        clients.update(image.pid for server in left for image in self.all if image.pid not in has[server])
        for server in run.inside.servers:
            if has[server] <= clients:
                clients -= has[server]
        self.kept |= {(image.slot, image.pid) for image in self.all if image.pid in clients and not image.stopped}
        raise NotBegun("a connection was not accepted yet")

    def _processes(self) -> list[Image]:
        head = self.area.head
        slots = [slot for slot in self.area.processes() if self.area.process(slot).outside != lib.MM_OUTSIDE_PROXY]
        if not slots and head.process_high == 1:
            raise NotBegun("the program has not begun yet, or cannot be tracked")
        if not slots:
            raise Refused("the run's process has ended, or cannot be tracked")
        if len(slots) > lib.MM_MEMBERS // 4:
            raise Refused(f"{len(slots)} processes are alive, more than can come back")
        saved = {each.pid: each for each in self.store.meta(head.parent).memory} if head.parent else {}
        found = [Image(self.store, self.area, self.index, self.durable, slot, saved) for slot in slots]
        for image in found:
            if image.does.tracer:
                self._require_untraced(image, image.does.tracer, found)
        return sorted(found, key=lambda image: image.pid != head.first_pid)

    def _require_untraced(self, image: Image, tracer: int, all_: Sequence[Image]) -> None:
        """By one of them, which would be parked while the other waits for it. Refused."""
        for each in all_:
            if os.path.exists(f"/proc/{each.pid}/task/{tracer}"):
                raise Refused(f"{image.named} is traced by {each.named}, which cannot come back")
        if proc_inspect.state(image.pid) == b"t":
            raise Refused(f"{image.named} is stopped by a debugger")

    def _each_held(self) -> None:
        held = [image for image in self.all if self._goes_well(image.hold)]
        if self.failed:
            self._go_on([image for image in self.all if image in held or image.stopped])
        self._require_none_failed()

    def _goes_well(self, what: Callable[[], None]) -> bool:
        """Where it fails with one, the others are waited for all the same."""
        try:
            what()
            return True
        except Exception as error:
            self.failed.append(error)
            return False

    def _require_none_failed(self) -> None:
        failed, self.failed = self.failed, []
        if failed:
            raise next((error for error in failed if not isinstance(error, NotBegun)), failed[0])

    @_unless_one_ends
    def stop(self) -> None:
        """What the kernel keeps for them is known, and their images are on the way; all are parked until `go`. If that
        cannot be, nothing was taken from any of them."""
        try:
            try:
                self._look()
            finally:
                self._look_away()
        except BaseException:
            self.go()
            raise
        tree = self.area.head.tree
        first = self.store.layout.memory(self.index, 0)
        before, after = layout.temporary(first).rsplit(b"0", 1)
        ffi.memmove(tree.images, before + b"\0", len(before) + 1)
        ffi.memmove(tree.suffix, after + b"\0", len(after) + 1)
        tree.room = segments.room_for_copies(self.all[0].pid) if self.segments else 0
        for image in self.all:
            image.gathers = True
        lib.mm_memory_gather(self.area.pointer, _slots(self.all), len(self.all))

    def _look(self) -> None:
        run, looks, image = self.run, self.looks, self.all[0]
        assert run and looks
        nameless_open = run.has_nameless
        if nameless_open:                  # what of them is mapped decides how they come back
            looks.rest([image.seen for image in self.all])
            run.nameless = nameless.Nameless(image.seen.maps for image in self.all)
        run.members = {pid for image in self.all for pid in (image.pid, *image.seen.children)}
        kept = b" " + self.store.layout.kept_folder + b"/"
        if run.sockets:
            self._look_into_sockets(run)
        if run.on_the_way:
            run.inside = None              # there are more
        try:
            for image in self.all:
                image.descriptors = open_files.entries(run, image.opens, image.followed)
        except Refused as error:
            raise self._said_of(image, error) from None
        if not nameless_open:
            looks.rest([image.seen for image in self.all])
        for image in self.all:
            try:
                image.look_on()
                image.require_owner(self.all[0].owner)
            except Refused as error:
                raise self._said_of(image, error) from None
        self.family = family.found(self.area, self.all)
        mapped = {image.seen.maps: image for image in reversed(self.all)}
        for maps, image in mapped.items():
            if kept in maps:               # of one that came back without its name
                raise self._said_of(image, Refused("it maps a file that was deleted"))
        self.segments = segments.found(self.area, {image.pid: image.seen.maps for image in self.all}, run.memory,
                                       run.nameless)
        if run.on_the_way:
            from metamori.runtime.memory import sent  # which few programs need

            self.all[0].descriptors = [*self.all[0].descriptors, *sent.entries(run)]
        if os.path.exists(run.watched):
            from metamori.runtime.memory import watches  # which few programs need

            watches.forget(self.area, (each for image in self.all for each in image.descriptors))
        if run.queues or self.area.head.tree.queues:
            self._look_at_queues(run)
        for path in {path for image in mapped.values() for path in image.seen.files}:
            with suppress(OSError):
                self.stats[path] = os.stat(path)

    def _said_of(self, image: Image, error: Refused) -> Refused:
        return error if len(self.all) == 1 else type(error)(f"{image.named}: {error}")

    def _look_into_sockets(self, run: open_files.Run) -> None:
        from metamori.runtime.memory import sent  # which few programs need

        for image in self.all:
            try:
                sent.find(run, image, self.all)
            except Refused as error:
                raise self._said_of(image, error) from None

    def _look_away(self) -> None:
        if self.run:
            self.run.close()
        if self.looks:
            self.looks.close()
            self.looks = None

    def _known(self, real: int) -> int:
        return int(lib.mm_known_number(self.area.pointer, real))

    def _look_at_queues(self, run: open_files.Run) -> None:
        from metamori.runtime.memory import queues  # which few programs have

        queues.with_notices(self.area, run.queues, self.all)
        self.segments += queues.found(self.area, [image.pid for image in self.all], run.queues)

    @property
    def programs(self) -> dict[int, bytes]:
        """By process."""
        return {image.pid: image.seen.exe for image in self.all}

    def taken(self) -> None:
        """Nothing more is taken from any of them."""
        for image in self.all:
            self._goes_well(image.stop)
        self._require_none_failed()
        self.require_alive()
        if self.run and self.run.ports:
            from metamori.runtime.memory import sockets  # which few programs need

            for pid, fd in self.run.ports:
                sockets.share_port(pid, fd)
        self.family = family.with_stops(self.family, self.all)

    def require_alive(self) -> None:
        """NotBegun: one was killed meanwhile, and what was found of it and its children may be of afterwards."""
        self.require_none(lib.mm_held_ended(self.area.pointer, _slots(self.all), _pids(self.all), len(self.all)))

    def require_none(self, ended: int) -> None:
        """NotBegun."""
        if ended:
            for image in self.all:
                if proc_folder(image.pid) != b"/proc/%d" % image.pid:
                    raise NotYet(f"the main thread of {image.named} has ended, and others have not")
            raise NotBegun("a process of the program has just ended")

    def go(self) -> None:
        self._go_on(self.all)
        lib.mm_memory_write(self.area.pointer, _slots(self.all), len(self.all))

    def _go_on(self, images: Sequence[Image]) -> None:
        """Those that job control has stopped take their time to stand again: all others run before. Whoever of these
        continues one of them changes nothing: it runs when it has stood."""
        in_order = sorted(self._but_kept(images), key=lambda image: image.stopped is not None)
        lib.mm_memory_go(self.area.pointer, _slots(in_order), len(in_order))
        self.thaw()
        let_go = {image.slot for image in in_order}
        for image in images:
            image.stand(image.slot in let_go)

    def thaw(self) -> None:
        """The run, unless it was already."""
        if self.is_frozen:
            self.is_frozen = False
            self.area.thaw()

    def give_up(self) -> None:
        for image in self.all:
            image.settle()
        self.go()
        for image in self.all:
            image.give_up()

    def written(self) -> tuple[MemoryEntry, ...]:
        """Waits for the writers. OSError as the disk gave it: then there is no image of any."""
        try:
            entries = tuple(self._all_written())
            for image in self.all:
                image.keep()
            return entries
        except BaseException:
            for image in self.all:
                image.drop()
            raise

    def _all_written(self) -> list[MemoryEntry]:
        found: list[MemoryEntry] = []
        for image in self.all:
            image.recall(self.stats)
        for image in self.all:
            self._goes_well(lambda image=image: found.append(image.written()))  # type: ignore[misc]
        failed, self.failed = self.failed, []
        if failed:
            raise failed[0]
        return found
