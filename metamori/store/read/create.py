"""The beginning of a store: its folders, its first head, and the format file that says what it is."""

from __future__ import annotations

import errno
import os
import time

from metamori.errors import Damaged, MetamoriError, NoStore, StoreBusy
from metamori.store.format import files
from metamori.store.format.layout import FORMAT_VERSION, Layout, format_line, parse_format, parse_record_name
from metamori.store.format.records import Head
from metamori.store.io import commit
from metamori.store.io.os_io import Door
from metamori.store.read.head import as_far_as_noted, identity_now

PATIENCE_S = 10.0
_LOOKED_AT = 64  # files, to see whether they moved along


def read_format(door: Door, layout: Layout) -> None:
    """Learn the store's own number. NoStore, Damaged, MetamoriError for a store of a later version."""
    name = os.fsdecode(layout.format)
    try:
        found = parse_format(commit.read_file(door, layout.format))
    except (FileNotFoundError, NotADirectoryError):
        if _has_records(door, layout):
            raise Damaged(f"{name} is missing") from None
        raise NoStore(
            f"there is no store at {os.fsdecode(layout.root)}: metamori run makes one, --store names another") from None
    if found is None:
        raise Damaged(f"{name}: not the format file of a store (at byte 0)")
    if not 0 < found[0] <= FORMAT_VERSION:
        raise MetamoriError(f"{os.fsdecode(layout.root)} is a store of format version {found[0]}; this Metamori knows "
                            f"{FORMAT_VERSION}")
    here, noted = surroundings(layout), noted_anchor(door, layout)
    layout.id = layout.number(found[1], found[0], here)
    if noted and noted != here and layout.id.anchor and _files_stayed(door, layout, here, noted):
        layout.id.anchor = noted


def surroundings(layout: Layout) -> bytes:
    """The folder that the store lies in: what its paths are relative to, as the kernel names it."""
    return os.path.realpath(os.path.dirname(layout.root))


def _files_stayed(door: Door, layout: Layout, here: bytes, before: bytes) -> bool:
    """Whether the store alone was moved, or copied: more of its files are as noted where it was than there are here."""
    try:
        head = files.decode_head(commit.read_file(door, layout.head), layout.id)
    except (OSError, files.FormatError):
        return False                       # who reads it next says what is wrong
    below = [each for each in head.identities if each.ino and each.path.startswith(here + b"/")]
    step = max(1, len(below) // _LOOKED_AT)
    there = 0
    for each in below[::step]:
        now = as_far_as_noted(each, identity_now(door, before + each.path[len(here):]))
        there += bool(now.ino) and (now.size, now.mtime_ns) == (each.size, each.mtime_ns)
        there -= commit.exists(door, each.path)
    return there > 0


def create(door: Door, layout: Layout) -> None:
    """Private whatever the umask; the format file comes last: with it the store exists.

    Several may want to at once: who has the lock makes it, the others wait until it is there. StoreBusy, MetamoriError.
    """
    if _is_to_be_made(door, layout):
        limit = time.monotonic() + PATIENCE_S
        while not commit.exists(door, layout.format) and not _made_with_lock(door, layout):
            if time.monotonic() > limit:
                raise StoreBusy(f"somebody else is making a store at {os.fsdecode(layout.root)}")
            time.sleep(0.01)


def _is_to_be_made(door: Door, layout: Layout) -> bool:
    """An empty folder that nobody else may use, or what a kill left of one. False when somebody else was faster."""
    if not commit.exists(door, layout.root):
        folder = os.path.dirname(layout.root)
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):       # the door would open it up where it is one's own
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
    commit.make_folder(door, layout.root)
    names = set(door.listdir(layout.root))
    if b"format" in names:
        return False
    known = {os.path.basename(folder) for folder in layout.folders} | {b"lock", b"head"}
    if any(not name.startswith(b".") for name in names - known):
        raise MetamoriError(f"{os.fsdecode(layout.root)} is a folder with other things in it, not a store")
    door.chmod(layout.root, commit.PRIVATE_FOLDER)
    return True


def _made_with_lock(door: Door, layout: Layout) -> bool:
    """Whether this process, or one before it, has made the store; False while another is about it."""
    lock = door.open(layout.lock, os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
    try:
        if not door.flock(lock):
            return False
        door.fchmod(lock, commit.PRIVATE_FILE)         # a umask of 777 shuts its maker out when he opens it again
        if not commit.exists(door, layout.format):
            _make(door, layout)
        return True
    finally:
        door.close(lock)


def _make(door: Door, layout: Layout) -> None:
    if _has_records(door, layout):
        raise Damaged(f"{os.fsdecode(layout.format)} is missing")
    for folder in layout.folders:
        commit.make_folder(door, folder)
    layout.id = layout.number(int.from_bytes(os.urandom(4)) or 1, FORMAT_VERSION, surroundings(layout))
    commit.write_file(door, layout.gitignore, b"*\n", durable=False)
    commit.write_file(door, layout.head, files.encode_head(Head(0), layout.id))
    commit.write_file(door, layout.format, format_line(layout.id))
    note_place(door, layout)
    commit.fsync_folder(door, os.path.dirname(layout.root))


def _place(door: Door, layout: Layout) -> bytes:
    """Number and change time of the format file: no copy of a store has the same, and nobody can set them."""
    found = door.lstat(layout.format)
    return b"%d %d" % (found.st_ino, found.st_ctime_ns)


def _noted(door: Door, layout: Layout) -> tuple[bytes, bytes]:
    """What `note_place` has noted: the place, and the folder that paths were relative to; either may be empty."""
    try:
        first, _, rest = commit.read_file(door, layout.lock).partition(b"\n")
    except (FileNotFoundError, PermissionError):
        return b"", b""
    return first, rest[:-1] if rest.startswith(b"/") and rest.endswith(b"\n") else b""


def noted_anchor(door: Door, layout: Layout) -> bytes:
    """The folder that paths were relative to when the last run, or verb that writes, began; b"": not known."""
    return _noted(door, layout)[1]


def note_place(door: Door, layout: Layout) -> None:
    """This store is where it belongs: what is unfinished in it is this user's own work. Kept in the lock file."""
    text = _place(door, layout) + b"\n" + (layout.id.anchor and layout.id.anchor + b"\n")
    if b"\n".join(_noted(door, layout)) + b"\n" * bool(layout.id.anchor) == text:
        return
    fd = door.open(layout.lock, os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
    try:
        door.fchmod(fd, commit.PRIVATE_FILE)
        door.pwrite(fd, text, 0)
        door.ftruncate(fd, len(text))
        door.fsync(fd)                     # after a power cut it is still this user's own
    finally:
        door.close(fd)


def is_in_place(door: Door, layout: Layout) -> bool:
    """False in a copy, and so in a store that somebody else has made: looking at it must not carry out what it says."""
    return _noted(door, layout)[0] == _place(door, layout)


def _has_records(door: Door, layout: Layout) -> bool:
    try:
        names = door.listdir(layout.checkpoints)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(parse_record_name(name) is not None for name in names)
