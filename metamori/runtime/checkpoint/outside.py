"""What somebody outside of the run has done to its files: what is something else by now, and what the indexes so far
have lost by it."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence

from metamori._area import lib
from metamori.runtime.checkpoint.cut import Cut, Found, look
from metamori.store.format.records import NO_LIMIT, PifEntry, UndoEntry
from metamori.store.read.state import State, parents
from metamori.store.read.store import Store
from metamori.tables.aml import AML, AddressMap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori.runtime.area.run_area import Preimage, Touch
    from metamori.tables.pif import Pif


def replaced(cut: Cut, before: State) -> None:
    """What cannot be as it was known, since something is in it, or since it is in what is no folder: somebody outside
    of the run has seen to that, and nobody has noted it."""
    examined, known = cut.examined, before.names
    around = {path[:path.rfind(b"/")] for path, there in examined.items() if there.st}
    for folder in around.union(*map(parents, around)):
        if folder in known and known[folder].kind != "dir" and folder not in examined:
            there = look(folder)
            if there.st and stat.S_ISDIR(there.st.st_mode):
                examined[folder] = there
    gone = {path for path, there in examined.items()
            if (known[path].kind == "dir" if path in known else path in before.around)
            and not (there.st and stat.S_ISDIR(there.st.st_mode))
            and not (path in cut.touches and stat.S_ISDIR(cut.touches[path].mode))}
    for path in known if gone else ():
        if path not in examined and not gone.isdisjoint(parents(path)):
            examined[path] = Found(None)


def moved(cut: Cut, before: State, pifs: Iterable[PifEntry]) -> None:
    """Names by which files that have none any more are known, and that nobody has noted: somebody outside of the run
    had moved the file from there. What came there since the instant is of the next interval."""
    for path in [path for pif in pifs if pif.was_deleted for path in before.paths(pif.inode)]:
        if path not in cut.examined:
            there = look(path)
            cut.examined[path] = there if there.st and there.st.st_ctime_ns < cut.time_ns else Found(None)


def whole(store: Store, before: State, inodes: Iterable[int]) -> list[UndoEntry]:
    """All that is in place of these files, which somebody changed before this run came to them."""
    from metamori.store.read.copies import last_copies  # seldom needed

    inodes = sorted(inodes)
    copies = last_copies(store, before, inodes)
    return [entry for inode in inodes for entry in (*copies.get(inode, ()), UndoEntry(inode, 0, NO_LIMIT, 0, 0))]


def is_as_noted(pif: Pif, known: PifEntry, noted: Touch) -> bool:
    """Whether a file was as the parent has it when the run came to it: where something of it was redirected, the parent
    has a later time than the one in place."""
    if not pif.flags & lib.MM_VIRTUAL and noted.size != known.size:
        return False
    return noted.mtime_ns == known.mtime_ns or noted.mtime_ns < min(known.mtime_ns, pif.mtime_ns)


def needed(known: PifEntry, isolated: bool, preexisting: bool, flags: int, old_size: int) -> int:
    """How many bytes in place of a file the indexes may count on, but for what was saved of them. In isolation some
    need more of them than the last one, and no program of the run cuts them off."""
    if isolated and preexisting and not flags & lib.MM_SETTLED:
        return old_size
    return min(known.size, known.home_limit)


def saved(store: Store, run: int, preimages: Iterable[Preimage]) -> Iterator[tuple[Preimage, UndoEntry]]:
    """What the run has saved of its files, or found cut off, as entries of no file yet."""
    there = [each for each in preimages if each.start < each.end or not each.buffer_start]
    crcs = iter(store.buffers.checksums(run, [(each.buffer_start, each.buffer_start + each.end - each.start)
                                              for each in there if each.buffer_start]))
    for each in there:
        yield each, (UndoEntry(0, each.start, each.end, run, each.buffer_start, next(crcs)) if each.buffer_start else
                     UndoEntry(0, each.start, NO_LIMIT, 0, 0))


def cut_off(before: State, ends: Sequence[tuple[int, int, int]], saved: Iterable[UndoEntry]) -> Iterator[UndoEntry]:
    """What was in place between these ends of files and those that they had, where the run has not saved it before it
    cut them there itself."""
    own = {inode: AddressMap(before.saved(inode).find(0, NO_LIMIT)) for inode, _, _ in ends}
    for each in saved:
        if each.inode in own:
            own[each.inode].insert(AML(each.start, each.end, each.run, each.buffer_start))
    for inode, end, needed in ends:
        if any(own[inode].gaps(end, needed)):
            yield UndoEntry(inode, end, NO_LIMIT, 0, 0)
