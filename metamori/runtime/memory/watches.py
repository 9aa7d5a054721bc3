"""What programs watch by inotify. The kernel says inode and events of each watch; the path is what the library noted
when it was made (shim_c/src/calls/wrap_async_io.c), if it still leads there. What an entry says: a line for each watch,
its number, its events in hex, its path in hex; by number.

Unread events cannot be read without being taken, so there must be none.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
from collections.abc import Iterable, Iterator

from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.proc_inspect import NotBegun, Refused
from metamori.store.format.records import DescriptorEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from metamori.runtime.area.run_area import Area

    class Open(Protocol):
        """A descriptor of a process."""

        pid: int
        fd: int
        info: bytes

_WATCHED = struct.Struct("=QQI4x")         # struct mm_watched
_WATCH = struct.Struct("=iiI4x")           # struct mm_came_watch
_LINE = re.compile(rb"^inotify\swd:(\w+)\sino:(\w+)\ssdev:(\w+)\smask:(\w+)", re.MULTILINE)
_MINOR_BITS = 20                           # of a device as the kernel has it
_MOST, _MOST_BYTES = 1_000_000, 1 << 20    # the highest number: each comes after all before it; of paths
_DO_NOT_FOLLOW = 0x02000000                # IN_DONT_FOLLOW
_KEPT = 1 << 20                            # bytes of what was noted, of which most may be of watches that ended


def look(this: Open, watched: str) -> bytes:
    """What an entry says. watched: where the library notes paths. Refused, NotBegun."""
    if _unread(this):
        raise NotBegun(f"descriptor {this.fd} is of inotify and holds unread events")
    found = sorted(tuple(int(word, 16) for word in words) for words in _LINE.findall(this.info))
    noted = _noted(watched) if found else {}
    lines = [b"%d %x %s" % (number, events | _DO_NOT_FOLLOW, _path(this, noted, inode, device).hex().encode())
             for number, inode, device, events in found]
    if (found and found[-1][0] > _MOST) or sum(map(len, lines)) > _MOST_BYTES:
        raise Refused(f"descriptor {this.fd} is of inotify and watches more than can come back")
    return b"\n".join(lines)


def _unread(this: Open) -> int:
    try:
        fd = proc_inspect.descriptor(this.pid, this.fd)
    except ProcessLookupError:
        raise                              # it has ended
    except OSError as error:
        raise Refused(f"descriptor {this.fd} is of inotify and cannot be looked at ({error.strerror})") from None
    try:
        return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0])
    finally:
        os.close(fd)


def _noted(watched: str) -> dict[int, dict[bytes, int]]:
    """By inode: paths with their devices."""
    found: dict[int, dict[bytes, int]] = {}
    try:
        with open(watched, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return found
    at = 0
    while at + _WATCHED.size <= len(data):
        device, inode, length = _WATCHED.unpack_from(data, at)
        at += _WATCHED.size + length
        found.setdefault(inode, {})[data[at - length:at]] = device
    return found


def _path(this: Open, noted: dict[int, dict[bytes, int]], inode: int, device: int) -> bytes:
    """Some filesystems show programs another device than the kernel's own. Refused."""
    kernels = os.makedev(device >> _MINOR_BITS, device & (1 << _MINOR_BITS) - 1)
    there = {path: its for path, its in noted.get(inode, {}).items() if _leads_to(path, its, inode)}
    chosen = [path for path, its in there.items() if its == kernels]
    if not chosen and len(set(there.values())) == 1:
        chosen = list(there)
    if not chosen:
        what = next(iter(noted.get(inode, {})), b"something")
        raise Refused(f"descriptor {this.fd} is of inotify and watches {what.decode(errors='replace')}, whose name is "
                      "gone, or another's by now")
    return chosen[-1]


def _leads_to(path: bytes, device: int, inode: int) -> bool:
    try:
        st = os.lstat(path)
    except OSError:
        return False
    return (st.st_dev, st.st_ino) == (device, inode)


def forget(area: Area, entries: Iterable[DescriptorEntry]) -> None:
    """While no process runs: what was noted of watches that ended, where it is much."""
    watched = os.path.join(area.path, "inotify")
    if not os.path.exists(watched) or os.path.getsize(watched) <= _KEPT:
        return
    wanted = {path for each in entries for *_, path in of(each)}
    with open(f"{watched}.new", "wb") as file:
        for inode, paths in _noted(watched).items():
            for path, device in paths.items():
                if path in wanted:
                    file.write(_WATCHED.pack(device, inode, len(path)) + path)
    os.replace(f"{watched}.new", watched)
    area.head.tree.watches_kept += 1


def of(entry: DescriptorEntry) -> Iterator[tuple[int, int, bytes]]:
    """Number, events and path of each watch."""
    for line in entry.data.splitlines() if entry.kind == "inotify" else ():
        number, events, path = line.split()
        yield int(number), int(events, 16), bytes.fromhex(path.decode())


def packed(entries: Iterable[DescriptorEntry]) -> tuple[bytes, list[bytes]]:
    """As the preload library takes them (struct mm_came_watch), and their paths."""
    found = [(each.descriptor, *watch) for each in entries for watch in of(each)]
    return b"".join(_WATCH.pack(*words) for *words, _ in found), [path for *_, path in found]
