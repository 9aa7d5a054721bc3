"""File Information Table: an open descriptor or stream (thesis 4.2, fig. 4.2; on disk fig. 4.7).

While a run lives its FITs are in the run area (`struct mm_fit`), where C keeps them. A checkpoint takes those of all
processes out of it (`Fit`) and records them (`FitEntry`); a restore inside the program puts its own back.
"""

from __future__ import annotations

from metamori.tables.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

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
    dup_list: tuple[int, ...]  # further descriptors of the same description; whose FD_CLOEXEC is another: bit 30, too
    ungetc: bytes             # pushed-back characters, the next to be read first; of a wide stream each of 4 bytes
    unflushed: bytes          # written to the stream, not yet to the file; the same
    buffering: int            # bytes of the stream's buffer; 0: unbuffered, -1: line buffered


OTHER_CLOSE_ON_EXEC = 1 << 30               # no descriptor has so high a number


def descriptors_of(fit: FitEntry) -> tuple[int, ...]:
    """All of the description, its first one first."""
    return (fit.descriptor, *(fd & ~OTHER_CLOSE_ON_EXEC for fd in fit.dup_list))


@record
class Fit:
    """An open descriptor or stream at the instant of a checkpoint."""

    entry: FitEntry           # whose `inode` is found when the files of the instant are
    slot: int                 # of its PIF in the run area, 0: the file is not tracked
