r"""The store's files, byte by byte, and their codecs.

All numbers are little endian. Types: u8 u32 u64 unsigned, i32 i64 signed (two's complement), bool is a u8 of
0 or 1, bytes is a u32 length and that many bytes, text is bytes that hold UTF-8 (bytes that are not UTF-8
stand for themselves). Paths are bytes: absolute, no part of them empty, "." or "..", but those at or below the folder
that the store lies in begin with "./" in its place (also where a field is bytes that are a path); names are one part.
T[] is a u32 count and that many T one after the other, T[[]] the same with a u64 count. There is no
padding anywhere. Every file is one envelope:

    offset  size  what
    0       8     magic: the kind of file, ASCII (below)
    8       4     u32 version of the format: 2; 1 where all paths are absolute, as in stores that say so
    12      4     u32 byte order mark 0x01020304: the bytes 04 03 02 01
    16      8     u64 n, length of the payload
    24      n     payload (below)
    24 + n  4     u32 CRC-32 (that of zlib and IEEE 802.3) of the bytes 0 .. 24 + n - 1, begun with the
                  store's own number (file `format`) in the place of 0: records of two stores do not mix
and has 28 + n bytes exactly.

Payloads, fields in this order:

"mtmrMETA"  checkpoint (thesis fig. 4.6): checkpoints/<index>.meta.<process>
    u64 index, u64 parent, i64 time_ns, text message, text reason, u64 run, u64 process,
    u8 mode (0 incremental, 1 single), bool isolate, u64 bytes_added, bool head_moved,
    process[], name[] names, name[] initial names, pif[], pif[] initial pifs, fit[], inherited[],
    u64 offset_entries, u64 merged, bool rootless, u64 undos (seq of the last undo record then),
    launch[], memory[], family[] family, segment[] segments (the last of these are left out while empty)
  process    u64 process, u64 pid, u64 start_time, bytes exe
  name       bytes path, u8 kind (0 absent, 1 file, 2 dir, 3 symlink, 4 fifo, 5 other), u64 inode, u32 mode,
             u32 uid, u32 gid, i64 mtime_ns, bytes target, xattr[]; xattr is bytes name, bytes value
  pif        (fig. 4.8) u64 inode, u64 dev, u64 ino, i64 btime_ns, u64 count, bytes filename,
             u64 was_created, u64 was_deleted, u64 size, u64 home_limit, u64 cut, u32 mode, u32 uid, u32 gid,
             i64 mtime_ns, bytes kept
  fit        (fig. 4.7) u64 process, u8 creation_type (0 descriptor, 1 stream), i32 descriptor, u64 stream,
             i64 attributes, bytes stream_attributes, u32 mode, bytes filename, i64 seek_pointer,
             u64 was_created, u64 was_closed, i64 flags, u64 inode, u64 dev, u64 ino, i32[] dup_list,
             bytes ungetc, bytes unflushed, i64 buffering; bit 30 of a dup_list: close-on-exec as attributes do not say
             it; of a wide stream (flags bit 4) both are u32 characters, and
             as many as flags has above bit 31 have been read from seek_pointer on
  launch     bytes exe, bytes[] argv, bytes[] env, bytes cwd, u32 umask, limit[]; limit is i64 soft, i64 hard
  memory     u64 process, u64 base, u64 size, u32 crc, u64 pid, u32 threads, bytes exe, bytes[] argv, bytes[] env,
             bytes cwd, u32 umask, limit[], u32 uid, u32 gid, bytes[] machine, mapped[], descriptor[]
  mapped     bytes path, u64 size, i64 mtime_ns, bytes build_id
  descriptor i32 descriptor, u8 kind (0 followed, 1 file, 2 standard, 3 pipe, 4 eventfd, 5 epoll, 6 timerfd,
             7 signalfd, 8 socket, 9 closed, 10 segment, 11 terminal, 12 pidfd, 13 inotify),
             i32 same_as, bool close_on_exec, i64 flags, i64 position, bytes path, bytes data
  family     u64 pid, u64 parent, u64 group, u64 session, i64 status, shared[]
  shared     i32 descriptor, u64 pid, i32 other
  segment    u32 kind, u64 inode, u64 size, bytes path, u32 mode, u32 seals, piece[] pieces; piece is u64 start,
             bytes data
  inherited  u64 process, i32 descriptor, bytes path, u64 size, u64 dev, u64 ino

"mtmrMEMO"  a process's memory: checkpoints/<index>.memory.<process>; its payload is described in
    shim_c/src/memory/image.h, which writes it

"mtmrOFFS"  offset file (fig. 4.4): checkpoints/<index>.offset.<process>
    u64 index, u64 process, u64 run, offset[[]]
  offset     u64 inode, u64 process, u64 start, u64 end, u64 buffer_start, u64 buffer_end,
             u64 crc (CRC-32 of the buffer's bytes, 0: none), u64 run (0: as above): 64 bytes; start < end,
             and both ranges are equally long

"mtmrUNDO"  saved pre-images: checkpoints/<after_index>.undo.<seq>
    u64 after_index, u64 seq, undo[[]]
  undo       u64 inode, u64 start, u64 end, u64 run (0: lost), u64 buffer_start, u64 crc (of the
             saved bytes, 0: none): 48 bytes; start < end

"mtmrRUNS"  how a run's command was started: run/launch of a live run
    a launch as in a meta file

"mtmrHEAD"  where the user's files are: head
    u64 index, identity[], kept[], u64 newest (index then), u64 undos (seq of the last undo record then)
  identity   bytes path, u64 dev, u64 ino, u64 size, i64 mtime_ns, i64 ctime_ns
  kept       u64 inode, bytes name, u64 ino, u64 size, i64 mtime_ns, i64 ctime_ns (when head was written)

"mtmrMOVE"  a move in progress: intent
    u64 target, write[], size[], change[], kept[] (as in head), attributes[], u64 done (changes that must
    not be done once more; left out while 0)
  write      u64 inode, bytes path, u64 start, u64 end, u64 run (0: zeros), u64 buffer_start
  size       u64 inode, bytes path, u64 size, u32 mode, u32 uid, u32 gid, i64 mtime_ns
  change     u8 op (0 unlink, 1 rmdir, 2 mkdir, 3 symlink, 4 link, 5 keep, 6 drop, 7 rename, 8 fifo,
             9 create, 10 node), bytes path, bytes other, u64 inode, u32 mode, u32 uid, u32 gid, i64 mtime_ns,
             bytes target, u64 dev, u64 ino
  attributes bytes path, xattr[] (as in name)

"mtmrNUMS"  what a prune leaves behind, so that no number comes again: counters
    u64 pruned (how often), u64 index, u64 object, u64 process, u64 run

"mtmrPRUN"  a prune in progress: prune
    numbers (as above), bytes[] put, bytes[] remove, bytes[] kept, u64[] buffers, hole[[]]
  hole       u64 run, u64 start, u64 end: 24 bytes; start < end

What the fields mean is said in records.py. `encode_*` raise ValueError when a value does not fit its field,
`decode_*` raise FormatError, whatever the bytes are.
"""

