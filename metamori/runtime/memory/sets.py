"""What a set of epoll watches: open descriptions, each under the number that it had when it was added. That may be
closed since, or another's, or of another process that shares the set: then the kernel is asked (kcmp) which descriptor
of the run is the same, and the line that /proc has of it ends with its place.
"""

from __future__ import annotations

import re
import stat
from collections import Counter

from metamori._area import lib
from metamori.runtime.memory.proc_inspect import NotBegun, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Protocol

    from metamori.runtime.memory.proc_look import Stat

    class Open(Protocol):
        """A descriptor of a process."""

        pid: int
        fd: int
        path: bytes
        info: bytes
        st: Stat

    class Run(Protocol):
        """What all processes have open."""

        def of_process(self, pid: int) -> Mapping[int, Open]: ...
        def of_inode(self, inode: int) -> Iterable[Open]: ...
        def place(self, this: Any) -> str: ...

_LINE = re.compile(rb"^tfd:\s*(\d+) .* ino:(\w+) .*$", re.MULTILINE)
OF_PROCESSES = (b"anon_inode:[pidfd]", b"/dev/tty")    # each process opens its own


def look(this: Open, run: Run) -> bytes:
    """What an entry says. Refused."""
    own, before = run.of_process(this.pid), Counter[int]()
    lines = []
    for line in _LINE.finditer(this.info):
        number, inode = int(line[1]), int(line[2], 16)
        there = own.get(number)
        is_it = there is not None and there.st.st_ino == inode and \
            (stat.S_ISSOCK(there.st.st_mode) or _is(this, there, number, before[number]))
        lines.append(line[0] if is_it else line[0] + _at(this, run, number, inode, before[number]))
        before[number] += 1
    return b"".join(line + b"\n" for line in lines)


def _is(this: Open, other: Open, number: int, which: int) -> bool:
    """number, which: under which it is watched, and how many of that number come before."""
    found = lib.mm_order_of_watched(other.pid, other.fd, this.pid, this.fd, number, which)
    if found < 0:
        raise Refused(f"descriptor {this.fd} is of epoll, and the kernel does not say what it watches")
    return bool(found == 0)


def _at(this: Open, run: Run, number: int, inode: int, which: int) -> bytes:
    alike = sorted(run.of_inode(inode), key=lambda each: each.pid != this.pid)
    found = next((each for each in alike if _is(this, each, number, which)), None)
    if found is None or (found.path in OF_PROCESSES and found.pid != this.pid):
        raise NotBegun(f"descriptor {this.fd} is of epoll and watches what was added as descriptor {number}, which is "
                       "closed or another's by now: it cannot come back with the program")
    return b" at:%s" % run.place(found).encode()
