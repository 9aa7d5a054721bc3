"""A live run as `metamori run` and `metamori restart` follow it: its checkpoints, its calls, its end.

In a run with memory the program's own calls come here: a runtime inside the program would be rolled back with it.
A call for a rollback ends the program's process; the run goes on in a new one, brought back from the index.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from metamori._area import ffi, lib
from metamori.config import Config
from metamori.errors import RUN_FAILED, MetamoriError, sentence
from metamori.runtime.area import launch_record, scope
from metamori.runtime.checkpoint import auto_prune
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.lifecycle import child_loop, end_run
from metamori.runtime.lifecycle.on_checkpoint import OnCheckpoint
from metamori.runtime.lifecycle.start_run import begin
from metamori.runtime.lifecycle.store_removed import Watch
from metamori.store.read.store import Store
from metamori.store.restore import restore, resume_point
from metamori.tables.history import spans_text

TYPE_CHECKING = False
if TYPE_CHECKING:                          # most runs need none of these
    import signal
    from typing import Protocol

    from metamori.runtime.lifecycle import proxy

    class Job(Protocol):
        """Of which the run is one (runtime/job/member.py): it takes the checkpoints."""

        @property
        def counts(self) -> bool: ...

        def checkpoint(self, message: str) -> int: ...

        def requeue(self, request: Callable[[], None]) -> None: ...

        def has_checkpoint(self, named: str) -> bool: ...

        def leave(self) -> None: ...

        def outlives(self, files: list[tuple[int, int]], is_over: bool) -> None: ...
else:
    import _signal as signal

_ENDED, _GONE = "the program has ended", "the store of the run was removed or moved"
_BEGINS_S = 10.0
_HALF_WAY_S = 60.0                         # somebody may make room meanwhile


class NobodyLeft(MetamoriError):
    """The program was ended: its new process after a rollback does not start, or its files are half way for good."""


class StoreGone(MetamoriError):
    """The store of the run was removed under it."""


class Live:
    """The run and its process; both are others after a rollback."""

    job: Job | None = None

    def __init__(self, session: Session, config: Config, pid: int, environ: dict[str, str]) -> None:
        self.config, self.environ = config, environ
        self._go_on_with(session, pid)
        self.keeper: proxy.Keeper | None = None
        self.on_checkpoint = OnCheckpoint(config.on_checkpoint, session.store.newest)
        self._said = ""
        self._requeued = False
        self._is_gone = False
        self._term_answered = False
        self._half_way_since = 0.0

    def _go_on_with(self, session: Session, pid: int) -> None:
        self.session, self.pid = session, pid
        session.outside = self.config.outside
        self._store_watch = Watch(session.store, session.area)

    def run(self) -> int:
        """Until the program ends by itself; its wait status."""
        return child_loop.watch(self.pid, self.config.every, self.config.on_signal, self.checkpoint,
                               self.signalled, self.serve if self.config.memory or self.job else None,
                               lambda due: launch_record.note_due(self.session.area, due),
                               self.terminated if self.config.on_term else None, self.look)

    def look(self) -> None:
        """Each second."""
        child_loop.say_for(self.session)
        self.look_at_store()
        if not self._is_gone:
            self.look_at_restore()
            self.on_checkpoint.look(self.session.store, self.session.area.head.newest)
            if why := self.look_at_proxy():
                self._tell(why)
        elif self.job:
            self._store_watch.tell(self.job)

    def look_at_restore(self) -> None:
        """A verb may have been killed while it moved the run's files; its programs wait until that is carried through.
        NobodyLeft where it cannot be: half of the files are at another index, and nothing may be made of them."""
        if not self.session.area.head.restoring:
            self._half_way_since = 0.0
            return
        from metamori.runtime.rollback import live_rollback

        try:
            live_rollback.carry_through(self.session)
        except (MetamoriError, OSError) as error:
            self._tell(f"a killed restore cannot be carried through: {sentence(error)}")
            now = time.monotonic()
            self._half_way_since = self._half_way_since or now
            if self.session.area.head.restoring and now - self._half_way_since >= _HALF_WAY_S:
                self._end_all(returns=False)
                raise NobodyLeft("the run has ended: a killed restore could not be carried through: "
                                 f"{sentence(error)}; 'metamori log' completes it") from None
        else:
            self._half_way_since = 0.0     # or somebody is at it

    def look_at_proxy(self) -> str:
        """It makes the calls of programs without the library, where there are such. What a person must know, or ""."""
        if self.keeper is None and self.session.area.head.untracked and not self.job:
            from metamori.runtime.lifecycle.proxy import Keeper

            self.keeper = Keeper()
        return self.keeper.look(self.session.area, self.environ) if self.keeper else ""

    def look_at_store(self) -> None:
        """When the run area is gone: what is redirected is written back at once, and a person is told."""
        if self._is_gone or not self._store_watch.is_gone():
            return
        self._is_gone = True
        if self.job:
            self.job.leave()               # else no run of it had a checkpoint any more
        text = (f"the store {self.session.store.path} of this run was removed or moved: no checkpoint can be taken "
                "any more, and what it held is lost. The command continues without it; ")
        try:
            failed = self._store_watch.write_back(self.job)
        except (MetamoriError, OSError) as error:
            child_loop.say(f"{text}its files are written back at its end ({sentence(error)})")
            return
        child_loop.say(text + (f"what it wrote could not be written back to {', '.join(map(os.fsdecode, failed[:5]))}"
                              if failed else "all that it wrote is in its files") + "; this run ends with 125")

    def checkpoint(self) -> None:
        """By the timer. What is wrong is said once, not at every tick."""
        if self.job and not self.job.counts:
            return                         # all have the same timer
        try:
            why = self._take()
        except _not_begun():
            return                         # too early by a moment; a program that never joins was named at its start
        if why not in ("", _ENDED, _GONE):   # in the same moment: there was nothing left to save
            self._tell(f"no checkpoint: {why}")

    def _take(self) -> str:
        """A checkpoint; why there is none, or "". NotBegun."""
        self.look_at_store()
        if self._is_gone:
            return _GONE
        self.look_at_restore()
        try:
            self._checkpoint("")
        except Exception as error:         # /proc of one that is about to be gone says half of what is asked
            if _has_ended(self.pid):
                return _ENDED
            if isinstance(error, _not_begun()):
                raise
            return sentence(error) if isinstance(error, MetamoriError | OSError) else f"{type(error).__name__}: {error}"
        self._said = ""
        child_loop.say_for(self.session)
        return ""

    def _checkpoint(self, message: str) -> int:
        return self.job.checkpoint(message) if self.job else self.session.checkpoint(message, with_memory=True)

    def _take_when_begun(self) -> str:
        """As `_take`, of a program that is about to begin too: whoever asked by a signal asks only once."""
        deadline = time.monotonic() + _BEGINS_S
        while True:
            try:
                return self._take()
            except _not_begun() as error:
                if time.monotonic() >= deadline:
                    return str(error)
                time.sleep(0.005)

    def terminated(self) -> None:
        """A SIGTERM that we got, or that the program holds back (memory/memory_glue.c): it goes on to it after a
        checkpoint, or after a message that there is none. Whoever ends a whole job sends it to both."""
        if why := self._take_when_begun():
            child_loop.say(f"no checkpoint was taken at SIGTERM: {why}")
        self._term_answered = True
        if self.config.requeue and not self._requeued and _is_preempted():
            self._requeue(not why)         # a preemption; Slurm ends the program
            if self._requeued:
                self.session.area.head.tree.term = 0
                return
        while signal.sigtimedwait({signal.SIGTERM}, 0):
            pass
        self.session.area.head.tree.term = 0   # one that comes from here on has a checkpoint of its own
        child_loop.pass_on(self.pid, signal.SIGTERM)

    def signalled(self) -> bool:
        """On --on-signal; whether the command is to have the signal too. Requeued it is not: Slurm ends it."""
        why = self._take_when_begun()
        if why not in ("", _ENDED, _GONE):
            self._tell(f"no checkpoint: {why}")
        if not self.config.requeue:
            return True
        self._requeue(not why)
        return False

    def _requeue(self, taken: bool) -> None:
        """If there is a checkpoint to continue from. What is wrong is said."""
        from metamori.runtime.lifecycle import slurm

        try:
            if not (taken and self.config.resume_at == "*") and not self._has_checkpoint():
                raise MetamoriError("the job is not requeued: there is no checkpoint to continue from")
            number = slurm.job()
            if self.job:
                self.job.requeue(lambda: slurm.requeue(number))
            else:
                slurm.requeue(number)
            self._requeued = True
        except (MetamoriError, OSError) as error:
            child_loop.say(sentence(error))

    def _has_checkpoint(self) -> bool:
        if self.job:
            return self.job.has_checkpoint(self.config.resume_at)
        store, parent = self.session.store, self.session.area.head.parent
        return any(resume_point.is_checkpoint(store, index, self.config.memory, self.config.resume_at)
                   for index in store.history.chain(parent) if index)

    def _tell(self, text: str) -> None:
        if text != self._said:
            child_loop.say(text)
        self._said = text

    def serve(self) -> int:
        """Answer a call, if there is one; the pid of the program's new process after a rollback, else 0."""
        area = self.session.area
        if area.head.tree.term == lib.MM_TERM_WAITS and not _has_ended(self.pid):
            self.terminated()
        if not lib.mm_request_pending(area.pointer):
            return 0
        request = area.head.request
        try:
            if request.what == lib.MM_CALL_CHECKPOINT:
                message = ffi.string(request.message).decode(errors="surrogateescape")
                lib.mm_request_answer(area.pointer, self._checkpoint(message))
                return 0
            if request.what == lib.MM_CALL_RESTORE:
                return self._roll_back(request.argument)
            prunes, again = request.what == lib.MM_CALL_PRUNE, bool(request.argument)
            lib.mm_request_answer(area.pointer, auto_prune.make_room(self.session, again) if prunes else -errno.ENOSYS)
            child_loop.say_for(self.session)
        except NobodyLeft:
            raise
        except MetamoriError as error:
            self._refuse(error.errno, str(error))
        except OSError as error:
            self._refuse(error.errno or errno.EIO, sentence(error))
        except Exception as error:         # a mistake of ours must not end the run that it is about
            self._refuse(errno.EIO, f"{type(error).__name__}: {error}")
        return 0

    def _refuse(self, number: int, why: str) -> None:
        """The caller gets the errno, a verb the words, and whoever watches the run too: an errno says little."""
        self._tell(f"no checkpoint: {why}" if self.session.area.head.request.what == lib.MM_CALL_CHECKPOINT else why)
        request = self.session.area.head.request
        text = why.encode(errors="replace")[:lib.MM_MESSAGE - 1] + b"\0"
        ffi.memmove(request.message, text, len(text))
        lib.mm_request_answer(self.session.area.pointer, -number)

    def _roll_back(self, index: int) -> int:
        """The present state becomes an index of its own; the program continues from `index`."""
        from metamori.runtime.lifecycle import process_restart
        from metamori.runtime.rollback.rollback import NotThere

        session, store = self.session, self.session.store
        store.refresh()
        store.require_restorable(index)
        if not index or not store.meta(index).memory:
            raise NotThere(f"checkpoint {index} does not hold the program's memory")
        process_restart.check(store, index)
        process_restart.check_free(store, index, session.area)
        session.stays = {index}
        self._end_all(returns=True)
        end_run.finish(session, f"rolled back to {index}", killed=True)
        first_index, term = session.area.head.first_index, session.area.head.tree.term
        self._store_watch.close()
        end_run.close(session, killed=True)
        try:
            self._go_on_with(*start_again(store, self.config, index, self.environ, first_index=first_index))
        except (MetamoriError, OSError) as error:      # there is nobody left to be told by an errno
            raise NobodyLeft(f"the run has ended: its program could not continue from checkpoint {index}: "
                             f"{sentence(error)}") from None
        self.session.area.head.tree.term = term    # one that the program had held back when it was ended
        return self.pid

    def _end_all(self, returns: bool) -> None:
        """Every process of the run, and what they start meanwhile. returns: it will want its ports again at once."""
        if returns:
            from metamori.runtime.memory import sockets
        deadline = time.monotonic() + _BEGINS_S
        while time.monotonic() < deadline:
            pids = {self.pid, *self.session.area.pids()}
            for pid in pids:
                with suppress(OSError):    # it has ended
                    if returns:
                        sockets.reset_at_end(pid)
                    os.kill(pid, signal.SIGKILL)
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
            time.sleep(0.001)
        while self.session.area.is_peopled() and time.monotonic() < deadline:
            for pid in self.session.area.pids():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)

    def end(self, status: int) -> None:
        """The run's last index, then its files written back."""
        if self.job:
            self.job.leave()
        session = self.session
        self.look_at_store()
        if self._is_gone:
            failed = self._store_watch.write_back(self.job, is_over=True)    # what was opened in between
            lacking = "".join(f"; {os.fsdecode(each)} lacks what was written last" for each in failed)
            raise StoreGone(f"the store {session.store.path} was removed while the command ran: nothing is recorded of "
                            f"this run{lacking}")
        self._store_watch.close()
        self.look_at_proxy()
        if self.keeper:
            self.keeper.await_end(session.area)
        deadline = time.monotonic() + 0.05
        while session.area.is_peopled() and time.monotonic() < deadline:
            time.sleep(0.002)              # helpers of the command that are on their way out
        is_last = self._close_run(status)
        child_loop.say_for(self.session)
        if written := scope.outside_text(*scope.outside(session.area)):
            child_loop.say(f"written outside of the scope, and not tracked: {written}")
        self._say_of_term(status)
        if is_last:
            with _waited_for(session.store):
                end_run.close(session, os.WIFSIGNALED(status))
        else:
            session.area.close()
        if os.WIFSIGNALED(status):
            self._say_what_is_left(self._reason(status))

    def _close_run(self, status: int) -> bool:
        """The last index. False: daemons stay, the last of which commits the rest."""
        session, killed = self.session, os.WIFSIGNALED(status)
        while True:
            is_last = end_run.close_if_empty(session.area)
            with _waited_for(session.store):
                end_run.finish(session, self._reason(status), killed, over=is_last)
            if is_last:
                return True
            session.area.flag(clear=lib.MM_SUPERVISED)
            if end_run.has_staying(session.area):
                session.area.head.supervisor = 0
                return False
            if killed and session.area.head.flags & lib.MM_ISOLATE:
                return True                # its files have gone back
            session.area.flag(lib.MM_SUPERVISED)   # who went amid this believed that we would

    def _reason(self, status: int) -> str:
        """What the last index says."""
        if self._requeued:
            return resume_point.REQUEUED
        if os.WIFSIGNALED(status):
            return f"killed by {_signal(os.WTERMSIG(status))}"
        code = os.waitstatus_to_exitcode(status)
        return f"{end_run.END}, status {code}" if code else end_run.END

    def _say_of_term(self, status: int) -> None:
        """A SIGTERM that nobody could take in hand: whoever relies on --on-term must hear that it did nothing."""
        if not self.config.on_term or self._term_answered:
            return
        if self.session.area.head.tree.term == lib.MM_TERM_WAITS:
            child_loop.say(f"no checkpoint was taken at SIGTERM: {_ENDED}")
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM:
            child_loop.say("no checkpoint was taken at SIGTERM: the program was just starting, or is not tracked")

    def _say_what_is_left(self, reason: str) -> None:
        if self.job:
            return
        from metamori.printed import word_text

        store = self.session.store
        store.refresh()                    # others prune, and so does the end
        place = word_text(store.path)
        child_loop.say(f"the command was {reason}; its files can be restored to checkpoints "
                      f"{spans_text(store.indexes, most=4)}: "
                      f"metamori restore --store {place} INDEX")
        last = newest_with_memory(store)
        if self.config.memory and last:
            child_loop.say(f"the program can continue from checkpoint {last}: "
                          f"metamori restart --store {place} {last}")


