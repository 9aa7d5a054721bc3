"""How a checkpoint comes to be: written, protected as its level says, agreed on by all, recorded.

States: written (this rank's file is durable) -> protected (partner's copy, parity) -> agreed (every rank has its part)
-> recorded: it exists. A rank that fails or dies before the last leaves the checkpoint before it as it was.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from typing import Any

from metamori.errors import MetamoriError
from metamori.levels import parity, partner, plain, record
from metamori.levels.crew import Crew
from metamori.levels.paths import Paths
from metamori.levels.plain import Written
from metamori.levels.record import Member, Record
from metamori.levels.sealed import Broken


class NotTaken(MetamoriError):
    """A rank could not write its part; no checkpoint came to be."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be taken."""

    index: int
    number: int                            # the program's id
    level: int
    parent: int
    dcp: bool = False


def agree(comm: Any, wrong: str) -> None:
    """NotTaken for everybody when somebody says what is wrong."""
    if not comm.all(not wrong):
        raise NotTaken(next(filter(None, comm.allgather(wrong))))


def protect(group: Any, paths: Paths, order: Order, written: Written, rank: int, block: int) -> None:
    """The second copy or the parity of this member's file. Everybody of the group calls it."""
    if group.size < 2:
        return
    if order.level == 2:
        partner.copy_around(group, written.source, paths.partner(order.index, order.number, rank), block)
    elif order.level == 3:
        parity.encode(group, written.source, paths.parity(order.index, order.number, rank))


def finish(crew: Crew, order: Order, written: Written, files: dict[str, int], io: int) -> Record:
    """Everybody has its part: the group's list, then the record."""
    name = os.path.basename(crew.paths.data(order.level, order.index, order.number, crew.rank))
    members = crew.group.gather(Member(name, written.source.size, written.checksum))
    wrong = ""
    if members is not None:
        try:
            record.write_members(crew.paths.members(order.level, order.index), members)
        except OSError as error:
            wrong = str(error)
    needs = {index for each in crew.app.allgather(written.needs) for index in each}
    agree(crew.app, wrong)
    made = Record(order.index, order.number, order.level, order.parent, io,
                  time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), crew.app.size, tuple(sorted(needs)), files)
    if crew.rank == 0:
        try:
            record.write_record(crew.paths, made)
        except OSError as error:
            wrong = str(error)
    agree(crew.app, wrong)
    return made


def write(crew: Crew, form: Any, variables: Any, before: Any, order: Order, suspects: Any) -> Written:
    """This rank's file of a checkpoint, durable."""
    chosen = crew.settings
    path = crew.paths.data(order.level, order.index, order.number, crew.rank)
    detect = plain.DETECT[chosen.dcp_mode] if order.dcp else None
    written: Written = form.prepare(variables, before, order.index, chosen.dcp_block_size, suspects, detect)
    form.write(written, path)
    return written


def take(crew: Crew, form: Any, variables: Any, before: Any, order: Order, files: dict[str, int],
         suspects: Any) -> tuple[Record, Written]:
    """A checkpoint, done when this returns. NotTaken."""
    written, wrong = None, ""
    try:
        written = write(crew, form, variables, before, order, suspects)
    except (OSError, MetamoriError, Broken) as error:
        wrong = f"rank {crew.rank}: {error}"
    try:
        agree(crew.app, wrong)
        assert written is not None
        try:
            protect(crew.group, crew.paths, order, written, crew.rank, crew.settings.block_size << 10)
        except (OSError, MetamoriError, Broken) as error:
            wrong = f"rank {crew.rank}: {error}"
        agree(crew.app, wrong)
        made = finish(crew, order, written, files, crew.settings.ckpt_io)
    except NotTaken:
        shutil.rmtree(crew.paths.folder(order.level, order.index), ignore_errors=True)
        raise
    finally:
        if written is not None:
            written.source.close()
    return made, written
