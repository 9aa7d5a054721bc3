"""Where an interrupted run is gone on from: its last checkpoint, or the state that it began with.

What a run left behind when it was killed, was requeued or failed is an index too; but the program's own idea of where
it is does not belong to it. So those are passed over, and the run's own checkpoints are not. A run that ended by itself
with status 0 is complete: nothing of it is taken back.
"""

from __future__ import annotations

from metamori.store.store import Store

END = "end of run"
REQUEUED = "requeued"


def point(store: Store, with_memory: bool = False) -> int | None:
    """The index to go on from, on the branch that the files are on; None when nothing was interrupted.

    with_memory: only a checkpoint that holds the program's memory counts as one.
    """
    here = _branch(store)
    if not here or store.meta(here).reason == END:
        return None
    interrupted = store.meta(here).run
    for index in store.history.chain(here):
        if index == 0 or store.meta(index).run != interrupted or is_checkpoint(store, index, with_memory):
            return index
    return None


def is_checkpoint(store: Store, index: int, with_memory: bool = False) -> bool:
    """Whether an index was asked for, by the program, a person, the timer or a signal."""
    meta = store.meta(index)
    return meta.reason == "checkpoint" and (bool(meta.memory) or not with_memory)


def _branch(store: Store) -> int:
    """Where the run stopped. Killed in isolation, its files are where it began, and its checkpoints are ahead."""
    head, newest = store.head.index, store.newest
    if newest and store.meta(newest).isolate and store.meta(newest).reason != END \
            and head in store.history.chain(newest):
        return newest
    return head
