"""Files sent from the node to the parallel file system while the program goes on (FTI_SendFile and its like).

States of a request: pending -> active -> succeeded or failed; the question that gets one of the last two forgets it.
A thread of this process copies; it makes no MPI call. Source: FTI manual, FTI_SendFile, FTI_GetStageStatus.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading

from metamori.errors import Usage
from metamori.levels.setup.paths import Paths
from metamori.levels.setup.settings import Settings

NONE, PENDING, ACTIVE, DONE, FAILED = 0, 1, 2, 3, 4


class Stage:
    """This process's requests."""

    def __init__(self, settings: Settings, paths: Paths) -> None:
        self.settings, self.paths = settings, paths
        self.states: dict[int, int] = {}
        self.lock = threading.Lock()
        self.todo: queue.SimpleQueue[tuple[int, str, str]] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.last = -1

    def folder(self) -> str:
        """The local folder for files that are to be sent. Usage unless enable_staging = 1."""
        if not self.settings.enable_staging:
            raise Usage("staging is not enabled (enable_staging = 1)")
        os.makedirs(self.paths.stage, exist_ok=True)
        return self.paths.stage

    def send(self, local: str, remote: str) -> int:
        """Ask for a copy; the number of the request. Usage when there is no such file."""
        self.folder()
        if not os.path.isfile(local):
            raise Usage(f"there is no file {local} to be sent")
        with self.lock:
            self.last += 1
            number = self.last
            self.states[number] = PENDING
        self.todo.put((number, os.path.abspath(local), os.path.abspath(remote)))
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(target=self._work, daemon=True)
            self.thread.start()
        return number

    def status(self, number: int) -> int:
        with self.lock:
            state = self.states.get(number, NONE)
            if state in (DONE, FAILED):
                del self.states[number]
            return state

    def wait(self) -> None:
        """Until every request is through."""
        thread = self.thread
        if thread is not None:
            self.todo.put((-1, "", ""))
            thread.join()
            self.thread = None

    def _work(self) -> None:
        while True:
            number, local, remote = self.todo.get()
            if number < 0:
                return
            self._note(number, ACTIVE)
            try:
                copy(local, remote, self.settings.transfer_size << 20)
                self._note(number, DONE)
            except OSError:
                self._note(number, FAILED)

    def _note(self, number: int, state: int) -> None:
        with self.lock:
            self.states[number] = state


def copy(local: str, remote: str, step: int) -> None:
    """A durable copy, in one step under its name; a part of one is never left."""
    partial = f"{remote}.{os.getpid()}.part"
    source = os.open(local, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            while data := os.read(source, step):
                view = memoryview(data)
                while view:
                    view = view[os.write(target, view):]
            os.fsync(target)
        finally:
            os.close(target)
        os.rename(partial, remote)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    finally:
        os.close(source)
