"""A process that job control has stopped (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU): parked for its image all the same.

Its threads must run the engine's handler, and SIGCONT would show: to itself, to its parent, to whoever waits for them.
So they are let run by ptrace, each only when the engine's signal waits for it and with all others blocked, or when it
is in the handler. For the kernel the process is stopped all the time: let go it stands where it is, also when whoever
let it run is killed (what is blocked at that moment stays so), and nobody is told. Its leader waits there, and makes
the next image, too (save.c). Back, each stops itself, and nobody runs before (together.c).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import NotAtRest
from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.proc_inspect import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_memory

_SEIZE, _INTERRUPT, _CONTINUE, _DETACH = 0x4206, 0x4207, 7, 17
_EVENT_STOP, _WALL = 128, 0x40000000
_BIT = 1 << lib.MM_MEMORY_SIGNAL - 1
_PATIENCE_S = 20.0
KNOWN = -3                                 # status of one whose parent knows


def is_stopped(status: int) -> bool:
    return status == KNOWN or (status >= 0 and os.WIFSTOPPED(status))


class _Thread:
    """mask: what it has blocked, while only the engine's signal reaches it; -1: that is as it was."""

    stands = False                         # in the kernel, until it is continued
    signal = 0                             # that it stands at: the next to be given to it
    mask = -1


class Stopped:
    """From when it was met until `leave`."""

    def __init__(self, pid: int, memory: mm_memory, named: str) -> None:
        self._pid, self._memory, self._named = pid, memory, named
        self._threads: dict[int, _Thread] = {}
        self._number = 0                   # the signal that stopped it
        self._is_ours = proc_inspect.parent(pid) == os.getpid()
        self._deadline = time.monotonic() + _PATIENCE_S
        self._memory.stood = self._memory.unseen = 0
        self._memory.stands = 1
        try:
            self._seize()
            while not all(each.stands for each in self._threads.values()):
                self._look()
                self._pause()
        except BaseException:
            self.leave()
            raise

    @property
    def is_stopped(self) -> bool:
        """Not continued meanwhile."""
        return self._number != signal.SIGTRAP

    @property
    def status(self) -> int:
        """What its parent is still to be told, or KNOWN; when that has made its image."""
        return self._number << 8 | 0x7f if self._memory.unseen else KNOWN

    def run(self) -> None:
        """A moment of what its threads have to do. NotAtRest."""
        self._seize()
        self._look()
        shared = True                      # a signal of the whole process goes to one
        for tid, each in self._threads.items():
            if each.stands:
                shared = self._go_on(tid, each, shared) and shared
            elif each.mask >= 0:
                shared = False
        self._pause()

    def _pause(self) -> None:
        if time.monotonic() > self._deadline:
            raise NotAtRest(f"a thread of {self._named} does not stop: no checkpoint was taken")
        time.sleep(0.0005)

    def leave(self, is_held: bool = False) -> None:
        """It stands again. is_held: when its leader has done what it has to."""
        with suppress(NotAtRest):
            while is_held and not self._memory.stood and proc_inspect.state(self._pid) not in (b"", b"Z", b"X"):
                self.run()
        for tid in [tid for tid, each in self._threads.items() if not each.stands]:
            lib.mm_ptrace(_INTERRUPT, tid, 0)
        self._deadline = time.monotonic() + _PATIENCE_S
        with suppress(NotAtRest):
            while not all(each.stands for each in self._threads.values()):
                self._look()
                self._pause()
        for tid, each in self._threads.items():
            self._unmask(tid, each)
            lib.mm_ptrace(_DETACH, tid, each.signal)
        self._threads.clear()
        self._memory.stands = 0

    # -- its threads -----------------------------------------------------------------------------------

    def _seize(self) -> None:
        while new := [tid for tid in _threads(self._pid) if tid not in self._threads]:
            for tid in new:
                if why := -lib.mm_ptrace(_SEIZE, tid, 0):
                    if proc_inspect.state(tid) in (b"", b"Z", b"X"):
                        continue
                    raise Refused(f"{self._named} is stopped, and may not be looked into ({os.strerror(why)})")
                self._threads[tid] = _Thread()
                if proc_inspect.state(tid) not in (b"T", b"t"):
                    lib.mm_ptrace(_INTERRUPT, tid, 0)

    def _look(self) -> None:
        """What has come of those that were let run."""
        for tid in list(self._threads):
            ends = 0 if self._is_ours and tid == self._pid else os.WEXITED     # that of the run's command is not taken
            try:
                found = os.waitid(os.P_PID, tid, os.WSTOPPED | ends | os.WNOHANG | _WALL)
            except ChildProcessError:
                del self._threads[tid]
                continue
            if found is None:
                if ends == 0 and proc_inspect.state(tid) in (b"", b"Z", b"X"):
                    del self._threads[tid]
            elif found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                del self._threads[tid]
            else:
                self._comes(tid, found.si_status)

    def _comes(self, tid: int, status: int) -> None:
        each, number = self._threads[tid], status & 0xff
        each.stands, each.signal = True, 0
        if status >> 8 == _EVENT_STOP:
            self._number = self._number or number
            return
        each.signal = number

    def _go_on(self, tid: int, each: _Thread, shared: bool) -> bool:
        """Whether a signal of the whole process is still to be taken by another."""
        waiting, of_all, blocked = proc_inspect.signals(self._pid, tid)
        if each.signal:                    # it has come: the handler begins, as if nothing had been blocked
            self._unmask(tid, each)
        elif blocked & _BIT:
            pass                           # in the handler
        elif waiting & _BIT or (of_all & _BIT and shared):
            mask = ffi.new("uint64_t *")
            if lib.mm_signal_mask(tid, 0, mask) < 0:
                return shared
            each.mask, mask[0] = mask[0], ~_BIT & 2**64 - 1
            lib.mm_signal_mask(tid, 1, mask)
        else:
            return shared
        if lib.mm_ptrace(_CONTINUE, tid, each.signal) == 0:
            each.stands, each.signal = False, 0
        return shared and not (of_all & _BIT)

    def _unmask(self, tid: int, each: _Thread) -> None:
        if each.mask >= 0:
            lib.mm_signal_mask(tid, 1, ffi.new("uint64_t *", each.mask))
            each.mask = -1


def _threads(pid: int) -> list[int]:
    """Those that have not ended."""
    try:
        found = map(int, os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []
    return [tid for tid in sorted(found) if proc_inspect.state(tid) not in (b"", b"Z", b"X")]
