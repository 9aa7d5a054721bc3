"""What /proc says of a process whose memory is saved: how it was started, what it has open, what it has mapped.

Whatever could not come back with it is refused here, with a message, while nothing has been changed yet.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import stat
import struct
import termios
import zlib
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from metamori._area import ffi, lib
from metamori.errors import MetamoriError
from metamori.store.format.records import DescriptorEntry, DescriptorKind, Launch, MappedEntry

_CLOEXEC = 0o2000000
_BUILD_ID_MAX = 64
_TERMINALS = (4, *range(136, 144))         # the machine's own, and those of windows and logins


class Refused(MetamoriError):
    """The process has something that cannot come back with its memory."""

    errno = 95  # EOPNOTSUPP


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _status(pid: int, field: bytes) -> bytes:
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(field):
            return line.split(b":", 1)[1].strip()
    return b""


def launch(pid: int) -> Launch:
    """How the program that a process now is was started."""
    return Launch(
        os.readlink(b"/proc/%d/exe" % pid), tuple(_read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]),
        tuple(filter(None, _read(f"/proc/{pid}/environ").split(b"\0"))), os.readlink(b"/proc/%d/cwd" % pid),
        int(_status(pid, b"Umask") or b"022", 8),
        tuple(resource.prlimit(pid, number) for number in range(16)))


def owner(pid: int) -> tuple[int, int]:
    """Effective user and group; Refused when it runs under several."""
    users, groups = _status(pid, b"Uid").split(), _status(pid, b"Gid").split()
    if len({*users[:3]}) > 1 or len({*groups[:3]}) > 1:
        raise Refused("the program runs under a user that is not its own")
    return int(users[1]), int(groups[1])


def children(pid: int, but: Collection[int] = ()) -> list[int]:
    """Live (or not yet reaped) children."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
        except OSError:
            continue
    return [child for child in found if child not in but]


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    return bool(int(_status(pid, b"SigCgt") or b"0", 16) >> number - 1 & 1)


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
            return bytes(ffi.buffer(room, max(0, lib.mm_build_id(file.fileno(), room, _BUILD_ID_MAX))))
    except OSError:
        return b""


def mapped(pid: int) -> Iterator[MappedEntry]:
    """The files that a process has mapped, those mapped shared and writable left out: they belong to its files."""
    seen = set()
    for line in _read(f"/proc/{pid}/maps").splitlines():
        words = line.split(None, 5)
        if len(words) < 6 or not words[5].startswith(b"/") or words[1][3:4] == b"s" or words[5] in seen:
            continue
        seen.add(words[5])
        try:
            st = os.stat(words[5])
        except OSError:
            continue                       # the engine has refused those that are gone
        yield MappedEntry(words[5], st.st_size, st.st_mtime_ns, _build_id(words[5], st.st_size, st.st_mtime_ns))


def changed(entry: MappedEntry) -> bool:
    """Whether a mapped file is another one now."""
    try:
        st = os.stat(entry.path)
    except OSError:
        return True
    if (st.st_size, st.st_mtime_ns) == (entry.size, entry.mtime_ns):
        return False
    return not entry.build_id or _build_id(entry.path, st.st_size, st.st_mtime_ns) != entry.build_id


# -- descriptors ----------------------------------------------------------------------------------


def _same_description(pid: int, fd: int, other_pid: int, other: int) -> bool:
    return bool(lib.mm_same_description(pid, fd, other_pid, other))


class _Open:
    """One descriptor as /proc shows it."""

    def __init__(self, pid: int, fd: int) -> None:
        link = b"/proc/%d/fd/%d" % (pid, fd)
        self.pid, self.fd = pid, fd
        self.link, self.path = link, os.readlink(link)
        self.st = os.stat(link)
        self.info = _read(f"/proc/{pid}/fdinfo/{fd}")
        words = self.info.split()
        flags = int(words[3], 8)
        self.position, self.close_on_exec, self.flags = int(words[1]), bool(flags & _CLOEXEC), flags & ~_CLOEXEC

    @property
    def locks(self) -> bytes:
        """Its file locks, a line each as /proc has them."""
        return b"\n".join(line for line in self.info.splitlines() if line.startswith(b"lock:"))

    def entry(self, kind: DescriptorKind, **more: Any) -> DescriptorEntry:
        return DescriptorEntry(self.fd, kind, close_on_exec=self.close_on_exec, flags=self.flags,
                               **{"position": self.position, "path": self.path, **more})


def descriptors(
    pid: int, own: Collection[int], followed: dict[int, int], positions: dict[int, int],
    files: dict[int, set[tuple[int, int]]], outside: str = "refuse",
) -> list[DescriptorEntry]:
    """All of a stopped process's descriptors. Refused.

    own: those of the preload library. followed: FIT slot by descriptor. positions: of FITs that keep their own.
    files: device and inode of each followed one; where the kernel says another, the C library closed it unseen.
    outside: what becomes of those that lead out of the run (refuse, close or stdio: docs/reference/cli.md).
    """
    found = sorted(map(int, os.listdir(f"/proc/{pid}/fd")))
    sockets_of = _sockets(pid, found)
    seen: list[_Open] = []
    entries: list[DescriptorEntry] = []
    by_fit: dict[int, int] = {}
    for fd in found:
        if fd in own:
            continue
        this = _Open(pid, fd)
        if fd in followed and (this.st.st_dev, this.st.st_ino) in files.get(fd, ()):
            fit = followed[fd]
            locks = b"" if fit in by_fit else this.locks
            entries.append(this.entry("followed", same_as=by_fit.get(fit, -1), data=locks,
                                      position=positions.get(fit, this.position)))
            by_fit.setdefault(fit, fd)
            continue
        alike = (each.fd for each in seen if each.path == this.path)
        first = next((other for other in alike if _same_description(pid, fd, pid, other)), -1)
        entries.append(this.entry("file", same_as=first) if first >= 0
                       else _entry(this, sockets_of, outside))
        seen.append(this)
    if outside == "refuse":                # else whoever comes back finds the other end closed
        _both_ends(entries)
    return entries


