"""What /proc says of a process whose memory is saved: what it is doing, whose it is, what it has mapped.

Whatever could not come back with it is refused here, with a message, while nothing has been changed yet.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from metamori._area import ffi, lib
from metamori.config import LIBRARY
from metamori.errors import MetamoriError
from metamori.store.format.records import MappedEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori.runtime.memory.proc_look import ProcLook

_BUILD_ID_MAX = 64
MASTERS = (b"/dev/ptmx", b"/dev/pts/ptmx") # of pseudoterminals


class Refused(MetamoriError):
    """The process has something that cannot come back with its memory."""

    errno = 95  # EOPNOTSUPP


class NotBegun(Refused):
    """Not yet: a process is just beginning, becoming another program or ending, or a connection is being made."""

    passes = True


class NotYet(NotBegun):
    """Refused if it is still so at the deadline: a child has not joined the run, or has its parent wait, or a main
    thread has ended and others have not (as for a moment in any process that ends)."""


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def descriptor(pid: int, fd: int) -> int:
    """The very same, in this process: opened anew it may be another one. OSError."""
    process = os.pidfd_open(pid)
    try:
        own = int(lib.mm_take_descriptor(process, fd))
    finally:
        os.close(process)
    if own < 0:
        raise OSError(-own, os.strerror(-own))
    return own


def owner(look: ProcLook) -> tuple[int, int]:
    """Effective user and group; Refused when it runs under several."""
    users, groups = look.users, look.groups
    if len({*users}) > 1 or len({*groups}) > 1:
        raise Refused("the program runs under a user that is not its own")
    return int(users[1]), int(groups[1])


_NONE = b"0" * 16                          # of capabilities
_ELSEWHERE = {"root": "another root folder", "ns/mnt": "mounts of its own", "ns/user": "users of its own",
              "ns/net": "a network of its own", "ns/ipc": "System V objects of its own"}


@lru_cache(maxsize=1)
def _of_the_run() -> tuple[Sequence[bytes], int, dict[str, str]]:
    """What confines this process, in which a program that comes back begins."""
    from metamori.runtime.memory import proc_look

    places = {each: os.readlink(f"/proc/self/{each}") for each in _ELSEWHERE if os.path.lexists(f"/proc/self/{each}")}
    return *proc_look.confined(_read("/proc/self/status")), places


def require_no_more_confined(look: ProcLook) -> None:
    """Than the run itself: back, it would be free. Refused."""
    (own, own_filters, own_places), (capabilities, filters) = _of_the_run(), look.confined
    if filters > own_filters:
        raise Refused("it has a filter of system calls (seccomp), which cannot come back with the program")
    elsewhere = look.places != b"".join(map(os.fsencode, own_places.values()))
    for link, place in own_places.items() if elsewhere else ():
        if os.readlink(f"/proc/{look.pid}/{link}") != place:
            raise Refused(f"it has {_ELSEWHERE[link]}, which cannot come back with the program")
    if own and look.users[1] != b"%d" % os.geteuid():
        own = (_NONE, _NONE, own[2], _NONE)
    elif {*map(int, [look.groups[1], *look.others])} != {os.getegid(), *os.getgroups()}:
        raise Refused("it belongs to other groups than the run, which cannot come back with the program")
    if capabilities != own:
        raise Refused("it has other capabilities than the run, which cannot come back with the program")


def program(look: ProcLook) -> bytes:
    """The file that is executed when it comes back: nothing of it stays, it can be a newer one. Refused."""
    path = look.exe.removesuffix(b" (deleted)")
    if path != look.exe and not os.access(path, os.X_OK):
        raise Refused(f"its program file was deleted: {os.fsdecode(path)}")
    return path


def stat_words(pid: int) -> list[bytes]:
    """Of /proc/PID/stat, from the state on."""
    return _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()


def state(pid: int) -> bytes:
    """Of a process or thread, as /proc/PID/stat has it; b"" of one that has ended and was waited for."""
    letter: int = lib.mm_proc_state(pid)
    return b"%c" % letter if letter else b""


def parent(pid: int) -> int:
    try:
        return int(stat_words(pid)[1])
    except OSError:
        return 0


def signals(pid: int, tid: int) -> tuple[int, int, int]:
    """Of a thread: those that wait for it, those that wait for its process, those that it blocks."""
    try:
        status = _read(f"/proc/{pid}/task/{tid}/status")
    except OSError:
        return 0, 0, 0
    waiting, of_all, blocked = (int(status.partition(name)[2].split(None, 1)[0], 16)
                                for name in (b"SigPnd:", b"ShdPnd:", b"SigBlk:"))
    return waiting, of_all, blocked


def unseen(pid: int, error: int) -> Refused:
    """Its limits only its own user and group may ask for; what it has open, if it is undumpable, nobody else. Some may,
    by a capability."""
    return Refused(f"{name_of(pid)} ({pid}) may not be looked at (another user or group, or undumpable): "
                   f"{os.strerror(error)}")


def name_of(pid: int) -> str:
    try:
        return _read(f"/proc/{pid}/comm").decode(errors="replace").strip()
    except OSError:
        return "?"


# -- the machine ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def machine() -> tuple[bytes, ...]:
    """Processor features, and the CRC of the kernel's own page of code in every process (the vdso)."""
    flags = next((line for line in _read("/proc/cpuinfo").splitlines() if line.startswith(b"flags")), b":")
    features, (start, end) = b" ".join(sorted(flags.split(b":")[1].split())), vdso()
    return features, b"%08x" % zlib.crc32(ffi.buffer(ffi.cast("char *", start), end - start)) if start else b""


