"""File Information Table: an open descriptor or stream (thesis 4.2, fig. 4.2; on disk fig. 4.7).

States of a Fit: open (its original descriptor or one of its dups is) -> closed (`was_closed` is the
interval in which the last of them went; thesis 4.3.6). What fig. 4.2 calls saved fields are the records of
the last checkpoint here, in single mode too.
"""

from __future__ import annotations

from typing import Literal

from metamori.tables.pif import Pif
from metamori.tables.record import field, mutable, record

CreationType = Literal["descriptor", "stream"]


@record
class FitEntry:
    """An open descriptor or stream as a checkpoint records it (fig. 4.7)."""

    process: int              # number of the process that holds it
    creation_type: CreationType
    descriptor: int
    stream: int               # address of the FILE, 0: none
    attributes: int           # open(2) flags
    stream_attributes: bytes  # fopen(3) mode
    mode: int                 # permission bits given to open(2); of a removed folder, its own
    filename: bytes           # absolute path; empty: a removed folder
    seek_pointer: int         # bytes from the file's start; -1: cannot seek
    was_created: int          # interval in which it was opened
    was_closed: int           # interval in which it was closed, 0: open
    flags: int                # stream state: end of file, error; from bit 32: wide characters read beyond seek_pointer
    inode: int                # object number, 0: a regular file that is not tracked
    dev: int
    ino: int
    dup_list: tuple[int, ...]  # further descriptors of the same open description
    ungetc: bytes             # pushed-back characters, the next to be read first; of a wide stream each of 4 bytes
    unflushed: bytes          # written to the stream, not yet to the file; the same
    buffering: int            # bytes of the stream's buffer; 0: unbuffered, -1: line buffered


@mutable
class Fit:
    """A live open descriptor or stream. Fields as in FitEntry; the file itself is `pif`."""

    process: int
    creation_type: CreationType
    filename: bytes
    descriptor: int
    attributes: int
    mode: int = 0
    stream: int = 0
    stream_attributes: bytes = b""
    seek_pointer: int = 0
    was_created: int = 0
    was_closed: int = 0
    flags: int = 0
    pif: Pif | None = None
    dups: set[int] = field(default_factory=set)
    ungetc: bytes = b""
    unflushed: bytes = b""
    buffering: int = 0

    def dup(self, descriptor: int) -> None:
        """A further descriptor shares this open description, its seek pointer included."""
        if descriptor == self.descriptor or descriptor in self.dups:
            raise ValueError(f"descriptor {descriptor} is already open here")
        self.dups.add(descriptor)

    def close(self, descriptor: int, interval: int) -> bool:
        """One descriptor goes; True when it was the last (`was_closed` is then `interval`).

        When the original goes before its dups, the lowest dup takes its place. KeyError: not open here.
        """
        if self.was_closed or (descriptor != self.descriptor and descriptor not in self.dups):
            raise KeyError(descriptor)
        if descriptor in self.dups:
            self.dups.remove(descriptor)
        elif self.dups:
            self.descriptor = min(self.dups)
            self.dups.remove(self.descriptor)
        else:
            self.was_closed = interval
        return bool(self.was_closed)

    def entry(self) -> FitEntry:
        """This FIT as a checkpoint records it."""
        pif = self.pif
        return FitEntry(
            self.process, self.creation_type, self.descriptor, self.stream, self.attributes,
            self.stream_attributes, self.mode, self.filename, self.seek_pointer, self.was_created,
            self.was_closed, self.flags, pif.inode if pif else 0, pif.dev if pif else 0,
            pif.ino if pif else 0, tuple(sorted(self.dups)), self.ungetc, self.unflushed, self.buffering)

    @classmethod
    def from_entry(cls, entry: FitEntry, pif: Pif | None) -> Fit:
        """The live table entry as a checkpoint recorded it (thesis reloadFitMetaFile)."""
        return cls(entry.process, entry.creation_type, entry.filename, entry.descriptor, entry.attributes,
                   entry.mode, entry.stream, entry.stream_attributes, entry.seek_pointer, entry.was_created,
                   entry.was_closed, entry.flags, pif, set(entry.dup_list), entry.ungetc, entry.unflushed,
                   entry.buffering)

    def check(self) -> None:
        """Assert the invariants; raises AssertionError."""
        assert self.descriptor not in self.dups, (self.descriptor, self.dups)
        assert not (self.was_closed and self.dups), self.dups
        assert self.creation_type == "stream" or not (self.stream or self.ungetc), self
