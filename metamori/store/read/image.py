"""A process's memory in a file: what the preload library wrote (shim_c/src/memory/image.h), read, checked and merged.

An image holds the pages that changed since the image of its base; all of them where it has none. Restoring an index
fills from the complete image of its chain upwards, each page that existed then from the newest image that has it.
Merging images of a chain into the newest of them takes each such page once.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

from metamori.errors import Damaged
from metamori.store.format.records import MemoryEntry
from metamori.store.io.os_io import Door
from metamori.tables.aml import AML, AddressMap
from metamori.tables.record import record

PAGE = 4096
_ENVELOPE = struct.Struct("<8sIIQ")
_COUNTS = struct.Struct("<10Q")            # index, base, data, program, threads, timers, areas, saved, existing, paths
VERSION = 5                                # which programs can come back from
_FIXED = 16 * 8 + 65 * 32 + 3 * 32         # sizeof(struct mm_memory_image) up to
LIBRARY = 32                               # the build-id, which it has since
_WITH_LIBRARY = 5
_TIMER, _AREA, _SPAN = 64, 48, 16
_THREAD = {1: 136, 2: 264, 3: 264, 4: 264, 5: 264}
_BY_THE_KERNEL = 2                         # AREA_SPECIAL
_PIECE = 1 << 20
_CHECKED_AT_ONCE = 1 << 26

Span = tuple[int, int]


@record
class Image:
    """An image's tables. `tables`: all of its file before the saved spans; `paths`: what follows the existing ones.
    library: the build that made it. kernels: mappings that the kernel gave its process by itself, with lengths."""

    path: bytes
    version: int
    library: bytes
    kernels: tuple[tuple[bytes, int], ...]
    index: int
    base: int
    data: int
    tables: bytes
    paths: bytes
    saved: tuple[Span, ...]
    existing: tuple[Span, ...]

    def places(self) -> Iterator[tuple[int, int, int]]:
        """(start, end, place in the file) of each saved span."""
        at = self.data
        for start, end in self.saved:
            yield start, end, at
            at += end - start


def _spans(data: bytes) -> tuple[Span, ...]:
    return tuple(struct.iter_unpack("<QQ", data))


def _ascend(spans: Sequence[Span]) -> bool:
    return all(one[1] <= other[0] for one, other in pairwise(spans))


def _in_order(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Each page once, ascending: early images can name pages twice and out of order (docs/reference/image.md)."""
    if _ascend(spans):
        return spans
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return tuple(found)


def read(door: Door, path: bytes) -> Image:
    """The tables; Damaged when this is no image of this version. Checksums are `check`'s."""
    fd = door.open(path, os.O_RDONLY)
    try:
        head = door.pread(fd, _ENVELOPE.size + _FIXED, 0)
        magic, version, order = _ENVELOPE.unpack_from(head)[:3] if len(head) == _ENVELOPE.size + _FIXED else (b"", 0, 0)
        if (magic, order) != (b"mtmrMEMO", 0x01020304) or version not in _THREAD:
            raise Damaged(f"{os.fsdecode(path)} is not an image that this version knows")
        index, base, data, program, threads, timers, areas, saved, existing, names = _COUNTS.unpack_from(head, 24)
        fixed = _FIXED + (LIBRARY if version >= _WITH_LIBRARY else 0)
        before = 24 + fixed + program + threads * _THREAD[version] + timers * _TIMER + areas * _AREA
        whole = before + (saved + existing) * _SPAN + names
        if data < whole or data > door.fstat(fd).st_size:
            raise Damaged(f"{os.fsdecode(path)}: its tables do not fit into it")
        tables = door.pread(fd, whole, 0)
    finally:
        door.close(fd)
    at, middle = before + saved * _SPAN, before + (saved + existing) * _SPAN
    spans = _spans(tables[before:at]), _spans(tables[at:middle])
    if any(start >= end or (start | end) % PAGE for each in spans for start, end in each):
        raise Damaged(f"{os.fsdecode(path)}: its spans are not whole pages")
    kernels = _kernels(tables[before - areas * _AREA:before], tables[middle:])
    return Image(path, version, tables[24 + _FIXED:24 + fixed], kernels, index, base, data, tables[:before],
                 tables[middle:], spans[0], _in_order(spans[1]))


