"""The tree of checkpoints, 0 included; * is where the files are. Names what is lost or missing."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from typing import Any

from metamori import indexes
from metamori.cli import opening, output, within
from metamori.config import parse_count
from metamori.errors import Damaged
from metamori.printed import columns, cut, line_text
from metamori.store.read import sizes
from metamori.store.read.holders import Losses, listed
from metamori.store.read.store import Store
from metamori.store.read.verify import verify

_TIME, _SIZE, _FILES, _MESSAGE_MIN = 19, 9, 5, 14
_FIXED = 2 + _TIME + _SIZE + _FILES + 4    # the mark, the columns, and what is between them


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--newest", metavar="N", help="only the newest N")


def run(arguments: argparse.Namespace) -> int:
    newest = parse_count(arguments.newest) if arguments.newest is not None else None
    with opening.for_reading(arguments) as store:
        losses, known, taken = _losses(store), store.history.indexes, sizes.by_index(store)
        entries, gone = [], {}
        for index in known[-newest if newest else 0:]:
            lost = _lost(store, losses, index)
            entries.append(_entry(store, index) | {"bytes": taken[index], "lost": _fields(lost, arguments.json)})
            gone[index] = f" [{listed(lost, output.path_text)} lost]" if lost else ""
        head = within.head(store)
        shown = {entry["index"]: entry | {"gone": gone[entry["index"]]} for entry in entries}
        text = "\n".join(_lines(store, shown, head, output.terminal_width()))
        problems = verify(store, whole=False).problems
    output.result(arguments, {"head": head, "checkpoints": entries}, text)
    for problem in problems:
        output.say(problem)
    return Damaged.exit_code if problems else 0


def _entry(store: Store, index: int) -> dict[str, Any]:
    """`files`: how many files the checkpoint has a record of, that is, that changed since its parent."""
    message = indexes.message(store, index)
    if index == 0:
        return {"index": 0, "parent": None, "time": None, "message": message, "files": 0, "memory": None}
    meta = store.meta(index)
    return {
        "index": index, "parent": meta.parent, "time": output.time_utc(meta.time_ns),
        **output.text_fields(message, "message"), "files": len(meta.pifs),
        "memory": sum(image.size for image in meta.memory) if meta.memory else None,
    }


def _losses(store: Store) -> Losses | None:
    """None where what head says cannot be looked at: then that is named."""
    try:
        return Losses(store)
    except Damaged:
        return None


def _fields(lost: list[bytes], asked: bool) -> list[dict[str, Any]]:
    """For --json: of ten thousand files in a thousand checkpoints they would take gigabytes."""
    return [output.path_fields(path) for path in lost] if asked else []


def _lost(store: Store, losses: Losses | None, index: int) -> list[bytes]:
    """Files of a checkpoint that nothing holds any more."""
    if losses is None or not store.is_restorable(index) or index not in store.indexes:
        return []
    try:
        return losses.at(index)
    except Damaged:                        # what cannot be read is verify's to tell
        return []


def _lines(store: Store, entries: dict[int, dict[str, Any]], head: int, width: int) -> list[str]:
    """width: of the terminal, for a header and lines that fit; 0: none, and nothing is cut."""
    tree = [(index, name) for index, name in _tree(store) if index in entries]
    room = max(8, *(len(name) + 1 for _, name in tree))
    if width:
        room = min(room, max(8, width - _FIXED - _MESSAGE_MIN))
    lines = [_header(room)] if width else []
    older = len(store.history.indexes) - len(tree)
    if width and older:
        lines.append(output.paint(f"  … {older} older", "dim"))
    for index, name in tree:
        name = name if len(name) < room else "…" + name[len(name) - room + 2:]
        mark = output.paint("*", "green") if index == head else " "
        if width:
            lines.append(f"{mark} {_short(entries[index], name, room, width - 2)}")
        else:
            lines.append(f"{mark} {_line(entries[index], f'{name:<{room}}')}".rstrip())
    return lines


def _tree(store: Store) -> list[tuple[int, str]]:
    """The newest child goes on in its parent's column; older branches hang to its right."""
    found: list[tuple[int, str]] = []
    pending: list[tuple[int, str, str]] = [(0, "", "")]
    while pending:
        index, lead, rest = pending.pop()
        found.append((index, f"{lead}{index}"))
        children = store.history.children(index)
        if children:
            pending.append((children[-1], rest, rest))
            pending += [(child, f"{rest}├─", f"{rest}│ ") for child in reversed(children[:-1])]
    return found


def _header(room: int) -> str:
    return output.paint(f"  {'index':<{room}}{'time':<{_TIME}} {'size':>{_SIZE}} {'files':>{_FILES}}  message", "bold")


def _said(entry: dict[str, Any]) -> tuple[str, str]:
    """A checkpoint's message, and what besides: its memory, what of it is lost."""
    memory = "" if entry["memory"] is None else f" [memory {output.size_text(entry['memory'])}]"
    return line_text(os.fsdecode(output.path_bytes(entry, "message"))), memory + entry.get("gone", "")


def _short(entry: dict[str, Any], name: str, room: int, width: int) -> str:
    """A line for a terminal: what besides the message is to be said has its room first."""
    message, besides = _said(entry)
    if entry["index"] == 0 and not entry["bytes"]:
        return cut(f"{name:<{room}}{message}{besides}", width)
    start = (f"{name:<{room}}{_local(entry):<{_TIME}} {output.size_text(entry['bytes']):>{_SIZE}} "
             f"{entry['files']:>{_FILES}}  ")
    left = max(_MESSAGE_MIN // 2, width - len(start) - columns(besides))
    return cut(f"{start}{cut(message, left)}{besides}", width)


def _line(entry: dict[str, Any], name: str) -> str:
    message, besides = _said(entry)
    if entry["index"] == 0 and not entry["bytes"]:
        return f"{name}{message}{besides}"
    count = f"{entry['files']} file{'s' * (entry['files'] != 1)}"
    return f"{name}{_local(entry)}  {output.size_text(entry['bytes']):>9}  {count:<9} {message}{besides}"


def _local(entry: dict[str, Any]) -> str:
    if entry["time"] is None:
        return " " * _TIME
    return datetime.fromisoformat(entry["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
