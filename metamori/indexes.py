"""How a person names a checkpoint: 7, last, -2, @2h, @2026-11-22T10:00, :GLOB of a message. The only parser of these.

What is written is read before the store is opened, so that a mistake in it is a mistake of usage; which checkpoint it
is depends on the store, and is asked of it once.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from fnmatch import fnmatchcase

from metamori.config import parse_duration
from metamori.errors import NoSuchCheckpoint, Usage
from metamori.store.read.store import Store
from metamori.tables.history import spans_text
from metamori.tables.record import record

FORMS = "a number, last, -2, @2h, @2026-11-22T10:00 or :GLOB of a message"
_CANDIDATES = 8


@record
class Wanted:
    """`number` as it is, -1 the newest, -2 the one before; or the newest at `until_ns`; or `glob` of a message."""

    text: str
    number: int | None = None
    until_ns: int = 0
    glob: str = ""


def wanted(text: str) -> Wanted:
    """For argparse: which checkpoint is meant. Usage."""
    if re.fullmatch(r"[0-9]{1,18}|-[1-9][0-9]{0,17}", text):
        return Wanted(text, number=int(text))
    if text == "last":
        return Wanted(text, number=-1)
    if text.startswith(":") and len(text) > 1:
        return Wanted(text, glob=text[1:])
    if text.startswith("@") and (until := _instant(text[1:])) is not None:
        return Wanted(text, until_ns=until)
    raise Usage(f"'{text}' is not a checkpoint: write {FORMS}")


def _instant(text: str) -> int | None:
    """Nanoseconds since 1970: so long ago, or an ISO time, local unless it says its zone; None where it is neither."""
    try:
        if re.fullmatch(r"[0-9.]+(ms|[smhd])", text):
            return time.time_ns() - int(parse_duration(text) * 1e9)
        return int(datetime.fromisoformat(text).timestamp() * 1e9)
    except (Usage, ValueError, OverflowError, OSError):
        return None


def find(store: Store, which: Wanted) -> int:
    """The index, which exists. NoSuchCheckpoint; Usage when several fit."""
    if which.number is not None and which.number >= 0:
        index = which.number
    elif which.number is not None:
        index = _from_the_newest(store, which)
    elif which.glob:
        index = _by_message(store, which)
    else:
        index = _by_time(store, which)
    store.require(index)
    return index


def message(store: Store, index: int) -> str:
    """What `log` says of an index."""
    if index == 0:
        return "before the first run" if 0 in store.indexes else "before the first run (pruned)"
    meta = store.meta(index)
    return meta.message or meta.reason


def _from_the_newest(store: Store, which: Wanted) -> int:
    known = store.indexes
    if not known or -(which.number or 0) > len(known):
        raise NoSuchCheckpoint(f"there is no checkpoint {which.text}: there are {spans_text(known) or 'none'}")
    return known[which.number or -1]


def _by_time(store: Store, which: Wanted) -> int:
    for index in reversed(store.indexes):
        if index and store.meta(index).time_ns <= which.until_ns:
            return index
    oldest = next((index for index in store.indexes if index), None)
    known = "there is none yet"
    if oldest is not None:
        since = datetime.fromtimestamp(store.meta(oldest).time_ns / 1e9)
        known = f"the oldest is {oldest}, of {since:%Y-%m-%d %H:%M:%S}"
    raise NoSuchCheckpoint(f"there was no checkpoint yet at {which.text}; {known}")


def _by_message(store: Store, which: Wanted) -> int:
    fitting = [index for index in store.indexes if fnmatchcase(message(store, index), which.glob)]
    if not fitting:
        raise NoSuchCheckpoint(f"no checkpoint's message matches {which.glob}; metamori log shows them")
    if len(fitting) > 1:
        named = ", ".join(f"{index} ({message(store, index)})" for index in fitting[-_CANDIDATES:])
        more = f"{len(fitting) - _CANDIDATES} more, " if len(fitting) > _CANDIDATES else ""
        raise Usage(f"{which.text} matches {len(fitting)} checkpoints: {more}{named}; name one by its number")
    return fitting[0]
