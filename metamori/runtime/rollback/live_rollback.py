"""Files of a live run back to an index, asked for by a verb: its processes go on with the descriptors that they have.

The same walk as for a resumed job (resumed_job.py), with two differences: the present becomes an index first, in the
same freeze, so that nothing lies between what is kept and what is moved away from; and files that would change while
a process has them open for writing are named, and nothing is touched. With `force` the positions of what is open for
writing go back too (positions.py, docs/adr/0046).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from metamori._area import lib
from metamori.errors import ChangedOutside, MetamoriError, StoreBusy
from metamori.printed import name_text
from metamori.runtime.area.run_area import Area, NotAtRest, proc_folder
from metamori.runtime.checkpoint.dirty_pages import mappings
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.rollback import live_part, positions
from metamori.runtime.rollback.files_beside import adopt, changed_beside, take_up
from metamori.runtime.rollback.rollback import back_or_as_it_is, go_on, held
from metamori.store.read import create
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore import external_changes
from metamori.store.restore.chosen_paths import Chosen
from metamori.tables.record import record

if TYPE_CHECKING:
    from metamori._area import mm_pif

REASON = "before going back"
_NAMED_MAX = 5


@record
class Holder:
    """A process that has a file open for writing, or mapped."""

    path: bytes
    pid: int
    program: str


class Held(StoreBusy):
    """Files that would change are open for writing."""


@record
class Moved:
    """before: where the files were. recorded: the index that keeps what was there, 0 where `before` is that."""

    index: int
    before: int
    recorded: int
    held: tuple[Holder, ...] = ()
    asked: int = 0
    chosen: Chosen | None = None


def live_area(store: Store) -> Area | None:
    """The run area of a store whose run is alive. That of a copy names processes, and files, of the original: these
    are not the copy's to move."""
    if not create.is_in_place(store.door, store.layout):
        return None
    try:
        area = Area(store.path)
    except OSError:
        return None
    if area.is_peopled() or area.is_supervised():
        return area
    area.close()
    return None


@record
class Some:
    """Which paths go back, given the states here and there, and what the index that they make is called."""

    pick: Callable[[State, State], set[bytes]]
    message: Callable[[int], str]


def move_live(session: Session, choose: Callable[[int], int], force: bool, some: Some | None = None) -> Moved:
    """Files and names to the index that `choose` names, given where they are. Held unless `force`; NotAtRest.
    ChangedOutside where a file of `some` was, that the run has not used."""
    _require_possible(session)
    with held(session):
        session.store.refresh()
        moved = _move(session, choose, force, some)
    go_on(session)
    return moved


def carry_through(session: Session) -> None:
    """What a verb was killed in the middle of, if one was; by `metamori run`. Its programs wait for that: nothing has
    been written since (area/lock_owner.c). OSError, MetamoriError: it cannot be, and they go on with what there is."""
    area = session.area
    if not area.head.restoring:
        return
    try:
        with held(session, 0.0):           # a verb that is at it has the lock
            session.store.refresh()
            if area.head.restoring:
                back_or_as_it_is(session, area.head.restoring - 1, reopened=False)
    except NotAtRest:
        return
    go_on(session)


def _require_possible(session: Session) -> None:
    head = session.area.head
    if head.flags & lib.MM_MEMORY:
        raise StoreBusy(f"the run in {session.store.path} is alive, and its program's memory would have to go back "
                        "with its files: end it and use metamori restart, or let it call metamori_restore")
    if session.single:
        raise StoreBusy(f"the run in {session.store.path} is alive and keeps its last checkpoint only (--mode single)")


