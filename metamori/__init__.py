"""Incremental checkpoints of files under unmodified programs, rolled back to any index.

In a Python program that runs under ``metamori run``::

    import metamori
    index = metamori.checkpoint("before the risky part")
    ...
    metamori.restore(index)

Anywhere: ``metamori.open_store(path)`` reads a store. Nothing is imported before it is needed.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False                      # typing takes milliseconds
if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from metamori.reading import History
    from metamori.runtime.inside.trial import Trial

__all__ = ["active", "checkpoint", "open_store", "restore", "trial"]


def checkpoint(message: str | None = None) -> int:
    """Take the run's next checkpoint from inside this program; its index (metamori.h: metamori_checkpoint).

    OSError, with what errno can be there; EINVAL for a message of more than 4095 bytes.
    Files that Python has open are flushed by their own ``flush()``; do that first where it matters.
    """
    from metamori.runtime.inside import client

    return client.checkpoint(message)


def restore(index: int) -> None:
    """Bring files, names and descriptors back to a checkpoint that this process took part in (metamori_restore).

    OSError, with what errno can be there.
    """
    from metamori.runtime.inside import client

    client.restore(index)


def active() -> bool:
    """Whether this program runs under Metamori."""
    from metamori.runtime.inside import client

    return client.active()


def trial(message: str | None = None) -> AbstractContextManager[Trial]:
    """A block whose files are undone when an exception leaves it, or when it calls `undo()`::

        with metamori.trial("larger step") as attempt:
            solve(step=0.2)
            if not converged():
                attempt.undo()

    Files that the block opened are closed then, and those that were open before are where they were. Memory stays as it
    is. OSError as for `checkpoint`; EOPNOTSUPP in a run with --memory, where the whole program goes back.
    """
    from metamori.runtime.inside import trial as trials

    return trials.trial(message)


def load_ipython_extension(shell: object) -> None:
    """``%load_ext metamori``: the cell magic ``%%trial [MESSAGE]``, for a kernel that runs under ``metamori run``."""
    from metamori.runtime.inside import trial as trials

    trials.add_magic(shell)


def open_store(path: str | os.PathLike[str] = ".metamori") -> History:
    """A store, for reading its history, its states and its files. NoStore when there is none.

    What a kill left unfinished is left so: `metamori log` completes it.
    """
    from metamori.reading import History
    from metamori.runtime.area.unwritten import beside_runs
    from metamori.store.read.store import Store

    return History(beside_runs(Store.open(os.path.abspath(os.fspath(path)))))
