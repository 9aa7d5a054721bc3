"""The metadata of an FTI-FF file as bytes, in the manual's layout (FTIFF_metaInfo first) and in today's (last)."""

from __future__ import annotations

import hashlib
import struct

from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.ff_layout import Container, Layout, checksum
from metamori.levels.formats.source import FileSource

FB = struct.Struct("<33s16s7x5q")                  # checksum, myHash; ckptSize, fs, maxFs, ptFs, timestamp
BMD = struct.Struct("<iq")                         # numvars, dbsize
VMD = struct.Struct("<iii?3x4q16s")                # id, idx, containerid, hascontent; dptr, fptr, chunk, container
MF = struct.Struct("<33s16si6qIx")                 # checksum, myHash, ckptId; ckpt, meta, data, fs, maxFs, ptFs; time
VMD2 = struct.Struct("<ii??4Q16s")                 # id, containerid, hascontent, hasCkpt; dptr, fptr, chunk, container


def metadata(layout: Layout, block: int) -> bytes:
    """VMB: a block's metadata."""
    entries = layout.blocks[block]
    head = BMD.pack(len(entries), layout.dbsize(block))
    if layout.version == 1:
        return head + b"".join(VMD.pack(each.id, each.index, each.number, each.content, each.dptr, each.fptr,
                                        each.chunk, each.size, each.hash) for each in entries)
    return head + b"".join(VMD2.pack(each.id, each.number, each.content, each.size > 0, each.dptr, each.fptr,
                                     each.chunk, each.size, each.hash) for each in entries)


def head_v1(layout: Layout, checked: str, largest: int, partner: int, stamp: int) -> bytes:
    """FB; its own hash covers the rest of it. checked: MD5 of VB, all that follows."""
    size = sum(each.chunk for each in layout.containers())
    values = (size, layout.end, largest, partner, stamp)
    text = checked.encode() + b"\0"
    own = hashlib.md5(text + struct.pack("<5q", *values), usedforsecurity=False).digest()
    return FB.pack(text, own, *values)


def tail_v2(layout: Layout, number: int, largest: int, partner: int, stamp: int) -> bytes:
    """All block metadata, then MF."""
    blocks = b"".join(metadata(layout, block) for block in range(len(layout.blocks)))
    size = sum(each.chunk for each in layout.containers())
    values = (number, size, len(blocks) + MF.size, layout.end, layout.end + layout.tail, largest, partner, stamp)
    text = checksum(layout).encode() + b"\0"
    own = hashlib.md5(text + struct.pack("<i6qI", *values), usedforsecurity=False).digest()
    return blocks + MF.pack(text, own, *values)


def parse(source: FileSource) -> Layout:
    """The layout of a file; today's metadata at the end, else the manual's at the front. Broken."""
    try:
        return _parse_v2(source)
    except (Broken, struct.error, ValueError):
        return _parse_v1(source)


def _parse_v2(source: FileSource) -> Layout:
    if source.size < MF.size:
        raise Broken("too short for FTI-FF")
    text, own, *values = MF.unpack(source.chunk(source.size - MF.size, MF.size))
    if hashlib.md5(text + struct.pack("<i6qI", *values), usedforsecurity=False).digest() != own:
        raise Broken("no FTI-FF metadata at the end")
    meta, data, size = values[2:5]
    if size != source.size:
        raise Broken(f"{source.path} has {source.size} bytes, and says {size}")
    body = bytes(source.chunk(data, meta - MF.size))
    layout, at = Layout(2), 0
    while at < len(body):
        count, _ = BMD.unpack_from(body, at)
        at += BMD.size
        block = []
        for _ in range(count):
            fields = VMD2.unpack_from(body, at)
            number_, container, content, _, dptr, fptr, chunk, room, digest = fields
            block.append(Container(number_, 0, container, content, dptr, fptr, chunk, room, digest))
            at += VMD2.size
        layout.blocks.append(block)
    return layout


def _parse_v1(source: FileSource) -> Layout:
    if source.size < FB.size:
        raise Broken(f"{source.path} is no FTI-FF file")
    text, own, *values = FB.unpack(source.chunk(0, FB.size))
    if hashlib.md5(text + struct.pack("<5q", *values), usedforsecurity=False).digest() != own:
        raise Broken(f"{source.path} is no FTI-FF file")
    if values[1] != source.size:
        raise Broken(f"{source.path} has {source.size} bytes, and says {values[1]}")
    layout, at = Layout(1), FB.size
    while at < values[1]:
        if at + BMD.size > source.size:
            raise Broken(f"{source.path} ends too soon")
        count, dbsize = BMD.unpack(source.chunk(at, BMD.size))
        if count < 0 or dbsize < BMD.size + VMD.size * count or at + dbsize > source.size:
            raise Broken(f"{source.path}: a block's metadata is wrong")
        body = source.chunk(at + BMD.size, VMD.size * count)
        layout.blocks.append([Container(*VMD.unpack_from(body, i * VMD.size)) for i in range(count)])
        at += dbsize
    return layout