def _kernels(areas: bytes, paths: bytes) -> tuple[tuple[bytes, int], ...]:
    return tuple((paths[place:paths.find(b"\0", place)], end - start)
                 for start, end, *_, kind, place in struct.iter_unpack("<4Q4I", areas) if kind == _BY_THE_KERNEL)


def lacks(image: Image, below: Image | None, size: int) -> str:
    """What a program could not come back from, of an image that was just written; "" nothing. By the tables alone.

    below: the image of its base, in which every page that exists and was not saved again must have existed.
    """
    if image.data + sum(end - start for start, end in image.saved) + 4 != size:
        return "its pages do not fit into it"
    if not _ascend(image.saved):
        return "its pages are not in order"
    had = sorted((*image.saved, *(below.existing if below else ())))
    at, number = 0, 0                      # all of `had` before `number` ends at `at` or earlier
    for start, end in image.existing:
        at = max(at, start)
        while at < end:
            while number < len(had) and had[number][1] <= at:
                number += 1
            if number == len(had) or had[number][0] > at:
                return f"nothing has the page at {at:#x}"
            at = had[number][1]
    return ""


def check(door: Door, path: bytes, entry: MemoryEntry) -> str:
    """What is wrong with an image, "" nothing: every byte counts."""
    name = os.fsdecode(path)
    try:
        fd = door.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return f"{name} is missing"
    try:
        size = door.fstat(fd).st_size
        if size != entry.size:
            return f"{name} has {size} bytes, not {entry.size}"
        crc, at = 0, 0
        while at < size - 4:
            crc, done = door.checksum(fd, min(_CHECKED_AT_ONCE, size - 4 - at), at, crc)
            if not done:
                return f"{name} ends at byte {at}"
            at += done
        if struct.unpack("<I", door.pread(fd, 4, size - 4))[0] != crc or crc != entry.crc:
            return f"{name} does not match its checksum"
    finally:
        door.close(fd)
    return ""


def merge(door: Door, images: Sequence[Image], base: int, to: bytes) -> tuple[int, int]:
    """Write to `to` what the last of these images says when the others, oldest first, lie below it and `base` below
    them; returns the file's size and checksum."""
    last = images[-1]
    pages = AddressMap()
    for number, image in enumerate(images):
        for start, end, place in image.places():
            pages.insert(AML(start, end, number, place))
    wanted = [aml for start, end in last.existing for aml in pages.find(start, end)]
    saved = [(aml.start, aml.end) for aml in wanted]
    body = b"".join(struct.pack("<QQ", *span) for span in (*saved, *last.existing)) + last.paths
    data = -(-(len(last.tables) + len(body)) // PAGE) * PAGE
    counts = list(_COUNTS.unpack_from(last.tables, 24))
    counts[1], counts[2], counts[7], counts[8] = base, data, len(saved), len(last.existing)
    payload = data - 24 + sum(end - start for start, end in saved)
    version, = struct.unpack_from("<I", last.tables, 8)
    head = _ENVELOPE.pack(b"mtmrMEMO", version, 0x01020304, payload) + _COUNTS.pack(*counts)
    head += last.tables[24 + _COUNTS.size:]
    return _write(door, to, (head + body).ljust(data, b"\0"), wanted, images)


def _write(door: Door, to: bytes, head: bytes, wanted: Sequence[AML], images: Sequence[Image]) -> tuple[int, int]:
    sources = [door.open(image.path, os.O_RDONLY) for image in images]
    target = door.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        door.pwrite(target, head, 0)
        at, crc = len(head), zlib.crc32(head)
        for aml in wanted:
            done, length = 0, aml.end - aml.start
            while done < length:
                piece = door.pread(sources[aml.run], min(_PIECE, length - done), aml.offset + done)
                if not piece:
                    raise Damaged(f"{os.fsdecode(images[aml.run].path)} is cut short")
                door.pwrite(target, piece, at)
                done, at, crc = done + len(piece), at + len(piece), zlib.crc32(piece, crc)
        door.pwrite(target, struct.pack("<I", crc), at)
        door.fsync(target)
    finally:
        for fd in (*sources, target):
            door.close(fd)
    return at + 4, crc


