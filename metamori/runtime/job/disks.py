"""The own disks of all machines of a job: what is done for each where a job begins, goes on and ends (disk.py)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from metamori.runtime.job import folder, places
from metamori.runtime.job.disk import Disk, is_of_elsewhere
from metamori.runtime.job.part import Part
from metamori.runtime.lifecycle import child_loop
from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.store.restore import external_changes, restore
from metamori.store.restore.resume_point import BEFORE_RUN


def name_in(of: Store, host: str) -> bytes:
    return os.path.join(of.layout.disks, os.fsencode(host))


def find(of: Store, host: str, make: bool = False) -> Disk | None:
    path = name_in(of, host)
    if make:
        os.makedirs(of.layout.disks, 0o700, exist_ok=True)
        return Disk(of, host, Store.create_or_open(path, of.door))
    return Disk(of, host, Store.open(path, door=of.door)) if commit.exists(
        of.door, os.path.join(path, b"format")) else None


def all_of(of: Store) -> list[Disk]:
    try:
        names = sorted(of.door.listdir(of.layout.disks))
    except FileNotFoundError:
        return []
    return [disk for name in names if (disk := find(of, os.fsdecode(name)))]


def _host(part: Part) -> str:
    """Of whose own disk it may say something; "" of none."""
    return part.place.host if part.place.disks else ""


def fold(of: Store, known: dict[str, Disk], parts: list[Part], live: Iterable[bytes], parent: int, run: int,
         reason: str, message: str, time_ns: int, durable: bool) -> list[str]:
    """Into the store of each disk, before the record of the job's store is there. known: those that are open; live:
    runs that are, also without a part."""
    said = []
    for host in sorted({_host(part) for part in parts} - {""}):
        disk = known.get(host) or find(of, host, make=True)
        assert disk is not None
        known[host] = disk
        mine = [part for part in parts if _host(part) == host]
        said += disk.fold(mine, live, parent, run, reason, message, time_ns, durable)
    return said


def leave_behind(of: Store, name: bytes) -> places.Place | None:
    """Before a killed run is completed: if that is not on its machine, its store is kept for who is there next. Where
    that is, if it is another machine with a disk of its own."""
    place = places.read(of, name)
    if place.host in ("", socket.gethostname()) or not place.disks:
        return None
    disk = find(of, place.host, make=True)
    assert disk is not None
    disk.leave(name, folder.folded(of)[0])
    return place


def left(of: Store) -> set[str]:
    """Machines whose disks are."""
    try:
        names = of.door.listdir(of.layout.disks)
    except FileNotFoundError:
        return set()
    return {os.fsdecode(name) for name in names
            if commit.exists(of.door, os.path.join(of.layout.disks, name, b"left", b"since"))}


def complete_left(of: Store) -> list[str]:
    """This machine's, while the job goes on. Lines for a person. StoreBusy."""
    host = socket.gethostname()
    disk = find(of, host)
    if disk is None or not disk.is_left:
        return []
    ended = [Store.open(of.layout.node(name), door=of.door) for name in folder.names(of)
             if not folder.is_alive(of, name) and places.read(of, name).host == host]
    try:
        with disk.locked():
            disk.mark_left()
            return disk.complete([node for node in ended if not is_of_elsewhere(node)])
    finally:
        disk.store.close()


def end(of: Store, index: int, names: list[bytes], durable: bool) -> None:
    """The job is over; its store's head is at this index."""
    of_host: dict[str, list[bytes]] = {}
    for name in names:
        place = places.read(of, name)
        if place.disks:
            of_host.setdefault(place.host, []).append(name)
    for host, mine in of_host.items():
        if disk := find(of, host):
            disk.end(index, mine, durable)


def bring(of: Store, place: places.Place, run: int) -> list[str]:
    """Before a command of the job `run` starts here: the disk's files are at the head of the job's store. Lines for a
    person. MetamoriError where that is not possible; nothing was touched then."""
    disk = find(of, place.host, make=bool(place.disks))
    if disk is None:
        return []
    try:
        with disk.locked(child_loop.let_go):        # another run of this machine is at it
            if disk.job_run == run and not disk.is_left:
                return []                  # another run of this machine was first
            if disk.is_left and disk.job_run == run:
                return []                  # the job in which it was killed goes on
            said = _at_rest(disk)
            if not disk.is_at(of.head.index):
                disk.require_movable(of.head.index)
                disk.move(of.head.index)
                said.append(f"the node's own disk was restored to checkpoint {of.head.index}")
            external_changes.record(disk.store, BEFORE_RUN)
            disk._write("job", {"run": run})
            return said
    finally:
        disk.store.close()


@contextmanager
def here(of: Store) -> Iterator[Disk | None]:
    """This machine's, of a job's store whose jobs are over; its lock is held meanwhile. StoreBusy."""
    disk = find(of, socket.gethostname())
    if disk is None:
        yield None
        return
    try:
        with disk.locked():
            for said in _at_rest(disk):
                child_loop.say(said)
            yield disk
    finally:
        disk.store.close()


def elsewhere(of: Store, index: int) -> list[str]:
    """Other machines whose disks are not at an index of the job's store."""
    return [disk.host for disk in all_of(of) if not disk.is_here
            and (disk.is_left or not disk.is_at(index))]


def before_prune(of: Store) -> None:
    """What all of the indexes are on the disks has to be known when some are gone."""
    for disk in all_of(of):
        disk.note_all()


def after_prune(of: Store) -> tuple[int, int]:
    """What no index of the job's store needs any more; bytes before and after."""
    from metamori.store.prune import prune
    from metamori.tables.retention import Rules

    before = after = 0
    for disk in all_of(of):
        with disk.locked():
            done = prune.prune(disk.store, Rules(keep_last=1), disk.all().values())
        before, after = before + done.before, after + done.after
        disk.store.close()
    return before, after


def _at_rest(disk: Disk) -> list[str]:
    """What a kill left unfinished in its own store, and in the job that it was in."""
    from metamori.store.prune import prune

    prune.recover(disk.store)
    restore.recover(disk.store)
    said = disk.complete()
    disk.store.settle_in()
    disk.store.refresh()
    disk.look_again()
    return said