def follow(live: Live) -> int:
    """A run that has begun, to its end; the exit status of `run`."""
    status = live.run()
    try:
        live.end(status)
    except StoreGone as error:
        child_loop.say(str(error))
        return RUN_FAILED
    except (MetamoriError, OSError) as error:
        child_loop.say(f"the run's end could not be recorded: {sentence(error)}; 'metamori log' completes it")
        return RUN_FAILED
    finally:
        live.session.store.close()
    live.on_checkpoint.end(live.session.store.path)
    return child_loop.end_as(status)


@contextmanager
def _waited_for(store: Store) -> Iterator[None]:
    """The command has ended, and whoever started it waits for what is done here."""
    store.door.show(True)
    try:
        yield
    finally:
        store.door.show(False)


def _signal(number: int) -> str:
    """SIGKILL; the real-time ones have no names of their own."""
    import signal

    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _not_begun() -> type[MetamoriError]:
    """NotBegun, for whoever has an exception in hand; its module is of no use to a run without memory."""
    from metamori.runtime.memory.proc_inspect import NotBegun

    return NotBegun


def _is_preempted() -> bool:
    from metamori.runtime.lifecycle import slurm

    try:
        return slurm.is_running(slurm.job())
    except MetamoriError as error:
        child_loop.say(str(error))
        return False


