"""A run without a shim: it changes files by the rules that the shim keeps, and records them in a store.

Bytes that the last index knows are redirected to the buffer; new ones are written back; now and then old bytes are
overwritten in place after their pre-image was saved. Beside the files it keeps a plain model of every index.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from metamori.store.format.records import Meta, NameEntry, OffsetEntry, Offsets, UndoEntry
from metamori.store.read.store import Store
from metamori.store.restore import restore, safety_copies
from metamori.tables.aml import AML, AddressMap
from metamori.tables.pif import NO_LIMIT, PifEntry

Snapshot = dict[str, tuple]


@contextmanager
def held(home: Path) -> Iterator[None]:
    """A program that had it open before its mode was changed goes on to write; an ordinary user's test could not."""
    mode = stat.S_IMODE(home.stat().st_mode)
    home.chmod(mode | stat.S_IWUSR)
    yield
    home.chmod(mode)


@dataclass
class Thing:
    """A tracked file while the run lives."""

    inode: int
    data: bytearray  # what the program sees
    home: Path
    mapped: AddressMap
    current: AddressMap = field(default_factory=AddressMap)
    fresh_from: int = 0
    cut: int = 0
    home_limit: int = NO_LIMIT
    created: int = 0
    kept: bytes = b""
    touched: bool = True