def _sockets(pid: int, fds: Collection[int]) -> set[int]:
    """Inodes of a process's sockets, but for what it has at 0, 1 and 2."""
    links = (os.readlink(b"/proc/%d/fd/%d" % (pid, fd)) for fd in fds if fd > 2)
    return {int(link[8:-1]) for link in links if link.startswith(b"socket:[")}


def _entry(this: _Open, sockets_of: set[int], outside: str) -> DescriptorEntry:
    mode = this.st.st_mode
    readable = this.flags & os.O_ACCMODE == os.O_RDONLY
    standard = _standard(this)
    if standard >= 0 and not (stat.S_ISREG(mode) and readable) and not (standard > 2 and stat.S_ISSOCK(mode)):
        return this.entry("standard", position=standard)
    if stat.S_ISREG(mode) and this.st.st_nlink and not this.path.startswith(b"/memfd:"):
        return this.entry("file", data=this.locks)
    if stat.S_ISDIR(mode):
        return this.entry("file")
    if stat.S_ISSOCK(mode):
        return _socket(this, sockets_of, outside)
    if stat.S_ISCHR(mode) and _remembers_nothing(this.st.st_rdev):
        return this.entry("file", position=0)
    if stat.S_ISFIFO(mode) and this.path.startswith(b"pipe:"):
        return this.entry("pipe", position=0, data=_in_pipe(this) if readable else b"")
    for kind, path in (("eventfd", b"anon_inode:[eventfd]"), ("epoll", b"anon_inode:[eventpoll]"),
                       ("timerfd", b"anon_inode:[timerfd]"), ("signalfd", b"anon_inode:[signalfd]")):
        if this.path == path:
            return this.entry(kind, position=0, data=this.info)  # type: ignore[arg-type]
    name = f"'{this.path.decode(errors='replace')}'"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return _device(this, name, outside)
    what = "io_uring" if b"io_uring" in this.path else name
    raise Refused(f"descriptor {this.fd} is {what}, which cannot come back with the program")


def _socket(this: _Open, sockets_of: set[int], outside: str) -> DescriptorEntry:
    from metamori.runtime.memory import sockets  # which few programs need

    found = sockets.look(this.pid, this.fd, sockets_of)
    if found.why_not:
        raise Refused(f"descriptor {this.fd} is {found.what}, which {found.why_not}")
    if found.leads_out and outside == "refuse":
        raise Refused(f"descriptor {this.fd} is {found.what}, which leads out of the run; with --outside close it "
                      "comes back as reset")
    return this.entry("socket", position=0, data=found.text)


def _device(this: _Open, name: str, outside: str) -> DescriptorEntry:
    terminal = stat.S_ISCHR(this.st.st_mode) and os.major(this.st.st_rdev) in _TERMINALS
    if outside == "refuse":
        kind, back = ("terminal", "hung up") if terminal else ("device", "closed")
        raise Refused(f"descriptor {this.fd} is a {kind}, {name}, which leads out of the run; with --outside close it "
                      f"comes back as {back}")
    if terminal and outside == "stdio":
        return this.entry("standard", position=int(this.flags & os.O_ACCMODE == os.O_WRONLY))
    return this.entry("closed", position=0, data=b"terminal" if terminal else b"device")


def _remembers_nothing(device: int) -> bool:
    """/dev/null, zero, full, random and the like, /dev/tty: opened again they are as good as before. A GPU is not."""
    return os.major(device) == 1 or device == os.makedev(5, 0)


def _standard(this: _Open) -> int:
    """Which of the descriptors that the run inherited this is, -1 none."""
    for fd in (0, 1, 2, this.fd):
        if _same_description(this.pid, this.fd, os.getpid(), fd):
            return fd
    return this.fd if this.fd in (0, 1, 2) else -1


def _in_pipe(this: _Open) -> bytes:
    """What has been written into a pipe and not yet been read: copied, not taken."""
    source = os.open(this.link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        count, = struct.unpack("i", fcntl.ioctl(source, termios.FIONREAD, b"\0" * 4))
        if not count:
            return b""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            fcntl.fcntl(writer, 1031, max(count, 65536))  # F_SETPIPE_SZ
            got = lib.mm_tee(source, writer, count)
            if got != count:
                raise Refused(f"descriptor {this.fd}: what is in the pipe cannot be copied")
            return os.read(reader, count)
        finally:
            os.close(reader)
            os.close(writer)
    finally:
        os.close(source)


def _both_ends(entries: list[DescriptorEntry]) -> None:
    pipes = [entry for entry in entries if entry.kind == "pipe" and entry.same_as < 0]
    for entry in pipes:
        ends = {each.flags & os.O_ACCMODE for each in pipes if each.path == entry.path}
        if len(ends) < 2 and os.O_RDWR not in ends:
            raise Refused(f"descriptor {entry.descriptor} is a pipe to another process")


def numbers(info: bytes, name: str) -> list[str]:
    """Values of a field of fdinfo, one for each line that has it."""
    return re.findall(rf"^{name}:\s*(.*)$", info.decode(), re.MULTILINE)
