"""The scope that a store has recorded: which folders its runs track, and what in them they do not.

A text, so that a person can read it: one line each, its words separated by tabs; the folder that paths are relative to
is `.`, so that a project can be moved. The last line is the CRC-32 of those before it. It only grows: a run adds its
own folder and what it is told (docs/adr/0045).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from zlib import crc32

from metamori.errors import Damaged
from metamori.store.format.layout import Layout
from metamori.store.io import commit
from metamori.store.io.os_io import Door
from metamori.store.read.create import surroundings
from metamori.tables.record import record

_HEAD = b"metamori scope 1"
_CRC_BYTES = len(b"crc\t01234567\n")


@record
class Pattern:
    """As a line of a .gitignore in `folder`; of "" with a slash at its beginning it is an absolute path."""

    folder: bytes
    text: bytes


@record
class Scope:
    """Folders as the kernel names them, and patterns of what in them is not tracked."""

    folders: tuple[bytes, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    @property
    def is_everything(self) -> bool:
        return b"/" in self.folders

    def plus(self, folders: Iterable[bytes], patterns: Iterable[Pattern]) -> Scope:
        """The same and more, each once."""
        return Scope(tuple(dict.fromkeys((*self.folders, *folders))),
                     tuple(dict.fromkeys((*self.patterns, *patterns))))


EVERYTHING = Scope((b"/",))


def read(door: Door, layout: Layout) -> Scope | None:
    """None: nothing is recorded, as in stores of earlier versions."""
    try:
        text = commit.read_file(door, layout.scope)
    except FileNotFoundError:
        return None
    lines = text[:-_CRC_BYTES].split(b"\n")
    if not text.endswith(_crc(text[:-_CRC_BYTES])):
        lines = [b""]
    folders, patterns = [], []
    for line in lines[1:-1]:
        words = [_plain(word) for word in line.split(b"\t")]
        if words[0] == b"track" and len(words) == 2:
            folders.append(_placed(layout, words[1]))
        elif words[0] == b"exclude" and len(words) == 3:
            patterns.append(Pattern(_placed(layout, words[1]), words[2]))
        else:
            lines = [b""]
    if lines[0] != _HEAD:
        raise Damaged(f"{os.fsdecode(layout.scope)} is not the scope of a store")
    return Scope(tuple(folders), tuple(patterns))


def write(door: Door, layout: Layout, scope: Scope) -> None:
    lines = [_HEAD]
    lines += [b"track\t" + _quoted(_near(layout, each)) for each in scope.folders]
    lines += [b"exclude\t%b\t%b" % (_quoted(_near(layout, each.folder)), _quoted(each.text))
              for each in scope.patterns]
    text = b"\n".join(lines) + b"\n"
    commit.write_file(door, layout.scope, text + _crc(text))


def _crc(text: bytes) -> bytes:
    return b"crc\t%08x\n" % crc32(text)


def _here(layout: Layout) -> bytes:
    """As in records: of a store that was moved alone where it was before."""
    return layout.id.anchor or surroundings(layout)


def _near(layout: Layout, folder: bytes) -> bytes:
    here = _here(layout)
    if here == b"/" or not (folder == here or folder.startswith(here + b"/")):
        return folder
    return b"." + folder[len(here):]


def _placed(layout: Layout, folder: bytes) -> bytes:
    return _here(layout) + folder[1:] if folder[:1] == b"." else folder


def _quoted(word: bytes) -> bytes:
    return word.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")


def _plain(word: bytes) -> bytes:
    parts = word.split(b"\\\\")
    return b"\\".join(part.replace(b"\\t", b"\t").replace(b"\\n", b"\n") for part in parts)
