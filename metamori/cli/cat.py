"""Print a file as it was at a checkpoint; with a glob, every file that matches."""

from __future__ import annotations

import argparse
import base64

from metamori import indexes
from metamori.cli import opening, output
from metamori.errors import MetamoriError, Usage
from metamori.store.io.os_io import PIECE_BYTES
from metamori.store.read.reader import Reader
from metamori.store.read.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="INDEX", type=indexes.wanted, help="a checkpoint, or 0")
    parser.add_argument("path", metavar="PATH", help="a tracked file, or a glob")


def run(arguments: argparse.Namespace) -> int:
    with opening.for_reading(arguments) as store:
        arguments.index = indexes.find(store, arguments.index)
        paths = _paths(store, arguments)
        if arguments.json and len(paths) > 1:
            raise Usage(f"--json is for one file; {len(paths)} fit {arguments.path}")
        for path in paths:
            _one(arguments, store, path)
    output.flush()
    return 0


def _paths(store: Store, arguments: argparse.Namespace) -> list[bytes]:
    """The file, by its own name first; else all files that fit."""
    fits = opening.tracked_glob(store, arguments.path)
    try:
        return [opening.tracked_path(store, arguments.index, arguments.path)]
    except MetamoriError:
        found = sorted(entry.path for entry in store.state(arguments.index).existing()
                       if entry.kind == "file" and fits and fits(entry.path))
        if not found:
            raise
        return found


def _one(arguments: argparse.Namespace, store: Store, path: bytes) -> None:
    entry = store.state(arguments.index).names[path]
    if entry.kind != "file":
        raise MetamoriError(f"{arguments.path} was not a regular file at checkpoint {arguments.index}")
    with Reader(store, arguments.index, entry.inode) as reader:
        if arguments.json:
            content = base64.b64encode(reader.read()).decode()
            output.result(arguments, {"index": arguments.index, **output.path_fields(path),
                                      "size": reader.size, "content_b64": content}, "")
            return
        store.door.expect("reading", reader.size, how="read")
        for start, end, data in reader.chunks():
            if data is not None:
                output.write_bytes(data)
            for at in range(start, end if data is None else start, PIECE_BYTES):
                output.write_bytes(bytes(min(PIECE_BYTES, end - at)))
