"""What the store's files say, as values. Immutable; no I/O. The bytes on disk: files.py.

All paths are absolute here (files.py keeps them relative) and bytes, all times ns since 1970, all sizes, offsets and
ranges bytes (ranges half open). `inode` is always the store's own number of a file, never reused; `ino` is the
filesystem's. Index 0 is the state before the store's first run. FitEntry and PifEntry are defined beside the live
tables.
Records that come by the million are NamedTuples (a tenth of a dataclass's cost), the others dataclasses.
"""

from __future__ import annotations

from metamori.tables.fit import FitEntry
from metamori.tables.pif import NO_LIMIT, PifEntry
from metamori.tables.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NamedTuple

    NameKind = Literal["absent", "file", "dir", "symlink", "fifo", "other"]
    OpKind = Literal["unlink", "rmdir", "mkdir", "symlink", "link", "keep", "drop", "rename", "fifo",
                     "create", "node"]
    DescriptorKind = Literal["followed", "file", "standard", "pipe", "eventfd", "epoll", "timerfd", "signalfd",
                             "socket", "closed", "segment", "terminal", "pidfd", "inotify"]
else:
    from metamori.tables.record import NamedTuple

__all__ = [
    "END",
    "NO_LIMIT",
    "DescriptorEntry",
    "FamilyEntry",
    "FitEntry",
    "Head",
    "Hole",
    "Identity",
    "InheritedEntry",
    "Intent",
    "KeptHome",
    "Launch",
    "MappedEntry",
    "MemoryEntry",
    "Meta",
    "NameEntry",
    "NameOp",
    "Numbers",
    "OffsetEntry",
    "Offsets",
    "PifEntry",
    "ProcessEntry",
    "Pruning",
    "SegmentEntry",
    "SharedEntry",
    "SizeOp",
    "Undo",
    "UndoEntry",
    "WriteOp",
    "XattrOp",
]

END = "end of run"                         # why an index is there: its run's first process ended with status 0


@record
class NameEntry:
    """What a path was. For a kind other than "file" inode is 0; for "absent" nothing else counts."""

    path: bytes
    kind: NameKind
    inode: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: bytes = b""  # of a symbolic link; of a device its number in decimal
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


@record
class InheritedEntry:
    """A descriptor on a regular file from outside the run; `size` is the file's at the checkpoint."""

    process: int
    descriptor: int
    path: bytes
    size: int
    dev: int
    ino: int


@record
class ProcessEntry:
    """A process of the run: number in the store, real pid, start time (clock ticks since boot), program."""

    process: int
    pid: int
    start_time: int
    exe: bytes


class OffsetEntry(NamedTuple):
    """File bytes [start, end) are bytes [buffer_start, buffer_end) of the run's buffer (thesis fig. 4.4).

    crc is the CRC-32 of those buffer bytes; 0: not recorded. run 0: that of the offset file; another one where
    a pruned index of an earlier run was merged into this one.
    """

    inode: int
    process: int
    start: int
    end: int
    buffer_start: int
    buffer_end: int
    crc: int = 0
    run: int = 0


class UndoEntry(NamedTuple):
    """The bytes in place [start, end) were saved at buffer_start of `run`'s buffer; run 0: they are lost.

    crc is the CRC-32 of the saved bytes; 0: not recorded.
    """

    inode: int
    start: int
    end: int
    run: int
    buffer_start: int
    crc: int = 0


@record
class Launch:
    """How a run's command was started; its index can be run again from the start."""

    exe: bytes
    argv: tuple[bytes, ...]
    env: tuple[bytes, ...]
    cwd: bytes
    umask: int = 0o22
    limits: tuple[tuple[int, int], ...] = ()  # by number; -1: none


@record
class DescriptorEntry:
    """A descriptor of a process whose memory is saved, and how it comes back.

    followed: a file of the run, found through the FitEntry of that number; file: opened again by its path; standard:
    inherited from outside, so whoever goes on gives its own of that number (`position`), else there is nothing behind
    it (`data`: of a terminal, the group in its foreground and the run's own, 0 0 where it was that; its settings, where
    one of the run's was); pipe: both ends are in the run, or one is closed (`path` names it, `data` is what is in it,
    said of one reader; `position` is its size, 0: the usual one); segment: shared memory (`data` is its number, and its
    locks); terminal: one of the run's own (`data`: master or slave, its number, settings and size in hex); eventfd,
    epoll, timerfd: `data` is the kernel's description of it (/proc/PID/fdinfo; memory/sets.py); socket: as
    memory/sockets.py says; closed: a terminal that is hung up, or a device (`data` says which) of which every call says
    EBADF.
    Below zero: no process has it, it is on its way (memory/sent.py).
    """

    descriptor: int
    kind: DescriptorKind
    same_as: int = -1  # an earlier descriptor of the same open description
    close_on_exec: bool = False
    flags: int = 0
    position: int = 0
    path: bytes = b""
    data: bytes = b""


