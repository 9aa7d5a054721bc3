"""The files of the run: a level checkpoint contains the file checkpoint, if the program runs under `metamori run`.

One process per store (the leader) speaks for all that share it; the others wait in a barrier, so that the files of all
ranks and the memory of all ranks are of one instant.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import Any

from metamori.errors import MetamoriError
from metamori.runtime.job import folder
from metamori.store.format.layout import Layout
from metamori.store.restore import memory_records


@dataclass(frozen=True, slots=True)
class Standing:
    """A store as a job finds it: its key and number, and the indexes from its first to where its files are now."""

    key: str
    number: str
    reachable: set[int]


class Files:
    """Of this process. `active` is False for a program that runs by itself."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self.active = hasattr(self._library, "metamori_v1_active") and self._library.metamori_v1_active(0) > 0
        own = os.environ.get("METAMORI_STORE", "") if self.active else ""
        self.store = folder.job_of(own)    # all nodes' where the run is one of a job: one index for all
        self.is_of_job = self.store != own
        self.key = self.store              # by which the job's records know the store
        self.leader = False
        self.anywhere = self.active        # whether any process of the job has a store

    def elect(self, comm: Any, node: int) -> None:
        """Choose one process of each store. Everybody of the job calls it. node: this process's, by number."""
        host = "" if self.is_of_job else os.uname().nodename
        stores = comm.allgather((host, self.store) if self.active else None)
        if len({each[0] for each in stores if each and each[1] == self.store}) > 1:
            self.key = f"{self.store}@{node}"   # every host has one of this name
        self.anywhere = any(stores)
        self.leader = self.active and stores.index((host, self.store)) == comm.rank

    def leave_alone(self, *paths: str) -> None:
        """The levels' own files are no files of the run."""
        if self.active:
            for path in paths:
                for each in {os.path.abspath(path), os.path.realpath(path)}:
                    self._call("metamori_v1_ignore", os.fsencode(each))

    def opened(self) -> Any:
        """The store, to be read beside its run. MetamoriError."""
        from metamori.runtime.area.unwritten import beside_runs
        from metamori.store.read.store import Store

        return beside_runs(Store.open(self.store))

    def standing(self) -> Standing:
        """Of this process's store.

        A memory that belongs to another branch would not fit the files that the user has gone back to.
        """
        store = self.opened()
        return Standing(self.key, f"{store.layout.id:08x}", set(store.history.chain(store.head.index)))

    def flush(self) -> None:
        """What this process has buffered in its streams belongs to the instant."""
        if self.active:
            self._library.fflush(None)

    def checkpoint(self, message: str) -> int:
        """By the leader: the store's new index."""
        if self.is_of_job and not os.path.exists(Layout(self.store).levels):   # only a new start brings files back
            memory_records.begin(self.opened())
        return self._call("metamori_checkpoint_message", message.encode())

    def back(self, index: int) -> None:
        """By the leader: the files of all of the run's processes are those of an index; descriptors stay open."""
        if self.is_of_job:
            self._require_at(index)
            return
        self._call("metamori_v1_files_back", ctypes.c_int(index))

    def _require_at(self, index: int) -> None:
        """A job's files go back before its programs start; here it is only seen that they did."""
        from metamori.runtime.job import finish

        store = self.opened()
        if finish.parent_of(store, finish.job_run(store)) != index or store.changed_outside():
            raise MetamoriError(f"with --job they go back before the programs start: 'metamori restore --store "
                                f"{self.store} {index}' or run --resume-at 'level *', and FTI_Recover before "
                                "anything changes")

    def open_files(self) -> list[tuple[int, str]]:
        """Descriptors of this process on regular files, with the names that those have."""
        found = []
        if self.active:
            for number in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    path = os.readlink(f"/proc/self/fd/{number}")
                    if path.startswith("/") and stat.S_ISREG(os.fstat(int(number)).st_mode):
                        found.append((int(number), path))
        return found

    def follow(self, before: list[tuple[int, str]]) -> None:
        """A name may be another file's now (a truncated one was put aside): its descriptors go there with it."""
        for number, path in before:
            with contextlib.suppress(FileNotFoundError):
                here, there = os.fstat(number), os.stat(path)
                if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
                    _reopen(number, path)

    def _call(self, name: str, argument: Any) -> int:
        ctypes.set_errno(0)
        result: int = getattr(self._library, name)(argument)
        if result < 0:
            number = ctypes.get_errno() or errno.EIO
            raise OSError(number, os.strerror(number))
        return result


def _reopen(number: int, path: str) -> None:
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    fresh = os.open(path, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC) | os.O_CLOEXEC)
    try:
        os.lseek(fresh, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(fresh, number, inheritable=os.get_inheritable(number))
    finally:
        os.close(fresh)
