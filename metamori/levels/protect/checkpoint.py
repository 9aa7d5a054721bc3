"""How a checkpoint comes to be: written, protected as its level says, agreed on by all, recorded.

States: written (this rank's file is durable) -> protected (partner's copy, parity, copy on the parallel file system)
-> agreed (every rank has its part) -> recorded: it exists. A rank that fails or dies before the last leaves the
checkpoint before it as it was. The second half (`post`) is done by the program's processes themselves, by a head for
all of its node, or by a thread; it only needs the files that the first half wrote.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import Any

from metamori.errors import MetamoriError
from metamori.levels.formats import posix_format
from metamori.levels.formats.posix_format import Written
from metamori.levels.formats.sink import Sink
from metamori.levels.formats.source import FileSource, MemorySource, Source, Steady
from metamori.levels.protect import parity, partner, record
from metamori.levels.protect.job import Crew
from metamori.levels.protect.record import Member, Record
from metamori.levels.setup import aligned_buffers
from metamori.levels.setup.paths import Paths
from metamori.levels.setup.settings import MPIIO, Settings
from metamori.store.restore import memory_records


class NotTaken(MetamoriError):
    """A rank could not write its part; no checkpoint came to be."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be taken."""

    index: int
    number: int                            # the program's id
    level: int
    parent: int
    ranks: int
    files: dict[str, int]                  # index of the file checkpoint in each store
    stores: dict[str, str] = field(default_factory=dict)
    carried: dict[str, int] = field(default_factory=dict)
    dcp: bool = False
    later: bool = False                    # protected by a head or a thread, from the local file
    places: tuple[int, ...] = ()           # MPI-IO: where each rank's bytes begin in the one file, and the end


@dataclass(slots=True)
class Part:
    """One rank's share of a checkpoint, as the second half sees it."""

    rank: int
    paths: Paths
    size: int
    checksum: str
    needs: list[int]
    source: Source | None = None           # None: the file that was written locally


def agree(comm: Any, wrong: str) -> None:
    """NotTaken for everybody when somebody says what is wrong."""
    failures = list(filter(None, comm.allgather(wrong)))
    if failures:
        raise NotTaken(failures[0])


def home(paths: Paths, order: Order, rank: int) -> str:
    """The file that a rank writes first."""
    if order.level == 4 and order.later:
        return paths.waiting(order.index, order.number, rank)
    return paths.data(order.level, order.index, order.number, rank)


def write(crew: Crew, form: Any, variables: Any, before: Any, order: Order, suspects: Any) -> tuple[Order, Written]:
    """This rank's file of a checkpoint, durable; the order with what was found out on the way. NotTaken."""
    chosen = crew.settings
    detect = posix_format.DETECT[chosen.dcp_mode] if order.dcp else None
    written, wrong = None, ""
    try:
        written = form.prepare(variables, before, order.index, chosen.dcp_block_size, suspects, detect)
    except Exception as error:             # whatever it is, the others must not wait for us
        wrong = f"rank {crew.rank}: {error or type(error).__name__}"
    if chosen.ckpt_io == MPIIO and order.level == 4:
        return _write_together(crew, order, written, wrong)
    try:
        if written is not None:
            form.write(written, home(crew.paths, order, crew.rank))
    except Exception as error:
        wrong = f"rank {crew.rank}: {error or type(error).__name__}"
    agree(crew.app, wrong)
    assert written is not None
    return order, written


def _write_together(crew: Crew, order: Order, written: Written | None, wrong: str) -> tuple[Order, Written]:
    agree(crew.app, wrong)
    assert written is not None
    places = [0]
    for size in crew.app.allgather(written.source.size):
        places.append(places[-1] + size)
    path = crew.paths.together(order.index, order.number)
    chosen = crew.settings
    hints = {"striping_unit": str(chosen.lustre_striping_unit), "striping_factor": str(chosen.lustre_striping_factor),
             "start_iodevice": str(chosen.lustre_striping_offset)}
    try:
        if crew.rank == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        wrong = str(error)
    agree(crew.app, wrong)
    try:
        crew.app.write_together(path, places[crew.rank], written.source.pieces, hints)   # type: ignore[union-attr]
    except OSError as error:
        wrong = f"rank {crew.rank}: {error}"
    agree(crew.app, wrong)
    return replace(order, places=tuple(places)), written


def post(group: Any, everybody: Any, parts: list[Part], order: Order, chosen: Settings) -> Record:
    """Protect the parts of this process, and record the checkpoint when everybody's are. NotTaken."""
    return settle(group, everybody, parts, order, chosen, protect(group, parts, order, chosen))


def protect(group: Any, parts: list[Part], order: Order, chosen: Settings) -> str:
    """The second copies, the parity; what went wrong, "" for nothing. No message is sent for level 4."""
    wrong = ""
    for part in parts:
        try:
            _protect(group, part, order, chosen)
        except Exception as error:         # whatever it is, the others must not wait for us
            wrong = f"rank {part.rank}: {error or type(error).__name__}"
    return wrong


def settle(group: Any, everybody: Any, parts: list[Part], order: Order, chosen: Settings, wrong: str) -> Record:
    """All have protected their parts, or say what went wrong: the groups' lists, then the record. NotTaken."""
    if order.level in (2, 3) or order.later:   # else protecting was no work, and nothing went wrong
        agree(everybody, wrong)
    for part in parts:
        members = group.gather(Member(os.path.basename(part.paths.data(order.level, order.index, order.number,
                                                                       part.rank)), part.size, part.checksum))
        try:
            if members is not None:
                record.write_members(part.paths.members(order.level, order.index), members)
        except OSError as error:
            wrong = str(error)
    answers = everybody.allgather((wrong, {index for part in parts for index in part.needs}))
    if any(answer[0] for answer in answers):
        raise NotTaken(next(answer[0] for answer in answers if answer[0]))
    needs = {index for answer in answers for index in answer[1]}
    made = Record(order.index, order.number, order.level, order.parent, chosen.ckpt_io,
                  time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), order.ranks, tuple(sorted(needs)), order.files,
                  order.stores, order.carried, order.places)
    try:
        if everybody.rank == 0:
            record.write_record(parts[0].paths, made)
            for store, index in order.files.items():
                memory_records.note(store, index)
    except OSError as error:
        wrong = str(error)
    agree(everybody, wrong)
    return made


def _protect(group: Any, part: Part, order: Order, chosen: Settings) -> None:
    """The second copy or the parity of one part's file. Everybody of the group calls it, whatever befalls it."""
    if (order.level == 4 and not order.later) or order.level == 1 or (order.level < 4 and group.size < 2):
        return
    def opened() -> Source:
        return part.source or FileSource(home(part.paths, order, part.rank))
    source: Steady | Source = opened() if order.level == 4 else Steady(opened)
    try:
        if isinstance(source, MemorySource | FileSource):
            copy(source, part.paths.data(4, order.index, order.number, part.rank), chosen.transfer_size << 20)
            os.unlink(home(part.paths, order, part.rank))
        elif order.level == 2:
            partner.copy_around(group, source, part.paths.partner(order.index, order.number, part.rank),
                                chosen.block_size << 10)
        else:
            parity.encode(group, source, part.paths.parity(order.index, order.number, part.rank))
    finally:
        if part.source is None:
            source.close()


def copy(source: Source, path: str, step: int) -> None:
    """A durable copy of a file. Broken."""
    sink, step = Sink(path), min(step, aligned_buffers.BYTES)
    for at in range(0, source.size, step):
        part = sink.room(min(step, source.size - at))
        source.read(at, part)
        sink.filled(part)
    sink.finish()
