"""Which pages of mapped files were stored into since the last checkpoint, as far as the kernel can tell.

The preload library has the mappings watched (write_watch.c); PAGEMAP_SCAN gives the pages written and watches them
anew, for any process of the run. That is all that changed only if every mapping that there was at the last checkpoint
is still there: what a mapping was told goes when it goes. So a note of the mappings stays in the run area from one
checkpoint to the next; it is taken away before anything is asked, and put back when the checkpoint is written. Without
a note that fits, all of the file is compared.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import BLOCK, Area, proc_folder
from metamori.tables.record import field, mutable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from metamori.tables.record import NamedTuple

_PAGEMAP_SCAN = 0xC0606610
_WP_MATCHING, _CHECK_WPASYNC, _PAGE_IS_WRITTEN = 1, 2, 2
_REGIONS = 4096

Range = tuple[int, int]


class Mapping(NamedTuple):
    """A file mapping of a process: addresses [start, end) show the file from `offset` on. number: of the process."""

    number: int
    pid: int
    start: int
    end: int
    offset: int
    inode: int
    writes: int
    shared: bool = True


def mappings(area: Area, inodes: set[int]) -> list[Mapping] | None:
    """Those of the run's live processes with these inode numbers; None when a process cannot be asked."""
    found = []
    for slot in area.slots():
        pid, number = area.process(slot).pid, area.process(slot).number
        try:
            with open(proc_folder(pid) + b"/maps", "rb", 0) as file:
                text = file.read()
            for line in text.splitlines() if _has_any(text, inodes) else ():
                words = line.split(None, 5)
                if words[4] != b"0" and int(words[4]) in inodes:
                    start, _, end = words[0].partition(b"-")
                    found.append(Mapping(number, pid, int(start, 16), int(end, 16), int(words[2], 16), int(words[4]),
                                         int(words[1][1:2] == b"w"), words[1][3:4] == b"s"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            return None
    return found


def _has_any(maps: bytes, inodes: set[int]) -> bool:
    """Most processes map none of these files, and lines cost their time."""
    return len(inodes) > 50 or any(b" %d " % each in maps for each in inodes)


def held_outside(area: Area, inodes: set[int]) -> bool:
    """Whether a process that is not in the run has such a file open: one forked by a program that is not tracked may
    outlive it, and nobody counted it."""
    ours = {area.process(slot).pid for slot in area.processes()} | {area.head.supervisor, os.getpid()}
    return any(True for _ in holders(ours, inodes))


def holders(ours: set[int], inodes: set[int], writing: bool = False) -> Iterator[int]:
    """Processes besides ours that have such a file open. writing: open for writing, or mapped so and shared."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid in ours:
            continue
        if any(_inode(path) in inodes and not (writing and _only_reads(path)) for path in _descriptors(pid)) \
                or (writing and _maps(pid, inodes)):
            yield pid


def _only_reads(path: str) -> bool:
    try:
        with open(path.replace("/fd/", "/fdinfo/"), "rb") as info:
            flags = int(info.read().split(b"flags:", 1)[1].split(None, 1)[0], 8)
            return flags & os.O_ACCMODE == os.O_RDONLY
    except OSError:
        return True


def _maps(pid: int, inodes: set[int]) -> bool:
    try:
        with open(f"/proc/{pid}/maps", "rb") as lines:
            words = (line.split(None, 5) for line in lines)
            return any(word[1][1:4:2] == b"ws" and int(word[4]) in inodes for word in words)
    except OSError:
        return False


def _descriptors(pid: int) -> list[str]:
    """None where the process has ended, or may not be looked at."""
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _inode(path: str) -> int:
    """0: it has been closed meanwhile."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def scan(pid: int, start: int, end: int) -> list[Range] | None:
    """Address ranges stored into since they were last asked for, which are watched anew; None: not watched."""
    found: list[Range] = []
    regions = ffi.new("uint64_t[]", 3 * _REGIONS)
    argument = ffi.new("uint64_t[]", 12)
    try:
        pagemap = os.open(proc_folder(pid) + b"/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while start < end:
            argument[0:12] = [96, _WP_MATCHING | _CHECK_WPASYNC, start, end, 0, int(ffi.cast("uintptr_t", regions)),
                              _REGIONS, 0, 0, _PAGE_IS_WRITTEN, 0, _PAGE_IS_WRITTEN]
            count = fcntl.ioctl(pagemap, _PAGEMAP_SCAN, ffi.buffer(argument), True)
            found += [(regions[3 * i], regions[3 * i + 1]) for i in range(count)]
            start = argument[4]
    except OSError:                            # an older kernel, or a mapping that nobody watches
        return None
    finally:
        os.close(pagemap)
    return found


@mutable
class Watch:
    """The mappings at one instant, and at the last checkpoint."""

    area: Area
    now: list[Mapping]
    blind: bool                                # a program that is not tracked may have written to any file
    before: dict[int, tuple[int, frozenset[Mapping]]] = field(default_factory=dict)   # slot -> (unseen, mappings)
    noted: dict[int, tuple[int, frozenset[Mapping]]] = field(default_factory=dict)
    unseen: int = 0

    def __post_init__(self) -> None:
        self.unseen = self.area.head.unseen
        self._forget()

    def candidates(self, slot: int) -> list[Range] | None:
        """Ranges of a file that hold all that changed since the last checkpoint; None: any byte may have."""
        p = self.area.pif(slot)
        own = frozenset(each for each in self.now if each.inode == p.ino and each.shared)
        unseen, before = self.before.get(slot, (-1, frozenset()))
        self.noted[slot] = (p.unseen, own)
        found = self.area.noted_blocks(p)
        for each in own:                       # also when all is compared: they are watched from here on
            pages = scan(each.pid, each.start, each.end)
            if pages is None:                  # one that begins to write is no longer what was noted, or is counted
                pages = [(each.start, each.end)] if each.writes else []
            found += [(start - each.start + each.offset, end - each.start + each.offset) for start, end in pages]
        again = mappings(self.area, {p.ino})
        if self.blind or p.flags & lib.MM_ENGINE or unseen != p.unseen or not before <= own:
            return None
        if again is None or not own <= {*again}:
            return None
        return merged(found)

    def _note(self) -> str:
        return os.path.join(self.area.path, "watched")

    def _forget(self) -> None:
        try:
            with open(self._note(), encoding="ascii") as lines:
                words = [list(map(int, line.split())) for line in lines]
            os.unlink(self._note())
        except FileNotFoundError:
            return
        if not words or words[0] != [self.area.head.committed_epoch, self.unseen]:
            return
        for slot, unseen, *numbers in words[1:]:
            maps = frozenset(Mapping._make((*numbers[i:i + 7], True)) for i in range(0, len(numbers), 7))
            self.before[slot] = (unseen, maps)

    def keep(self) -> None:
        """The checkpoint is written: the next one may count from here."""
        if not self.noted:
            return
        lines = [[self.area.head.committed_epoch, self.unseen]]
        lines += [[slot, unseen, *(number for each in maps for number in each[:7])]
                  for slot, (unseen, maps) in self.noted.items()]
        new = self._note() + ".new"
        with open(new, "w", encoding="ascii") as out:
            out.writelines(" ".join(map(str, line)) + "\n" for line in lines)
        os.rename(new, self._note())


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Whole blocks, in file order, none twice."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        start, end = start // BLOCK * BLOCK, -(-end // BLOCK) * BLOCK
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
