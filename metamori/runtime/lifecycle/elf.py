"""Whether a program can be tracked, for people: shim_c/src/process/elf.c reads its file."""

from __future__ import annotations

import errno
import os
import resource

from metamori._area import ffi, lib
from metamori.tables.record import record

NO_PROGRAM = "it is not a program: neither ELF nor a script with an interpreter line"     # execvp gives it to a shell
_BY_ITSELF = "it is a Go program, which calls the kernel by itself"
_REFUSALS = {
    errno.ENOSYS: "the kernel has no seccomp filters",
    errno.EINVAL: "the kernel has no seccomp user notification; Linux 5.19 or newer has it",
    errno.EBUSY: "this container or sandbox has a seccomp listener of its own, and there can be only one"}


@record
class Program:
    """A program's file, as far as tracking goes.

    why: it cannot be tracked, a sentence part; "" when it can. refuses: nor must it be offered the library, for its
    loader would complain, or fail; others (static ones, or with other rights) hand it on to what can be tracked.
    shows_calls: the kernel shows those of its calls that matter (docs/adr/0044), where it cannot be tracked otherwise,
    or not wholly.
    remark: what goes past the C library although the program is tracked; "" when nothing is known of it.
    """

    why: str
    refuses: bool
    shows_calls: bool
    remark: str


def look(path: str) -> Program:
    """What a program's file says. OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = ffi.new("struct mm_program *")
        reason = lib.mm_why_not(fd, found)
        by_itself = lib.mm_calls_by_itself(fd)
    finally:
        os.close(fd)
    why = "" if reason == ffi.NULL else ffi.string(reason).decode()
    interpreter, loader = (os.fsdecode(ffi.string(name)) for name in (found.interpreter, found.loader))
    if interpreter and not os.path.isfile(interpreter):
        return Program(f"its interpreter {interpreter} is not there", False, False, "")
    shows_calls = bool((why or by_itself) and found.shows_calls) and not (loader and not os.path.exists(loader))
    if not found.is_elf:
        why = NO_PROGRAM
    elif not why and loader and not os.path.exists(loader):
        why = f"its loader {loader} is not there: it cannot be started"
    if why and interpreter:
        why = f"its interpreter {interpreter}: {why}"
    return Program(why, bool(found.refuses), shows_calls, _BY_ITSELF if by_itself else "")


def calls_are_hidden() -> str:
    """Why the kernel does not show us the calls of programs without the library, here and now; "" when it does."""
    if os.environ.get("METAMORI_STATIC") == "untracked":
        return "METAMORI_STATIC=untracked is set"
    if refused := -lib.mm_listener_refused():
        return _REFUSALS.get(refused, "seccomp filters are refused here, as in some containers "
                             f"({os.strerror(refused)})")
    if not lib.mm_may_read_others():
        return "kernel.yama.ptrace_scope must be 0, or 1 or 2 for root"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < lib.MM_PROXY_FILES:
        return f"the hard limit of descriptors (ulimit -Hn) is {hard}; {lib.MM_PROXY_FILES} are needed"
    return ""