def _move(session: Session, choose: Callable[[int], int], force: bool, some: Some | None) -> Moved:
    area, store = session.area, session.store
    if area.head.restoring:                # a verb was killed in the middle of this
        with _uninterrupted():
            back_or_as_it_is(session, area.head.restoring - 1, reopened=False)
    before, recorded = area.head.parent, 0
    paths = _paths(store, before, choose(before), some) if some else None
    changed = changed_beside(session, store.state(before), paths)
    if not force:
        _require_none(_written_and_held(area, paths))
        if refused := external_changes.refused(changed):
            raise ChangedOutside(changed_text(refused), tuple(refused))
    take_up(session, changed)
    if _may_have_changed(area):
        recorded = _record(session)
    index = choose(area.head.parent)
    store.require_restorable(index)
    if index == area.head.parent:
        return Moved(index, before, recorded)
    now, then = store.state(area.head.parent), store.state(index)
    chosen = Chosen(store, now, then, some.pick(now, then)) if some else None
    if chosen is not None:
        if chosen.is_empty:
            return Moved(now.index, before, recorded, (), index, chosen)
        then, _ = chosen.after()
    held = _holders(area, lambda pif: _moves(pif.object, now, then))
    if not force:
        _require_none(held)
    asked = index
    if chosen is not None and some is not None:
        index = live_part.record(session, chosen, some.message(index))
    with _uninterrupted():
        adopt(session, index)
        back_or_as_it_is(session, index, reopened=False)
        if force:
            positions.move_back(session, asked, then, chosen.paths if chosen is not None else None)
    return Moved(index, before, recorded, tuple(held), asked, chosen)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What ends a verb waits: half of the files would be at one index, half at the other, and the programs go on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _paths(store: Store, here: int, there: int, some: Some) -> set[bytes]:
    now, then = store.state(here), store.state(there)
    return Chosen(store, now, then, some.pick(now, then)).paths


def _written_and_held(area: Area, paths: Container[bytes] | None) -> list[Holder]:
    """Files that were written since the last index, which no other has as they are, and that somebody holds."""
    dirty = {area.pif(slot).ino for slot in area.dirty()}
    return _holders(area, lambda pif: pif.ino in dirty and (paths is None or area.pif_path(pif) in paths)) \
        if dirty else []


def changed_text(changed: list[bytes]) -> str:
    names = [name_text(path) for path in changed[:_NAMED_MAX]]
    more = f" and {len(changed) - _NAMED_MAX} more" if len(changed) > _NAMED_MAX else ""
    return (f"modified outside Metamori: {', '.join(names)}{more}; --force saves that state as a checkpoint, then "
            "restores")


def _record(session: Session) -> int:
    try:
        return session.take_now(REASON)
    except OSError as error:
        why = error.strerror or error
        raise MetamoriError(f"nothing was restored: the present state could not be saved: {why}") from error


def _may_have_changed(area: Area) -> bool:
    """Whether anything may differ from the index that the files are at."""
    return bool(area.dirty()) or next(area.journal(area.head.committed_journal), None) is not None \
        or any(area.may_have_changed_unseen(slot) for slot in area.pifs())


def _require_none(held: list[Holder]) -> None:
    if held:
        raise Held(f"the run is alive, and has files open for writing that would change: {listed(held)}; "
                   "close them, or restore under them with --force")


def _holders(area: Area, moves: Callable[[Any], bool]) -> list[Holder]:
    """Who has files that move open for writing, or mapped so."""
    found: dict[tuple[int, int], Holder] = {}

    def add(pif: mm_pif, pid: int) -> None:
        if moves(pif):
            found[pif.ino, pid] = Holder(area.pif_path(pif), pid, _program(pid))

    for process in area.processes():
        for slot in set(area.descriptors(process).values()):
            fit = area.fit(slot)
            if fit.slot and fit.attributes & os.O_ACCMODE != os.O_RDONLY:
                add(area.pif(fit.slot), area.process(process).pid)
    mapped = {p.ino: p for p in map(area.pif, area.pifs()) if p.flags & lib.MM_HOME}
    for each in (mappings(area, set(mapped)) or []) if mapped else []:
        if each.writes and each.shared:
            add(mapped[each.inode], each.pid)
    return list(found.values())


def _moves(inode: int, now: State, then: State) -> bool:
    """Whether a file has other bytes, another size or other names at the index."""
    if inode not in then.pifs or inode not in now.pifs:
        return bool(now.paths(inode) or then.paths(inode))
    one, other = now.pifs[inode], then.pifs[inode]
    return ((one.size, one.mode) != (other.size, other.mode) or set(now.paths(inode)) != set(then.paths(inode))
            or any(now.differences(then, inode)))


def _program(pid: int) -> str:
    with suppress(OSError), open(proc_folder(pid) + b"/comm", "rb") as file:
        return name_text(file.read().rstrip(b"\n"))
    return "a process"


def listed(held: Sequence[Holder]) -> str:
    names = [f"{name_text(each.path)} by {each.program} ({each.pid})" for each in held[:_NAMED_MAX]]
    return ", ".join(names) + (f" and {len(held) - _NAMED_MAX} more" if len(held) > _NAMED_MAX else "")
