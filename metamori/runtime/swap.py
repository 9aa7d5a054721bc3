"""Which AMLs leave the cache when a file's budget is used up (thesis 4.3.2, swapAMLsToDisk, convertMemAMLToDisk).

The shim keeps buffer bytes in frames of one chunk, with the time of each one's last use. What is written in sequence
lies in sequence in the buffer: neighbouring chunks of a file are one AML here, and leave together. The oldest AMLs
are written to the disk buffer until there is as much room as was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Hashable

from metamori.runtime.area import CHUNK, Area
from metamori.tables.aml import AML, AddressMap
from metamori.tables.lru import Recency


def cached(area: Area, slot: int) -> tuple[AddressMap, dict[int, int]]:
    """The AMLs of a file that lie in frames, addressed by their place in the buffer, and the frame of each chunk."""
    frames = {area.frame(number).chunk: number for number in area.frames(slot)}
    amls = AddressMap()
    for chunk in sorted(frames):
        amls.insert(AML(chunk * CHUNK, (chunk + 1) * CHUNK, area.head.run, chunk * CHUNK))
    return amls, frames


def make_room(area: Area, slot: int, wanted: int) -> None:
    """Swap the oldest AMLs of a file until `wanted` bytes of frames are free. The caller holds the PIF's lock."""
    amls, frames = cached(area, slot)
    recency = Recency(area.head.cache_size)
    chunks: dict[Hashable, range] = {aml.start: range(aml.start // CHUNK, aml.end // CHUNK) for aml in amls}
    used = {start: max(area.frame(frames[chunk]).tick for chunk in chunks[start]) for start in chunks}
    for start in sorted(used, key=used.__getitem__):
        recency.touch(start, len(chunks[start]) * CHUNK)
    _swap(area, [frames[chunk] for start in recency.oldest(wanted) for chunk in chunks[start]])


def _swap(area: Area, frames: list[int]) -> None:
    buffer = os.open(os.path.join(os.path.dirname(area.path), "buffer", str(area.head.run)), os.O_RDWR | os.O_CLOEXEC)
    try:
        for frame in frames:
            area.write_back(frame, buffer)
            area.free_frame(frame)
    finally:
        os.close(buffer)
