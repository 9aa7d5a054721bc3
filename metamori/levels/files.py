"""The files of the run: a level checkpoint contains the file checkpoint, if the program runs under `metamori run`.

One process per store (the leader) speaks for all that share it; the others wait in a barrier, so that the files of all
ranks and the memory of all ranks are of one instant.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any


class Files:
    """Of this process. `active` is False for a program that runs by itself."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self.active = hasattr(self._library, "metamori_v1_active") and self._library.metamori_v1_active(0) > 0
        self.store = os.environ.get("METAMORI_STORE", "") if self.active else ""
        self.leader = False

    def elect(self, comm: Any) -> None:
        """Choose one process of each store. Everybody of the job calls it."""
        host = os.uname().nodename
        stores = comm.allgather((host, self.store) if self.active else None)
        self.leader = self.active and stores.index((host, self.store)) == comm.rank

    def leave_alone(self, *paths: str) -> None:
        """The levels' own files are no files of the run."""
        if self.active:
            for path in paths:
                self._call("metamori_v1_ignore", os.fsencode(os.path.abspath(path)))

    def flush(self) -> None:
        """What this process has buffered in its streams belongs to the instant."""
        if self.active:
            self._library.fflush(None)

    def checkpoint(self, message: str) -> int:
        """By the leader: the store's new index."""
        return self._call("metamori_checkpoint_message", message.encode())

    def back(self, index: int) -> None:
        """By the leader: the files of all of the run's processes are those of an index; descriptors stay open."""
        self._call("metamori_v1_files_back", ctypes.c_int(index))

    def _call(self, name: str, argument: Any) -> int:
        ctypes.set_errno(0)
        result: int = getattr(self._library, name)(argument)
        if result < 0:
            number = ctypes.get_errno() or errno.EIO
            raise OSError(number, os.strerror(number))
        return result
