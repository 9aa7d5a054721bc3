"""Planning the changes to names between two states: a list of operations that can be repeated.

Order, and why each step finds what it needs, also when it runs a second time after a stop anywhere:
  1. keep     every object that loses all its names in place gets one more, in the store's kept folder (or
              beside the file, on another filesystem): from here on no step can destroy it;
  2. unlink   names that are not to be, each only while it is still the inode that it was;
  3. rename, rmdir   deepest first, folders on the move step aside, to a folder that stays, and folders that
              are not to be go;
  4. mkdir, rename   folders that are to be, highest first;
  5. link, create, symlink, fifo   names that are to be;
  -- here the moved names are made durable, and an intent that counts the steps above as done replaces the first --
  6. drop     the additional names of 1 of objects that have their own (`other`) again;
  7. mkdir    once more, for the modes and times of folders.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping

from metamori.errors import ChangedOutside
from metamori.store.format import layout as names_of
from metamori.store.format.layout import Layout
from metamori.store.format.records import KeptHome, NameEntry, NameOp, XattrOp
from metamori.store.io import xattrs
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import Door, umask
from metamori.store.read.state import State

OWNER_ALL = 0o700


class NamesPlan:
    """ops in order; kept files afterwards; notes for a person.

    `here` is the state that the files are at, `homes` the kept files then. yields: a name that is to be where somebody
    has put something of his stays away (`blocked`), and its file in the store; else nothing is done (ChangedOutside).
    """

    def __init__(
        self, door: Door, layout: Layout, here: State, there: State, homes: Iterable[KeptHome], yields: bool = False
    ) -> None:
        self._door, self._layout, self._here, self._there = door, layout, here, there
        self._homes = {home.inode: home.name for home in homes}
        self._kept_dev = door.lstat(layout.kept_folder).st_dev
        self._others: dict[bytes, bool] = {}          # of folders: `_has_others`
        self._sources: dict[int, bytes] = {}
        self._drops: list[NameOp] = []
        self.notes: list[str] = []
        self._stages: dict[int, bytes] = {}
        self._compare()
        self.blocked = self._in_the_way() if yields else set[bytes]()
        if self.blocked:
            self._there = there.only(there.names.keys() - self.blocked, there.pifs)
            self._compare()
        self._plan_stages()
        made = self._make_folders()
        arrivals = self._arrivals()
        self.ops: list[NameOp] = [
            *self._keeps(), *self._unlinks(), *self._clear_folders(), *made, *arrivals, *self._drops,
            *self._finish_folders(made),
        ]
        self.kept = tuple(KeptHome(inode, name) for inode, name in sorted(self._homes.items()))

    def across(self) -> set[int]:
        """The objects that come from the store to another filesystem, or go there: as copies."""
        kept = self._layout.kept_folder + b"/"
        return {op.inode for op in self.ops
                if (op.op == "link" and op.other.startswith(kept) and self._device(op.path) != self._kept_dev)
                or (op.op == "keep" and op.other.startswith(kept) and op.dev != self._kept_dev)}

    def _device(self, path: bytes) -> int:
        """Of the filesystem that a path is on, or will be."""
        while not (found := self._left(path)):
            path = os.path.dirname(path)
        return found.st_dev

    def _left(self, path: bytes) -> os.stat_result | None:
        """What has a path now, unless that is found by way of a name that goes. Of a folder that was replaced by a
        symbolic link to another one, the names in it are not there, whatever the other holds."""
        folder = os.path.dirname(path) if self._links else b"/"
        while len(folder) > 1:
            if folder in self._links:
                return None
            folder = os.path.dirname(folder)
        return lstat_or_none(self._door, path)

    def _in_its_way(self, entry: NameEntry) -> bytes:
        """The path of what is nobody's and will be where a name is to come, or a folder around it: it is there already,
        or a folder that moves brings it along. Where a folder is only made, another may be."""
        path, found = self._at_last(entry.path)
        if found and not (entry.kind == "dir" and entry.path not in self._origins and stat.S_ISDIR(found.st_mode)):
            return path
        around = next(((place, at) for _, place, at in self._untracked_around(entry.path) if at), None)
        return b"" if around is None or stat.S_ISDIR(around[1].st_mode) else around[0]

    def _at_last(self, path: bytes) -> tuple[bytes, os.stat_result | None]:
        """What will be at a path once names have gone and folders have moved, and where it is now."""
        origin = self._origin(path)
        leaves = origin in self._going or origin in self._moved or self._carried(origin) != path
        return origin, None if leaves else self._left(origin)

    def _origin(self, path: bytes) -> bytes:
        """Where that is now which is at a path when folders have moved; it is there only if `_carried` says so too."""
        folder = os.path.dirname(path)
        while len(folder) > 1 and self._origins:
            if folder in self._origins:
                return self._origins[folder] + path[len(folder):]
            folder = os.path.dirname(folder)
        return path

    # -- comparing -------------------------------------------------------------------------------

    def _moved_folders(self) -> dict[bytes, tuple[bytes, int]]:
        """Old path -> (new path, number) of folders that have another path; only those with a number. Where another
        folder stays in place, or one without, what is to be in it moves one by one."""
        taken = {e.path for e in self._here.names.values() if e.kind == "dir" and not e.inode}
        new = {e.inode: e.path for e in self._there.names.values() if e.kind == "dir" and e.inode
               and e.path not in taken}
        return {
            e.path: (new[e.inode], e.inode) for e in self._here.names.values()
            if e.kind == "dir" and e.inode and new.get(e.inode, e.path) != e.path
            and not self._stays(new[e.inode], e.inode, new)
        }

    def _stays(self, path: bytes, number: int, new: Mapping[int, bytes]) -> bool:
        """Whether a folder is in place that nobody has recorded, or that holds such things and so cannot go; or that of
        this number itself: it was moved unseen once, and an index has it by both names."""
        entry, found = self._here.names.get(path), lstat_or_none(self._door, path)
        if entry is not None and entry.kind != "absent":
            cannot_go = entry.kind == "dir" and entry.inode not in new and self._has_others(path)
            return cannot_go or (entry.kind == "dir" and entry.inode == number)
        return found is not None           # then what is to be in it moves one by one

    def _has_others(self, folder: bytes) -> bool:
        """Whether something is in a folder, at any depth, that nobody has recorded."""
        if folder not in self._others:
            there = lstat_or_none(self._door, folder)
            names = self._door.listdir(folder) if there and stat.S_ISDIR(there.st_mode) else ()
            self._others[folder] = any(self._is_other(os.path.join(folder, name)) for name in names)
        return self._others[folder]

    def _is_other(self, path: bytes) -> bool:
        entry = self._here.names.get(path)
        if entry is None or entry.kind == "absent" or (entry.kind == "dir" and self._has_others(path)):
            return True
        found = lstat_or_none(self._door, path)        # beside a run somebody may have put something else there
        return found is not None and stat.S_ISDIR(found.st_mode) != (entry.kind == "dir")

    def _carried(self, path: bytes) -> bytes:
        """Where a path ends up when the moved folders around it are renamed; the nearest one decides."""
        folder = os.path.dirname(path)
        while len(folder) > 1 and self._moved:
            if folder in self._moved:
                return self._moved[folder][0] + path[len(folder):]
            folder = os.path.dirname(folder)
        return path

    def _compare(self) -> None:
        """Split what is here into what is in place (or is carried there) and what has to leave."""
        self._moved = self._moved_folders()
        self._origins = {new: old for old, (new, _) in self._moved.items()}
        self._leaving: list[NameEntry] = []
        self._in_place: dict[bytes, NameEntry] = {}   # path there -> as it is here
        gone: set[bytes] = set()
        self._several: dict[tuple[int, int], list[NameEntry]] | None = None   # `_wanted_of`, once it is asked
        for entry in self._here.existing():
            if entry.kind == "dir" and entry.path in self._moved:
                self._in_place[self._moved[entry.path][0]] = entry
                continue
            target = self._carried(entry.path)
            below_gone = bool(gone) and any(parent in gone for parent in self._parents_in_place(entry.path))
            if not below_gone and _same(entry, self._there.names.get(target)) and not self._parts(entry, target):
                self._in_place[target] = entry
                continue
            self._leaving.append(entry)
            if entry.kind == "dir":
                gone.add(entry.path)
        self._going = {entry.path for entry in self._leaving}
        self._links = {entry.path for entry in self._leaving if entry.kind == "symlink"}

    def _parts(self, entry: NameEntry, target: bytes) -> bool:
        """Whether a symbolic link or fifo has another name by now, and is to be unlike that one. What cannot be made
        anew, a socket or, for most, a device, stays as it is."""
        wanted = self._there.names[target]
        if entry.kind not in ("symlink", "fifo") or _attributes(entry) == _attributes(wanted):
            return False
        found = lstat_or_none(self._door, entry.path)
        return found is not None and found.st_nlink > 1 and any(
            _attributes(other) != _attributes(wanted) for other in self._wanted_of((found.st_dev, found.st_ino)))

    def _wanted_of(self, identity: tuple[int, int]) -> Iterable[NameEntry]:
        """What the names of one symbolic link or fifo are to be, of those that may stay where they are."""
        if self._several is None:
            self._several = {}
            for entry in self._here.existing():
                wanted = self._there.names.get(self._carried(entry.path))
                if entry.kind not in ("symlink", "fifo") or wanted is None or not _same(entry, wanted):
                    continue
                found = lstat_or_none(self._door, entry.path)
                if found is not None and found.st_nlink > 1:
                    self._several.setdefault((found.st_dev, found.st_ino), []).append(wanted)
        return self._several.get(identity, ())

    def _parents_in_place(self, path: bytes) -> Iterable[bytes]:
        """The folders around a path, up to the first that moves and takes it along."""
        folder = os.path.dirname(path)
        while len(folder) > 1 and folder not in self._moved:
            yield folder
            folder = os.path.dirname(folder)

    def _in_the_way(self) -> set[bytes]:
        """Names that are to be, and cannot: something is there, or around them, that is nobody's of the runs."""
        stuck = {self._carried(path) for path in self._going if self._has_others(path)}
        found: set[bytes] = set()
        for entry in self._there.existing():
            stays = entry.kind != "dir" and entry.path in self._in_place
            cannot_be = entry.path in stuck and (entry.kind != "dir" or entry.path in self._origins)
            if os.path.dirname(entry.path) in found or (not stays and (cannot_be or self._in_its_way(entry))):
                found.add(entry.path)
        return found

    # -- leaving ---------------------------------------------------------------------------------

    def _keeps(self) -> Iterable[NameOp]:
        """One more name for each object that has none in place."""
        done: set[int] = set()
        for entry in self._leaving:
            if entry.kind != "file" or entry.inode in done or entry.inode not in self._stages:
                continue
            found = lstat_or_none(self._door, entry.path)
            if found is None or not stat.S_ISREG(found.st_mode):
                continue
            done.add(entry.inode)
            yield NameOp("keep", entry.path, self._stages[entry.inode], entry.inode, dev=found.st_dev,
                         ino=found.st_ino)

    def _plan_stages(self) -> None:
        """Choose the place of each leaving object between its old and new names, or its kept file."""
        staying = {self._there.names[path].inode for path in self._in_place
                   if self._there.names[path].kind == "file"}
        for entry in self._leaving:
            if entry.kind != "file" or entry.inode in staying or entry.inode in self._stages:
                continue
            found = lstat_or_none(self._door, entry.path)
            if found is None or not stat.S_ISREG(found.st_mode):
                continue
            stage = self._layout.kept_by_move(entry.inode)
            if not self._there.paths(entry.inode):
                self._homes[entry.inode] = os.path.basename(stage)
            else:
                if found.st_dev != self._kept_dev:
                    stage = names_of.stage(self._staying_folder(entry.path), "file", entry.inode)
                self._drops.append(NameOp("drop", stage, self._there.paths(entry.inode)[0], entry.inode))
            self._stages[entry.inode] = stage

    def _staying_folder(self, path: bytes) -> bytes:
        """The nearest folder around a path that neither moves nor goes."""
        folder = os.path.dirname(path)
        while len(folder) > 1 and (
                folder in self._going or folder in self._moved or self._carried(folder) != folder):
            folder = os.path.dirname(folder)
        return folder

    def _unlinks(self) -> Iterable[NameOp]:
        for entry in self._leaving:
            found = lstat_or_none(self._door, entry.path) if entry.kind != "dir" else None
            if found is None or stat.S_ISDIR(found.st_mode):
                continue
            if entry.kind == "other" and not stat.S_ISSOCK(found.st_mode) and not entry.target:
                self.notes.append(f"{os.fsdecode(entry.path)} is a device; it stays")
                continue
            yield NameOp("unlink", entry.path, inode=entry.inode, dev=found.st_dev, ino=found.st_ino)

    def _clear_folders(self) -> list[NameOp]:
        """Deepest first, so that a folder on the move takes none along that moves elsewhere or goes."""
        ops = {op.path: op for op in self._rmdirs()}
        for path, (_, number) in self._moved.items():
            found = lstat_or_none(self._door, path)
            if found is not None:
                ops[path] = NameOp("rename", path, self._aside(path), number, dev=found.st_dev,
                                   ino=found.st_ino)
        return [ops[path] for path in sorted(ops, key=_depth, reverse=True)]

    def _aside(self, path: bytes) -> bytes:
        return names_of.stage(self._staying_folder(path), "folder", self._moved[path][1])

    def _rmdirs(self) -> Iterable[NameOp]:
        """Folders that hold something untracked stay, and so do the folders around them."""
        gone = self._going | set(self._moved)
        staying: set[bytes] = set()
        for path in sorted((e.path for e in self._leaving if e.kind == "dir"), key=_depth, reverse=True):
            found = lstat_or_none(self._door, path)
            if found is None or not stat.S_ISDIR(found.st_mode):
                staying.update([path] if found else ())
                continue
            inside = {os.path.join(path, name) for name in self._door.listdir(path)}
            if inside <= gone and not inside & staying:
                yield NameOp("rmdir", path)
                continue
            staying.add(path)
            place = self._carried(path)
            self.notes.append(f"{os.fsdecode(place)} holds other files; it stays")
            if place in self._origins or self._there.names.get(place, _NOTHING).kind not in ("absent", "dir"):
                raise ChangedOutside(f"{os.fsdecode(path)} would be removed, but holds other files", (path,))

    # -- arriving --------------------------------------------------------------------------------

    def _make_folders(self) -> list[NameOp]:
        """Folders that are to be, highest first; also untracked ones around a tracked name that are missing, or will be
        since they are tracked now and go."""
        from_aside = {new: self._aside(old) for old, (new, _) in self._moved.items()}
        ops: dict[bytes, NameOp] = {}
        for entry in self._there.existing():
            for folder in self._missing_around(entry.path):
                ops.setdefault(folder, NameOp("mkdir", folder, mode=0o777 & ~umask()))
            if entry.kind == "dir" or entry.path not in self._in_place:
                self._require_free(entry)
            if entry.path in from_aside:
                ops[entry.path] = NameOp("rename", from_aside[entry.path], entry.path, entry.inode)
            elif entry.kind == "dir" and ((here := self._in_place.get(entry.path)) is None
                                          or lstat_or_none(self._door, here.path) is None):    # taken away beside a run
                ops[entry.path] = _mkdir(entry, entry.mode | OWNER_ALL)
        return [ops[path] for path in sorted(ops, key=_depth)]

    def _missing_around(self, path: bytes) -> Iterable[bytes]:
        for folder, _, found in self._untracked_around(path):
            if found:
                return
            yield folder

    def _untracked_around(self, path: bytes) -> Iterator[tuple[bytes, bytes, os.stat_result | None]]:
        """Folders that no index knows, the nearest first, and what `_at_last` says of each."""
        folder = os.path.dirname(path)
        while len(folder) > 1 and self._untracked(folder):
            yield folder, *self._at_last(folder)
            folder = os.path.dirname(folder)

    def _untracked(self, folder: bytes) -> bool:
        entry = self._there.names.get(folder)
        return (entry is None or entry.kind == "absent") and self._carried(folder) == folder

    def _require_free(self, entry: NameEntry) -> None:
        """Nothing untracked may be where something has to go: found out before anything is touched."""
        if path := self._in_its_way(entry):
            raise ChangedOutside(f"{os.fsdecode(path)} is in the way: it was made by somebody else", (path,))

    def _arrivals(self) -> list[NameOp]:
        """Names that are to be and are not in place. An object without a backing file gets an empty file."""
        ops = []
        for entry in self._there.existing():
            if entry.kind == "dir":
                continue
            if entry.path in self._in_place:
                if entry.kind != "file" and _attributes(self._in_place[entry.path]) != _attributes(entry):
                    ops.append(_special(entry))
                continue
            if entry.kind == "file":
                source = self._source(entry.inode)
                ops.append(NameOp("link" if source else "create", entry.path, source, entry.inode))
                if not source or os.path.dirname(source) == self._layout.kept_folder:
                    self._sources[entry.inode] = entry.path   # the others are names of what may be a copy
            elif entry.kind in ("symlink", "fifo") or entry.target:
                ops.append(_special(entry))
            else:
                self.notes.append(f"{os.fsdecode(entry.path)} was a socket; it is not restored")
        return ops

    def _source(self, inode: int) -> bytes:
        """A name that the object has when step 5 begins, or b"" when nothing backs it."""
        if inode not in self._sources:
            staying = [path for path in self._there.paths(inode) if path in self._in_place]
            if staying:
                self._sources[inode] = staying[0]
            elif inode in self._stages:
                self._sources[inode] = self._stages[inode]
            elif inode in self._homes:
                home = self._layout.kept(self._homes.pop(inode))
                if lstat_or_none(self._door, home) is not None:
                    self._sources[inode] = home
                    self._drops.append(NameOp("drop", home, self._there.paths(inode)[0], inode))
        return self._sources.get(inode, b"")

    def _finish_folders(self, made: list[NameOp]) -> Iterable[NameOp]:
        """Modes and times, last; a folder in place is touched only where its mode or owner differs, and where it keeps
        its owner out: the door may have opened it up when the move is stopped."""
        new = {op.path if op.op == "mkdir" else op.other for op in made}
        for entry in reversed(self._there.existing()):
            if entry.kind != "dir":
                continue
            found = None if entry.path in new else lstat_or_none(self._door, self._in_place[entry.path].path)
            shut = stat.S_IMODE(entry.mode) & OWNER_ALL != OWNER_ALL
            if found is None or shut or (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) != (
                    stat.S_IMODE(entry.mode), entry.uid, entry.gid):
                yield _mkdir(entry, entry.mode)


