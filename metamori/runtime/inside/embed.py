"""What the shim asks of the embedded Python (shim_c/src/process/runtime.h).

Converts, catches, answers with -errno; decides nothing.
"""

from __future__ import annotations

import errno
import gc
import os
import time
import traceback
from collections.abc import Callable

from metamori._area import ffi, lib
from metamori.config import Config
from metamori.errors import MetamoriError, StoreBusy
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint import auto_prune
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.lifecycle import end_run
from metamori.runtime.lifecycle.start_run import begin
from metamori.runtime.rollback import resumed_job, rollback
from metamori.store.read.store import Store

PATIENCE_S = 10.0
gc.set_threshold(100_000)                  # as the verbs do (cli/main.py): a checkpoint of many files makes what stays
_sessions: dict[tuple[int, str], Session] = {}


def _session(path: str) -> Session:
    """The run of this process's store; after a fork a new one, since descriptors and locks are the parent's."""
    key = (os.getpid(), path)
    found = _sessions.get(key)
    if found is None:
        _sessions.clear()
        found = _sessions[key] = Session(Store.open(path), Area(path))
    return found


def answer(what: int, argument: int, data: int, store: bytes) -> int:
    """The result, or -errno."""
    path = os.fsdecode(store)
    try:
        return _answer(what, argument, data, path)
    except Exception as error:             # the program under us must not notice more than an errno
        if "METAMORI_DEBUG" in os.environ:
            _write(traceback.format_exc())
        if isinstance(error, MetamoriError):   # the kernel's own errno, where there is one behind it
            cause = error.__cause__
            return -((isinstance(cause, OSError) and cause.errno) or error.errno)
        return -(error.errno or errno.EIO) if isinstance(error, OSError) else -errno.EIO
    finally:
        for session in _sessions.values():
            session.store.buffers.close()  # the low descriptor numbers are the program's


def _answer(what: int, argument: int, data: int, path: str) -> int:
    if what == lib.MM_CALL_BEGIN:
        return _begin(path)
    if what == lib.MM_CALL_CHECKPOINT:
        message = ffi.string(ffi.cast("const char *", data)).decode(errors="surrogateescape") if data else ""
        return _aloud(path, lambda session: session.checkpoint(message))
    if what == lib.MM_CALL_RESTORE:
        rollback.roll_back(_session(path), argument, os.getpid(), ffi.cast("struct mm_actions *", data))
        return 0
    if what == lib.MM_CALL_RESTORED:
        rollback.go_on(_session(path))
        return 0
    if what == lib.MM_CALL_PRUNE:
        return _aloud(path, lambda session: auto_prune.make_room(session, bool(argument)))
    if what == lib.MM_CALL_FILES_BACK:
        resumed_job.files_back(_session(path), argument)
        return 0
    if what == lib.MM_CALL_LAST_OUT:
        return _last_out(path, argument)
    return -errno.ENOSYS


def _aloud(path: str, work: Callable[[Session], int]) -> int:
    """The result; a person is told what there is to tell of it."""
    session = _session(path)
    try:
        return work(session)
    finally:
        if session.said:
            _say(session.said)
        session.said = ""


def _begin(path: str) -> int:
    """By hand in LD_PRELOAD: whoever comes first makes the run; the lock is held only meanwhile."""
    store = Store.create_or_open(path)
    _lock(store)
    try:
        area = os.path.join(path, "run")
        if os.path.exists(area) and Area(path).is_peopled():
            return 0
        session, said = begin(store, Config.make({"store": path}))
        pid = os.getpid()                  # in it before the lock goes: a run without processes is a killed one
        lib.mm_process_join(session.area.pointer, pid, lib.mm_start_time(pid), 0)
        session.area.close()
        if said:
            _say(said)
    finally:
        store.close()
    return 0


def _lock(store: Store) -> None:
    """Another process that begins the same run, or a verb that looks, has the lock for a moment only."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            return store.lock()
        except StoreBusy:
            if time.monotonic() > limit:
                raise
        time.sleep(0.01)


def _say(text: str) -> None:
    from metamori.printed import line_text

    _write(f"metamori: {line_text(text)}\n")


def _write(text: str) -> None:
    """On the program's stderr: this thread's own descriptors are not the program's (runtime.c)."""
    try:
        fd = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return                             # a socket, or closed: nobody is there to read it
    try:
        os.write(fd, text.encode(errors="surrogateescape"))
    finally:
        os.close(fd)


def _last_out(path: str, run: int) -> int:
    """The last process of a run by hand: what `metamori run` does otherwise. Several may be the last at once.

    1: the run is over. 0: another process will end it, and until then this one is tracked.
    """
    session = _session(path)
    head = session.area.head
    _lock(session.store)
    try:
        if head.run != run or head.flags & lib.MM_CLOSED:
            return 1                       # another one has done it
        if not end_run.close_if_empty(session.area):
            return 0
        end_run.finish(session, end_run.END, killed=False, over=True)
        end_run.close(session)
    finally:
        session.store.unlock()
        _sessions.clear()
    return 1
