"""What a set of epoll watches: open descriptions, each under the number that it had when it was added. That may be
closed since, or another's, or of another process that shares the set: then the kernel is asked (kcmp) which descriptor
of the run is the same, and the line that /proc has of it ends with its place.
"""

from __future__ import annotations

import re
import stat
from collections import Counter

from metamori._area import lib
from metamori.runtime.memory.proc_inspect import NotBegun

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

        @property
        def all(self) -> Iterable[Open]: ...
        def of_process(self, pid: int) -> Mapping[int, Open]: ...
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
        is_it = there is not None and _is_usual(this, there, number, inode, before[number])
        lines.append(line[0] if is_it else line[0] + _at(this, run, number, inode, before[number]))
        before[number] += 1
    return b"".join(line + b"\n" for line in lines)


def _is_usual(this: Open, there: Open, number: int, inode: int, which: int) -> bool:
    alike = there.st.st_ino == inode
    if alike and stat.S_ISSOCK(there.st.st_mode):
        return True                        # which has one description
    order = _order(this, there, number, which)
    return order == 0 or (order < 0 and alike)         # where nobody may ask the kernel


def _order(this: Open, other: Open, number: int, which: int) -> int:
    """0: it is watched. number, which: by what number, and how many of that number come before."""
    return int(lib.mm_order_of_watched(other.pid, other.fd, this.pid, this.fd, number, which))


def _at(this: Open, run: Run, number: int, inode: int, which: int) -> bytes:
    likely = sorted(run.all, key=lambda each: (each.st.st_ino != inode, each.pid != this.pid))
    found = next((each for each in likely if _order(this, each, number, which) == 0), None)
    if found is None or (found.path in OF_PROCESSES and found.pid != this.pid):
        raise NotBegun(f"descriptor {this.fd} is of epoll and watches what was added as descriptor {number}, which is "
                       "closed or another's by now: it cannot come back with the program")
    return b" at:%s" % run.place(found).encode()
