"""What every verb that writes does first: complete what a kill, a power cut or a damaged run area left unfinished."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Callable

from metamori._area import ffi, lib
from metamori.errors import Damaged, StoreBusy
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import Area
from metamori.runtime.area.whereabouts import moved, renumbered
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.lifecycle.end_run import close, finish
from metamori.runtime.rollback.copied_bytes import Unverified
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import REAL
from metamori.store.read import create
from metamori.store.read.store import Store

__all__ = ["finish_if_needed", "require_over"]


def require_over(store: Store) -> None:
    """StoreBusy while processes of a run live; the caller holds the lock, which those that outlive their run, and all
    of a run by hand, do not. Nothing of theirs is to be completed by others."""
    if not commit.exists(store.door, store.layout.run_area):
        return
    folder = os.fsdecode(store.layout.run_area)
    if (_is_of_this_boot(folder) or not wal.boot_of(folder)) and _alive(folder):
        raise StoreBusy(f"a run in {store.path} is alive")


def finish_if_needed(store: Store, not_here: Callable[[bytes], bool] = lambda path: False) -> str:
    """Complete a run that was killed together with `metamori run` and is over; the caller holds the lock.

    not_here: of a path, whether it is on a disk of another machine, on which the run was.
    Returns a line for a person, or "" when there was nothing to do.
    """
    if not commit.exists(store.door, store.layout.run_area):
        return ""
    try:
        return _finish(store, not_here)
    finally:
        renumbered({})                     # of this run area: the next run notes what they are now
        store.renumber({})


def _finish(store: Store, not_here: Callable[[bytes], bool]) -> str:
    folder = os.fsdecode(store.layout.run_area)
    if wal.store_of(folder) not in (0, store.layout.id):
        raise _foreign(folder, "of another store")
    moved(create.noted_anchor(store.door, store.layout), store.layout.id.anchor)
    devices = {} if store.is_copied else wal.devices(folder)
    renumbered(devices)
    store.renumber(devices)
    if not _is_of_this_boot(folder):
        said = ["nothing tells whether the machine went down during the last run"] if wal.boot_of(folder) == b"" else []
        return _from_what_is_durable(store, *said, not_here=not_here)
    try:
        area = Area(store.path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL):
            raise                          # the machine's trouble, not the run area's
        if not _was_born(folder):          # killed while it was being made: nothing can have happened under it
            shutil.rmtree(folder)
            return ""
        return _damaged(store, folder, "its header is not one" if error.errno == errno.EINVAL else "a file is missing")
    if area.head.flags & lib.MM_GONE:      # moved away while it was alive: it went on, and wrote back without it
        area.close()
        shutil.rmtree(folder)
        return "what the last run did is lost: its store was moved or removed while it was alive"
    try:
        why = area.unsound()
    except OSError:
        area.close()
        raise
    if why:
        area.close()
        return _damaged(store, folder, why)
    if area.head.newest < store.newest:    # it is told of an index before the index is there
        area.close()
        raise _foreign(folder, f"of an earlier time: the store has checkpoint {store.newest}")
    if not store.is_copied:
        _renumber(store, area)
    area.flag(lib.MM_CLOSED)               # whoever waits for it to take a checkpoint is told so
    session = Session(store, area)
    try:
        index = finish(session, "killed", killed=True)
    except Unverified as error:            # killed in a restore inside the program that cannot be carried through
        area.close()
        return _damaged(store, folder, str(error))
    except (ValueError, OverflowError, LookupError, struct.error) as error:    # numbers that nothing can have
        raise Damaged(f"what the last run left in {folder} makes no sense: {error}") from error
    close(session, killed=True)
    return f"the last run was killed: its state is checkpoint {index}"


def _renumber(store: Store, area: Area) -> None:
    """Files are on devices that have other numbers now. What nobody finds stays so. The area's log and journal keep the
    numbers that they have; of what its PIFs get there is a note, for a completion after one that was killed: what the
    numbers of the log were then, and each PIF that gets another."""
    note, before = os.fsencode(os.path.join(area.path, "devices")), dict[int, int]()
    was_noted = commit.exists(store.door, note)
    if was_noted:
        lines = [[int(word) for word in line.split()] for line in commit.read_file(store.door, note).splitlines()]
        before = {line[0]: line[1] for line in lines if len(line) == 2}
        _identify(area, [line for line in lines if len(line) > 2])     # first: else PIFs have numbers of both kinds
    renumbered({})                         # the log is read as it is
    step = wal.devices(area.path, [(area.pif_path(p), p.dev, p.ino, p.btime_ns) for p in map(area.pif, area.pifs())],
                       before)
    devices = step | {was: step.get(then, then) for was, then in before.items()}
    due = list[list[int]]()
    for slot in area.pifs():
        p = area.pif(slot)
        if step.get(p.dev, p.dev) == p.dev or area.find_pif(p.dev, p.ino, p.btime_ns) != slot:
            continue
        found = lstat_or_none(REAL, area.pif_path(p))
        if found is None or (found.st_dev, found.st_ino) != (p.dev, p.ino):
            due.append([slot, step[p.dev], p.ino, p.btime_ns])
    if was_noted or any(was != now for was, now in devices.items()):
        text = "".join(f"{' '.join(map(str, line))}\n" for line in [*devices.items(), *due])
        commit.write_file(store.door, note, text.encode(), durable=False)
    renumbered(devices)
    store.renumber(devices)
    _identify(area, due)


def _identify(area: Area, due: list[list[int]]) -> None:
    """May be done again, by whoever finds it half done: one may have its number, and not be found by it."""
    for slot, dev, ino, btime_ns in due:
        p = area.pif(slot)
        if p.flags & lib.MM_USED and (p.ino, p.btime_ns) == (ino, btime_ns) and (
                p.dev != dev or area.find_pif(dev, ino, btime_ns) != slot):
            area.identify(slot, dev, ino, btime_ns)


def _foreign(folder: str, whose: str) -> Damaged:
    return Damaged(f"{folder} is {whose}; move it away first, it is not used")


def _alive(folder: str) -> bool:
    """Whether a process of the run lives. The area may be damaged: it is read, not mapped."""
    size = ffi.sizeof("struct mm_process")
    if _has_unborn(folder):
        return True
    try:
        with open(os.path.join(folder, "processes"), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return False
    slots = ffi.new("struct mm_process[]", len(data) // size)
    ffi.memmove(slots, data, len(slots) * size)
    return any(lib.mm_process_lives(slots + number) for number in range(1, len(slots)))


def _has_unborn(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "header"), "rb") as file:
            return bool(lib.mm_unborn_of(file.fileno()))
    except FileNotFoundError:
        return False


def _is_of_this_boot(folder: str) -> bool:
    """Whether what the run mapped is as it left it. An area without a header was not born yet."""
    return not os.path.exists(os.path.join(folder, "header")) or wal.started_here(folder)


def _was_born(folder: str) -> bool:
    """Whether the header was ever finished: it is made first, and its first bytes are written last."""
    try:
        with open(os.path.join(folder, "header"), "rb") as file:
            return any(file.read(8))
    except FileNotFoundError:
        return os.path.exists(os.path.join(folder, "processes"))


def _damaged(store: Store, folder: str, why: str) -> str:
    """Nothing mapped is trusted then."""
    return _from_what_is_durable(store, f"what the last run left in {folder} is damaged ({why})")


def _from_what_is_durable(store: Store, *why: str, not_here: Callable[[bytes], bool] = lambda path: False) -> str:
    from metamori.runtime.recovery import crash_recovery  # not for a run that was killed on a machine that runs on

    return crash_recovery.recover(store, *why, not_here=not_here)
