"""A filesystem in memory behind the store's door, of which the power can be cut at any operation.

What a cut leaves: everything that an fsync made durable, and of the rest
  ordered  a prefix of the changes to names and attributes, as a journal keeps them (ext4, xfs, btrfs: an fsync of
           anything commits all of them so far), and any of the bytes written, torn at 512;
  strict   any of the changes to names, each for itself but a rename in one piece, unless their folder was synced; and
           of those to attributes, unless the file was (btrfs, or the store is on another disk, to which alone heads are
           written).
"""

from __future__ import annotations

import errno
import os
import random
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from metamori._area import ffi

SECTOR = 512


class PowerCut(BaseException):
    """Nothing after this happens."""


class Inode:
    def __init__(self, mode: int, ino: int, now: int) -> None:
        self.mode, self.ino, self.uid, self.gid = mode, ino, os.getuid(), os.getgid()
        self.mtime_ns = self.ctime_ns = now
        self.data = bytearray()
        self.target = b""
        self.names: dict[bytes, Inode] = {}    # of a folder
        self.durable = b""                     # of a file
        self.pending: list[tuple[int, bytes]] = []   # writes since; (-1, size) stands for a truncation


class MemoryDoor:
    """As Door, for paths below the folders that were taken over. `cut_at`: this operation, from 1, is the PowerCut."""

    strict = False

    def __init__(self, device: int) -> None:
        self.root, self.device, self.clock = Inode(stat.S_IFDIR | 0o755, 1, 1), device, 2 * 10**18
        self.count = self.cut_at = 0
        self.next_ino = 10**9
        self.journal: list[tuple[frozenset[int], Callable[[], None]]] = []   # folders concerned, how to take it back
        self.files: dict[int, tuple[Inode, int]] = {}

    # -- taking over, looking --------------------------------------------------------------------

    def take_over(self, folder: Path) -> None:
        """The folder and all that is in it, hard links included, durable, with the numbers that it has."""
        known: dict[int, Inode] = {}
        parts = os.fsencode(folder).split(b"/")[1:]
        at = self.root
        for depth, part in enumerate(parts):
            path = b"/" + b"/".join(parts[:depth + 1])
            at = at.names.setdefault(part, self._like(path, os.lstat(path), known))
        for where, folders, files in os.walk(os.fsencode(folder)):
            here = self._find(where)
            for name in (*folders, *files):
                path = os.path.join(where, name)
                here.names[name] = self._like(path, os.lstat(path), known)

    def _like(self, path: bytes, found: os.stat_result, known: dict[int, Inode]) -> Inode:
        if found.st_ino in known:
            return known[found.st_ino]
        node = known[found.st_ino] = Inode(found.st_mode, found.st_ino, 0)
        node.uid, node.gid = found.st_uid, found.st_gid
        node.mtime_ns, node.ctime_ns = found.st_mtime_ns, found.st_ctime_ns
        if stat.S_ISREG(found.st_mode):
            node.durable = Path(os.fsdecode(path)).read_bytes()
            node.data = bytearray(node.durable)
        elif stat.S_ISLNK(found.st_mode):
            node.target = os.readlink(path)
        return node

    def _find(self, path: bytes) -> Inode:
        at = self.root
        for part in path.split(b"/")[1:]:
            if not stat.S_ISDIR(at.mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            if part:
                if part not in at.names:
                    raise FileNotFoundError(errno.ENOENT, "not there", path)
                at = at.names[part]
        return at

    def _place(self, path: bytes) -> tuple[Inode, bytes]:
        folder, name = os.path.split(path)
        return self._find(folder), name

    def _links(self, node: Inode) -> int:
        def count(folder: Inode) -> int:
            inside = folder.names.values()
            return sum((each is node) + (count(each) if stat.S_ISDIR(each.mode) else 0) for each in inside)
        return count(self.root)

    def snapshot(self, folder: bytes) -> dict[str, tuple]:
        """As synthetic.take_snapshot, without what a power cut may change: the times."""
        seen: dict[str, tuple] = {}
        groups: dict[int, str] = {}

        def look(at: Inode, prefix: bytes) -> None:
            for name, node in sorted(at.names.items()):
                path = os.fsdecode(prefix + name)
                if stat.S_ISDIR(node.mode):
                    seen[path] = ("dir", stat.S_IMODE(node.mode))
                    look(node, prefix + name + b"/")
                elif stat.S_ISLNK(node.mode):
                    seen[path] = ("symlink", os.fsdecode(node.target))
                elif stat.S_ISFIFO(node.mode):
                    seen[path] = ("fifo",)
                else:
                    first = groups.setdefault(node.ino, path)
                    seen[path] = ("file", stat.S_IMODE(node.mode), first, bytes(node.data))

        look(self._find(folder), b"")
        return seen

    # -- time, the journal, the cut --------------------------------------------------------------

    def _step(self) -> None:
        self.count += 1
        self.clock += 1
        if self.count == self.cut_at:
            raise PowerCut

    def _note(self, folders: tuple[Inode, ...], back: Callable[[], None]) -> None:
        self.journal.append((frozenset(each.ino for each in folders), back))

    def _set(self, folder: Inode, name: bytes, node: Inode | None) -> Callable[[], None]:
        old = folder.names.get(name)
        self._put(folder, name, node)
        return lambda: self._put(folder, name, old)

    @staticmethod
    def _put(folder: Inode, name: bytes, node: Inode | None) -> None:
        if node is None:
            folder.names.pop(name, None)
        else:
            folder.names[name] = node

    def _attribute(self, path: bytes, field: str, value: object) -> None:
        """What cannot be opened is synced with the folder that it is in."""
        node = self._find(path)
        self._set_attribute(node, node if stat.S_IFMT(node.mode) in (stat.S_IFREG, stat.S_IFDIR) else
                            self._place(path)[0], field, value)

    def _set_attribute(self, node: Inode, synced_with: Inode, field: str, value: object) -> None:
        old, ctime = getattr(node, field), node.ctime_ns

        def back() -> None:
            setattr(node, field, old)
            node.ctime_ns = ctime

        setattr(node, field, value)
        node.ctime_ns = self.clock
        self._note((synced_with,), back)

    def cut(self, rng: random.Random, strict: bool, lose: float) -> None:
        """Come back after the cut: what was not synced is there with probability 1 - lose."""
        if strict:
            for _, back in reversed(self.journal):
                if rng.random() < lose:
                    back()
        else:
            keep = len(self.journal) if lose == 0 else 0 if lose == 1 else rng.randrange(len(self.journal) + 1)
            for _, back in reversed(self.journal[keep:]):
                back()
        self.journal.clear()
        self.files.clear()
        self.cut_at = 0
        for node in self._all(self.root, set()):
            if stat.S_ISREG(node.mode):
                self._torn(node, rng, lose)

    def _all(self, at: Inode, seen: set[int]) -> Iterator[Inode]:
        for node in at.names.values():
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                yield from self._all(node, seen)

    @staticmethod
    def _torn(node: Inode, rng: random.Random, lose: float) -> None:
        data = bytearray(node.durable)
        for at, what in node.pending:
            if at < 0:
                size = int(what)
                if rng.random() >= lose:
                    data = data[:size].ljust(size, b"\0")
                continue
            for low in range(0, len(what), SECTOR):
                high = min(low + SECTOR - (at + low) % SECTOR, len(what))
                if rng.random() >= lose:
                    data = data.ljust(at + high, b"\0")
                    data[at + low:at + high] = what[low:high]
        node.data, node.durable, node.pending = data, bytes(data), []

    # -- the door --------------------------------------------------------------------------------

    def expect(self, what: str, nbytes: int | Callable[[], int], how: str = "written") -> None:
        pass

    def show(self, shown: bool) -> None:
        pass

    def open_shut(self, path: bytes, flags: int) -> int:
        return self.open(path, flags)      # nothing is shut here

    def open(self, path: bytes, flags: int, mode: int = 0o600) -> int:
        folder, name = self._place(path)
        node = folder.names.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "not there", path)
            self._step()
            self.next_ino += 1
            node = Inode(stat.S_IFREG | mode, self.next_ino, self.clock)
            self._note((folder,), self._set(folder, name, node))
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "there already", path)
        elif flags & os.O_TRUNC and node.data:
            self._truncate(node, 0)
        fd = max(self.files, default=100) + 1
        self.files[fd] = (node, flags)
        return fd

    def close(self, fd: int) -> None:
        self.files.pop(fd, None)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return bytes(self.files[fd][0].data[offset:offset + length])

    def checksum(self, fd: int, length: int, offset: int, crc: int = 0) -> tuple[int, int]:
        data = self.pread(fd, length, offset)
        return zlib.crc32(data, crc), len(data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._step()
        node, raw = self.files[fd][0], bytes(data)
        node.data = node.data.ljust(offset, b"\0")
        node.data[offset:offset + len(raw)] = raw
        node.pending.append((offset, raw))
        node.mtime_ns = node.ctime_ns = self.clock

    def fsync(self, fd: int) -> None:
        self._step()
        node = self.files[fd][0]
        if stat.S_ISREG(node.mode):
            node.durable, node.pending = bytes(node.data), []
        self.journal = [(folders, back) for folders, back in self.journal if self.strict and node.ino not in folders]

    def ftruncate(self, fd: int, size: int) -> None:
        self._truncate(self.files[fd][0], size)

    def _truncate(self, node: Inode, size: int) -> None:
        self._step()
        node.data = node.data[:size].ljust(size, b"\0")
        node.pending.append((-1, b"%d" % size))
        node.mtime_ns = node.ctime_ns = self.clock

    def fchmod(self, fd: int, mode: int) -> None:
        self._step()
        node = self.files[fd][0]
        self._set_attribute(node, node, "mode", stat.S_IFMT(node.mode) | mode)

    def _stat(self, node: Inode) -> SimpleNamespace:
        return SimpleNamespace(
            st_mode=node.mode, st_ino=node.ino, st_dev=self.device, st_nlink=self._links(node), st_uid=node.uid,
            st_gid=node.gid, st_size=len(node.data), st_mtime_ns=node.mtime_ns, st_ctime_ns=node.ctime_ns, st_blocks=0)

    def fstat(self, fd: int) -> SimpleNamespace:
        return self._stat(self.files[fd][0])

    def lstat(self, path: bytes) -> SimpleNamespace:
        return self._stat(self._find(path))

    def birth_ns(self, path: bytes) -> int:
        return 0

    def is_shut_by_flags(self, path: bytes, may_grow: bool = False) -> bool:
        return False

    def rename(self, source: bytes, target: bytes) -> None:
        self._step()
        (one, name), (other, new) = self._place(source), self._place(target)
        node = one.names[name]
        first = self._set(one, name, None)
        second = self._set(other, new, node)

        def back() -> None:
            second()
            first()

        self._note((one, other), back)

    def rename_new(self, source: bytes, target: bytes) -> None:
        folder, name = self._place(target)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "there already", target)
        self.rename(source, target)

    def link(self, source: bytes, target: bytes) -> None:
        self._step()
        node, (folder, name) = self._find(source), self._place(target)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "there already", target)
        self._note((folder,), self._set(folder, name, node))
        node.ctime_ns = self.clock

    def unlink(self, path: bytes) -> None:
        folder, name = self._place(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, "not there", path)
        self._step()
        folder.names[name].ctime_ns = self.clock
        self._note((folder,), self._set(folder, name, None))

    def _make(self, path: bytes, mode: int) -> Inode:
        self._step()
        folder, name = self._place(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "there already", path)
        self.next_ino += 1
        node = Inode(mode, self.next_ino, self.clock)
        self._note((folder,), self._set(folder, name, node))
        return node

    def mkdir(self, path: bytes, mode: int) -> None:
        self._make(path, stat.S_IFDIR | mode)

    def rmdir(self, path: bytes) -> None:
        folder, name = self._place(path)
        if self._find(path).names:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._step()
        self._note((folder,), self._set(folder, name, None))

    def symlink(self, target: bytes, path: bytes) -> None:
        self._make(path, stat.S_IFLNK | 0o777).target = target

    def readlink(self, path: bytes) -> bytes:
        return self._find(path).target

    def mkfifo(self, path: bytes, mode: int) -> None:
        self._make(path, stat.S_IFIFO | mode)

    def chmod(self, path: bytes, mode: int) -> None:
        self._step()
        self._attribute(path, "mode", stat.S_IFMT(self._find(path).mode) | mode)

    def chown(self, path: bytes, uid: int, gid: int) -> None:
        self._step()
        self._attribute(path, "uid", uid)

    def set_mtime(self, path: bytes, mtime_ns: int) -> None:
        self._step()
        self._attribute(path, "mtime_ns", mtime_ns)

    def listdir(self, path: bytes) -> list[bytes]:
        return list(self._find(path).names)

    def flock(self, fd: int) -> bool:
        return True

    def data_ranges(self, fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, len(self.files[fd][0].data))
        if start < end:
            yield start, end

    def clone_range(self, *_: int) -> bool:
        return False

    def copy_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> int:
        data = self.pread(source, length, source_at)
        if data:
            self.pwrite(target, data, target_at)
        return len(data)

    def read_short(self, path: bytes, length: int, mtime_ns: int, to: Any, room: int) -> int | None:
        node = self._find(path)
        if (len(node.data), node.mtime_ns) != (length, mtime_ns):
            return None
        ffi.memmove(to, bytes(node.data).ljust(room, b"\0"), room)
        return zlib.crc32(bytes(node.data))

    def punch_hole(self, fd: int, start: int, end: int) -> bool:
        end = min(end, len(self.files[fd][0].data))
        if start < end:
            self.pwrite(fd, bytes(end - start), start)
        return True