def vdso() -> tuple[int, int]:
    """Where the kernel's own code lies in this process; 0, 0 without."""
    for line in _read("/proc/self/maps").splitlines():
        if line.endswith(b"[vdso]"):
            start, end = (int(each, 16) for each in line.split()[0].split(b"-"))
            return start, end
    return 0, 0


def machine_refuses(recorded: tuple[bytes, ...]) -> str:
    """Why memory recorded there cannot go on here; "" when it can."""
    missing = set(recorded[0].split()) - set(machine()[0].split())
    if missing:
        return f"this processor lacks features that it was using: {b' '.join(sorted(missing)).decode()}"
    return "" if recorded[1] == machine()[1] else "this is another kernel: its code in every process differs"


# -- mapped files ---------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _build_id(path: bytes, size: int, mtime_ns: int) -> bytes:
    """The note that names an ELF file's build; b"" without one."""
    room = ffi.new("char[]", _BUILD_ID_MAX)
    try:
        with open(path, "rb") as file:
            st = os.fstat(file.fileno())
            if (st.st_size, st.st_mtime_ns) != (size, mtime_ns):
                return b""                 # another one by now
            return bytes(ffi.buffer(room, max(0, lib.mm_build_id(file.fileno(), room, _BUILD_ID_MAX))))
    except OSError:
        return b""


def mapped(files: Iterable[bytes], stats: Mapping[bytes, os.stat_result]) -> Iterator[MappedEntry]:
    """As they were when their process stood still; the engine has refused those that are gone."""
    for path in files:
        if st := stats.get(path):
            yield MappedEntry(path, st.st_size, st.st_mtime_ns, _build_id(path, st.st_size, st.st_mtime_ns))


def changed(entry: MappedEntry) -> bool:
    """Whether a mapped file is another one now. Those of a package often have its time, and can be as large."""
    try:
        st = os.stat(entry.path)
    except OSError:
        return True
    if entry.build_id:
        return _build_id(entry.path, st.st_size, st.st_mtime_ns) != entry.build_id
    return (st.st_size, st.st_mtime_ns) != (entry.size, entry.mtime_ns)


def build_of_library() -> bytes:
    """Of our own, with which a program is started."""
    st = os.stat(LIBRARY)
    return _build_id(os.fsencode(LIBRARY), st.st_size, st.st_mtime_ns)


def kernel_lacks(mapped: Iterable[tuple[bytes, int]]) -> bytes:
    """Of the mappings, with lengths, that the kernel gave a process by itself: one that it gives to none now; b""."""
    given = set()
    for line in _read("/proc/self/maps").splitlines():
        start, end = (int(each, 16) for each in line.split()[0].split(b"-"))
        given.add((line[line.rfind(b" ") + 1:], end - start))
    return next((name for name, length in mapped if (name, length) not in given), b"")


def numbers(info: bytes, name: str) -> list[str]:
    """Values of a field of fdinfo, one for each line that has it."""
    return re.findall(rf"^{name}:\s*(.*)$", info.decode(), re.MULTILINE)