from __future__ import annotations

from metamori.store.format.codec import (
    Bytes,
    Choice,
    FormatError,
    Many,
    Name,
    Number,
    Pair,
    Path,
    Place,
    Record,
    Rows,
    Text,
    seal,
    unseal,
)
from metamori.store.format.records import (
    DescriptorEntry,
    FamilyEntry,
    FitEntry,
    Head,
    Hole,
    Identity,
    InheritedEntry,
    Intent,
    KeptHome,
    Launch,
    MappedEntry,
    MemoryEntry,
    Meta,
    NameEntry,
    NameOp,
    Numbers,
    OffsetEntry,
    Offsets,
    PifEntry,
    ProcessEntry,
    Pruning,
    SegmentEntry,
    SharedEntry,
    SizeOp,
    Undo,
    UndoEntry,
    WriteOp,
    XattrOp,
)

__all__ = ["FormatError", "decode_head", "decode_intent", "decode_launch", "decode_meta", "decode_numbers",
           "decode_offsets", "decode_pruning", "decode_undo", "encode_head", "encode_intent", "encode_launch",
           "encode_meta", "encode_numbers", "encode_offsets", "encode_pruning", "encode_undo"]

U32, U64, I32, I64 = "I", "Q", "i", "q"
BYTES, TEXT, BOOL, PATH, PLACE, NAME = Bytes(), Text(), Choice(False, True), Path(), Place(), Name()

