"""The tree of checkpoints, 0 included; * is where the files are."""

from __future__ import annotations

import argparse
from typing import Any

from metamori.cli import opening, output
from metamori.store.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> int:
    with opening.for_reading(arguments) as store:
        entries = [_entry(store, index) for index in store.history.indexes]
        head = store.head.index
        text = "\n".join(_lines(store, {entry["index"]: entry for entry in entries}, head))
    output.result(arguments, {"head": head, "checkpoints": entries}, text)
    return 0


def _entry(store: Store, index: int) -> dict[str, Any]:
    """`files`: how many files the checkpoint has a record of, that is, that changed since its parent."""
    if index == 0:
        message = "before the first run" if 0 in store.indexes else "before the first run (pruned)"
        return {"index": 0, "parent": None, "time": None, "message": message, "bytes": 0, "files": 0, "memory": None}
    meta = store.meta(index)
    return {
        "index": index, "parent": meta.parent, "time": output.time_utc(meta.time_ns),
        "message": meta.message or meta.reason, "bytes": meta.bytes_added, "files": len(meta.pifs),
        "memory": sum(image.size for image in meta.memory) if meta.memory else None,
    }


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
    if entry["index"] == 0:
        return f"{mark} {name:<8}{entry['message']}"
    when = output.time_local(store.meta(entry["index"]).time_ns)
    count = f"{entry['files']} file{'s' * (entry['files'] != 1)}"
    size = output.size_text(entry["bytes"])
    memory = "" if entry["memory"] is None else f" [memory {output.size_text(entry['memory'])}]"
    return f"{mark} {name:<8}{when}  {size:>8}  {count:<9} {entry['message']}{memory}".rstrip()
