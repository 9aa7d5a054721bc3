"""Whether a program can be tracked, for people: shim_c/src/process/elf.c reads its file."""

from __future__ import annotations

import os

from metamori._area import ffi, lib
from metamori.tables.record import record

NO_PROGRAM = "it is not a program: neither ELF nor a script with an interpreter line"     # execvp gives it to a shell
_BY_ITSELF = "it is a Go program: it calls the kernel by itself, and what it writes that way is not tracked"


@record
class Program:
    """A program's file, as far as tracking goes.

    why: it cannot be tracked, a sentence part; "" when it can. refuses: nor must it be offered the library, for its
    loader would complain, or fail; others (static ones, or with other rights) hand it on to what can be tracked.
    shows_calls: the kernel shows those of its calls that matter (docs/adr/0044), where it cannot be tracked otherwise.
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
    shows_calls = bool(why and found.shows_calls) and not (loader and not os.path.exists(loader))
    if not found.is_elf:
        why = NO_PROGRAM
    elif not why and loader and not os.path.exists(loader):
        why = f"its loader {loader} is not there: it cannot be started"
    if why and interpreter:
        why = f"its interpreter {interpreter}: {why}"
    return Program(why, bool(found.refuses), shows_calls, _BY_ITSELF if by_itself else "")
