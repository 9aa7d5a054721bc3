"""Which AMLs leave the cache when a file's budget is used up (thesis 4.3.2, swapAMLsToDisk, convertMemAMLToDisk).

The shim keeps buffer bytes in frames and the time of each one's last use; here they are seen as AMLs: neighbours in
the file whose buffer bytes are neighbours too are one. The oldest AMLs are written to the disk buffer, whole, until
there is as much room as was asked for.
"""

from __future__ import annotations

import os

from metamori.runtime.area import BLOCK, CHUNK, Area
from metamori.tables.aml import AML, AddressMap
from metamori.tables.lru import Recency


def cached(area: Area, slot: int) -> tuple[AddressMap, dict[int, int]]:
    """AMLs of a file that lie in frames, and the frame of each chunk."""
    frames = {area.frame(number).chunk: number for number in area.frames(slot)}
    amls = AddressMap()
    for block, buffer, count in area.ranges(area.pif(slot), 0, 0):
        for i in range(count):
            if (buffer + i) * BLOCK // CHUNK in frames:
                start = (block + i) * BLOCK
                amls.insert(AML(start, start + BLOCK, area.head.run, (buffer + i) * BLOCK))
    return amls, frames


def make_room(area: Area, slot: int, wanted: int) -> None:
    """Swap the oldest AMLs of a file until `wanted` bytes of frames are free. The caller holds the PIF's lock."""
    amls, frames = cached(area, slot)
    recency = Recency(area.head.cache_size)
    chunks: dict[int, list[int]] = {}
    used = {}
    for aml in amls:
        touched = range(aml.offset // CHUNK, (aml.offset + aml.end - aml.start - 1) // CHUNK + 1)
        chunks[aml.start] = [chunk for chunk in touched if chunk in frames]
        used[aml.start] = max(area.frame(frames[chunk]).tick for chunk in chunks[aml.start])
    for start in sorted(used, key=used.__getitem__):
        recency.touch(start, len(chunks[start]) * CHUNK)
    _swap(area, [frames[c] for start in recency.oldest(wanted) for c in chunks[start]])
    known = {chunk for group in chunks.values() for chunk in group}
    _swap(area, [frame for chunk, frame in frames.items() if chunk not in known])   # overridden since: nobody's


def _swap(area: Area, frames: list[int]) -> None:
    buffer = os.open(os.path.join(os.path.dirname(area.path), "buffer", str(area.head.run)), os.O_RDWR | os.O_CLOEXEC)
    try:
        for frame in dict.fromkeys(frames):
            if area.frame(frame).pif:
                area.write_back(frame, buffer)
                area.free_frame(frame)
    finally:
        os.close(buffer)
