"""The memory of all processes of a run, at one instant: held together, saved each by itself, or not at all.

Each process is asked to park; when all are parked their images are taken, files are cut, and all run on. A process that
begins, becomes another program or ends meanwhile is waited for: the next try finds what came of it.
"""

from __future__ import annotations

import time

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.memory import family, open_files, proc_inspect, segments
from metamori.runtime.memory.images import Image
from metamori.runtime.memory.proc_inspect import NotBegun, Refused
from metamori.store.format import layout
from metamori.store.format.records import FamilyEntry, MemoryEntry, SegmentEntry
from metamori.store.read.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BEGINS_S = 2.0                            # that a process may take to begin


class Stranger(NotBegun):
    """A child that has not joined the run; soon it has, or it is not tracked."""


def held(store: Store, area: Area, index: int, durable: bool, outside: str) -> Images:
    """The run is frozen, every thread of every process is parked: what just begins, or becomes another program, is
    waited for. Refused, NotAtRest, NotBegun."""
    deadline = time.monotonic() + _BEGINS_S
    while True:
        area.freeze()
        try:
            found = Images(store, area, index, durable, outside)
            found.hold()
            return found
        except NotBegun as error:
            area.thaw()
            if time.monotonic() >= deadline:
                if isinstance(error, Stranger):
                    raise Refused(str(error)) from None
                raise
            time.sleep(0.002)
        except BaseException:
            area.thaw()
            raise


def _unless_one_ends(what: Callable[[Images], None]) -> Callable[[Images], None]:
    """NotBegun, when a process is killed that is just looked at: nothing is left of it in /proc."""
    def looks(images: Images) -> None:
        try:
            what(images)
        except (FileNotFoundError, ProcessLookupError):
            images.require_alive()
            raise
    return looks


class Images:
    """Of all processes. The run is frozen until `go` or `give_up`."""

    family: tuple[FamilyEntry, ...] = ()
    segments: tuple[SegmentEntry, ...] = ()

    def __init__(self, store: Store, area: Area, index: int, durable: bool, outside: str) -> None:
        self.store, self.area, self.index, self.durable, self.outside = store, area, index, durable, outside
        self.all: list[Image] = []

    @_unless_one_ends
    def hold(self) -> None:
        """Every thread of every process parked. Refused, NotAtRest; NotBegun: not yet, all run on."""
        if self.area.head.births and not family.none_is_unborn(self.area):
            raise NotBegun("a process of the program has just begun")
        self.all = self._processes()
        for image in self.all:
            image.require_ready()
        for image in self.all:
            image.ask()
        self._each(Image.hold)
        try:
            for image, child in family.strangers(self.all):
                name = proc_inspect.name_of(child)
                raise Stranger(f"{image.named} has a child that is not tracked: {name} ({child})")
        except BaseException:
            self.go()
            raise

    def _processes(self) -> list[Image]:
        head = self.area.head
        slots = [slot for slot in self.area.processes() if self.area.process(slot).outside != lib.MM_OUTSIDE_PROXY]
        if not slots and head.process_high == 1:
            raise NotBegun("the program has not begun yet, or cannot be tracked")
        if not slots:
            raise Refused("the run's process has ended, or cannot be tracked")
        if len(slots) > lib.MM_MEMBERS // 4:
            raise Refused(f"{len(slots)} processes are alive, more than can come back")
        found = [Image(self.store, self.area, self.index, self.durable, slot) for slot in slots]
        for image in found:
            if proc_inspect.state(image.pid) in (b"T", b"t"):
                raise Refused(f"{image.named} is stopped")
        return sorted(found, key=lambda image: image.pid != head.first_pid)

    def _each(self, what: Callable[[Image], None]) -> None:
        """With all of them, also where one fails: then those that it went well with run on, and so do all."""
        failed: list[Exception] = []
        done: list[Image] = []
        for image in self.all:
            try:
                what(image)
                done.append(image)
            except Exception as error:
                failed.append(error)
        if failed:
            for image in done:
                image.go() if what is Image.hold else image.give_up()
            raise next((error for error in failed if not isinstance(error, NotBegun)), failed[0])

    def stop(self) -> None:
        """Their images are on the way; all are parked until `go`."""
        tree = self.area.head.tree
        first = self.store.layout.memory(self.index, 0)
        before, after = layout.temporary(first).rsplit(b"0", 1)
        ffi.memmove(tree.images, before + b"\0", len(before) + 1)
        ffi.memmove(tree.suffix, after + b"\0", len(after) + 1)
        ffi.buffer(tree.claimed)[:] = bytes(8 * len(tree.claimed))
        for image in self.all:
            image.gather()
        self._each(Image.stop)

    @_unless_one_ends
    def look(self) -> None:
        """What the kernel keeps for them."""
        opens = [open_files.of_process(image.pid, image.own) for image in self.all]
        run = open_files.Run(opens, self.outside)
        for image, own in zip(self.all, opens, strict=True):
            try:
                image.look(open_files.entries(run, own, image.followed))
            except Refused as error:
                if len(self.all) == 1:
                    raise
                raise type(error)(f"{image.named}: {error}") from None
        self.segments = segments.found(self.area, [image.pid for image in self.all],
                                       (each for own in opens for each in own))
        self.family = family.found(self.area, self.all)
        self.require_alive()

    def require_alive(self) -> None:
        """NotBegun: one was killed meanwhile, and what was found of it and its children may be of afterwards."""
        if any(proc_inspect.state(image.pid) in (b"", b"Z", b"X") for image in self.all):
            raise NotBegun("a process of the program has just ended")

    def go(self) -> None:
        for image in self.all:
            image.go()

    def give_up(self) -> None:
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
        found, failed = [], []
        for image in self.all:
            try:
                found.append(image.written())
            except Exception as error:     # the others are waited for all the same
                failed.append(error)
        if failed:
            raise failed[0]
        return found
