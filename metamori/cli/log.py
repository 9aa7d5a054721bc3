"""The tree of checkpoints, 0 included; * is where the files are. What cannot be brought back exactly is said, and what
is missing of the store itself."""

from __future__ import annotations

import argparse
import os
from typing import Any

from metamori.cli import indexes, opening, output
from metamori.errors import Damaged
from metamori.store.holders import Losses, listed
from metamori.store.store import Store
from metamori.store.verify import verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> int:
    with opening.for_reading(arguments) as store:
        losses = _losses(store)
        entries = [_entry(store, index) | {"lost": _lost(store, losses, index)} for index in store.history.indexes]
        head = store.head.index
        text = "\n".join(_lines(store, {entry["index"]: entry for entry in entries}, head))
        problems = verify(store, whole=False).problems
    output.result(arguments, {"head": head, "checkpoints": entries}, text)
    for problem in problems:
        output.say(problem)
    return Damaged.exit_code if problems else 0


def _entry(store: Store, index: int) -> dict[str, Any]:
    """`files`: how many files the checkpoint has a record of, that is, that changed since its parent."""
    message = indexes.message(store, index)
    if index == 0:
        return {"index": 0, "parent": None, "time": None, "message": message, "bytes": 0, "files": 0, "memory": None}
    meta = store.meta(index)
    return {
        "index": index, "parent": meta.parent, "time": output.time_utc(meta.time_ns),
        "message": message, "bytes": meta.bytes_added, "files": len(meta.pifs),
        "memory": sum(image.size for image in meta.memory) if meta.memory else None,
    }


def _losses(store: Store) -> Losses | None:
    """None where what head says cannot be looked at: then that is named."""
    try:
        return Losses(store)
    except Damaged:
        return None


def _lost(store: Store, losses: Losses | None, index: int) -> list[dict[str, Any]]:
    """Files of a checkpoint that nothing holds any more."""
    if losses is None or not store.is_restorable(index) or index not in store.indexes:
        return []
    try:
        return [output.path_fields(path) for path in losses.at(index)]
    except Damaged:                        # what cannot be read is verify's to tell
        return []


def _lines(store: Store, entries: dict[int, dict[str, Any]], head: int) -> list[str]:
    """The newest child goes on in its parent's column; older branches hang to its right."""
    lines: list[str] = []
    pending: list[tuple[int, str, str]] = [(0, "", "")]
    while pending:
        index, lead, rest = pending.pop()
        lines.append(_line(store, entries[index], f"{lead}{index}", index == head))
        children = store.history.children(index)
        if children:
            pending.append((children[-1], rest, rest))
            pending += [(child, f"{rest}├─", f"{rest}│ ") for child in reversed(children[:-1])]
    return lines


def _line(store: Store, entry: dict[str, Any], name: str, is_head: bool) -> str:
    mark = output.paint("*", "green") if is_head else " "
    gone = [os.fsencode(each["path"]) for each in entry["lost"]]
    lost = f" [{listed(gone, output.path_text)} lost]" if gone else ""
    if entry["index"] == 0:
        return f"{mark} {name:<8}{entry['message']}{lost}"
    when = output.time_local(store.meta(entry["index"]).time_ns)
    count = f"{entry['files']} file{'s' * (entry['files'] != 1)}"
    size = output.size_text(entry["bytes"])
    memory = "" if entry["memory"] is None else f" [memory {output.size_text(entry['memory'])}]"
    return f"{mark} {name:<8}{when}  {size:>8}  {count:<9} {entry['message']}{memory}{lost}".rstrip()
