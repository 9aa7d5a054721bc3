"""Descriptors of processes that did not ask for the restore: they stay open and go on where they were at the index.

Only those open for writing: a shell reads its script through a descriptor, and would run once more what it has run
since. A process's next call starts at the FIT's position (docs/adr/0003), so the kernel's need not be touched.
Streams' buffers are memory, which stays; one that has read ahead keeps its place. Invariant: the run is frozen, so no
call is at a position.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import Any

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import Area, proc_folder
from metamori.runtime.checkpoint.session import Session
from metamori.store.read.state import State
from metamori.tables.fit import descriptors_of


def move_back(session: Session, index: int, then: State, paths: Container[bytes] | None) -> None:
    """Where files of `then` (those with a name in `paths`) go on being written. A description that the index does not
    know stays where it is, but not past the end: what it writes would leave a hole."""
    fits = session.store.meta(index).fits if index else ()
    known = {(fit.process, fd, fit.inode): fit.seek_pointer
             for fit in fits if fit.inode for fd in descriptors_of(fit)}
    for slot, fd, f in _writers(session.area):
        inode = session.area.pif(f.slot).object
        if inode not in then.pifs or (paths is not None and not any(path in paths for path in then.paths(inode))):
            continue
        process = session.area.process(slot)
        now = _position(process.pid, fd, f)
        if now is None or _has_read_ahead(process.pid, f, f.process == slot):
            continue
        at = known.get((process.number, fd, inode), min(now, then.pifs[inode].size))
        if at not in (now, -1):
            f.position, f.owned = at, 1


def _writers(area: Area) -> Iterator[tuple[int, int, Any]]:
    """(process, descriptor, FIT) of what is open for writing, each description once."""
    seen = set()
    for slot in area.processes():
        for fd, fit in sorted(area.descriptors(slot).items()):
            f = area.fit(fit)
            if fit not in seen and f.slot and f.attributes & os.O_ACCMODE != os.O_RDONLY:
                seen.add(fit)
                yield slot, fd, f


def _position(pid: int, fd: int, f: Any) -> int | None:
    """None: the process has closed it, or its end came."""
    if f.owned:
        return int(f.position)
    try:
        with open(proc_folder(pid) + b"/fdinfo/%d" % fd, "rb") as info:
            return int(info.read().split()[1])
    except OSError:
        return None


def _has_read_ahead(pid: int, f: Any, is_own: bool) -> bool:
    """Whether a stream holds bytes of the file that the program has yet to read, or nobody can tell."""
    if not f.stream_type or f.attributes & os.O_ACCMODE == os.O_WRONLY:
        return False
    state = ffi.new("struct mm_stream_state *")
    return not is_own or lib.mm_stream_peek(pid, f.stream, state) != 0 or state.unread != 0
