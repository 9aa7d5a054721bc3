"""Where a store is, and who may write to it.

States of the lock: none -> lock() -> held -> unlock() -> none.
"""

from __future__ import annotations

import errno
import os

from metamori.errors import StoreBusy
from metamori.store.format.layout import Layout
from metamori.store.io import commit
from metamori.store.io.os_io import Door


class StoreLock:
    """The folder of a store and its lock, which goes with the process that holds it."""

    def __init__(self, path: str | bytes, door: Door) -> None:
        self.layout = Layout(path)
        self.door = door
        self._lock_fd = -1

    @property
    def path(self) -> str:
        """Absolute."""
        return os.fsdecode(self.layout.root)

    @property
    def is_locked(self) -> bool:
        """Whether this process has it."""
        return self._lock_fd >= 0

    def lock(self) -> None:
        """Take the lock for this process until `unlock`; StoreBusy when another has it."""
        if self.is_locked:
            return
        fd = self.door.open(self.layout.lock, os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
        try:
            if not self.door.flock(fd):
                raise StoreBusy(f"the store {self.path} is in use by a live run or another command")
            self.door.fchmod(fd, commit.PRIVATE_FILE)
        except BaseException:
            self.door.close(fd)
            raise
        self._lock_fd = fd

    def unlock(self) -> None:
        if self.is_locked:
            self.door.close(self._lock_fd)
            self._lock_fd = -1

    def retake(self) -> None:
        """A lock that is held, where the filesystem has given it away: unless another has it by now. OSError."""
        fd = self.door.open(self.layout.lock, os.O_RDWR)
        try:
            if self.is_locked and self.door.flock(fd):
                fd, self._lock_fd = self._lock_fd, fd  # else the one that we have is in its way
        finally:
            self.door.close(fd)

    def is_busy(self) -> bool:
        """Whether somebody else holds the lock right now."""
        if self.is_locked:
            return False
        try:
            self.lock()
        except (StoreBusy, PermissionError):
            return True
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            return self._is_busy_elsewhere()
        self.unlock()
        return False

    def _is_busy_elsewhere(self) -> bool:
        """The same of a filesystem that is for reading only here: another mount of it may not be."""
        fd = self.door.open(self.layout.lock, os.O_RDONLY)
        try:
            return not self.door.flock(fd)
        finally:
            self.door.close(fd)

    def unfinished(self) -> list[str]:
        """What a kill left to be done, as messages; none of it is damage."""
        found = []
        if any(commit.exists(self.door, path) for path in (self.layout.intent, self.layout.leaving)):
            found.append("a restore was interrupted; the next command that writes completes it")
        if commit.exists(self.door, self.layout.prune):
            found.append("a prune was interrupted; the next command that writes completes it")
        if commit.exists(self.door, self.layout.run_area):
            found.append("a run is alive" if self.is_busy() else
                         "a run was killed; the next command that writes completes it")
        if commit.exists(self.door, self.layout.nodes):
            found.append("a job is alive" if self.is_busy() else
                         "a job was killed; the next command that writes completes it")
        return found
