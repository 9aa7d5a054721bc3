"""What a checkpoint's records say of files, names, ranges and descriptors (thesis, figures 4.4 to 4.8)."""

from __future__ import annotations

import argparse
from typing import Any

from metamori import indexes
from metamori.cli import opening, output
from metamori.printed import line_text, name_text
from metamori.store.format.records import FitEntry, MemoryEntry, Meta, NameEntry, Offsets, PifEntry
from metamori.store.read import sizes
from metamori.tables.fit import descriptors_of
from metamori.tables.pif import NO_LIMIT

Record = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="INDEX", type=indexes.wanted, help="a checkpoint, from 1 on")


def run(arguments: argparse.Namespace) -> int:
    with opening.for_reading(arguments) as store:
        index = indexes.find(store, arguments.index)
        meta, offsets, taken = store.meta(index), store.offsets(index), sizes.by_index(store)[index]
    records = [_meta(meta), *_offsets(offsets), *(_fit(meta, fit) for fit in meta.fits),
               *(_pif(meta, pif) for pif in meta.pifs)]
    names = [_name(entry) for entry in meta.names]
    data = {
        "index": meta.index, "parent": meta.parent, "time": output.time_utc(meta.time_ns),
        **output.text_fields(meta.message, "message"), "reason": meta.reason, "run": meta.run, "process": meta.process,
        "mode": meta.mode, "isolate": meta.isolate, "bytes": taken, "records": records,
        "names": names, "memory": [_memory(each) for each in meta.memory],
    }
    output.result(arguments, data, output.table(_text(meta, taken, records, names)))
    return 0


def _meta(meta: Meta) -> Record:
    """Fig. 4.6."""
    return {
        "name": f"{meta.index}.meta.{meta.process}",
        "inodes": [pif.inode for pif in meta.pifs],
        "descriptors": [fit.descriptor for fit in meta.fits if fit.creation_type == "descriptor"],
        "streams": [f"{fit.stream:#x}" for fit in meta.fits if fit.creation_type == "stream"],
        "processes": [{"process": each.process, "pid": each.pid, **output.path_fields(each.exe, "program")}
                      for each in meta.processes],
        "inherited": [{"process": each.process, "descriptor": each.descriptor, "size": each.size,
                       **output.path_fields(each.path)} for each in meta.inherited],
    }


def _offsets(offsets: Offsets) -> list[Record]:
    """Fig. 4.4: one record per file, ranges half open, in bytes."""
    found: dict[tuple[int, int, int], list[list[int]]] = {}
    for entry in offsets.entries:
        ranges = found.setdefault((entry.inode, entry.process, entry.run or offsets.run), [])
        ranges.append([entry.start, entry.end, entry.buffer_start, entry.buffer_end])
    return [{"name": f"{inode}.offset.{offsets.index}.{process}", "buffer": run, "ranges": ranges}
            for (inode, process, run), ranges in sorted(found.items())]


def _fit(meta: Meta, fit: FitEntry) -> Record:
    """Fig. 4.7."""
    handle = f"{fit.stream:#x}" if fit.creation_type == "stream" else str(fit.descriptor)
    return {
        "name": f"{handle}.{meta.index}.{fit.process}", "creation_type": fit.creation_type,
        "descriptor": fit.descriptor, **output.path_fields(fit.filename, "filename"),
        "seek_pointer": fit.seek_pointer, "attributes": fit.attributes,
        "stream_attributes": fit.stream_attributes.decode("ascii", "replace"), "inode": fit.inode,
        "was_created": fit.was_created, "was_closed": fit.was_closed, "duped": list(descriptors_of(fit)[1:]),
        "pushed_back": fit.ungetc.hex(), "unflushed_bytes": len(fit.unflushed),
    }


def _pif(meta: Meta, pif: PifEntry) -> Record:
    """Fig. 4.8."""
    return {
        "name": f"{pif.inode}.{meta.index}.{meta.process}", "inode": pif.inode, "count": pif.count,
        **output.path_fields(pif.filename, "filename"), "was_created": pif.was_created,
        "was_deleted": pif.was_deleted, "size": pif.size, "cut": pif.cut,
        "home_limit": None if pif.home_limit >= NO_LIMIT else pif.home_limit,
        "mode": f"{pif.mode & 0o7777:04o}",
        "dev": pif.dev, "ino": pif.ino,
    }


def _memory(entry: MemoryEntry) -> Record:
    """base: the index that the image counts from, 0: it is complete. size: of its file."""
    return {
        "process": entry.process, "pid": entry.pid, "threads": entry.threads, "base": entry.base, "size": entry.size,
        **output.path_fields(entry.exe, "program"),
        "descriptors": [each.descriptor for each in entry.descriptors if each.descriptor >= 0],
    }


def _name(entry: NameEntry) -> Record:
    target = output.path_fields(entry.target, "target") if entry.kind == "symlink" else {}
    return {**output.path_fields(entry.path), "kind": entry.kind, "inode": entry.inode, **target}


def _text(meta: Meta, taken: int, records: list[Record], names: list[Record]) -> list[str]:
    title = f"checkpoint {meta.index}, from {meta.parent}, {output.time_local(meta.time_ns)}"
    said = f": {line_text(meta.message or meta.reason)}" if meta.message or meta.reason else ""
    lines = [output.paint(title, "bold") + said,
             f"run {meta.run}, process {meta.process}, {meta.mode}{', isolated' * meta.isolate}, "
             f"{output.size_text(taken)} added", ""]
    for image in meta.memory:
        kind = f"what changed since checkpoint {image.base}" if image.base else "complete"
        lines += [output.paint(f"{meta.index}.memory.{image.process}", "bold"),
                  f"    {output.size_text(image.size)}, {kind}; {name_text(image.exe)}, "
                  f"{image.threads} thread{'s' * (image.threads != 1)}"]
    for record in records:
        lines.append(output.paint(record["name"], "bold"))
        lines += [f"    {key:<18}{line_text(_value(key, value))}" for key, value in record.items()
                  if key not in ("name", "ranges") and value not in ([], "", None)]
        lines += [f"    {start}-{end} is at {low}-{high} of the buffer"
                  for start, end, low, high in record.get("ranges", ())]
    if names:
        lines += ["", output.paint("names", "bold")]
        room = max(len(str(each["inode"])) for each in names)
        lines += [f"    {each['kind']:<9} {each['inode'] or '':<{room}}  {name_text(output.path_bytes(each))}"
                  for each in names]
    return lines


def _value(key: str, value: Any) -> str:
    if key in ("processes", "inherited"):
        return "; ".join(" ".join(f"{k}={v}" for k, v in each.items()) for each in value)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
