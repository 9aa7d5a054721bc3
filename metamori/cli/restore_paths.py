"""restore INDEX PATH...: some files and folders as at a checkpoint, all else as it is. The run is over."""

from __future__ import annotations

import argparse
import os

from metamori.cli import opening, output
from metamori.cli import restore_texts as texts
from metamori.errors import ChangedOutside, Damaged, MetamoriError
from metamori.store.read import invalidated
from metamori.store.read.compare import compare
from metamori.store.read.holders import Holders, Losses
from metamori.store.read.store import Store
from metamori.store.restore import external_changes, restore_plan
from metamori.store.restore import restore as moves
from metamori.store.restore.chosen_paths import Chosen
from metamori.store.restore.resume_point import BEFORE_RESTORE


def put_back(arguments: argparse.Namespace, store: Store) -> int:
    """The caller holds the lock."""
    index = arguments.index
    store.require_restorable(index)
    moves.require_known(store, index)
    if not arguments.force:
        invalidated.require_none(store, index)
    holders = Holders(store)
    losses = Losses(store, holders)
    gone = {path for inode in losses.objects(index) for path in store.state(index).paths(inode)}
    chosen, lost = _chosen(arguments, store, gone)
    changed = [path for path in holders.changed if path in chosen.paths]
    if arguments.dry_run:
        return _dry_run(arguments, store, chosen, changed, lost, losses)
    refused = [] if arguments.force else external_changes.refused(changed)
    if refused:
        raise ChangedOutside(texts.changed_text(refused), tuple(refused))
    if lost and not arguments.force:
        raise Damaged(f"{texts.lost_text(index, lost)}; --force restores the rest")
    recorded = external_changes.record(store, BEFORE_RESTORE) if changed or arguments.force else 0
    if recorded:
        output.say(f"the modified files were saved as checkpoint {recorded}")
        chosen, _ = _chosen(arguments, store, gone)
    if lost:
        output.say(texts.lost_text(index, lost))
    before, notes = store.head.index, []
    if not chosen.is_empty:
        notes = _move(store, chosen, texts.message(arguments.paths, index))
    for note in notes:
        output.say(note)
    ranges = [each for each in losses.ranges(index) if each[0] in lost]
    output.result(arguments, texts.answer(store.head.index, before, recorded, chosen, notes)
                  | {"lost": texts.lost_fields(ranges)}, texts.text(store.head.index, before, index, chosen))
    return Damaged.exit_code if lost else 0


def _chosen(arguments: argparse.Namespace, store: Store, gone: set[bytes]) -> tuple[Chosen, list[bytes]]:
    """What is to be done, and what of it is lost: that stays as it is."""
    here, there = store.state(store.head.index), store.state(arguments.index)
    paths = opening.tracked_paths(store, here, there, arguments.paths)
    return Chosen(store, here, there, paths - gone), sorted(paths & gone)


def _move(store: Store, chosen: Chosen, said: str) -> list[str]:
    run = moves.newest_run(store)

    def save(path: bytes, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        fd = store.door.open_shut(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return store.buffers.save(run, fd, ranges)
        finally:
            store.door.close(fd)

    try:
        part = chosen.commit(said, save, index=store.next_index(), process=store.next_process(), run=run,
                             new_object=store.next_object)
    except OSError as error:
        file = os.fsdecode(error.filename or store.path)
        raise MetamoriError(f"{file}: {error.strerror}; no file was touched") from error
    return moves.move_home(store, part.index, unknown=True, part=part).notes


def _dry_run(arguments: argparse.Namespace, store: Store, chosen: Chosen, changed: list[bytes], lost: list[bytes],
             losses: Losses) -> int:
    index, work, names = arguments.index, None, set(chosen.changed)
    changes = [each for each in compare(store, store.head.index, index, exact=False) if each.path in names]
    if not changed and not lost and not chosen.is_empty:
        after, part = chosen.after()
        work = restore_plan.make_plan(store, index, part, after)
    ranges = [each for each in losses.ranges(index) if each[0] in lost]
    return texts.dry_run(arguments, store, ", some files", changes, changed, lost, ranges, work)
