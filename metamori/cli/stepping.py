"""undo and redo: a number of changes back or forth from where the files are, whether their run is alive or over."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from metamori.cli import opening, output, restore, restore_texts, within
from metamori.config import parse_count
from metamori.errors import ChangedOutside
from metamori.store.read.store import Store
from metamori.store.read.undo_steps import Steps
from metamori.store.restore import external_changes
from metamori.store.restore.resume_point import BEFORE_RESTORE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("count", metavar="N", nargs="?", default="1", help="how many changes (default 1)")
    parser.add_argument("--force", action="store_true",
                        help="restore although files were modified outside Metamori, or are open in a live run")


def run(arguments: argparse.Namespace, way: str) -> int:
    count = parse_count(arguments.count)

    def choose(store: Store) -> Callable[[int], int]:
        steps = Steps(store)
        return lambda here: getattr(steps, way)(here, count)

    status = within.move(arguments, choose)
    if status is not None:
        return status
    with opening.for_writing(arguments) as store:
        refused, recorded = external_changes.refused(store.changed_outside()), 0
        if refused and not arguments.force:
            raise ChangedOutside(restore_texts.changed_text(refused), tuple(refused))
        if refused:                        # a change as any other; what git status wrote is none, and saved in put_back
            recorded = external_changes.record(store, BEFORE_RESTORE)
            output.say(f"the modified files were saved as checkpoint {recorded}")
        arguments.index, arguments.stdio = choose(store)(store.head.index), False
        return restore.put_back(arguments, store, recorded)
