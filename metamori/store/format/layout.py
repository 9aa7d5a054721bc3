"""The only builder of names inside a store. Pure: it never touches a disk.

    format                       "metamori store 2 NNNNNNNN CCCCCCCC\\n": the version, the store's own number
                                 in hexadecimal digits, the CRC-32 of the 25 bytes up to it. Version 1: all paths are
                                 absolute
    lock                         flock: held by a live run's supervisor, or by a verb that writes. It holds what no copy
                                 of the store has in common with it (inode number and change time of `format`), and
                                 the folder that it was in
    .gitignore                   "*\\n": git neither lists the store nor cleans it away
    head                         the index that the user's files are at, and their identities then
    intent                       present while files are being moved: the redo list
    prune                        present while indexes are being pruned: what is to be put, removed and freed
    spare                        zeros: the room that a prune gives up first on a full disk
    counters                     written by a prune: the numbers handed out last, how often it was done
    checkpoints/<k>.meta.<p>     the meta file of index k, taken by process p
    checkpoints/<k>.offset.<p>   the offset file of index k
    checkpoints/<k>.memory.<p>   the memory of process p at index k (image.py)
    checkpoints/<a>.undo.<s>     pre-images of bytes in place for the indexes up to a; s counts up over the store
    buffer/<run>                 the disk buffer of a run, sparse, addressed in bytes
    job                          how the runs of a live job reach the one that takes their checkpoints
    nodes/<name>/                the stores of a job's runs, until the job is over
    nodes/order                  which of them was first at what (docs/adr/0060)
    nodes/folded/<k>             which of their indexes the job's index k holds
    nodes/unseen/<name>          files that a run has overwritten since it was taken for dead
    disks/<host>/                a store of the files on the own disk of a machine of a job (runtime/job/disk.py)
    levels                       which of a job's indexes have its programs' memory (store/restore/memory_records.py)
    nodes.over                   what `nodes` is renamed to when the job is over, before it is removed
    kept/<name>                  backing files of objects that have no name at present. Names made of digits only
                                 are object numbers and belong to `move`; a run uses names with a letter
    run/                         the run area of a live or unfinished run
    alive                        there from a run's beginning to its end: without `run/` that was removed meanwhile
    lost                         the newest index when that was found out by a verb that writes, or a run; in digits
    run/intent                   present while a restore inside the program moves names: the redo list

Every path is bytes, absolute; records keep those below the folder that the store is in relative to it.
"""

from __future__ import annotations

import os
import zlib

from metamori.store.format.codec import StoreNumber
from metamori.tables.record import record

FORMAT_VERSION = 2
_RECORDS = (b"meta", b"offset", b"undo", b"memory")
_STAGE_PREFIX = b".metamori-stage-"
_LONG = 100                                # of a name: some filesystems have room for no more than 143 bytes


@record
class RecordName:
    """A name in checkpoints/: its index (after_index for an undo), kind, and process (seq for an undo)."""

    index: int
    kind: str
    number: int


