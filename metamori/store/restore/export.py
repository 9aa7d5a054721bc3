"""A copy of the tracked files as at an index, in a folder of its own; the user's files are not touched.

A path below the folder that holds the store keeps its place relative to that folder (with the default store
that is where the run was started); any other keeps its whole path, without the slash at its beginning, or below a
folder `outside` if one of the first kind has its place: /a/project/tmp/x and /tmp/x.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from metamori.errors import ChangedOutside, Damaged, MetamoriError
from metamori.store.format.records import NameEntry, XattrOp
from metamori.store.io import xattrs
from metamori.store.io.os_io import boot_id
from metamori.store.read.reader import Reader
from metamori.store.read.state import State, parents
from metamori.store.read.store import Store
from metamori.store.restore.redo import Applier
from metamori.store.restore.restore import unknown

_UNFINISHED = b".metamori-unfinished-copy"


class Copy(NamedTuple):
    """What was made. outside: the folder of paths that do not lie where the store does, if one was needed, else b"".
    left_out: files of somebody's that were made or changed after the index, and that a run used only later. lost: those
    that could not be copied after all."""

    names: int
    outside: bytes
    left_out: tuple[bytes, ...] = ()
    lost: tuple[bytes, ...] = ()


def export(store: Store, index: int, folder: str | bytes, without: Collection[int] = (), force: bool = False,
           only: Collection[bytes] | None = None) -> Copy:
    """Copy everything that is there at `index` into `folder`, new or empty, or one in which this was interrupted;
    without some objects, or only some paths. Damaged when any record cannot be read: it may be the first to speak of a
    file that was there at all times. force: without those."""
    store.require_restorable(index)
    for why in [] if force else unknown(store):
        raise Damaged(f"{why}; --force copies the files that are known without it")
    root = os.path.abspath(os.fsencode(folder))
    made = _private_folders(root) | {root}
    if os.stat(above := os.path.dirname(root)).st_dev == os.stat(root).st_dev:
        made.add(above)                    # who was interrupted may have made the name; but not that of a mount
    made = {os.path.realpath(each) for each in made}
    state = store.state(index)
    later = _of_later(store, state)
    entries = [each for each in state.existing() if (each.kind != "file" or each.inode not in without)
               and (only is None or each.path in only)]
    left_out = tuple(each.path for each in entries if each.path in later)
    entries = [each for each in entries if each.path not in later]
    begun, trusted = _begin(store, index, root, entries)
    lost = _not_inside(entries)
    if lost and not force:
        raise Damaged(next(iter(lost.values())))
    entries = [each for each in entries if each.path not in lost]
    base = store.layout.id.anchor or os.path.dirname(store.layout.root)
    outside = _folder_outside(base, [entry.path for entry in entries])
    copies: dict[int, bytes] = {}
    store.door.expect("copying", sum(state.pifs[inode].size for inode in {
        entry.inode for entry in entries if entry.kind == "file"} if inode in state.pifs))
    for entry in entries:
        target = os.path.join(root, place(base, outside, entry.path))
        _private_folders(os.path.dirname(target))
        try:
            _make(store, state, entry, target, copies, trusted)
        except (Damaged, ChangedOutside) as error:
            if not force:
                raise
            lost[entry.path] = str(error)
            copies.pop(entry.inode, None)
            with suppress(FileNotFoundError):
                os.unlink(target)
    entries = [each for each in entries if each.path not in lost]
    for entry in reversed(entries):
        target = os.path.join(root, place(base, outside, entry.path))
        made |= {target, *_folders_between(root, target)}
        tells = (state.said_of(entry.inode) if entry.kind == "file" else None) or entry
        if tells.xattrs:
            xattrs.apply(store.door, XattrOp(target, tells.xattrs))
        if entry.kind == "dir":
            attributes(target, entry.mode, entry.uid, entry.gid, entry.mtime_ns)
    Applier(store, True, b"").sync_all(made)   # whoever has it may prune what it was made of
    os.unlink(begun)
    return Copy(len(entries), os.path.join(root, outside) if outside else b"", left_out, tuple(lost))


def _of_later(store: Store, state: State) -> set[bytes]:
    """Files that no record up to an index tells of, and that were written to after it: what they were nobody knows. A
    time that was still to come when the last checkpoint was taken says nothing."""
    first = state.index or next(iter(store.history.children(0)), 0)
    then, now = (store.meta(index).time_ns if index else 0 for index in (first, store.newest))
    pifs = ((path, state.pifs.get(state.names[path].inode)) for path in state.assumed())
    return {path for path, pif in pifs if pif is not None and state.names[path].kind == "file"
            and then < pif.mtime_ns <= now}


def _begin(store: Store, index: int, root: bytes, entries: list[NameEntry]) -> tuple[bytes, bool]:
    """A note in the folder until the copy is complete: whoever finds the same one there goes on with it. Also whether
    files in it that look complete are: after a power cut, sizes and times say nothing of what was never synced."""
    note, boot = os.path.join(root, _UNFINISHED), boot_id()
    text = b"%x %d %08x" % (store.layout.id, index, zlib.crc32(b"\0".join(each.path for each in entries)))
    found = os.listdir(root)
    try:
        with open(note, "rb") as file:
            was = file.read()
    except FileNotFoundError:
        was = b""
    if was.startswith(text):               # it stays: other files may be of the start of the machine that it names
        return note, boot != b"" and was == b"%b %b\n" % (text, boot)
    if found and found != [_UNFINISHED]:
        raise MetamoriError(f"{os.fsdecode(root)} is not empty; a copy needs a folder of its own")
    with open(note, "wb") as file:
        file.write(b"%b %b\n" % (text, boot))
    return note, True


def _private_folders(path: bytes) -> set[bytes]:
    """What is copied is nobody else's to see before folders have their own modes; untracked ones have none to give.
    Returns the folders that have a new name in them."""
    if os.path.isdir(path):
        return set()
    changed = _private_folders(os.path.dirname(path))
    os.mkdir(path, 0o700)
    return changed | {os.path.dirname(path)}


def _folders_between(root: bytes, path: bytes) -> Iterator[bytes]:
    while (path := os.path.dirname(path)) != root:
        yield path


def _not_inside(entries: list[NameEntry]) -> dict[bytes, str]:
    """What lies below what is no folder, and why it cannot: below a symbolic link it would lead out of the copy."""
    leaves = {entry.path for entry in entries if entry.kind != "dir"}
    return {entry.path: f"{os.fsdecode(entry.path)} cannot be below {os.fsdecode(folder)}, which is not a folder"
            for entry in entries for folder in parents(entry.path) if folder in leaves}


def place(base: bytes, outside: bytes, path: bytes) -> bytes:
    """Where a tracked path is in the copy, relative to it. outside: the folder of those that are not below `base`."""
    inside = base == b"/" or path.startswith(base + b"/")
    return path[len(base):].lstrip(b"/") if inside else os.path.join(outside, path.lstrip(b"/"))


def _folder_outside(base: bytes, paths: Iterable[bytes]) -> bytes:
    """b"" unless a path from elsewhere would get a place that one below `base`, or a folder around it, has."""
    tops: dict[bool, set[bytes]] = {True: set(), False: set()}
    for path in paths:
        tops[base == b"/" or path.startswith(base + b"/")].add(place(base, b"", path).partition(b"/")[0])
    if tops[True].isdisjoint(tops[False]):
        return b""
    return next(name for number in range(len(tops[True]) + 1)
                if (name := b"outside.%d" % number if number else b"outside") not in tops[True])


def _make(store: Store, state: State, entry: NameEntry, target: bytes, copies: dict[int, bytes], trusted: bool) -> None:
    if entry.kind == "dir":
        _private_folders(target)
        os.chmod(target, 0o700)            # a copy that was interrupted late has given it its mode
    elif _is_complete(state, entry, target, trusted):
        copies.setdefault(entry.inode, target)
    elif entry.kind == "symlink":
        os.symlink(entry.target, target)
        _own(target, entry.uid, entry.gid)
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
    elif entry.kind == "fifo":
        os.mkfifo(target)
        attributes(target, entry.mode, entry.uid, entry.gid, entry.mtime_ns)
    elif entry.kind == "other" and entry.target:
        _device(entry, target)
    elif entry.kind == "file" and entry.inode in copies:
        os.link(copies[entry.inode], target)
    elif entry.kind == "file":
        copies[entry.inode] = target
        _copy(store, state, entry.inode, target)


def _device(entry: NameEntry, target: bytes) -> None:
    try:
        os.mknod(target, entry.mode, int(entry.target))
    except PermissionError:                # the administrator's to make
        return
    attributes(target, entry.mode, entry.uid, entry.gid, entry.mtime_ns)


def _is_complete(state: State, entry: NameEntry, target: bytes, trusted: bool) -> bool:
    """Whether an interrupted copy has made it: of a file, its time is set last. What is there in part goes."""
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return False
    pif = state.pifs.get(entry.inode) if trusted and entry.kind == "file" else None
    if pif and stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (pif.size, pif.mtime_ns):
        return True
    os.unlink(target)
    return False


def _copy(store: Store, state: State, inode: int, target: bytes) -> None:
    pif = state.pifs.get(inode)
    if pif is None:
        raise Damaged(f"{os.fsdecode(target)}: no record of checkpoint {state.index} describes this file")
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, pif.size)
        with Reader(store, state.index, inode) as reader:
            for start, _, data in reader.chunks():
                if data is not None:
                    store.door.pwrite(fd, data, start)
    finally:
        os.close(fd)
    attributes(target, pif.mode, pif.uid, pif.gid, pif.mtime_ns)


def attributes(path: bytes, mode: int, uid: int, gid: int, mtime_ns: int) -> None:
    """Owner as far as the user may give it, mode, time of change."""
    if not _own(path, uid, gid):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # another owner's set-id bits are not ours to give
    os.chmod(path, stat.S_IMODE(mode))
    os.utime(path, ns=(mtime_ns, mtime_ns))


def _own(path: bytes, uid: int, gid: int) -> bool:
    """Whether it has this owner now."""
    found = os.lstat(path)
    if (found.st_uid, found.st_gid) != (uid, gid):
        try:
            os.chown(path, uid, gid, follow_symlinks=False)
        except PermissionError:
            return False
    return True