def _has_ended(pid: int) -> bool:
    """A child of ours; it can be waited for as before, or in a moment: one that was killed first loses its memory."""
    try:
        os.readlink(f"/proc/{pid}/exe")
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except (ChildProcessError, FileNotFoundError):
        return True


def newest_with_memory(store: Store) -> int:
    """0 when no index holds memory."""
    return next((index for index in reversed(store.history.indexes) if index and store.meta(index).memory), 0)


def start_again(store: Store, config: Config, index: int, environ: dict[str, str],
                moved: Callable[[], object] = lambda: None, first_index: int = 0) -> tuple[Session, int]:
    """Files to the index, a new run from there, the program in it. moved: done when
    the files are there, before the program is. first_index: the first of its own indexes, where it began as another."""
    from metamori.runtime.lifecycle import process_restart

    assert store.is_locked
    restore.move_home(store, index)
    store.door.show(False)
    moved()
    launch = process_restart.launch_of(store, index)
    session, _ = begin(store, config, os.getpid(), launch)
    session.area.head.first_index = first_index or session.area.head.first_index
    start = process_restart.prepare(session, index, environ)

    def become() -> None:
        session.area.is_first()
        process_restart.become(start)

    return session, child_loop.spawn_as(become, os.fsdecode(start.launch.exe), start.fork)
