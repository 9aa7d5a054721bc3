"""`metamori run`'s loop: one child, its signals, the timer, words, its end. Knows nothing of what a checkpoint is.

All signals that can be waited for are blocked and taken one at a time, so nothing happens behind anybody's back.
A signal from the terminal reaches the command by itself (one foreground group); one sent to `metamori run` alone is
passed on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import time
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from metamori.runtime.checkpoint.session import Session
else:
    import _signal as signal  # numbers are enough, and `enum` takes 3 ms

_SI_KERNEL = 0x80
_LEFT_ALONE = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT,
               signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT}
REQUEST = 62                               # MM_REQUEST_SIGNAL of shim_c/src/area/layout.h
WAITED = signal.valid_signals() - _LEFT_ALONE


LOOK_S = 1.0
ALSO_S = 0.5                               # after the program ended by a signal that may be for us too
_before: set[int] | None = None            # the signals that were blocked before the first command was started


class CannotStart(OSError):
    """The command could not be executed; errno says why."""


def hold_term() -> None:
    """A SIGTERM that comes while a run is begun waits for its checkpoint, too (--on-term)."""
    global _before
    _before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def hold_requests() -> None:
    """Before others know of the run: who asks for a checkpoint while it begins is answered once it has."""
    global _before
    now = signal.pthread_sigmask(signal.SIG_BLOCK, {REQUEST})
    if _before is None:
        _before = now


def hold_all() -> None:
    """Before threads are made: signals are this one's only."""
    global _before
    _before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)


def let_go() -> None:
    """Of who waits before the command is started, with the signals held: one that would have ended it does. Then
    KeyboardInterrupt."""
    if _before is None:
        return
    for each in (signal.sigpending() & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}) - _before:
        if signal.getsignal(each) is not signal.SIG_IGN:       # of those that are held they are pending, too
            raise KeyboardInterrupt


def blocked_before() -> set[int]:
    """The signals that whoever started us had blocked."""
    return _before or set()


def spawn(command: list[str], environ: dict[str, str], first: Callable[[], None], by: str = "") -> int:
    """Start the command; its pid. first: called in the new process before it becomes the command. by: a program that
    becomes it, the environment saying how."""
    def become() -> None:
        first()
        if by:
            os.execve(by, command, environ)
        try:
            os.execvpe(command[0], command, environ)
        except OSError as error:
            import shutil

            found = shutil.which(command[0])
            if error.errno != errno.ENOEXEC or found is None:
                error.filename = command[0]
                raise
            os.execve("/bin/sh", ["/bin/sh", found, *command[1:]], environ)   # a script that does not say of what

    return spawn_as(become, command[0])


def spawn_as(become: Callable[[], None], name: str, fork: Callable[[], int] = os.fork) -> int:
    """A child that becomes something else; its pid. Signals are blocked here from now on, and in it as they were.

    Raises CannotStart with the errno of whatever `become` failed with, and that file's name, or else this one.
    """
    global _before
    now = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    if _before is None:
        _before = now
    before = _before
    reader, writer = os.pipe()
    writer = _out_of_the_way(writer)
    pid = fork()
    if pid == 0:
        os.close(reader)
        try:
            _signals_as(before)
            become()
        except OSError as error:
            path = error.filename if isinstance(error.filename, (str, bytes)) else name   # of a descriptor: a number
            os.write(writer, b"%d\0%b" % (error.errno or errno.EIO, os.fsencode(path)))
        except BaseException:
            os.write(writer, b"%d\0%b" % (errno.EIO, os.fsencode(name)))
            raise
        finally:
            os._exit(127)
    os.close(writer)
    with open(reader, "rb") as failure:
        said = failure.read()
    if said:
        os.waitpid(pid, 0)
        for disposition in (signal.SIG_IGN, signal.SIG_DFL):   # a program that is gone may have asked once more
            signal.signal(REQUEST, disposition)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _before = None
        code, _, path = said.partition(b"\0")
        raise CannotStart(int(code), os.strerror(int(code)), os.fsdecode(path))
    return pid


