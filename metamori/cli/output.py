"""What verbs print: the only place that knows JSON, terminals and colour. Data: stdout, messages: stderr."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from metamori.config import size_text
from metamori.printed import clear_progress, columns, cut, name_text, say

__all__ = [
    "flush", "paint", "path_bytes", "path_fields", "path_text", "result", "say", "size_text", "table", "terminal_width",
    "text_fields", "time_local", "time_utc", "wrapped", "write_bytes",
]

SCHEMA = 1
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def result(arguments: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    """The answer of a verb: `data` with --json, else `text`, nothing when that is empty."""
    clear_progress()
    if arguments.json:
        sys.stdout.write(json.dumps(_in_unicode({"schema": SCHEMA, **data}), ensure_ascii=True) + "\n")
    elif text:
        text = _printable(text) + "\n"
        if not _paged(text):
            sys.stdout.write(text)


def _in_unicode(value: Any) -> Any:
    """Halves of letters, as bytes that are no UTF-8 are in Python, are refused by other languages."""
    if isinstance(value, str):
        return value if value.isascii() else _printable(value)
    if isinstance(value, dict):
        return {key: _in_unicode(each) for key, each in value.items()}
    return list(map(_in_unicode, value)) if isinstance(value, list | tuple) else value


def _paged(text: str) -> bool:
    """Shown by the user's pager, as git does it: on a terminal that it does not fit on."""
    pager = os.environ.get("PAGER", "less").strip()
    size = shutil.get_terminal_size()
    if not draws() or text.count("\n") < size.lines or pager in ("", "cat"):
        return False
    try:
        words = shlex.split(pager)
    except ValueError:
        return False
    if shutil.which(words[0]) is None:
        return False
    import subprocess

    sys.stdout.flush()
    shown = subprocess.Popen(words, stdin=subprocess.PIPE, env={"LESS": "FRX", "LV": "-c"} | os.environ)
    try:
        shown.communicate(text.encode())
    except BrokenPipeError:                # quit before the end
        shown.wait()
    except KeyboardInterrupt:              # the pager has it too, and decides
        shown.wait()
    return True


def table(lines: Iterable[str]) -> str:
    """Lines that on a terminal are no wider than it; what is left out is shown by …"""
    width = terminal_width()
    return "\n".join(_fitting(line, width) if width else line for line in lines)


def _fitting(line: str, width: int) -> str:
    """With its colours, which take no room."""
    parts = _COLOUR.split(line)
    if columns("".join(parts[::2])) <= width:
        return line
    room = width - 1                       # and then the …
    for number in range(0, len(parts), 2):
        if columns(parts[number]) > room:
            parts[number] = cut(parts[number] + " ", room + 1)
            return "".join(parts[:number + 1] + parts[number + 1::2])
        room -= columns(parts[number])
    return line


def wrapped(text: str, before: str = "", indent: int = 0) -> str:
    """A sentence on as many lines as a terminal needs, behind what is on the first."""
    import textwrap

    width = terminal_width()
    if not width or columns(text) + indent <= width:
        return before + text
    return before + textwrap.fill(text, max(20, width - indent), break_on_hyphens=False).replace(
        "\n", "\n" + " " * indent)


def terminal_width() -> int:
    """Columns of the terminal that is standard output; 0 where that is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def write_bytes(data: bytes) -> None:
    """A file's content, as it is."""
    clear_progress()
    sys.stdout.buffer.write(data)


def flush() -> None:
    clear_progress()
    sys.stdout.flush()


def path_fields(path: bytes, key: str = "path") -> dict[str, str]:
    """A path for JSON; one that is not UTF-8 is given in base64 too."""
    try:
        return {key: path.decode("utf-8")}
    except UnicodeDecodeError:
        return {key: path.decode("utf-8", "replace"), f"{key}_b64": base64.b64encode(path).decode()}


def text_fields(text: str, key: str) -> dict[str, str]:
    """The same for what a person wrote."""
    return path_fields(text.encode("utf-8", "surrogateescape"), key)


def path_bytes(fields: dict[str, Any], key: str = "path") -> bytes:
    """The path that `path_fields` was given."""
    exact = fields.get(f"{key}_b64")
    return base64.b64decode(exact) if exact else fields[key].encode()


def path_text(path: bytes) -> str:
    """A path for a person: relative when it is below the current folder, and quoted where it has to be."""
    text = os.fsdecode(path)
    here = os.getcwd()
    return name_text(os.path.relpath(text, here) if text.startswith(here.rstrip("/") + "/") else text)


def paths_text(paths: Sequence[bytes]) -> str:
    """The first five of them."""
    names = ", ".join(path_text(path) for path in paths[:5])
    return names + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")


def time_utc(time_ns: int) -> str:
    """ISO 8601, UTC, microseconds."""
    text = datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def time_local(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")


def draws() -> bool:
    """Whether standard output is a terminal that knows escape sequences."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, colour: str) -> str:
    """Coloured on a terminal, unless NO_COLOR is set."""
    if not draws() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def _printable(text: str) -> str:
    """Names that are not UTF-8 must not make printing fail."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
