"""Files back while their run is alive: from a shell, an editor or an agent inside of it, or from another terminal."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from metamori.cli import opening, output
from metamori.errors import NoLiveRun
from metamori.store.io import commit
from metamori.store.read.store import Store


def move(arguments: argparse.Namespace, choose: Callable[[Store], Callable[[int], int]],
         words: Sequence[str] = ()) -> int | None:
    """The exit status; None when no run is alive. choose: given the store, what gives the index that is meant. words:
    the only paths to go back."""
    opening.require_whole(arguments.store)
    store = Store.open(os.path.abspath(arguments.store))
    with store:
        if not commit.exists(store.door, store.layout.run_area):
            return None
        from metamori.cli import restore_texts as texts
        from metamori.runtime.checkpoint.session import Session
        from metamori.runtime.rollback import live_rollback

        area = live_rollback.live_area(store)
        if area is None:
            return None
        try:
            session, which = Session(store, area), choose(store)
            some = live_rollback.Some(lambda here, there: opening.tracked_paths(store, here, there, words),
                                      lambda index: texts.message(words, index)) if words else None
            moved = live_rollback.move_live(session, which, arguments.force, some)
        except NoLiveRun:                  # it has ended meanwhile
            return None
        finally:
            area.close()
    if session.said:
        output.say(session.said)
    if moved.held:
        output.say(f"restored while open for writing: {live_rollback.listed(moved.held)}")
    if moved.chosen is not None:
        output.result(arguments, texts.answer(moved.index, moved.before, moved.recorded, moved.chosen, []),
                      texts.text(moved.index, moved.before, moved.asked, moved.chosen))
        return 0
    data: dict[str, Any] = {"index": moved.index, "from": moved.before, "recorded": moved.recorded or None,
                            "notes": [], "lost": [], "truncated": []}
    was = moved.recorded or moved.before   # the state before is a checkpoint of its own, where it was none
    output.result(arguments, data, f"the files are at checkpoint {moved.index}; they were at {was}")
    return 0


def head(store: Store) -> int:
    """The index that the files are at, or have grown from while a run is alive."""
    if commit.exists(store.door, store.layout.run_area):
        from metamori.runtime.rollback import live_rollback

        area = live_rollback.live_area(store)
        if area is not None:
            try:
                parent: int = area.head.parent
            finally:
                area.close()
            if parent in store.history:
                return parent
    return store.head.index
