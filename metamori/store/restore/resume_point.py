"""Where an interrupted run is continued from: its last checkpoint, or the state that it began with.

What a run left behind when it was killed, was requeued or failed is an index too; but the program's own idea of where
it is does not belong to it. So those are passed over, and the run's own checkpoints are not. A run that ended by itself
with status 0 is complete: nothing of it is taken back, also if others that outlived its first process are killed.

What somebody changed outside of runs is an index of no run (though it has the number of the one before, whose buffer
holds its bytes): whether a run was interrupted is asked of what is below it.
"""

from __future__ import annotations

import os

from metamori.store.format.records import END
from metamori.store.read.store import Store
from metamori.store.restore import memory_records
from metamori.store.restore.partial_checkpoint import REASON as IN_PART

__all__ = ["BEFORE_RESTORE", "BEFORE_RUN", "END", "REQUEUED", "first_end", "is_checkpoint", "needs", "point"]

REQUEUED = "requeued"
BEFORE_RUN = "start of run"                # somebody's own changes, recorded when a run began
BEFORE_RESTORE = "before restore"          # or when a restore was to move the files away from them
RESUME_AT = b"METAMORI_RESUME_AT="         # in the environment that is recorded of a run's command: its --resume-at


def point(store: Store, with_memory: bool = False, named: str = "*") -> int | None:
    """The index to continue from, on the branch that the files are on; None when nothing was interrupted.

    with_memory: only a checkpoint that holds the program's memory counts as one. named: only one whose message fits.
    """
    return _point(store, _branch(store), with_memory, named)


def needs(store: Store, here: int | None = None) -> set[int]:
    """What pruning leaves of an interrupted run, and of one that others outlived: where it is continued from, and the
    end that tells whether it is. here: the newest of a run that has not ended: the files are not there yet.
    """
    here = _branch(store) if here is None else here
    needed = (_point(store, here), _point(store, here, named=_named(store, here)), first_end(store, here))
    return {index for index in needed if index is not None and here and index in store.indexes}    # 0 may be pruned


def _point(store: Store, here: int, with_memory: bool = False, named: str = "*") -> int | None:
    if not here or store.meta(first_end(store, here)).reason == END:
        return None
    run = store.meta(here).run
    return next(index for index in store.history.ancestors(here)
                if not index or store.meta(index).run != run or is_checkpoint(store, index, with_memory, named))


def _named(store: Store, here: int) -> str:
    """The --resume-at that the run of an index was started with."""
    for index in store.history.ancestors(here):
        if not index or store.meta(index).run != store.meta(here).run:
            break
        for launch in store.meta(index).launch:
            return next((os.fsdecode(each.removeprefix(RESUME_AT)) for each in reversed(launch.env)
                         if each.startswith(RESUME_AT)), "*")
    return "*"


def first_end(store: Store, here: int) -> int:
    """The index that tells how the first process of the run ended; `here` where none does. The end of others that
    outlived it comes later, and so does each completion that was killed."""
    first = here
    for index in store.history.ancestors(here):
        if not index or store.meta(index).run != store.meta(here).run:
            break
        if _is_end(store.meta(index).reason):
            first = index
    return first


def _is_end(reason: str) -> bool:
    return reason in (END, REQUEUED) or reason.startswith((f"{END}, status", "killed"))


def is_checkpoint(store: Store, index: int, with_memory: bool = False, named: str = "*") -> bool:
    """Whether an index was asked for, by the program, a person, the timer or a signal."""
    from fnmatch import fnmatchcase  # it takes `re`

    meta = store.meta(index)
    return meta.reason == "checkpoint" and (bool(meta.memory) or not with_memory) and fnmatchcase(
        meta.message, named) and not memory_records.is_missing(store, index, meta.message)


def _without_changes(store: Store, index: int) -> int:
    """The index that somebody's own changes were made on top of."""
    while index and store.meta(index).reason in (BEFORE_RUN, BEFORE_RESTORE, IN_PART):
        index = store.meta(index).parent
    return index


def _branch(store: Store) -> int:
    """Where the run stopped. Killed in isolation, its files are where it began, and its checkpoints are ahead."""
    newest = next((index for index in reversed(store.indexes) if index == _without_changes(store, index)), 0)
    head = _without_changes(store, store.head.index)
    if newest and store.meta(newest).isolate and store.meta(newest).reason != END \
            and head in store.history.ancestors(newest):
        return newest
    return head
