"""Descriptors on their way: sent to a unix socket (SCM_RIGHTS) and not received yet.

One that a process has, too, is named by that place: its number as the run knows it, and the descriptor. What no process
has is looked at as this process sees it, since a look at the message opens it here; it has an entry of the first
process, under a number below zero, and may itself be a socket that holds others. lifecycle/socket_restart.py sends them
again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from metamori.runtime.memory import open_files, segments, sets, socket_connections, sockets, unread
from metamori.runtime.memory.images import Image
from metamori.runtime.memory.open_files import Open, Run, Sent
from metamori.runtime.memory.proc_inspect import NotBegun, Refused
from metamori.runtime.memory.proc_look import SeenFd, Stat
from metamori.store.format.records import DescriptorEntry
from metamori.tables.record import replace

_FIRST = -2                                # -1 is none
_TIED = ("epoll", "inotify", "pidfd")      # to the numbers, or to the children, of the process that sent it
_DELETED = b" (deleted)"


def _seen(fd: int, holder: str) -> Sent:
    st = os.fstat(fd)
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
        info = file.read()
    words = dict(line.split(b":", 1) for line in info.splitlines()[:2])
    return Sent(f"a descriptor that was sent to {holder} and not received", SeenFd(
        fd, os.readlink(b"/proc/self/fd/%d" % fd),
        Stat(st.st_mode, st.st_dev, st.st_ino, st.st_size, st.st_nlink, st.st_rdev, st.st_blksize),
        info, int(words[b"pos"]), int(words[b"flags"], 8)))


def find(run: Run, image: Image, images: Sequence[Image]) -> None:
    """What is in sockets of one process, and in sockets that were found there. Refused."""
    looked = [(this, f"descriptor {this.fd}") for this in image.opens if run.sockets.get(this.inode) is this]
    for this, name in looked:
        known = len(run.on_the_way)
        if messages := _messages(this):
            try:
                run.sent[this.inode] = [
                    (each.data, each.sender, tuple(_place(run, images, fd, name) for fd in each.fds))
                    for each in messages]
            finally:
                kept = {each.fd for each in run.on_the_way[known:]}
                unread.close(each._replace(fds=tuple(fd for fd in each.fds if fd not in kept)) for each in messages)
        looked += [(each, each.called) for each in run.on_the_way[known:] if stat.S_ISSOCK(each.st.st_mode)]


def _messages(this: Open) -> list[unread.Message]:
    """[]: without descriptors, or what looks at the socket itself will refuse."""
    try:
        with socket_connections.taken(this.pid, this.fd) as own:
            if not sockets.is_unix_with_unread(own):
                return []
            found = unread.waiting(own, keeps=True)
    except OSError:
        return []
    return found if not isinstance(found, str) and any(each.fds for each in found) else []


def _place(run: Run, images: Sequence[Image], fd: int, name: str) -> str:
    this = _seen(fd, name)
    if this.path in sets.OF_PROCESSES:
        raise NotBegun(f"{this.called} is '{this.path.decode()}', which cannot come back with the program")
    if run.first(this) is this:
        this.number = _FIRST - len(run.on_the_way)
        this.place = f"{images[0].known}:{this.number}"
        run.on_the_way.append(this)
        run.add([this])
    return run.place(this)


def entries(run: Run) -> Iterator[DescriptorEntry]:
    """Of what no process has. Refused."""
    for this in run.on_the_way:
        try:
            open_files.require_of_no_process(this)
            open_files.require_silent(this, run)
            entry = open_files.entry_of(this, run)
        except Refused as error:
            raise type(error)(str(error).replace(f"descriptor {this.fd}", this.called, 1)) from None
        has_another = stat.S_ISREG(this.st.st_mode) and this.path.endswith(_DELETED) and this.st.st_nlink
        if has_another or entry.kind in _TIED or (entry.kind == "segment" and _is_sealed_for_nobody(this, run)):
            raise NotBegun(f"{this.called} is '{this.path.decode(errors='replace')}', which cannot come back with the "
                           "program")
        yield replace(entry, descriptor=this.number)


def _is_sealed_for_nobody(this: Sent, run: Run) -> bool:
    """Who has it open seals it again when all have mapped it (segment_restart.late_seals)."""
    late = segments.is_sealed_late(this.fd) if this.path.startswith(b"/memfd:") else False
    return late and all(each.is_sent or each.st[1:3] != this.st[1:3] for each in run.memory)
