"""Restore the tracked files to a checkpoint. An interrupted restore is completed by the next command.

What cannot be restored exactly is named, and nothing is touched (12); --force restores the rest, and ends with 12 too.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable
from typing import Any

from metamori import indexes
from metamori.cli import opening, output, within
from metamori.cli import restore_texts as texts
from metamori.errors import ChangedOutside, Damaged, Usage
from metamori.printed import name_text, word_text
from metamori.store.format.records import InheritedEntry
from metamori.store.read import invalidated
from metamori.store.read.compare import compare
from metamori.store.read.head import NO_TIME
from metamori.store.read.holders import Holders, Losses
from metamori.store.read.store import Store
from metamori.store.restore import export, external_changes, partial_checkpoint, restore
from metamori.store.restore.resume_point import BEFORE_RESTORE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="INDEX", type=indexes.wanted,
                        help="a checkpoint, or 0 for the state before the first run")
    parser.add_argument("paths", metavar="PATH", nargs="*", default=[],
                        help="restore only these files and folders (globs too), as a checkpoint of its own. A folder "
                             "with all below it: files made since go away")
    parser.add_argument("--to", metavar="DIR",
                        help="write a copy there and leave the files alone. Repeated after an interruption it "
                             "continues. Files of the project keep their place in it, others their whole path below "
                             "DIR, or below DIR/outside if names would collide")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.add_argument("--stdio", action="store_true",
                        help="also truncate inherited regular files (run ... >> out.log) to their size at INDEX. Not "
                             "with PATH")
    parser.add_argument("--force", action="store_true",
                        help="restore although files were modified outside Metamori, or are open in a live run; saves"
                             " them first. If a checkpoint has lost data, restore or copy the rest; the status is 12."
                             " Not needed for a .git/index that git status wrote anew")


def run(arguments: argparse.Namespace) -> int:
    if arguments.to is not None:
        if arguments.dry_run or arguments.stdio:
            raise Usage("--to cannot be combined with --dry-run or --stdio")
        return _copy(arguments)
    if arguments.paths and arguments.stdio:
        raise Usage("--stdio goes with no PATH")
    if not (arguments.dry_run or arguments.stdio):
        status = within.move(arguments, _choose(arguments.index), arguments.paths)
        if status is not None:
            return status
    with opening.for_writing(arguments) as store:
        arguments.index = indexes.find(store, arguments.index)
        if arguments.paths:
            from metamori.cli import restore_paths
            return restore_paths.put_back(arguments, store)
        return put_back(arguments, store)


def _choose(which: indexes.Wanted) -> Callable[[Store], Callable[[int], int]]:
    """As it is meant now: where the files are has no part in it, and what is recorded of them is not yet there."""
    def choose(store: Store) -> Callable[[int], int]:
        index = indexes.find(store, which)
        return lambda _: index

    return choose


def put_back(arguments: argparse.Namespace, store: Store, recorded: int = 0) -> int:
    """Of a run that is over; the caller holds the lock. recorded: what the caller has made of modified files."""
    store.require_restorable(arguments.index)
    if not arguments.force:
        invalidated.require_none(store, arguments.index)
    holders = Holders(store)
    changed, losses = holders.changed, Losses(store, holders)
    lost = losses.at(arguments.index)
    if getattr(arguments, "dry_run", False):
        return _dry_run(arguments, store, changed, losses)
    refused = [] if arguments.force else external_changes.refused(changed)
    if refused:
        also = f"; {texts.lost_text(arguments.index, lost)}" if lost else ""
        raise ChangedOutside(texts.changed_text(refused) + also, tuple(refused))
    if lost and not arguments.force:
        raise Damaged(f"{texts.lost_text(arguments.index, lost)}; --force restores the rest")
    if not store.has_disks:
        return _restore(arguments, store, changed, losses, recorded)
    from metamori.runtime.job import disks

    with disks.here(store) as disk:
        if disk and not arguments.force:
            disk.require_movable(arguments.index)
        status = _restore(arguments, store, changed, losses, recorded)
        if disk:
            disk.note_at({store.head.index: disk.at(arguments.index)})
            if lost := disk.move(store.head.index):
                output.say(f"on the node's own disk: {texts.lost_text(arguments.index, lost)}")
                status = Damaged.exit_code
        for host in disks.elsewhere(store, arguments.index):
            output.say(f"{host}'s own disk is restored by 'metamori restore {arguments.index}' there, or by the run "
                       "--job that starts there next")
    return status


def _copy(arguments: argparse.Namespace) -> int:
    with opening.for_reading(arguments) as store:
        arguments.index = indexes.find(store, arguments.index)
        store.require_restorable(arguments.index)
        losses, there = Losses(store), store.state(arguments.index)
        only = opening.tracked_paths(store, there, there, arguments.paths) if arguments.paths else None
        lost = [path for path in losses.at(arguments.index) if only is None or path in only]
        if lost and not arguments.force:
            raise Damaged(f"{texts.lost_text(arguments.index, lost)}; --force copies the rest")
        made = export.export(store, arguments.index, arguments.to, losses.objects(arguments.index), arguments.force,
                             only)
        lost = sorted({*lost, *made.lost})
        unknown = restore.unknown(store)
        if store.has_disks:
            from metamori.runtime.job import disks

            for disk in disks.all_of(store):
                output.say(f"files on {disk.host}'s own disk: metamori restore --store {word_text(disk.store.path)} "
                           f"{disk.at(arguments.index)} --to DIR")
    for why in unknown:
        output.say(why)
    if made.outside:
        output.say(f"files from outside of {os.path.dirname(store.path)} are in {output.path_text(made.outside)}: "
                   "because their names were taken")
    if lost:
        output.say(texts.lost_text(arguments.index, lost))
    if made.left_out:
        output.say(f"not copied, since changed outside Metamori after checkpoint {arguments.index} and tracked later: "
                   + output.paths_text(made.left_out))
    output.result(arguments, {"index": arguments.index, "to": arguments.to, "names": made.names,
                              "lost": [output.path_fields(path) for path in lost]},
                  f"copied checkpoint {arguments.index} ({made.names} name{'s' if made.names != 1 else ''}) to "
                  f"{name_text(arguments.to)}")
    return Damaged.exit_code if lost or unknown else 0


def _restore(arguments: argparse.Namespace, store: Store, changed: list[bytes], losses: Losses, recorded: int) -> int:
    """`changed` were modified outside Metamori: their state becomes an index before anything else."""
    asked = arguments.index
    lost, paths, ranges = losses.objects(asked), losses.at(asked), losses.ranges(asked)
    if now := external_changes.record(store, BEFORE_RESTORE) if changed or arguments.force else 0:
        output.say(f"the modified files were saved as checkpoint {now}")
        recorded = now
    before = store.head.index
    target = partial_checkpoint.without(store, asked, lost) if lost else asked
    work = restore.move_home(store, target, unknown=arguments.force)
    if lost:
        output.say(f"{texts.lost_text(asked, paths)}; everything else was restored, as checkpoint {target}")
    for note in work.notes:
        output.say(note)
    truncated = truncate_stdio(store, asked) if arguments.stdio else []
    data: dict[str, Any] = {
        "index": target, "from": before, "recorded": recorded or None, "notes": work.notes,
        "lost": texts.lost_fields(ranges),
        "truncated": [output.path_fields(path) for path in truncated],
    }
    if asked <= invalidated.up_to(store):
        output.result(arguments, data, f"what is known of checkpoint {asked} was brought back; what a run changed "
                                       "whose records were removed may differ")
        return Damaged.exit_code
    output.result(arguments, data, f"the files are at checkpoint {target}; they were at {before}")
    return Damaged.exit_code if lost else 0


def _dry_run(arguments: argparse.Namespace, store: Store, changed: list[bytes], losses: Losses) -> int:
    target = arguments.index
    lost, changes = losses.at(target), list(compare(store, store.head.index, target, exact=False))
    work = None if changed or lost else restore.plan(store, target)
    return texts.dry_run(arguments, store, "", changes, changed, lost, losses.ranges(target), work)


def truncate_stdio(store: Store, index: int) -> list[bytes]:
    """Cut what the run's first process had inherited; only regular files that are still the same ones, whatever number
    their device has by now: those had been born by the checkpoint."""
    done, then_ns = [], store.meta(index).time_ns if index else 0
    for entry in _inherited(store, index):
        try:
            fd = store.door.open(entry.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            output.say(f"{output.path_text(entry.path)}: {error.strerror}; it was not truncated")
            continue
        try:
            found = store.door.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size <= entry.size:
                continue
            born_ns = store.door.birth_ns(b"/proc/self/fd/%d" % fd, follow=True)
            if found.st_ino == entry.ino and (found.st_dev == entry.dev or NO_TIME <= born_ns <= then_ns):
                store.door.ftruncate(fd, entry.size)
                done.append(entry.path)
            elif found.st_dev != entry.dev:
                output.say(f"{output.path_text(entry.path)}: now on another device; not truncated")
        finally:
            store.door.close(fd)
    return done


def _inherited(store: Store, index: int) -> tuple[InheritedEntry, ...]:
    """As recorded at the index, or at the last one before it in the same run that says anything."""
    if index == 0:
        return ()
    run = store.meta(index).run
    for ancestor in store.history.chain(index)[:-1]:
        meta = store.meta(ancestor)
        if meta.run != run:
            break
        if meta.inherited:
            return meta.inherited
    return ()
