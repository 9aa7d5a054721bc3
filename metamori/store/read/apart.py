"""What may not be the same at two states: all that whoever goes from one to the other has to look at.

Entries that nobody spoke of in between are the same objects in both, so that finding the others takes a look at each
and no more. A name too many costs a little time, one too few would stay as it is: when in doubt, it is among them.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from metamori.store.read.maps import not_same
from metamori.store.read.state import State
from metamori.store.read.undos import UndoLog

_Key = TypeVar("_Key", bound=Hashable)


class Apart(NamedTuple):
    """paths: names that a plan from one state to the other has to know; objects: those of which the entry may not be
    the same, or the place of some byte."""

    paths: set[bytes]
    objects: set[int]


def between(undo_log: UndoLog, here: State, there: State) -> Apart:
    return Apart(paths_between(here, there), objects_between(undo_log, here, there))


def objects_between(undo_log: UndoLog, here: State, there: State) -> set[int]:
    low, high = sorted((here.index, there.index))
    return unlike(here.pifs, there.pifs) | here.maps.unlike(there.maps) | undo_log.spoken_of(low, high)


def unlike(one: Mapping[_Key, Any], other: Mapping[_Key, Any]) -> set[_Key]:
    return {key for key in not_same(one, other) if one.get(key) != other.get(key)}


def paths_between(here: State, there: State) -> set[bytes]:
    """The names that are not the same, with all names of their files, all that is in a folder that is another one or
    somewhere else, and the folders around them."""
    found, new = set[bytes](), unlike(here.names, there.names) | here.assumed_otherwise(there)
    while new:
        found |= new
        more = set(_other_names(here, there, new))
        folders = [path for path in new if _is_another_folder(here, there, path)]
        more.update(_below(here, folders), _below(there, folders))
        new = more - found
    for path in list(found):
        folder = os.path.dirname(path)
        while len(folder) > 1 and folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)
    return found


def _other_names(here: State, there: State, paths: Iterable[bytes]) -> Iterator[bytes]:
    for path in paths:
        for entry in (here.names.get(path), there.names.get(path)):
            if entry is not None and entry.kind == "file":
                yield from here.paths(entry.inode)
                yield from there.paths(entry.inode)


def _is_another_folder(here: State, there: State, path: bytes) -> bool:
    one, other = here.names.get(path), there.names.get(path)
    is_one = one is not None and one.kind == "dir"
    is_other = other is not None and other.kind == "dir"
    return is_one != is_other or (is_one and one.inode != other.inode)   # type: ignore[union-attr]


def _below(state: State, folders: list[bytes]) -> Iterator[bytes]:
    names = sorted(state.names) if folders else []
    for folder in folders:
        inside = folder + b"/"
        at = bisect_left(names, inside)
        while at < len(names) and names[at].startswith(inside):
            yield names[at]
            at += 1