class Run:
    """One run over the folder `root`, from head on."""

    def __init__(self, store: Store, root: Path, models: dict[int, Snapshot], rng: random.Random) -> None:
        self.store, self.root, self.models, self.rng = store, root, models, rng
        self.number, self.process = store.next_run(), store.next_process()
        self.parent = store.head.index
        state = store.state(self.parent)
        self.known = dict(state.names)
        self.initial_names: dict[bytes, NameEntry] = {}
        self.initial_pifs: dict[int, PifEntry] = {}
        self.recorded = {path: entry for path, entry in state.names.items()}
        self.things: dict[int, Thing] = {}
        self.dirs = {e.path: e.inode for e in state.names.values() if e.kind == "dir"}
        for inode in state.pifs:
            for path in state.paths(inode):
                self._adopt(inode, Path(os.fsdecode(path)), state.maps.get(inode))
        self.buffer = Path(os.fsdecode(store.layout.buffer(self.number)))
        self.buffer.touch()

    # -- what is there -----------------------------------------------------------------------------

    def _adopt(self, inode: int, path: Path, mapped: AddressMap | None = None) -> Thing:
        if inode not in self.things:
            data = bytearray(path.read_bytes())
            self.things[inode] = Thing(inode, data, path, mapped.copy() if mapped else AddressMap(),
                                       fresh_from=len(data), cut=len(data), touched=False)
        return self.things[inode]

    def _entry(self, path: Path) -> NameEntry:
        raw = os.fsencode(path)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return NameEntry(raw, "absent")
        mode, common = found.st_mode, (found.st_uid, found.st_gid, found.st_mtime_ns)
        if stat.S_ISDIR(mode):
            return NameEntry(raw, "dir", self.dirs.get(raw, 0), mode, *common)
        if stat.S_ISLNK(mode):
            return NameEntry(raw, "symlink", 0, mode, *common, os.readlink(raw))
        if stat.S_ISFIFO(mode):
            return NameEntry(raw, "fifo", 0, mode, *common)
        return NameEntry(raw, "file", self._number_of(found), mode, *common)

    def _number_of(self, found: os.stat_result) -> int:
        for thing in self.things.values():
            if thing.home.exists() and os.path.samestat(os.lstat(thing.home), found):
                return thing.inode
        raise AssertionError("an untracked file")

    def _touch_name(self, path: Path) -> None:
        """Before a name changes: its first state in this store is initial, unless some index knows it."""
        raw = os.fsencode(path)
        if raw not in self.known:
            found = os.lstat(path) if os.path.lexists(path) else None
            if found is not None and stat.S_ISREG(found.st_mode):
                self._track(path)
            self.initial_names[raw] = self.known[raw] = self._entry(path)

    def _track(self, path: Path) -> Thing:
        """A file from before the run is seen for the first time."""
        found = os.lstat(path)
        for thing in self.things.values():
            if os.path.samestat(os.lstat(thing.home), found):
                return thing
        thing = self._adopt(self.store.next_object(), path)
        self.initial_pifs[thing.inode] = self._pif(thing)
        raw = os.fsencode(path)
        self.initial_names[raw] = self.known[raw] = self._entry(path)
        return thing

    def _pif(self, thing: Thing) -> PifEntry:
        found = os.lstat(thing.home)
        born = self.store.door.birth_ns(os.fsencode(thing.home))
        name = os.fsencode(thing.home)
        return PifEntry(thing.inode, found.st_dev, found.st_ino, born, 1, name, thing.created,
                        0, len(thing.data), thing.home_limit, thing.cut, found.st_mode, found.st_uid,
                        found.st_gid, found.st_mtime_ns, thing.kept)

    # -- what a program does -----------------------------------------------------------------------

    def write(self, path: Path, offset: int, data: bytes) -> None:
        self._touch_name(path)
        thing = self.things[self._entry(path).inode]
        thing.touched = True
        if offset > len(thing.data):
            data, offset = bytes(offset - len(thing.data)) + data, len(thing.data)
        thing.data[offset:offset + len(data)] = data
        border = NO_LIMIT if thing.home_limit < NO_LIMIT else thing.fresh_from
        inside = max(0, min(len(data), border - offset))
        if inside:
            if self.rng.random() < 0.2 and not any(thing.mapped.find(offset, offset + inside)) and \
                    thing.home_limit == NO_LIMIT:
                self._save(thing, offset, offset + inside)
                self._write_home(thing, offset, data[:inside])
            else:
                self._redirect(thing, offset, data[:inside])
        if inside < len(data):
            self._write_home(thing, offset + inside, data[inside:])

    def _write_home(self, thing: Thing, offset: int, data: bytes) -> None:
        with held(thing.home), open(thing.home, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def _redirect(self, thing: Thing, offset: int, data: bytes) -> None:
        place = self._append(data)
        aml = AML(offset, offset + len(data), self.number, place)
        thing.mapped.insert(aml)
        thing.current.insert(aml)

    def _append(self, data: bytes) -> int:
        with open(self.buffer, "ab") as file:
            place = file.tell()
            file.write(data)
        return place

    def _save(self, thing: Thing, start: int, end: int) -> None:
        with open(thing.home, "rb") as file:
            file.seek(start)
            data = file.read(end - start)
        if data:
            place = self._append(data)
            crc = self.store.buffers.checksum(self.number, place, len(data))
            entry = UndoEntry(thing.inode, start, start + len(data), self.number, place, crc)
            self.store.add_undo([entry], self.store.newest, durable=False)

    def truncate(self, path: Path, size: int) -> None:
        self._touch_name(path)
        thing = self.things[self._entry(path).inode]
        thing.touched = True
        shrinks = size < len(thing.data)
        del thing.data[size:]
        thing.data.extend(bytes(size - len(thing.data)))
        thing.cut = min(thing.cut, size)
        thing.mapped.cut(size)
        thing.current.cut(size)
        if shrinks and thing.home_limit == NO_LIMIT and self.rng.random() < 0.5:
            self._save(thing, size, os.lstat(thing.home).st_size)
            with held(thing.home):
                os.truncate(thing.home, size)
            thing.fresh_from = min(thing.fresh_from, size)
        elif shrinks:
            thing.home_limit = min(thing.home_limit, size)
        elif thing.home_limit == NO_LIMIT:
            with held(thing.home):
                os.truncate(thing.home, size)

    def create(self, path: Path) -> None:
        self._touch_name(path)
        path.touch()
        inode = self.store.next_object()
        self.things[inode] = Thing(inode, bytearray(), path, AddressMap(), created=self.store.newest + 1)

    def _forget_name(self, path: Path) -> None:
        """Before a name of a file goes: what would be destroyed is linked into the store."""
        self._touch_name(path)
        entry = self._entry(path)
        if entry.kind != "file":
            return
        thing = self.things[entry.inode]
        if os.lstat(path).st_nlink == 1 + bool(thing.kept):
            thing.kept = thing.kept or b"u%d" % thing.inode
            kept = Path(os.fsdecode(self.store.layout.kept(thing.kept)))
            if not kept.exists():
                os.link(path, kept)
            thing.home, thing.touched = kept, True
        else:
            thing.home = next(other for other in self.files() if other != path and other.samefile(path))

    def unlink(self, path: Path) -> None:
        self._forget_name(path)
        path.unlink()

    def rename(self, old: Path, new: Path) -> None:
        for each in (old, new):
            self._touch_name(each)
        if new.is_file() and not new.is_symlink():
            if os.path.samestat(os.lstat(new), os.lstat(old)):
                return
            self._forget_name(new)
        thing = self.things.get(self._entry(old).inode) if not old.is_symlink() else None
        os.rename(old, new)
        if thing is not None:
            thing.home, thing.touched = new, True

    def link(self, old: Path, new: Path) -> None:
        for each in (old, new):
            self._touch_name(each)
        os.link(old, new)

    def symlink(self, target: str, path: Path) -> None:
        self._touch_name(path)
        os.symlink(target, path)

    def mkfifo(self, path: Path) -> None:
        self._touch_name(path)
        os.mkfifo(path)

    def mkdir(self, path: Path) -> None:
        self._touch_name(path)
        path.mkdir()
        self.dirs[os.fsencode(path)] = self.store.next_object()

    def rmdir(self, path: Path) -> None:
        self._touch_name(path)
        path.rmdir()

    def rename_dir(self, old: Path, new: Path) -> None:
        """With everything in it; a folder that the store does not number yet gets its number now."""
        inside = [old, *sorted(old.rglob("*"))]
        for path in inside:
            self.dirs.setdefault(os.fsencode(path), self.store.next_object()) if path.is_dir() and \
                not path.is_symlink() else None
            self._touch_name(path)
            self._touch_name(new / path.relative_to(old))
        os.rename(old, new)
        for raw in [os.fsencode(path) for path in inside]:
            if raw in self.dirs:
                self.dirs[os.fsencode(new) + raw[len(os.fsencode(old)):]] = self.dirs.pop(raw)
        for thing in self.things.values():
            if old in thing.home.parents:
                thing.home, thing.touched = new / thing.home.relative_to(old), True

    def chmod(self, path: Path, mode: int) -> None:
        self._touch_name(path)
        if path.is_file():
            self.things[self._entry(path).inode].touched = True
        path.chmod(mode)

    def files(self) -> list[Path]:
        return [p for p in sorted(self.root.rglob("*")) if not p.is_symlink() and p.is_file()]

    # -- checkpoints -------------------------------------------------------------------------------

    def checkpoint(self, reason: str = "") -> int:
        index = self.store.next_index()
        names, pifs, redo = [], [], []
        for raw in self.known:
            entry = self._entry(Path(os.fsdecode(raw)))
            if self.recorded.get(raw, self.initial_names.get(raw)) != entry:
                names.append(entry)
                self.recorded[raw] = entry
        for thing in self.things.values():
            if not thing.touched:
                continue
            pif = self._pif(thing)
            pifs.append(pif)
            redo += [OffsetEntry(thing.inode, self.process, aml.start, aml.end, aml.offset,
                                 aml.offset + aml.end - aml.start,
                                 self.store.buffers.checksum(self.number, aml.offset, aml.end - aml.start))
                     for aml in thing.current]
            thing.current, thing.cut, thing.touched = AddressMap(), len(thing.data), False
            thing.fresh_from = os.lstat(thing.home).st_size
        meta = Meta(index, self.parent, 10**18 + index, f"step {index}", reason, self.number, self.process,
                    names=tuple(names), initial_names=tuple(self.initial_names.values()), pifs=tuple(pifs),
                    initial_pifs=tuple(self.initial_pifs.values()))
        offsets = Offsets(index, self.process, self.number, tuple(redo))
        self.store.commit_checkpoint(meta, offsets, durable=False)
        self.initial_names, self.initial_pifs, self.parent = {}, {}, index
        self.models[index] = self.snapshot()
        return index

    def end(self, with_copies: bool = False) -> int:
        """with_copies: the second copies that a run's end gives its files."""
        index = self.checkpoint("end of run")
        pending = None
        if self.rng.random() < 0.5:
            pending = {inode: thing.mapped for inode, thing in self.things.items()}
        restore.commit_home(self.store, index, pending, durable=False)
        if with_copies:
            safety_copies.keep(self.store, index, self.number, clone=False, durable=False)
        assert self.models[index] == take_snapshot(self.root)
        return index

    def snapshot(self) -> Snapshot:
        """The folder as the program sees it."""
        seen = take_snapshot(self.root)
        for name, value in seen.items():
            if value[0] == "file":
                thing = self.things.get(self._find(self.root / name))
                if thing is not None:
                    seen[name] = (*value[:-1], bytes(thing.data))
        return seen

    def _find(self, path: Path) -> int:
        for thing in self.things.values():
            if os.path.samestat(os.lstat(thing.home), os.lstat(path)):
                return thing.inode
        return 0


def take_snapshot(root: Path) -> Snapshot:
    """Everything below a folder: kind, mode, time, hard links, content; but not the times of folders."""
    seen: Snapshot = {}
    groups: dict[tuple[int, int], str] = {}
    for path in sorted(root.rglob("*")):
        found, name = os.lstat(path), str(path.relative_to(root))
        if path.is_symlink():
            seen[name] = ("symlink", os.readlink(path))
        elif path.is_dir():
            seen[name] = ("dir", stat.S_IMODE(found.st_mode))
        elif path.is_fifo():
            seen[name] = ("fifo",)
        else:
            first = groups.setdefault((found.st_dev, found.st_ino), name)
            seen[name] = ("file", stat.S_IMODE(found.st_mode), found.st_mtime_ns, first, path.read_bytes())
    return seen


__all__ = ["Run", "Snapshot", "take_snapshot"]
