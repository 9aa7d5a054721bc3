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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metamori.store.store import Store

__all__ = ["active", "checkpoint", "open_store", "restore"]


def checkpoint(message: str | None = None) -> int:
    """Take the run's next checkpoint from inside this program; its index (metamori.h: metamori_checkpoint).

    OSError: ENOSYS (not under ``metamori run``), EAGAIN (a process does not come to rest), ENOSPC, EIO.
    Files that Python has open are flushed by their own ``flush()``; do that first where it matters.
    """
    from metamori.runtime import inside

    return inside.checkpoint(message)


def restore(index: int) -> None:
    """Bring files, names and descriptors back to a checkpoint that this process took part in (metamori_restore).

    OSError: EINVAL, ESRCH, EBUSY, ENOSYS, ENOSPC, EIO.
    """
    from metamori.runtime import inside

    inside.restore(index)


def active() -> bool:
    """Whether this program runs under Metamori."""
    from metamori.runtime import inside

    return inside.active()


def open_store(path: str | os.PathLike[str]) -> Store:
    """A store, for reading its history, states and files. NoStore when there is none."""
    from metamori.store.store import Store

    return Store.open(os.fspath(path))