class MappedEntry(NamedTuple):
    """A file that a process had mapped. build_id: of an ELF file that has one."""

    path: bytes
    size: int
    mtime_ns: int
    build_id: bytes = b""


@record
class MemoryEntry:
    """The memory of a process: its image counts from the one of checkpoint `base` (0: it is complete)."""

    process: int
    base: int
    size: int  # of the image file
    crc: int    # at its end
    pid: int    # as the program knows it
    threads: int
    exe: bytes
    argv: tuple[bytes, ...]
    env: tuple[bytes, ...]
    cwd: bytes
    umask: int
    limits: tuple[tuple[int, int], ...]
    uid: int
    gid: int
    machine: tuple[bytes, ...]  # processor, and CRC of the kernel's page of code
    mapped: tuple[MappedEntry, ...]
    descriptors: tuple[DescriptorEntry, ...]


class SharedEntry(NamedTuple):
    """A descriptor whose open description another process, of number `pid`, has as its descriptor `other`."""

    descriptor: int
    pid: int
    other: int


@record
class FamilyEntry:
    """A process of a run whose memory an index holds, by the numbers that programs know. parent 0: nobody of the run;
    session 0: the one that the run began in. status: -1, or that of a child which has ended and was not waited for;
    -2: it was, but the group or the session that it led is there; of one that job control has stopped the status that
    its parent is still to be told, -3: it was."""

    pid: int
    parent: int
    group: int
    session: int
    status: int = -1
    shared: tuple[SharedEntry, ...] = ()


@record
class SegmentEntry:
    """Memory that processes share, mapped or open; its content is in their images, and of what none maps in `pieces`.

    kind 1: without a name in a folder (`path` is that of a memfd); 2: of /dev/shm (b"": the name is gone). 3 to 5:
    shared memory, semaphores (`size` says how many) and message queues of System V; `path` is the key, and the number
    that programs know. 6: a message queue of POSIX; `path` is how many messages it takes, of how many bytes, and its
    name; `pieces` are priorities and messages. 7: a file that was deleted.
    """

    kind: int
    inode: int  # as mappings name it; of kind 7 with the device (runtime/memory/nameless.py)
    size: int
    path: bytes = b""
    mode: int = 0
    seals: int = 1
    pieces: tuple[tuple[int, bytes], ...] = ()


@record
class Meta:
    """A checkpoint (thesis fig. 4.6): it exists when this record does. Only what changed since the parent.

    names, pifs and fits are the state at the index; initial_names and initial_pifs the state before the run
    touched those paths and files, valid for every index on whose chain nothing is said of them.
    merged: how many pruned indexes went into this one. rootless: index 0 was pruned.
    """

    index: int
    parent: int
    time_ns: int
    message: str
    reason: str
    run: int
    process: int
    mode: Literal["incremental", "single"] = "incremental"
    isolate: bool = False
    bytes_added: int = 0
    head_moved: bool = True
    processes: tuple[ProcessEntry, ...] = ()
    names: tuple[NameEntry, ...] = ()
    initial_names: tuple[NameEntry, ...] = ()
    pifs: tuple[PifEntry, ...] = ()
    initial_pifs: tuple[PifEntry, ...] = ()
    fits: tuple[FitEntry, ...] = ()
    inherited: tuple[InheritedEntry, ...] = ()
    offset_entries: int = 0  # in the offset file, which is there unless 0; filled in when the store commits
    merged: int = 0
    rootless: bool = False
    undos: int = 0  # seq of the last undo record when it was written: none up to it may be missing
    launch: tuple[Launch, ...] = ()  # one, in a run's first checkpoint
    memory: tuple[MemoryEntry, ...] = ()  # of each process, when the index holds the programs' memory too
    family: tuple[FamilyEntry, ...] = ()  # the same processes in the same order, then those that ended
    segments: tuple[SegmentEntry, ...] = ()


