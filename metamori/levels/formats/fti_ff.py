"""FTI-FF (ckpt_io = 3): writes and reads files that say themselves where every piece of every variable lies.

Every file is whole: an increment starts as a copy of the last file (its blocks are shared where the filesystem can),
and only what changed is written over it. A seal over all bytes of the file is kept in the group's list, because the
format's own hashes do not cover today's metadata, nor the unused ends of containers, on which parity is computed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import xxhash

from metamori.levels.formats import checksummed_file, ff_bytes, image
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.ff_layout import FB, Container, Layout, hashed, next_layout
from metamori.levels.formats.image import Digest
from metamori.levels.formats.posix_format import Written
from metamori.levels.formats.source import FileSource, MemorySource
from metamori.levels.setup.variables import Variable

_AT_ONCE = 4 << 20


@dataclass(slots=True)
class _Plan:
    """What is to be written. changed: each variable's changed blocks since `base` was written; None: everything."""

    layout: Layout
    memory: dict[int, memoryview]
    base: str
    changed: dict[int, list[int]] | None
    block: int
    largest: int
    partner: int


class FtiFF:
    """Writes and reads. `group`: the communicator of those whose sizes a file notes; None: there are no others."""

    increments, names = True, False

    def __init__(self, version: int) -> None:
        self.version = version
        self.group: Any = None

    def prepare(self, variables: Iterable[Variable], before: Layout | None, index: int, block: int,
                suspects: image.Suspects = image.everything, detect: Digest | None = None) -> Written:
        """Lay the file out and hash its pieces. `detect`: write only blocks that changed, over a copy of the last."""
        found = list(variables)
        if before is not None and before.version != self.version:
            before = None
        layout = next_layout(before, [(each.id, each.size) for each in found], self.version)
        layout.index = index
        whole = layout.end + layout.tail
        sizes = self.group.allgather(whole) if self.group is not None else [whole]
        partner = sizes[(self.group.rank - 1) % len(sizes)] if self.group is not None else whole
        memory = {each.id: each.memory for each in found}
        hashed(layout, memory)
        changed = _changed(layout, before, found, block, detect) if detect is not None else None
        base = before.path if before is not None and changed is not None else ""
        plan = _Plan(layout, memory, base, changed, block, max(sizes), partner)
        return Written(MemorySource([]), "", [index], layout, plan)

    def write(self, written: Written, path: str) -> None:
        """Write the file and make it durable; gives `written` its source and its checksum."""
        plan: _Plan = written.plan
        layout, fd = plan.layout, checksummed_file.create(path)
        try:
            based = bool(plan.base) and _copied(plan.base, fd, layout.end)
            os.ftruncate(fd, layout.end)
            for each in layout.containers():
                if each.content:
                    _write_container(fd, plan, each, based)
            _write_metadata(fd, path, plan)
        finally:
            checksummed_file.finish(fd)
        layout.path = path
        source = FileSource(path)
        written.source, written.checksum = source, _seal(source)

    def check(self, path: str, checksum: str, start: int = 0, size: int | None = None) -> None:
        """Whether the file is the one that was written, every byte of it. Broken."""
        source = FileSource(path, start, size)
        try:
            if _seal(source) != checksum:
                raise Broken(f"{path} is damaged, or another checkpoint's file")
        finally:
            source.close()

    def load(self, index: int, place: Callable[[int], tuple[str, int, int | None]]) -> Saved:
        """What an index holds; `place` tells where its file is (path, start, size). Broken."""
        source = FileSource(*place(index))
        try:
            layout = ff_bytes.parse(source)
        finally:
            source.close()
        layout.index, layout.path = index, source.path
        return Saved(layout, place(index))


def _changed(layout: Layout, before: Layout | None, variables: list[Variable], block: int,
             detect: Digest) -> dict[int, list[int]]:
    """The blocks of each variable that the last file does not have as they are; its last, partial one always."""
    old, layout.detect = before.detect if before is not None else {}, {}
    changed = {}
    for each in variables:
        now = image.digests(each.memory, block, detect)
        was = old.get(each.id, ())
        same = min(len(now), len(was))
        changed[each.id] = [i for i in range(len(now)) if i >= same or now[i] != was[i] or (i + 1) * block > each.size]
        layout.detect[each.id] = now
    return changed


def _write_container(fd: int, plan: _Plan, each: Container, based: bool) -> None:
    memory = plan.memory[each.id]
    if not based or plan.changed is None:
        _pwrite(fd, memory[each.dptr:each.dptr + each.chunk], each.fptr)
        return
    for number in plan.changed[each.id]:
        start = max(number * plan.block, each.dptr)
        end = min((number + 1) * plan.block, each.dptr + each.chunk)
        if start < end:
            _pwrite(fd, memory[start:end], each.fptr + start - each.dptr)


def _write_metadata(fd: int, path: str, plan: _Plan) -> None:
    layout, stamp = plan.layout, time.time_ns()
    if layout.version == 2:
        _pwrite(fd, ff_bytes.tail_v2(layout, layout.index, plan.largest, plan.partner, stamp // 10**9), layout.end)
        return
    for block in range(len(layout.blocks)):
        _pwrite(fd, ff_bytes.metadata(layout, block), layout.start(block))
    total, source = hashlib.md5(usedforsecurity=False), FileSource(path, FB)
    for at in range(0, source.size, _AT_ONCE):
        total.update(source.chunk(at, min(_AT_ONCE, source.size - at)))
    source.close()
    _pwrite(fd, ff_bytes.head_v1(layout, total.hexdigest(), plan.largest, plan.partner, stamp), 0)


def _pwrite(fd: int, data: memoryview | bytes, at: int) -> None:
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(fd, view[done:done + (1 << 30)], at + done)


def _copied(base: str, fd: int, most: int) -> bool:
    """The last checkpoint's file as a start; moves no data where the filesystem can share blocks."""
    try:
        source = os.open(base, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        at, size = 0, min(most, os.fstat(source).st_size)
        while at < size:
            count = os.copy_file_range(source, fd, size - at, at, at)
            if not count:
                return False
            at += count
        return True
    except (AttributeError, OSError):  # a Python made with an old C library has no copy_file_range
        return False
    finally:
        os.close(source)


def _seal(source: FileSource) -> str:
    total = xxhash.xxh3_128()
    for at in range(0, source.size, _AT_ONCE):
        total.update(source.chunk(at, min(_AT_ONCE, source.size - at)))
    digest: str = total.hexdigest()
    return digest


@dataclass(slots=True)
class Saved:
    """The memory of an FTI-FF file, ready to be read."""

    image: Layout
    where: tuple[str, int, int | None]

    @property
    def sizes(self) -> dict[int, int]:
        return self.image.sizes()

    def about(self, number: int) -> dict[str, Any]:
        return {"name": ""}                # the format keeps no names

    def read(self, number: int, memory: memoryview) -> None:
        """Fill a variable's memory. Broken when it is not there, or is larger than the memory."""
        size = self.sizes.get(number)
        if size is None:
            raise Broken(f"checkpoint {self.image.index} has no variable {number}")
        if size > len(memory):
            raise Broken(f"variable {number} has room for {len(memory)} bytes, and its checkpoint {size}")
        source = FileSource(*self.where)
        try:
            for each in self.image.containers():
                if each.id == number and each.content:
                    if each.fptr + each.chunk > source.size:
                        raise Broken(f"{source.path} ends too soon")
                    source.read(each.fptr, memory[each.dptr:each.dptr + each.chunk])
        finally:
            source.close()
