"""The tracked files of a store inside the level's own files: for stores on a node's disk, which are lost with the node.

One process per store (its leader) adds variables to its part of a checkpoint: the list of names with their attributes
(id -1), and the bytes of each file as at the store's index (id -2 minus the file's number in the store, which is never
given again, so that increments work). They are protected and brought back like memory. Not among them: files without a
name, devices.
"""

from __future__ import annotations

import base64
import contextlib
import json
import mmap
import os
import stat
import tempfile
from typing import Any

from metamori.levels.setup.variables import BUILT_IN, EMPTY, Variable
from metamori.store.format.records import NameEntry, XattrOp
from metamori.store.io import xattrs
from metamori.store.io.os_io import REAL
from metamori.store.read.reader import Reader
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore.export import attributes

LIST = -1
_BYTES = BUILT_IN[4]


def _number(inode: int) -> int:
    return -2 - inode


def take(store: Store, index: int, folder: str) -> list[Variable]:
    """The files at an index of a live run's store. They are copied to a nameless file in `folder`: the cost of a
    checkpoint grows with what the tracked files hold. OSError, MetamoriError."""
    state = store.state(index)
    listed = json.dumps([_described(state, entry) for _, entry in sorted(state.names.items())]).encode()
    found = [Variable(LIST, memoryview(bytearray(listed)), _BYTES, len(listed), "metamori: names")]
    places, size = {}, 0
    for inode in sorted({entry.inode for entry in state.names.values() if entry.kind == "file"}):
        places[inode] = size
        size += -(-state.pifs[inode].size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = _spooled(store, state, places, size, folder)
    for inode, place in places.items():
        content = memory[place:place + state.pifs[inode].size]
        found.append(Variable(_number(inode), content, _BYTES, len(content), f"metamori: file {inode}"))
    return found


def _spooled(store: Store, state: State, places: dict[int, int], size: int, folder: str) -> memoryview:
    if not size:
        return EMPTY
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as spool:
        os.ftruncate(spool.fileno(), size)
        for inode, place in places.items():
            with Reader(store, state.index, inode) as reader:
                for start, _, data in reader.chunks():
                    if data is not None:
                        REAL.pwrite(spool.fileno(), data, place + start)
        return memoryview(mmap.mmap(spool.fileno(), size))


def _described(state: State, entry: NameEntry) -> dict[str, Any]:
    tells: Any = state.pifs[entry.inode] if entry.kind == "file" else entry
    said = state.said_of(entry.inode) if entry.kind == "file" else entry
    return {"path": _text(entry.path), "kind": entry.kind, "number": entry.inode, "mode": tells.mode, "uid": tells.uid,
            "gid": tells.gid, "mtime_ns": tells.mtime_ns, "target": _text(entry.target),
            "xattrs": [[_text(name), _text(value)] for name, value in (said.xattrs if said else ())]}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def put_back(saved: Any) -> None:
    """Names, attributes and bytes as a checkpoint's part has them. Files that are there are overwritten in place, so
    that descriptors on them stay. OSError, Broken."""
    listed = bytearray(saved.sizes.get(LIST, 0))
    saved.read(LIST, memoryview(listed))
    entries = json.loads(listed)
    for each in entries:
        each["path"], each["target"] = base64.b64decode(each["path"]), base64.b64decode(each["target"])
    for each in reversed(entries):
        if each["kind"] == "absent":
            _remove(each["path"])
    first: dict[int, bytes] = {}
    for each in entries:
        _make(saved, each, first)
    for each in reversed(entries):         # what is in a folder before the folder, whose time it changes
        if each["kind"] in ("file", "dir", "fifo"):
            try:
                attributes(each["path"], each["mode"], each["uid"], each["gid"], each["mtime_ns"])
            except PermissionError:
                if each["kind"] != "dir" or os.lstat(each["path"]).st_uid == os.geteuid():
                    raise
                continue                   # somebody else's folder, /tmp perhaps, stays as it is
            pairs = tuple((base64.b64decode(name), base64.b64decode(value)) for name, value in each["xattrs"])
            if each["kind"] != "fifo" and pairs != xattrs.read(each["path"]):
                xattrs.apply(REAL, XattrOp(each["path"], pairs))


def _make(saved: Any, each: dict[str, Any], first: dict[int, bytes]) -> None:
    path, kind = each["path"], each["kind"]
    there = _kind(path)
    if kind == "dir":
        if there != "dir":
            _remove(path)
            os.makedirs(path, 0o700)
    elif kind == "symlink":
        if there != "symlink" or os.readlink(path) != each["target"]:
            _remove(path)
            os.symlink(each["target"], path)
    elif kind == "fifo":
        if there != "fifo":
            _remove(path)
            os.mkfifo(path)
    elif kind == "file" and each["number"] in first:
        if there != "file" or not os.path.samefile(path, first[each["number"]]):
            _remove(path)
            os.link(first[each["number"]], path)
    elif kind == "file":
        first[each["number"]] = path
        if there != "file":
            _remove(path)
        _fill(saved, _number(each["number"]), path)


def _kind(path: bytes) -> str:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo"}
    return kinds.get(stat.S_IFMT(mode), "other")


def _remove(path: bytes) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if _kind(path) == "dir":
            with contextlib.suppress(OSError):
                os.rmdir(path)             # somebody else's files keep it
        else:
            os.unlink(path)


def _fill(saved: Any, number: int, path: bytes) -> None:
    """Only what differs is written: holes stay holes, and a store that is new is not given what is there already."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, saved.sizes[number])
        for start, data in saved.chunks(number):
            if os.pread(fd, len(data), start) != data:
                REAL.pwrite(fd, data, start)
    finally:
        os.close(fd)
