"""Files whose name is gone while they are mapped shared: they come back as memory of the processes that had them.

A private mapping of such a file is all in the image of its process (is_copied of shim_c/src/memory/image_engine.h).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable

from metamori._area import lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.memory.proc_inspect import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori.runtime.memory.proc_look import Stat

KIND: int = lib.MM_NO_NAME
DELETED = b" (deleted)"
SECRET = b"/secretmem (deleted)"           # of memfd_secret: nobody reads it for the program
_OTHERS = (b"/dev/", b"/memfd:", b"/SYSV", b"/[aio]", b"/anon_hugepage", SECRET)
_MAPPED = re.compile(rb"^\S+ ...s \S+ (\w+):(\w+) (\d+) +(/.* \(deleted\))$", re.MULTILINE)


def has_no_name(path: bytes) -> bool:
    """A path as /proc shows it."""
    return path.endswith(DELETED) and path.startswith(b"/") and not path.startswith(_OTHERS)


def number(major: int, minor: int, inode: int) -> int:
    """Of a file among all of its kind, as shim_c/src/memory/maps.c."""
    return inode ^ (((major << 20 | minor) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)


class Nameless:
    """Those that processes of a run have mapped shared, by number."""

    def __init__(self, maps: Iterable[bytes]) -> None:
        self._by_path: dict[tuple[bytes, int], int] = {}
        self._all: set[int] = set()
        for text in {*maps}:
            for major, minor, inode, path in _MAPPED.findall(text):
                if has_no_name(path):
                    this = number(int(major, 16), int(minor, 16), int(inode))
                    self._by_path[path, int(inode)] = this
                    self._all.add(this)

    def of(self, path: bytes, st: Stat) -> int:
        """The number of what a descriptor leads to; 0: none of them. Btrfs and overlay show other devices there."""
        if not self._all or not stat.S_ISREG(st.st_mode):
            return 0
        own = number(os.major(st.st_dev), os.minor(st.st_dev), st.st_ino)
        return own if own in self._all else self._by_path.get((path, st.st_ino), 0)


def require_none(area: Area, path: bytes, dev: int, inode: int) -> None:
    """Refused: it has another name, by which others would not find what is stored through the mapping."""
    slot = area.find_pif(dev, inode)
    if slot and not area.pif(slot).flags & lib.MM_NAMELESS:
        raise another_name(path)


def another_name(path: bytes) -> Refused:
    return Refused(f"it maps {os.fsdecode(path.removesuffix(DELETED))}, which lost that name and has another")
