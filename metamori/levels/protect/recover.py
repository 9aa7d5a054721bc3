"""Which checkpoint can be gone back to, and what has to be rebuilt for that.

A file is well when it is there and has the checksum that its group's list gives; anything else is lost, whatever
happened to it. Lost files come back from the partner's copy (L2) or by the erasure code (L3), on a new node too.
"""

from __future__ import annotations

from typing import Any

from metamori.errors import MetamoriError
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.protect import parity, partner, record
from metamori.levels.protect.job import Crew
from metamori.levels.protect.record import Member, Record


class NothingLeft(MetamoriError):
    """No checkpoint can be recovered. app: the processes that found so together; heads are none of them."""

    def __init__(self, text: str, app: Any = None) -> None:
        super().__init__(text)
        self.app = app


def rebuild(crew: Crew, form: Any, wanted: Record, records: dict[int, Record]) -> bool:
    """Whether everybody has all files that `wanted` reads, after rebuilding what can be. Collective."""
    for index in wanted.needs:
        each = records.get(index)
        if each is None or each.ranks != crew.app.size or not _one(crew, form, each):
            return False
    return True


def _one(crew: Crew, form: Any, each: Record) -> bool:
    members = _members(crew, each)
    if not crew.app.all(members is not None):
        return False
    assert members is not None
    mine = members[crew.group.rank]
    own, start, size = record.place(crew.paths, each, crew.rank)
    well = _well(form, own, mine, start, size)
    try:
        if each.level == 2 and crew.group.size > 1:
            well = _from_partner(crew, form, each, members, own, well)
        elif each.level == 3 and crew.group.size > 1:
            back = _from_parity(crew, each, own, well, [member.size for member in members])
            well = back and (well or _well(form, own, mine))
    except (Broken, OSError):
        well = False
    return bool(crew.app.all(well))


def _members(crew: Crew, each: Record) -> list[Member] | None:
    try:
        found = record.read_members(crew.paths.members(each.level, each.index))
    except Broken:
        return None
    return found if len(found) == crew.group.size else None


def _well(form: Any, path: str, member: Member, start: int = 0, size: int | None = None) -> bool:
    try:
        form.check(path, member.checksum, start, size)
        return True
    except Broken:
        return False


def _from_partner(crew: Crew, form: Any, each: Record, members: list[Member], own: str, well: bool) -> bool:
    group = crew.group
    copy = crew.paths.partner(each.index, each.id, crew.rank)
    copy_well = _well(form, copy, members[(group.rank - 1) % group.size])
    states = group.allgather((well, copy_well))
    return partner.bring_back(group, own, copy, [state[0] for state in states], [state[1] for state in states],
                              crew.settings.block_size << 10)


def _from_parity(crew: Crew, each: Record, own: str, well: bool, sizes: list[int]) -> bool:
    path = crew.paths.parity(each.index, each.id, crew.rank)
    try:
        parity_well = parity.check(path) == sizes
    except Broken:
        parity_well = False
    states = crew.group.allgather((well, parity_well))
    return parity.bring_back(crew.group, own, path, [state[0] for state in states], [state[1] for state in states],
                             sizes)


def choose(crew: Crew, form: Any, records: dict[int, Record], candidates: list[Record]) -> Record:
    """The first of the candidates that everybody can have, with its files in place. NothingLeft."""
    for each in candidates:
        if rebuild(crew, form, each, records):
            return each
    raise NothingLeft("no checkpoint is left that every process can read", crew.app)