_NOTHING = NameEntry(b"", "absent")


def _same(here: NameEntry, there: NameEntry | None) -> bool:
    """Whether a name may stay as it is. A folder without a number is whatever folder has its path."""
    if there is None or here.kind != there.kind:
        return False
    if here.kind == "file":
        return here.inode == there.inode
    if here.kind == "dir":
        return here.inode == there.inode or not here.inode or not there.inode
    return here.target == there.target


def _attributes(entry: NameEntry) -> tuple[int, int, int, int]:
    return entry.mode, entry.uid, entry.gid, entry.mtime_ns


def _special(entry: NameEntry) -> NameOp:
    """Makes a symbolic link, FIFO or device, where it is not there, and gives it its mode, owner and time."""
    op = entry.kind if entry.kind in ("symlink", "fifo") else "node"
    return NameOp(op, entry.path, b"", 0, *_attributes(entry), entry.target)


def _mkdir(entry: NameEntry, mode: int) -> NameOp:
    return NameOp("mkdir", entry.path, b"", entry.inode, mode, entry.uid, entry.gid, entry.mtime_ns)


def _depth(path: bytes) -> tuple[int, bytes]:
    return path.count(b"/"), path


def xattr_ops(here: State, there: State) -> Iterator[XattrOp]:
    """What has to be set so that all that has a name at `there` has its attributes of then."""
    for entry in there.existing():
        want = entry
        if entry.kind == "file":
            known, want = here.said_of(entry.inode), there.said_of(entry.inode) or entry
        elif entry.kind == "symlink":
            continue
        else:
            known = here.names.get(entry.path)
        # what had no name here may have been given some since; what is made anew inherits its folder's default ACL;
        # another folder, one made anew too, does not have what is said of the one at its path now; and what was copied
        # with its store by `tar` or `rsync -aH` has none
        if known is None or not _same(known, entry) or known.xattrs != want.xattrs or (
                entry.kind == "fifo" and _attributes(known) != _attributes(entry)) or (
                want.xattrs and xattrs.read(entry.path) != want.xattrs):
            yield XattrOp(entry.path, want.xattrs)