_PROCESS = Record(ProcessEntry, process=U64, pid=U64, start_time=U64, exe=BYTES)
_NAME = Record(
    NameEntry, path=PATH, kind=Choice("absent", "file", "dir", "symlink", "fifo", "other"), inode=U64,
    mode=U32, uid=U32, gid=U32, mtime_ns=I64, target=BYTES, xattrs=Many(Pair(BYTES, BYTES)))
_PIF = Record(
    PifEntry, inode=U64, dev=U64, ino=U64, btime_ns=I64, count=U64, filename=PATH, was_created=U64,
    was_deleted=U64, size=U64, home_limit=U64, cut=U64, mode=U32, uid=U32, gid=U32, mtime_ns=I64, kept=NAME)
_FIT = Record(
    FitEntry, process=U64, creation_type=Choice("descriptor", "stream"), descriptor=I32, stream=U64,
    attributes=I64, stream_attributes=BYTES, mode=U32, filename=PLACE, seek_pointer=I64, was_created=U64,
    was_closed=U64, flags=I64, inode=U64, dev=U64, ino=U64, dup_list=Many(Number(I32)), ungetc=BYTES,
    unflushed=BYTES, buffering=I64)
_INHERITED = Record(InheritedEntry, process=U64, descriptor=I32, path=PATH, size=U64, dev=U64, ino=U64)
_LIMITS = Many(Pair(Number(I64), Number(I64)))
_LAUNCH = Record(Launch, exe=PLACE, argv=Many(BYTES), env=Many(BYTES), cwd=PLACE, umask=U32, limits=_LIMITS)
_MAPPED = Record(MappedEntry, path=PLACE, size=U64, mtime_ns=I64, build_id=BYTES)
_DESCRIPTOR = Record(
    DescriptorEntry, descriptor=I32, kind=Choice("followed", "file", "standard", "pipe", "eventfd", "epoll", "timerfd",
                                                         "signalfd", "socket", "closed", "segment", "terminal",
                                                         "pidfd", "inotify"),
    same_as=I32, close_on_exec=BOOL, flags=I64, position=I64, path=PLACE, data=BYTES)
_MEMORY = Record(
    MemoryEntry, process=U64, base=U64, size=U64, crc=U32, pid=U64, threads=U32, exe=PLACE, argv=Many(BYTES),
    env=Many(BYTES), cwd=PLACE, umask=U32, limits=_LIMITS, uid=U32, gid=U32, machine=Many(BYTES),
    mapped=Many(_MAPPED), descriptors=Many(_DESCRIPTOR))
_SHARED = Record(SharedEntry, descriptor=I32, pid=U64, other=I32)
_FAMILY = Record(FamilyEntry, pid=U64, parent=U64, group=U64, session=U64, status=I64, shared=Many(_SHARED))
_SEGMENT = Record(SegmentEntry, kind=U32, inode=U64, size=U64, path=BYTES, mode=U32, seals=U32,
                  pieces=Many(Pair(Number(U64), BYTES)))
_META = Record(
    Meta, index=U64, parent=U64, time_ns=I64, message=TEXT, reason=TEXT, run=U64, process=U64,
    mode=Choice("incremental", "single"), isolate=BOOL, bytes_added=U64, head_moved=BOOL,
    processes=Many(_PROCESS), names=Many(_NAME), initial_names=Many(_NAME), pifs=Many(_PIF),
    initial_pifs=Many(_PIF), fits=Many(_FIT), inherited=Many(_INHERITED),
    offset_entries=U64, merged=U64, rootless=BOOL, undos=U64,
    launch=Many(_LAUNCH), memory=Many(_MEMORY), family=Many(_FAMILY), segments=Many(_SEGMENT)).later(
        "launch", "memory", "family", "segments")
_OFFSETS = Record(Offsets, index=U64, process=U64, run=U64, entries=Rows(OffsetEntry, (2, 3), (4, 5)))
_UNDO = Record(Undo, after_index=U64, seq=U64, entries=Rows(UndoEntry, (1, 2)))
_IDENTITY = Record(Identity, path=PATH, dev=U64, ino=U64, size=U64, mtime_ns=I64, ctime_ns=I64)
_KEPT = Record(KeptHome, inode=U64, name=NAME, ino=U64, size=U64, mtime_ns=I64, ctime_ns=I64)
_HEAD = Record(
    Head, index=U64, identities=Many(_IDENTITY), kept=Many(_KEPT), newest=U64, undos=U64)