class Layout:
    """Names of one store."""

    def __init__(self, root: str | bytes) -> None:
        self.root: bytes = os.path.abspath(os.fsencode(root))
        self.id = StoreNumber()        # once its format file was read

    def number(self, number: int, version: int, anchor: bytes) -> StoreNumber:
        """The store's own, as the codecs take it."""
        found = StoreNumber(number)
        found.anchor = anchor if version > 1 and anchor != b"/" else b""
        return found

    def _in(self, *parts: bytes) -> bytes:
        return b"/".join((self.root, *parts))

    @property
    def format(self) -> bytes:
        return self._in(b"format")

    @property
    def lock(self) -> bytes:
        return self._in(b"lock")

    @property
    def gitignore(self) -> bytes:
        return self._in(b".gitignore")

    @property
    def scope(self) -> bytes:
        return self._in(b"scope")

    @property
    def head(self) -> bytes:
        return self._in(b"head")

    @property
    def intent(self) -> bytes:
        return self._in(b"intent")

    @property
    def leaving(self) -> bytes:
        """The intent of an isolated run that was killed: it counts from the instant at which the run area is gone."""
        return self._in(b"leaving")

    @property
    def prune(self) -> bytes:
        return self._in(b"prune")

    @property
    def spare(self) -> bytes:
        """Zeros: room for a prune on a full disk."""
        return self._in(b"spare")

    @property
    def counters(self) -> bytes:
        return self._in(b"counters")

    @property
    def checkpoints(self) -> bytes:
        return self._in(b"checkpoints")

    @property
    def buffers(self) -> bytes:
        return self._in(b"buffer")

    @property
    def kept_folder(self) -> bytes:
        return self._in(b"kept")

    @property
    def run_area(self) -> bytes:
        return self._in(b"run")

    @property
    def job(self) -> bytes:
        return self._in(b"job")

    @property
    def nodes(self) -> bytes:
        return self._in(b"nodes")

    @property
    def stamps(self) -> bytes:
        """Of a job's run: when its pre-images and notes of names were made."""
        return self._in(b"stamps")

    def moved(self, index: int) -> bytes:
        """Of a job's run: which folders were renamed before this index."""
        return self._in(b"moved.%d" % index)

    def node(self, name: bytes) -> bytes:
        return self._in(b"nodes", name)

    def folded(self, index: int) -> bytes:
        return self._in(b"nodes", b"folded", b"%d" % index)

    def unseen(self, name: bytes) -> bytes:
        return self._in(b"nodes", b"unseen", name)

    @property
    def order(self) -> bytes:
        return self._in(b"nodes", b"order")

    @property
    def disks(self) -> bytes:
        return self._in(b"disks")

    @property
    def levels(self) -> bytes:
        return self._in(b"levels")

    @property
    def nodes_over(self) -> bytes:
        return self._in(b"nodes.over")

    @property
    def alive(self) -> bytes:
        return self._in(b"alive")

    @property
    def lost(self) -> bytes:
        return self._in(b"lost")

    @property
    def unfinished(self) -> tuple[bytes, ...]:
        """What is there only while something is done, or after that was interrupted."""
        return self.prune, self.intent, self.leaving, self.run_area, self.nodes, self.nodes_over

    @property
    def run_intent(self) -> bytes:
        return self._in(b"run", b"intent")

    def nameless_folder(self, number: int, mode: int) -> bytes:
        """One to be opened and removed: what a descriptor of a removed folder is to a restore."""
        return self._in(b"run", b"folder.%d.%o" % (number, mode))

    @property
    def folders(self) -> tuple[bytes, ...]:
        """Folders of a new store; the run area is made by the run."""
        return (self.checkpoints, self.buffers, self.kept_folder)

    def record(self, name: bytes) -> bytes:
        """A file of checkpoints/ by its name."""
        return self._in(b"checkpoints", name)

    def meta(self, index: int, process: int) -> bytes:
        return self._in(b"checkpoints", b"%d.meta.%d" % (index, process))

    def offset(self, index: int, process: int) -> bytes:
        return self._in(b"checkpoints", b"%d.offset.%d" % (index, process))

    def memory(self, index: int, process: int) -> bytes:
        return self._in(b"checkpoints", b"%d.memory.%d" % (index, process))

    def undo(self, after_index: int, seq: int) -> bytes:
        return self._in(b"checkpoints", b"%d.undo.%d" % (after_index, seq))

    def buffer(self, run: int) -> bytes:
        return self._in(b"buffer", b"%d" % run)

    def kept(self, name: bytes) -> bytes:
        return self._in(b"kept", name)

    def kept_by_move(self, inode: int) -> bytes:
        """Where `move` keeps an object that loses its last name."""
        return self._in(b"kept", b"%d" % inode)


def format_line(store: int, version: int = FORMAT_VERSION) -> bytes:
    line = b"metamori store %d %08x" % (version, store)
    return b"%s %08x\n" % (line, zlib.crc32(line))


def parse_format(line: bytes) -> tuple[int, int] | None:
    """Version and the store's own number (0: it has none), or None when that is no format file."""
    words = line.split(b" ")
    number = words[2].removesuffix(b"\n") if len(words) in (3, 5) else b""
    if words[:2] != [b"metamori", b"store"] or not line.endswith(b"\n") or not number.isdigit() or len(number) > 9:
        return None
    if len(words) == 3:
        return int(number), 0
    try:
        store = int(words[3], 16)
    except ValueError:
        return None
    return (int(number), store) if line == format_line(store, int(number)) else None


def parse_record_name(name: bytes) -> RecordName | None:
    """The meaning of a name in checkpoints/, or None for anything else (a temporary file, say)."""
    words = name.split(b".")
    if len(words) != 3 or words[1] not in _RECORDS or not words[0].isdigit() or not words[2].isdigit():
        return None
    return RecordName(int(words[0]), words[1].decode(), int(words[2]))


def temporary(path: bytes) -> bytes:
    """The name beside `path` under which it is written before it is renamed into place: one that there can be, also
    where the file's own is as long as names may be."""
    folder, name = os.path.split(path)
    if len(name) > _LONG:
        name = b"%08x" % zlib.crc32(name)
    return os.path.join(folder, b".%s.metamori-new" % name)


def stage(folder: bytes, what: str, number: int) -> bytes:
    """A name in one of the user's folders for something between its old and its new name."""
    return os.path.join(folder, _STAGE_PREFIX + b"%s-%d" % (what.encode(), number))
