"""Which files, names and byte ranges differ between two checkpoints; with PATH, the lines of a file."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from typing import Any

from metamori import indexes
from metamori.cli import opening, output
from metamori.errors import MetamoriError
from metamori.printed import cut_start, name_text
from metamori.store.read.compare import Change, compare
from metamori.store.read.reader import Reader
from metamori.store.read.store import Store

TEXT_LIMIT_BYTES = 16 << 20
_COLOURS = {"A": "green", "D": "red", "M": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A", type=indexes.wanted, help="a checkpoint")
    parser.add_argument("second", metavar="B", type=indexes.wanted, help="another")
    parser.add_argument("path", metavar="PATH", nargs="?",
                        help="a file whose lines to compare, a folder, or a glob")


def run(arguments: argparse.Namespace) -> int:
    with opening.for_reading(arguments) as store:
        arguments.first = indexes.find(store, arguments.first)
        arguments.second = indexes.find(store, arguments.second)
        if arguments.path is not None:
            fits = opening.tracked_glob(store, arguments.path)
            if fits is None or any(opening.is_tracked(store, index, arguments.path)
                                   for index in (arguments.first, arguments.second)):
                fits = _in_folder(arguments, store)
            if fits is None:
                return _one(arguments, store)
            return _several(arguments, store, fits)
        changes = list(compare(store, arguments.first, arguments.second))
    output.result(arguments, {"first": arguments.first, "second": arguments.second,
                              "changes": [describe(change) for change in changes]},
                  output.table(map(line, changes)))
    return 0


def describe(change: Change) -> dict[str, Any]:
    """For JSON."""
    return {
        **output.path_fields(change.path), "change": change.what, "kind": change.kind,
        "ranges": [list(each) for each in change.ranges], "size": list(change.size),
        "mode": [f"{mode:04o}" for mode in change.mode],
    }


def line(change: Change) -> str:
    """For a person: what changed, with the first ranges."""
    text = f" ({change.kind})" if change.kind != "file" else ""
    if change.what == "M":
        ranges = [f"{start}-{end}" for start, end in change.ranges[:5]]
        more = [f"and {len(change.ranges) - 5} more"] if len(change.ranges) > 5 else []
        text += "  " + ", ".join([*ranges, *more]) if ranges else ""
        if change.size[0] != change.size[1]:
            text += f"  size {change.size[0]} -> {change.size[1]}"
        if change.mode[0] != change.mode[1]:
            text += f"  mode {change.mode[0]:04o} -> {change.mode[1]:04o}"
    path, width = output.path_text(change.path), output.terminal_width()
    if width:                              # half of a line at least; the end of a path says more
        path = cut_start(path, max(width // 2, width - 2 - len(text)))
    return f"{output.paint(change.what, _COLOURS[change.what])} {path}{text}"


def _in_folder(arguments: argparse.Namespace, store: Store) -> Callable[[bytes], bool] | None:
    """Whether a path is what is meant or below it; None where that is one file, or nothing."""
    states = first, second = store.state(arguments.first), store.state(arguments.second)
    try:
        found = opening.tracked_paths(store, first, second, [arguments.path])
    except MetamoriError:
        return None
    folders = [path for path in found for state in states if path in state.names and state.names[path].kind == "dir"]
    return found.__contains__ if folders or found - set(opening.meant(store, arguments.path)) else None


def _one(arguments: argparse.Namespace, store: Store) -> int:
    """A unified diff of one file; files that are not text are said to differ."""
    sides: list[bytes | None] = []
    paths: list[bytes] = []
    for index in (arguments.first, arguments.second):
        try:
            path = opening.tracked_path(store, index, arguments.path)
        except MetamoriError:
            sides.append(None)
            continue
        paths.append(path)
        sides.append(_content(store, index, path))
    if not paths:
        raise MetamoriError(f"{arguments.path} was not there at either checkpoint")
    found = next(compare(store, arguments.first, arguments.second, fits=paths[0].__eq__), None)
    text = "\n".join(_unified(arguments, sides, name_text(arguments.path))) if found is not None else ""
    output.result(arguments, {"first": arguments.first, "second": arguments.second,
                              "changes": [describe(found)] if found else [], "diff": text}, text)
    return 0


def _several(arguments: argparse.Namespace, store: Store, fits: Callable[[bytes], bool]) -> int:
    """The same of every file that fits and is not the same at both."""
    found = [*compare(store, arguments.first, arguments.second, fits=fits)]
    lines: list[str] = []
    for change in found:
        sides = [_content(store, index, change.path) if _is_there(store, index, change.path) else None
                 for index in (arguments.first, arguments.second)]
        lines += _unified(arguments, sides, output.path_text(change.path))
    output.result(arguments, {"first": arguments.first, "second": arguments.second,
                              "changes": [describe(change) for change in found], "diff": "\n".join(lines)},
                  "\n".join(lines))
    return 0


def _is_there(store: Store, index: int, path: bytes) -> bool:
    entry = store.state(index).names.get(path)
    return entry is not None and entry.kind in ("file", "symlink")


def _content(store: Store, index: int, path: bytes) -> bytes:
    state = store.state(index)
    entry = state.names[path]
    if entry.kind != "file":
        return entry.target
    if state.pifs[entry.inode].size > TEXT_LIMIT_BYTES:
        return b"\0"
    with Reader(store, index, entry.inode) as reader:
        return reader.read()


def _unified(arguments: argparse.Namespace, sides: list[bytes | None], name: str) -> list[str]:
    before_name, after_name = labels = [f"{name} at {index}" for index in (arguments.first, arguments.second)]
    if any(b"\0" in (side or b"") for side in sides):
        return [f"{labels[0]} and {labels[1]} differ; they are not text, or too large to compare by line"]
    before, after = [_lines((side or b"").decode("utf-8", "surrogateescape")) for side in sides]
    return list(difflib.unified_diff(before, after, before_name, after_name, lineterm=""))


def _lines(text: str) -> list[str]:
    """As `diff -u` takes them: other signs that end a line somewhere are a part of it."""
    *lines, last = text.split("\n")
    return [*lines, last + "\n\\ No newline at end of file"] if last else lines
