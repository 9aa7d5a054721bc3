"""A live run prunes its own checkpoints: after each of them, and when a call finds the disk full.
Those that were there when it began, and 0, are nobody's but the user's: `metamori prune` (docs/adr/0031).

What it needs beside the indexes: its parent, the buffer from its last checkpoint on, pre-images of the journal
that no record holds yet, and its backing files. The head is an index that stays: the one that the run began at,
in single mode the last but one. So is what a run that was interrupted continues from.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from metamori._area import lib
from metamori.config import size_text
from metamori.errors import MetamoriError, sentence
from metamori.runtime.area.run_area import BLOCK, Area, NotAtRest, Preimage
from metamori.runtime.checkpoint.session_state import SessionState
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.store import Store
from metamori.tables.history import spans_text
from metamori.tables.retention import Rules

TYPE_CHECKING = False
if TYPE_CHECKING:                          # what prunes is imported when there is something to prune
    from metamori.store.prune import prune as stored
    from metamori.store.prune.prune_plan import Live


def recover(store: Store, durable: bool = True) -> None:
    """Complete a prune that was interrupted, if there is one."""
    if lstat_or_none(store.door, store.layout.prune):
        from metamori.store.prune import prune as stored

        stored.recover(store, durable)


def rules(area: Area) -> Rules:
    """None in a run area that does not say which checkpoints are its own."""
    head = area.head
    return Rules(head.keep_last, 0.0, head.max_bytes) if head.first_index else Rules()


def prune(session: SessionState) -> None:
    """After a checkpoint, which exists whatever comes of this; what fails is tried again after the next."""
    assert session.area.holds_session
    found = rules(session.area)
    try:
        if found and _is_due(session, found):
            done = _prune(session, found)
            if found.max_bytes and done.needed > found.max_bytes and (taken := _own_bytes(session)) > found.max_bytes:
                _say_once(session, f"this run's checkpoints take more than {size_text(found.max_bytes)} (--max-bytes): "
                                   f"{size_text(taken)} for the newest{_and_others(done.shape.below)}", "size")
    except (MetamoriError, OSError) as error:
        if lstat_or_none(session.store.door, session.store.layout.prune):
            why = sentence(error.__cause__ if isinstance(error.__cause__, OSError) else error)
            _say_once(session, f"the next checkpoint completes what could not be pruned to its end: {why}")
        else:
            _say_once(session, f"nothing was pruned: {sentence(error)}")


def make_room(session: SessionState, again: bool) -> int:
    """A call found the disk full: 1 when something could be freed. again: so it did when it was made once more."""
    with session.area.session_lock():
        return int(has_made_room(session, again))


def has_made_room(session: SessionState, aloud: bool = False) -> bool:
    """Prune as far as the disk needs it: never below --keep-last, else the oldest first, the newest never. aloud: it is
    said when there is nothing to prune."""
    assert session.area.holds_session
    found = rules(session.area)
    if not found:
        return False
    try:
        session.store.refresh()
        if len(_own(session)) > 1:
            with room_given(session.area):
                if _has_freed(session, found):
                    return True
    except (MetamoriError, OSError):
        return False                       # not even room to say what goes: what the disk said stands
    if aloud:
        others = _and_others([index for index in session.store.indexes if index < session.area.head.first_index])
        _say_once(session, f"the disk is full; the store holds only what this run's newest checkpoint needs{others}")
    return False


def next_makes_room(session: SessionState) -> bool:
    """Nothing can be pruned: whether something could once there is another checkpoint."""
    found = rules(session.area)
    return bool(found) and len(_own(session)) >= max(found.keep_last, 1)


@contextmanager
def room_given(area: Area, *, least: bool = False) -> Iterator[None]:
    """A prune, or a checkpoint, has what is held for that of the run's end. Others that write would take it, or hold it
    anew: they wait, but where one is stopped in a call. least: all but what a small checkpoint needs."""
    with ExitStack() as waits:
        with suppress(NotAtRest):
            waits.enter_context(area.frozen())
        area.give_room(checkpoint=not least, least=least)
        try:
            yield
        finally:
            lib.mm_room(area.pointer, 0)


def _has_freed(session: SessionState, found: Rules) -> bool:
    while len(own := _own(session)) > 1:
        done = _prune(session, Rules(keep_last=max(found.keep_last, len(own) - 1 if found.max_bytes else 1)))
        if done.before > done.after:
            return True
        if not done.dropped:
            break
    return False


def _own(session: SessionState) -> list[int]:
    return [index for index in session.store.indexes if index >= session.area.head.first_index]


def _and_others(below: list[int]) -> str:
    return f" and for {spans_text(below)}, which only 'metamori prune' may take away" if below else ""


def _say_once(session: SessionState, text: str, about: str = "") -> None:
    """Once in a run; `about`: whatever the numbers are."""
    if session.area.first_time(zlib.crc32((about or text).encode(errors="replace"))):
        session.said = text


def _own_bytes(session: SessionState) -> int:
    from metamori.store.prune import prune as stored

    return stored.disk_bytes(session.store, session.area.head.first_index, session.area.head.run)


def _is_due(session: SessionState, found: Rules) -> bool:
    return bool((found.max_bytes and _own_bytes(session) > found.max_bytes)
                or (found.keep_last and len(_own(session)) > found.keep_last))


def _prune(session: SessionState, found: Rules) -> stored.Result:
    from metamori.store.prune import prune as stored
    from metamori.store.restore import resume_point

    store, area = session.store, session.area
    stays = {area.head.parent, *session.stays, *resume_point.needs(store, store.newest)}
    done = stored.prune(store, found, stays, _needs(area), first=area.head.first_index,
                        durable=session.durable)
    for slot in list(area.pifs()):
        p = area.pif(slot)
        if p.flags & lib.MM_NAMELESS and not p.refs and done.shape.nothing_leads_to(p.object) \
                and p.epoch <= area.head.committed_epoch:
            area.forget_pif(slot)
    return done


def _needs(area: Area) -> Live:
    from metamori.store.prune.prune_plan import Live

    head = area.head
    journal = [(each.buffer_start, each.buffer_start + each.end - each.start)
               for each in area.journal(head.committed_journal) if isinstance(each, Preimage)]
    homes = frozenset(area.kept_name(slot) for slot in area.pifs() if area.pif(slot).flags & lib.MM_KEPT)
    return Live(head.run, head.committed_block * BLOCK, tuple(journal), homes)
