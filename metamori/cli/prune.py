"""Free space: drop the checkpoints that no rule keeps, and `run --resume` does not need. All others stay restorable.
Index 0 counts like any other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from metamori.cli import opening, output
from metamori.config import parse_count, parse_duration, parse_room
from metamori.errors import Usage
from metamori.runtime.job import folder
from metamori.store.prune import prune
from metamori.store.restore import resume_point
from metamori.tables.record import replace
from metamori.tables.retention import Rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep-last", metavar="N", help="keep the newest N")
    parser.add_argument("--keep-every", metavar="DURATION",
                        help="keep the newest, and one per 10m, 2h ... before it. Going back, each that is at least "
                             "so much older; index 0 is older than all")
    parser.add_argument("--max-bytes", metavar="SIZE", help="keep the newest, as many as fit into 500M, 2G ...")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def rules(arguments: argparse.Namespace) -> Rules:
    """Usage unless there is at least one rule."""
    last = parse_count(arguments.keep_last) if arguments.keep_last is not None else 0
    size = parse_room(arguments.max_bytes) if arguments.max_bytes is not None else 0
    every = parse_duration(arguments.keep_every) if arguments.keep_every is not None else 0.0
    found = Rules(last, every, size)
    if not found:
        raise Usage("prune needs --keep-last, --keep-every or --max-bytes")
    return found


def run(arguments: argparse.Namespace) -> int:
    wanted = rules(arguments)
    folder.require_no_part(arguments.store, "disks")   # its own rules would not know what the job's indexes need
    with opening.for_writing(arguments) as store:
        disks = store.has_disks and not arguments.dry_run
        if disks:
            from metamori.runtime.job import disks as of_job

            of_job.before_prune(store)
        done = prune.prune(store, wanted, resume_point.needs(store), dry_run=arguments.dry_run)
        if disks:
            before, after = of_job.after_prune(store)
            done = replace(done, before=done.before + before, after=done.after + after)
    data = {"kept": list(done.kept), "pruned": list(done.dropped), "dry_run": arguments.dry_run,
            "bytes_before": done.before, "bytes_after": done.after, "bytes_freed": done.before - done.after}
    output.result(arguments, data, _text(done, arguments.dry_run))
    return 0


def _text(done: prune.Result, dry_run: bool) -> str:
    freed = output.size_text(max(0, done.before - done.after))
    if not done.dropped:
        return f"nothing to prune; {freed} freed" if done.before > done.after else "nothing to prune"
    ranges = _ranges(done.dropped)
    names = ", ".join(ranges[:20]) + (" …" if len(ranges) > 20 else "")
    would = "would be " if dry_run else ""
    return output.wrapped(f"{len(done.dropped)} {would}pruned ({names}), {freed} {would}freed; {len(done.kept)} kept")


def _ranges(indexes: Sequence[int]) -> list[str]:
    """Neighbours as 3-7."""
    found: list[list[int]] = []
    for index in indexes:
        if found and found[-1][-1] == index - 1:
            found[-1][1:] = [index]
        else:
            found.append([index])
    return ["-".join(map(str, each)) for each in found]
