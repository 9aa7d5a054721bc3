"""What goes, and what stays: old indexes while a program runs, everything when it has ended well."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import replace

from metamori.levels.formats import checksummed_file
from metamori.levels.formats.source import FileSource
from metamori.levels.protect import checkpoint, record
from metamori.levels.protect.job import Crew
from metamori.levels.protect.record import Member, Record


def prune(crew: Crew, records: dict[int, Record], keep: int) -> None:
    """Forget all but the newest `keep` checkpoints and what they read; 0 keeps all."""
    if not keep or len(records) <= keep:
        return
    needed = {index for each in list(records)[-keep:] for index in records[each].needs}
    for index in [each for each in records if each not in needed]:
        gone = records.pop(index)
        if crew.rank == 0:                 # first it exists no more, then its files go
            with contextlib.suppress(FileNotFoundError):
                os.unlink(crew.paths.record(index))
        crew.app.barrier()
        remove(crew.paths.folder(gone.level, index))
        if crew.rank == 0:
            remove(os.path.dirname(crew.paths.members(gone.level, index)))


def remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def finish(crew: Crew, records: dict[int, Record]) -> bool:
    """Remove the execution's files. Whether a checkpoint is kept (keep_last_ckpt), as one of level 4."""
    kept = bool(crew.settings.keep_last_ckpt and records)
    if kept:
        _to_shared(crew, records)
    crew.app.barrier()
    if crew.settings.keep_l4_ckpt and crew.rank == 0 and not kept:
        folder = os.path.join(crew.paths.shared, "l4")
        if os.path.isdir(folder):
            remove(crew.paths.archive())
            os.rename(folder, crew.paths.archive())
    crew.app.barrier()
    remove(crew.paths.local)
    with contextlib.suppress(OSError):     # the node's folder, when no other execution has files there
        os.rmdir(os.path.dirname(crew.paths.local))
    if crew.rank == 0 and not kept:
        remove(crew.paths.meta)
        if crew.settings.keep_l4_ckpt and os.path.isdir(crew.paths.archive()):
            for name in set(os.listdir(crew.paths.shared)) - {"l4_archive"}:
                remove(os.path.join(crew.paths.shared, name))
        else:
            remove(crew.paths.shared)
    crew.app.barrier()
    return kept


def _to_shared(crew: Crew, records: dict[int, Record]) -> None:
    """The last checkpoint, and what it reads, become checkpoints of level 4; all others are forgotten."""
    last = records[max(records)]
    if last.level != 4:
        for index in last.needs:
            _one_to_shared(crew, records, records[index])
    for index in list(records):
        if index not in last.needs:
            del records[index]
            if crew.rank == 0:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(crew.paths.record(index))


def _one_to_shared(crew: Crew, records: dict[int, Record], each: Record) -> None:
    wrong = ""
    try:
        source = FileSource(crew.paths.data(each.level, each.index, each.id, crew.rank))
        try:
            target = crew.paths.data(4, each.index, each.id, crew.rank)
            checkpoint.copy(source, target, crew.settings.transfer_size << 20)
        finally:
            source.close()
        members: list[Member] | None = None
        if crew.group.rank == 0:
            members = record.read_members(crew.paths.members(each.level, each.index))
            record.write_members(crew.paths.members(4, each.index), members)
    except (checksummed_file.Broken, OSError) as error:
        wrong = str(error)
    checkpoint.agree(crew.app, wrong)
    moved = replace(each, level=4, places=())
    records[each.index] = moved
    if crew.rank == 0:
        record.write_record(crew.paths, moved)