def _signals_as(before: set[int]) -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):    # Python ignores them; the command must not
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:    # as a script's command in the background has it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:   # whoever started us ignores it (cli/main.py)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become(command: list[str], environ: dict[str, str], file: str) -> None:
    """This process itself, with the signals that it was given. OSError."""
    _signals_as(signal.pthread_sigmask(signal.SIG_BLOCK, ()) if _before is None else _before)
    os.execve(file, command, environ)


def _out_of_the_way(fd: int) -> int:
    """The same at a number that no command's descriptor has."""
    try:
        high: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4)
    except (OSError, ValueError):
        return fd
    os.close(fd)
    return high


def watch(pid: int, every_s: float, on_signal: int, checkpoint: Callable[[], object], signalled: Callable[[], bool],
          serve: Callable[[], int] | None = None, note_due: Callable[[float], None] | None = None,
          terminated: Callable[[], None] | None = None, look: Callable[[], object] = lambda: None) -> int:
    """Until the command ends; its wait status. `checkpoint` is called by the timer.

    signalled: is called on `on_signal`; whether the command is to have the signal too.

    serve: answers the run's calls; the pid of the process that is the command from now on, or 0.
    terminated: takes a SIGTERM in hand.
    note_due: is told when the timer's next checkpoint is due, on the monotonic clock. look: is called each second.
    """
    due = time.monotonic() + every_s if every_s else 0.0
    if due and note_due:
        note_due(due)
    while True:
        wait = min(LOOK_S, max(0.0, due - time.monotonic()) if due else LOOK_S)
        found = _signal_within(wait)
        look()
        if due and time.monotonic() >= due:
            checkpoint()
            due = time.monotonic() + every_s
            if note_due:
                note_due(due)
        if terminated and found is not None and found.si_signo == signal.SIGTERM:
            terminated()                   # before `serve`: what the program holds back is the same one
            continue
        if serve:
            pid = serve() or pid
        if serve and found is not None and found.si_signo == REQUEST:
            continue
        if found is None or found.si_signo == signal.SIGCHLD:   # another thread of this process may have taken that
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == pid:
                if on_signal and os.WIFSIGNALED(status) and os.WTERMSIG(status) == on_signal and \
                        signal.sigtimedwait({on_signal}, ALSO_S) is not None:
                    signalled()            # Slurm sends it to all of a step, in no order
                return status
            continue
        if found.si_signo == on_signal and not signalled():
            continue
        if found.si_code != _SI_KERNEL or found.si_signo == on_signal:
            pass_on(pid, found.si_signo)


def _signal_within(wait_s: float) -> signal.struct_siginfo | None:
    """One that came. Stopped for longer than that, Python answers with what happens to be in its memory."""
    found = signal.sigtimedwait(WAITED, wait_s)
    return found if found is not None and found.si_signo in WAITED else None


def pass_on(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except OSError as error:
        if error.errno != errno.EPERM:
            raise


def end_as(status: int) -> int:
    """The exit status that a shell would see."""
    return os.waitstatus_to_exitcode(status) if not os.WIFSIGNALED(status) else 128 + os.WTERMSIG(status)


def say(text: str) -> None:
    """One line on stderr, in one piece."""
    from metamori.printed import clear_progress, line_text

    try:
        clear_progress()
        os.write(2, f"metamori: {line_text(text)}\n".encode(errors="surrogateescape"))
    except OSError:
        pass


def say_for(session: Session) -> None:
    """What a person must know since the last look, from processes of the run (shim_c/src/area/report.c) and from its
    checkpoints: a program's own standard error may be another program's data."""
    from metamori._area import ffi, lib

    text = ffi.new("char[]", lib.MM_WORDS_BYTES)
    while lib.mm_words_said(session.area.pointer, text):
        say(ffi.string(text).decode(errors="surrogateescape"))
    if session.said:
        say(session.said)
    session.said = ""
