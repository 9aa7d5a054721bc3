"""The end of a job, by whoever opens its store when none of its runs is alive: the last of them, or the next verb."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

from metamori.errors import StoreBusy
from metamori.runtime.checkpoint import job_stamps
from metamori.runtime.checkpoint.job_stamps import Stamps
from metamori.runtime.job import disks, folder, places
from metamori.runtime.job.fold import JobFold
from metamori.runtime.job.part import Part
from metamori.runtime.lifecycle.recover import finish_if_needed, require_over
from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.store.restore import restore, resume_point, safety_copies


def parent_of(store: Store, job_run: int) -> int:
    """What the job's next index grows from: its newest, or where the files were when it began."""
    newest = store.newest
    return newest if newest and store.meta(newest).run == job_run else store.head.index


def complete_run(store: Store, name: bytes) -> str:
    """What a kill left of a run of the job becomes an index of its own; a message. StoreBusy while it lives."""
    node = Store.open(store.layout.node(name), door=store.door)
    node.lock()
    try:
        require_over(node)
        place = disks.leave_behind(store, name) if commit.exists(node.door, node.layout.run_area) else None
        said = finish_if_needed(node, lambda path: place is not None and bool(place.is_own(path)))
    finally:
        node.close()
    return f"{os.fsdecode(name)}: {said}" if said else ""


def is_unfinished(store: Store, name: bytes) -> bool:
    """Whether a run of the job that is over was killed, and not completed yet."""
    return commit.exists(store.door, Store(store.layout.node(name), store.door).layout.run_area)


def complete_here(store: Store, names: list[bytes]) -> list[str]:
    """These, and what another machine has left of this one's disk; while the job goes on. StoreBusy."""
    said = [text for name in names if (text := complete_run(store, name))]
    return said + disks.complete_left(store)


def finish(store: Store, durable: bool = True) -> list[str]:
    """Complete a job of which no run lives; the caller holds the lock. StoreBusy. Lines for a person."""
    if not folder.is_there(store):
        shutil.rmtree(store.layout.nodes_over, ignore_errors=True)
        return []
    names = folder.names(store)
    for name in names:
        if folder.is_alive(store, name):
            raise StoreBusy(f"a job in {store.path} is alive: {os.fsdecode(name)}")
    commit.remove_file(store.door, store.layout.job, durable=False)    # nobody is reached there any more
    if not (names and commit.exists(store.door, os.path.join(store.layout.nodes, b"run"))):
        close(store)                       # killed before its first run began; or made anew by one that came too late
        return []
    if any(is_unfinished(store, name) for name in names):
        job_stamps.require_later(store.door, store.layout.order, max(_places(store, names), default=0))
    said = [text for name in names if (text := complete_run(store, name))]
    store.refresh()
    upto, mapped = folder.folded(store)
    parts = []
    reasons = []
    for name in names:
        node = Store.open(store.layout.node(name), door=store.door)
        if node.newest:                    # others that outlive its command end later, and by themselves
            reasons.append(node.meta(resume_point.first_end(node, node.newest)).reason)
        if node.newest > upto.get(name, 0):
            parts.append(Part(name, node, Stamps(node), places.read(store, name), upto.get(name, 0), node.newest,
                              live=False))
    run = job_run(store)
    parent = parent_of(store, run)
    index = parent
    if parts or folder.unseen(store):
        fold = JobFold(store, parts, parent, run, mapped, ())
        now = time.time_ns()
        said += disks.fold(store, {}, parts, (), parent, run, _reason(reasons), "", now, durable)
        index = fold.commit("", _reason(reasons), durable, now)
        said += fold.said
    for name in names:                     # each link less is another change time: head is noted after it
        shutil.rmtree(Store(store.layout.node(name)).layout.kept_folder, ignore_errors=True)
    store.set_head(index, None, durable)
    restore.sweep_kept(store)
    if index == store.newest:              # what its runs have copied is in their own stores, which go
        safety_copies.keep(store, index, run, clone=durable, durable=durable)
    disks.end(store, index, names, durable)
    said += [f"{host}'s own disk follows with the run --job that starts there next"
             for host in disks.elsewhere(store, index)]
    close(store)
    return said


def _places(store: Store, names: list[bytes]) -> Iterator[int]:
    for name in names:
        stamps = Stamps(Store.open(store.layout.node(name), door=store.door))
        stamps.refresh()
        yield from stamps.places.values()


def close(store: Store) -> None:
    """Nothing of the job's own is left. It is over with one rename: with a part of this it would be folded again."""
    for path in (store.layout.job, store.layout.alive):
        commit.remove_file(store.door, path, durable=False)
    shutil.rmtree(store.layout.nodes_over, ignore_errors=True)
    store.door.rename(store.layout.nodes, store.layout.nodes_over)
    shutil.rmtree(store.layout.nodes_over, ignore_errors=True)


def job_run(store: Store) -> int:
    """The number that all of the job's indexes have as their run."""
    found = commit.read_file(store.door, os.path.join(store.layout.nodes, b"run"))
    return int(found)


def _reason(reasons: list[str]) -> str:
    """Of several ends the worst: a job is interrupted where one of its runs is."""
    worst = [*(each for each in reasons if each == resume_point.REQUEUED),
             *(each for each in reasons if each.startswith("killed")),
             *(each for each in reasons if each != resume_point.END)]
    return worst[0] if worst else resume_point.END
