"""Take a checkpoint of the live run, from another terminal or from the run's own script; prints its index."""

from __future__ import annotations

import argparse
import errno
import os
from typing import TYPE_CHECKING

from metamori.errors import MetamoriError, NoLiveRun, Usage, sentence

if TYPE_CHECKING:
    from metamori.runtime.area.run_area import Area
    from metamori.runtime.checkpoint.session import Session

_STOPS = 50                            # tries to have all of them, where new ones come


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--message", default="", metavar="TEXT",
                        help="a message that log shows, up to 4095 bytes")
    parser.add_argument("--stop", action="store_true",
                        help="stop the threads of programs without the library (static ones) for that moment, so that "
                             "what they write is of one instant too. Calls like epoll_wait may return EINTR there. "
                             "Not in a job")


def run(arguments: argparse.Namespace) -> int:
    from metamori._area import lib
    from metamori.cli import output
    from metamori.runtime.job import folder

    if len(_bytes(arguments.message)) >= lib.MM_MESSAGE:
        raise Usage(f"a message has up to {lib.MM_MESSAGE - 1} bytes")
    folder.require_store(arguments.store)
    above = folder.job_of(os.path.abspath(arguments.store))
    if folder.is_live(above):
        from metamori.runtime.job import member

        if arguments.stop:
            raise Usage("--stop is not possible in a job: its runs take the checkpoint")
        index = member.ask(above, arguments.message)
        output.result(arguments, {"index": index}, str(index))
        return 0
    index = take(os.path.abspath(arguments.store), arguments.message, arguments.stop)
    output.result(arguments, {"index": index}, str(index))
    return 0


def take(path: str, message: str, stop: bool = False) -> int:
    """The new index. NoStore, NoLiveRun."""
    from metamori._area import lib
    from metamori.cli import output
    from metamori.runtime.area.run_area import Area
    from metamori.runtime.checkpoint.session import Session
    from metamori.store.read import create
    from metamori.store.read.store import Store

    store = Store.open(path)
    try:
        area = Area(path)
    except OSError:
        raise NoLiveRun(f"no run is alive in {path}; metamori run -- COMMAND begins one") from None
    try:
        if not create.is_in_place(store.door, store.layout):
            raise NoLiveRun(f"no run is alive in {path}: it is a copy of the store of one")
        alive = area.is_peopled() or area.is_supervised()
        if not alive and os.path.lexists(area.path):   # else it has ended since
            raise NoLiveRun(f"no run is alive in {path}; the last one was killed")
        area.require_going_on()
        if area.head.flags & lib.MM_MEMORY and area.is_supervised():
            return _asked(area, message)
        session = Session(store, area)
        index = _with_stopped(session, message) if stop else session.checkpoint(message)
        if session.said:
            output.say(session.said)
        return index
    except OSError as error:
        raise MetamoriError(f"no checkpoint was taken: {sentence(error)}") from error
    finally:
        area.close()
        store.close()


def _bytes(message: str) -> bytes:
    return message.encode(errors="surrogateescape")


def _with_stopped(session: Session, message: str) -> int:
    """NotAtRest. One command at a time: a thread has one tracer."""
    import fcntl

    from metamori.runtime.area.run_area import NotAtRest
    from metamori.runtime.checkpoint.stop_writers import MoreWriters, StoppedWriters

    session.stopped = StoppedWriters(session.area)
    turn = os.open(session.area.path, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for _ in range(_STOPS):
            session.stopped.stop()
            try:
                return session.checkpoint(message)
            except MoreWriters:
                continue
            finally:
                session.stopped.go()
    finally:
        os.close(turn)
    raise NotAtRest("other programs begin to write all the time: no checkpoint was taken")


def _asked(area: Area, message: str) -> int:
    """`metamori run` takes it: the program's memory is its child's."""
    from metamori._area import ffi, lib

    index = lib.mm_request(area.pointer, lib.MM_CALL_CHECKPOINT, 0, _bytes(message))
    if index == -errno.ESRCH:              # it ended instead
        raise NoLiveRun(f"no run is alive in {os.path.dirname(area.path)}; the last one is just ending")
    if index < 0:
        why = ffi.string(area.head.request.message).decode(errors="replace")
        raise MetamoriError(f"no checkpoint was taken: {why or os.strerror(-index)}")
    return index