_WRITE = Record(WriteOp, inode=U64, path=PATH, start=U64, end=U64, run=U64, buffer_start=U64)
_SIZE = Record(SizeOp, inode=U64, path=PATH, size=U64, mode=U32, uid=U32, gid=U32, mtime_ns=I64)
_CHANGE = Record(
    NameOp, op=Choice("unlink", "rmdir", "mkdir", "symlink", "link", "keep", "drop", "rename", "fifo",
              "create", "node"),
    path=PATH, other=PATH, inode=U64, mode=U32, uid=U32, gid=U32, mtime_ns=I64, target=BYTES, dev=U64,
    ino=U64)
_ATTRIBUTES = Record(XattrOp, path=PATH, xattrs=Many(Pair(BYTES, BYTES)))
_INTENT = Record(
    Intent, target=U64, writes=Many(_WRITE), sizes=Many(_SIZE), names=Many(_CHANGE), kept=Many(_KEPT),
    xattrs=Many(_ATTRIBUTES), done=Number(U64)).later("done")

_NUMBERS = Record(Numbers, pruned=U64, index=U64, object=U64, process=U64, run=U64)
_PRUNING = Record(
    Pruning, numbers=_NUMBERS, put=Many(NAME), remove=Many(NAME), kept=Many(NAME), buffers=Many(Number(U64)),
    holes=Rows(Hole, (1, 2)))


def encode_meta(value: Meta, store: int = 0) -> bytes:
    return seal(b"mtmrMETA", _META, value, store)


def decode_meta(data: bytes, store: int = 0) -> Meta:
    found: Meta = unseal(b"mtmrMETA", _META, data, store)
    if any(pif.size >= 1 << 63 for pif in (*found.pifs, *found.initial_pifs)):
        raise FormatError("an impossible file size", 0)
    return found


def encode_launch(value: Launch) -> bytes:
    return seal(b"mtmrRUNS", _LAUNCH, value, 0)


def decode_launch(data: bytes) -> Launch:
    found: Launch = unseal(b"mtmrRUNS", _LAUNCH, data, 0)
    return found


def encode_offsets(value: Offsets, store: int = 0) -> bytes:
    return seal(b"mtmrOFFS", _OFFSETS, value, store)


def decode_offsets(data: bytes, store: int = 0) -> Offsets:
    found: Offsets = unseal(b"mtmrOFFS", _OFFSETS, data, store)
    return found


def encode_undo(value: Undo, store: int = 0) -> bytes:
    return seal(b"mtmrUNDO", _UNDO, value, store)


def decode_undo(data: bytes, store: int = 0) -> Undo:
    found: Undo = unseal(b"mtmrUNDO", _UNDO, data, store)
    return found


def encode_head(value: Head, store: int = 0) -> bytes:
    return seal(b"mtmrHEAD", _HEAD, value, store)


def decode_head(data: bytes, store: int = 0) -> Head:
    found: Head = unseal(b"mtmrHEAD", _HEAD, data, store)
    return found


def encode_intent(value: Intent, store: int = 0) -> bytes:
    return seal(b"mtmrMOVE", _INTENT, value, store)


def decode_intent(data: bytes, store: int = 0) -> Intent:
    found: Intent = unseal(b"mtmrMOVE", _INTENT, data, store)
    return found


def encode_numbers(value: Numbers, store: int = 0) -> bytes:
    return seal(b"mtmrNUMS", _NUMBERS, value, store)


def decode_numbers(data: bytes, store: int = 0) -> Numbers:
    found: Numbers = unseal(b"mtmrNUMS", _NUMBERS, data, store)
    return found


def encode_pruning(value: Pruning, store: int = 0) -> bytes:
    return seal(b"mtmrPRUN", _PRUNING, value, store)


def decode_pruning(data: bytes, store: int = 0) -> Pruning:
    found: Pruning = unseal(b"mtmrPRUN", _PRUNING, data, store)
    return found
