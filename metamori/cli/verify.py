"""Check every byte of the store against its checksum. Unfinished work of a killed run is named, and is not damage."""

from __future__ import annotations

import argparse
import os

from metamori.cli import output, progress
from metamori.errors import Damaged
from metamori.runtime.area.unwritten import beside_runs
from metamori.runtime.job import folder
from metamori.store.read.store import Store
from metamori.store.read.verify import verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> int:
    """Opened without completing anything: looking must not change what is looked at."""
    folder.require_store(arguments.store)
    with Store.open(os.path.abspath(arguments.store), door=progress.door()) as store:
        if store.is_busy():                # what a killed run has left may lead anywhere
            beside_runs(store)
        report = verify(store)
        if store.has_disks:
            from metamori.runtime.job import disks

            for disk in disks.all_of(store):
                found = verify(disk.store, counts=disk.used() if disk.is_here else frozenset())
                report.add(found, f"{disk.host}'s own disk: ")
                disk.store.close()
    for note in report.notes:
        output.say(note)
    for problem in report.problems:
        output.say(problem)
    checked = (f"{report.checkpoints} checkpoints, {report.ranges} ranges, "
               f"{output.size_text(report.buffer_bytes)} of buffers"
               + (f", {report.images} images of memory" if report.images else ""))
    data = {"ok": not report.problems, "problems": report.problems, "notes": report.notes,
            "checkpoints": report.checkpoints, "ranges": report.ranges, "buffer_bytes": report.buffer_bytes,
            "images": report.images,
            "lost": [{"index": index, "files": [output.path_fields(path) for path in paths]}
                     for index, paths in report.lost.items()]}
    output.result(arguments, data, "" if report.problems else f"{checked}; no errors")
    return Damaged.exit_code if report.problems else 0
