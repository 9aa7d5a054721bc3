"""A file's content as it was at a checkpoint, on standard output."""

from __future__ import annotations

import argparse
import base64

from metamori.cli import indexes, opening, output
from metamori.errors import MetamoriError
from metamori.store.content import Reader
from metamori.store.door import PIECE_BYTES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="INDEX", type=indexes.wanted, help="a checkpoint, or 0")
    parser.add_argument("path", metavar="PATH", help="a tracked file")


def run(arguments: argparse.Namespace) -> int:
    with opening.for_reading(arguments) as store:
        arguments.index = indexes.find(store, arguments.index)
        path = opening.tracked_path(store, arguments.index, arguments.path)
        entry = store.state(arguments.index).names[path]
        if entry.kind != "file":
            raise MetamoriError(f"{arguments.path} was a {entry.kind} at checkpoint {arguments.index}")
        with Reader(store, arguments.index, entry.inode) as reader:
            if arguments.json:
                content = base64.b64encode(reader.read()).decode()
                output.result(arguments, {"index": arguments.index, **output.path_fields(path),
                                          "size": reader.size, "content_b64": content}, "")
                return 0
            for start, end, data in reader.chunks():
                if data is not None:
                    output.write_bytes(data)
                for at in range(start, end if data is None else start, PIECE_BYTES):
                    output.write_bytes(bytes(min(PIECE_BYTES, end - at)))
    output.flush()
    return 0