@record
class Offsets:
    """A checkpoint's offset file: what its interval redirected, in the buffer of `run`."""

    index: int
    process: int
    run: int
    entries: tuple[OffsetEntry, ...] = ()  # read from a file: a Table (row_table.py), which is as good


@record
class Undo:
    """Pre-images saved while `after_index` was the highest index; the first record of a byte counts."""

    after_index: int
    seq: int
    entries: tuple[UndoEntry, ...] = ()    # the same


@record
class Identity:
    """What lstat said of a path when head was written. A path that did not exist has zeros. Of a folder or fifo `size`
    stands for what it looked like (store/read/head.py), and times are zeros."""

    path: bytes
    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


class KeptHome(NamedTuple):
    """The backing file of one that has no name at head is `name` in the kept folder. The rest is what lstat said of it
    when head was written; ino 0: that is not known."""

    inode: int
    name: bytes
    ino: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


@record
class Head:
    """The index that the user's files are at, and the newest index and undo record when it was written."""

    index: int
    identities: tuple[Identity, ...] = ()
    kept: tuple[KeptHome, ...] = ()
    newest: int = 0
    undos: int = 0


class Hole(NamedTuple):
    """Bytes [start, end) of the buffer of `run`, that no index needs any more."""

    run: int
    start: int
    end: int


@record
class Numbers:
    """The highest numbers that were handed out, and how often the store was pruned."""

    pruned: int = 0
    index: int = 0
    object: int = 0
    process: int = 0
    run: int = 0


@record
class Pruning:
    """A prune in progress, complete: it can be done again from the start. Names are within their folders.

    put: records that were written beside their places. remove: records that go, in this order.
    kept: backing files that go. buffers: those of these runs go whole. holes: of the other buffers.
    """

    numbers: Numbers
    put: tuple[bytes, ...] = ()
    remove: tuple[bytes, ...] = ()
    kept: tuple[bytes, ...] = ()
    buffers: tuple[int, ...] = ()
    holes: tuple[Hole, ...] = ()


class WriteOp(NamedTuple):
    """Write [start, end) of the file at `path` from buffer_start of `run`'s buffer; run 0: zeros."""

    inode: int
    path: bytes
    start: int
    end: int
    run: int
    buffer_start: int


@record
class SizeOp:
    """Give the file at `path` this size, mode, owner and time, whatever they are. NO_LIMIT: it has its size."""

    inode: int
    path: bytes
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int


@record
class XattrOp:
    """Give the file or folder at `path` exactly these extended attributes."""

    path: bytes
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


@record
class NameOp:
    """A change to names. Each can be repeated: what is found done already is no error.

    keep     the file or fifo at `path`, when it is still dev:ino, gets the further name `other`
    unlink   remove `path`, no directory, when it is still dev:ino
    rename   the directory `path`, when it is still dev:ino or `other` is not there, is renamed to `other`
    rmdir    remove the directory `path`; one that is not empty stays
    mkdir    make `path` a directory
    symlink  make `path` a symbolic link to `target`
    fifo     make `path` a fifo
    node     make `path` a device, its number `target` in decimal, where that is allowed
    create   make `path` an empty file, the backing file of one that has none (number `inode`)
    link     `path` becomes a further name of the file at `other` (file number `inode`)
    drop     remove the name `path` that `keep` made, or that the file had in the kept folder
    All paths are absolute. Where something is made it is given mode, uid, gid and mtime_ns. Fields that an
    operation does not name are 0 or empty; inode is the file's number where one is concerned.
    """

    op: OpKind
    path: bytes
    other: bytes = b""
    inode: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: bytes = b""
    dev: int = 0
    ino: int = 0


@record
class Intent:
    """A move of the user's files to index `target`, complete: it can be done again from the start."""

    target: int
    writes: tuple[WriteOp, ...] = ()
    sizes: tuple[SizeOp, ...] = ()
    names: tuple[NameOp, ...] = ()  # in this order, before the writes and sizes
    kept: tuple[KeptHome, ...] = ()  # as head is to have it
    xattrs: tuple[XattrOp, ...] = ()  # when everything else is done
    done: int = 0  # the first so many of `names` are done and durable, and must not be done once more
