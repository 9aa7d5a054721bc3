"""The processes of a run as a family: whose child each is, its group and session, what several have open together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from metamori._area import lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.images import Image
from metamori.runtime.memory.open_files import Descriptions
from metamori.runtime.memory.proc_inspect import Refused
from metamori.store.format.records import FamilyEntry, SharedEntry
from metamori.tables.record import replace

GONE = -2                                  # status of a leader that was waited for, and whose group lives on
_EXIT_STATUS = 49                          # of the words of /proc/PID/stat, from the state on


def with_stops(family: Sequence[FamilyEntry], images: Sequence[Image]) -> tuple[FamilyEntry, ...]:
    """When each process has looked at its children."""
    status = {image.known: image.stopped.status for image in images if image.stopped}
    return tuple(replace(each, status=status[each.pid]) if each.pid in status else each for each in family)


def strangers(images: Sequence[Image]) -> list[tuple[Image, int]]:
    """Live children that are no processes of the run, with their parents; nor writers of images, maybe of those that
    have ended."""
    pids = {image.pid for image in images}
    writers = {image.memory.writer for image in images}
    return [(image, child) for image in images for child in image.seen.children
            if child not in pids and child not in writers and not _has_ended(child)
            and not lib.mm_proc_writes_image(child)]


def _has_ended(pid: int) -> bool:
    try:
        return proc_inspect.stat_words(pid)[0] in (b"Z", b"X")
    except OSError:
        return True


def found(area: Area, images: Sequence[Image]) -> tuple[FamilyEntry, ...]:
    """While they are stopped: the processes in this order, then children that nobody has waited for. Refused."""
    outer = os.getsid(area.head.supervisor or 0)
    known = _Known(area, images)
    living = [_entry(known, image.pid, *image.seen.family, outer) for image in images]
    ended = [_ended(known, child, outer) for image in images
             for child in image.seen.children if child not in known.own and child != image.memory.writer
             and not lib.mm_proc_writes_image(child)]
    gone = _gone(area, living, ended)
    return tuple(replace(process, shared=shared) if shared else process for process, shared in
                 zip(living, _shared(images), strict=True)) + tuple(ended) + tuple(gone)


class _Known(dict[int, int]):
    """Numbers as the run knows them, by the kernel's; asked for once. own: of its processes."""

    def __init__(self, area: Area, images: Sequence[Image]) -> None:
        super().__init__((image.pid, image.known) for image in images)
        self.own, self._area = frozenset(self), area

    def __missing__(self, real: int) -> int:
        self[real] = known = int(lib.mm_known_number(self._area.pointer, real))
        return known


def _ended(known: _Known, pid: int, outer: int) -> FamilyEntry:
    words = proc_inspect.stat_words(pid)
    parent, group, session = map(int, words[1:4])
    return _entry(known, pid, parent, group, session, outer,
                  int(words[_EXIT_STATUS]) if words[0] in (b"Z", b"X") else -1)


def _entry(known: _Known, pid: int, parent: int, group: int, session: int, outer: int, status: int = -1) -> FamilyEntry:
    return FamilyEntry(known[pid], known[parent] if parent in known.own else 0, known[group],
                       0 if session == outer else known[session], status)


def _gone(area: Area, living: Sequence[FamilyEntry], ended: list[FamilyEntry]) -> list[FamilyEntry]:
    """Leaders of sessions and groups whose number nobody has any more: of a session nobody's child, or that of whoever
    has taken an orphan of it (PR_SET_CHILD_SUBREAPER); of a group that of the first in it. Refused, where a process is
    in a session that nobody could have given it."""
    by_pid = {process.pid: process for process in (*living, *ended)}
    outer = int(lib.mm_known_number(area.pointer, os.getpgid(area.head.supervisor or 0)))
    gone: dict[int, FamilyEntry] = {}
    for process in living:
        number = process.session
        top = list(_line(by_pid, process)) if number else []
        if number and number not in {each.pid for each in top}:
            taker = next((each.pid for each in top if each.session != number), 0)
            leader = by_pid.get(number) or gone.setdefault(number, FamilyEntry(number, taker, number, number, GONE))
            if taker:                      # which its leader must have had above it
                is_possible = taker in {each.pid for each in _line({**by_pid, **gone}, leader)}
            else:
                is_possible = top[-1] is not living[0] and not (leader.status == GONE and leader.parent)
            if not is_possible:
                raise Refused(f"process {process.pid} is in a session whose leader has gone")
    for process in (*living, *ended):      # a parent may wait for a group of which all have ended
        number = process.group
        if number not in by_pid and number not in gone and number != outer:
            gone[number] = FamilyEntry(number, process.pid, number, process.session, GONE)
    return list(gone.values())


def _line(by_pid: dict[int, FamilyEntry], process: FamilyEntry) -> Iterator[FamilyEntry]:
    """The process itself, its parent, and so on."""
    at: FamilyEntry | None = process
    while at is not None:
        yield at
        at = by_pid.get(at.parent)


def _shared(images: Sequence[Image]) -> list[tuple[SharedEntry, ...]]:
    """Of each process's descriptors, those whose open description an earlier process has, too."""
    first, known = Descriptions(), {image.pid: image.known for image in images}
    found: list[tuple[SharedEntry, ...]] = []
    for image in images:
        own: list[SharedEntry] = []
        for entry in image.descriptors:
            if entry.same_as >= 0 or entry.kind in ("standard", "pidfd") or entry.path == b"/dev/tty":
                continue                   # the last is each process's own terminal, and remembers nothing
            other, its = first.met(entry.path, entry.flags, image.pid, entry.descriptor)
            if other != image.pid:
                own.append(SharedEntry(entry.descriptor, known[other], its))
        found.append(tuple(own))
    return found
