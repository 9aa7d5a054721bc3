"""The model's world: names, descriptors, streams, and the checkpoints that it can go back to."""

from __future__ import annotations

import copy
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field

from files_model import Description, Names, Node, Refused, Unforetold, made, told
from several import Several
from streams_model import Stream
from together import fill_open, fill_write

FIRST = 3  # 0, 1 and 2 are inherited
OPEN_MODES = {
    "r": {"r"}, "r+": {"rw"}, "w": {"w", "creat", "trunc"}, "w+": {"rw", "creat", "trunc"},
    "a": {"w", "creat", "append"}, "a+": {"rw", "creat", "append"},
}  # fmt: skip


@dataclass(eq=False)
class State:
    """All that a checkpoint holds."""

    names: Names = field(default_factory=Names)
    descriptors: dict[int, Description] = field(default_factory=dict)
    streams: dict[int, Stream] = field(default_factory=dict)


class World(Several):
    """Foretells the driver's answers. `restorable` False: a native run, where the C API answers ENOSYS.

    `window`: only the newest so many checkpoints are gone back to, since the run prunes itself; 0: to all.
    """

    def __init__(
        self, restorable: bool = True, window: int = 0, before: Sequence[str] = (), names: Names | None = None
    ) -> None:
        """names: what there was before the run; before: lines that were played natively then."""
        super().__init__()
        self.window = window
        self.state = State()
        self.restorable = restorable
        self.saved: list[State] = []
        self.ordinals: list[int] = []  # of each of these: which checkpoint of all it was
        self.positions: dict[int, int] = {}  # of fgetpos: in the program's memory, not restored
        self.state.names = copy.deepcopy(names) if names else self.state.names
        for line in before:
            self.apply(line)
        self.state.descriptors.clear()

    def apply(self, line: str) -> str | None:
        """The answer to a line, or None: leave it out."""
        name, *words = line.split(" ")
        method = getattr(self, f"_{name}", None)
        try:
            if method:
                return method(*words)
            slot = self.state.streams.get(int(words[0]))
            return slot.operate(name, words[1:]) if slot else None
        except Refused as refused:
            return f"-1 {refused}"
        except Unforetold:
            return None

    def _fill(self, path: str, flags: str, length: str, seed: str) -> str:
        self._fill_open(path, flags)
        return self._fill_write(path, flags, length, seed)

    def _fill_open(self, path: str, flags: str) -> str:
        self._stream_file(path)
        fill_open(self.state.names, path, flags)
        return "0"

    def _fill_write(self, path: str, flags: str, length: str, seed: str) -> str:
        return fill_write(self.state.names.existing(path), flags, length, seed)

    # descriptors

    def _free(self, least: int = FIRST) -> int:
        while least in self.state.descriptors:
            least += 1
        return least

    def _get(self, number: str) -> Description:
        found = self.state.descriptors.get(int(number))
        if found is None:
            raise Refused(errno.EBADF)
        return found

    def _file(self, number: str, write: bool = False) -> Description:
        """A descriptor of a file that may be read (or written), as read and write check it."""
        found = self._get(number)
        if not (found.writable if write else found.readable):
            raise Refused(errno.EBADF)
        if found.node.kind == "folder":
            raise Refused(errno.EISDIR)
        return found

    def _install(self, description: Description, number: int | None = None) -> str:
        number = self._free() if number is None else number
        self.state.descriptors[number] = description
        return str(number)

    def _stream_free(self, number: str) -> None:
        """Descriptors that streams use are left to the streams."""
        if any(s.descriptor == int(number) for s in self.state.streams.values()):
            raise Unforetold

    def _stream_file(self, path: str) -> None:
        """Files that open streams use are left to the streams."""
        try:
            node = self.state.names.follow(path)[2]
        except Refused:
            return
        if node is not None:
            self._unused(node)

    def _unused(self, node: Node) -> None:
        if any(s.description.node is node for s in self.state.streams.values()):
            raise Unforetold

    def _open(self, path: str, flags: str, mode: str = "644") -> str:
        self._stream_file(path)
        return self._install(self.state.names.open(path, set(flags.split(",")), int(mode, 8)))

    _openat = _open

    def _creat(self, path: str, mode: str = "644") -> str:
        return self._open(path, "w,creat,trunc", mode)

    def _close(self, number: str) -> str:
        self._stream_free(number)
        self._get(number)
        del self.state.descriptors[int(number)]
        return "0"

    def _dup(self, number: str) -> str:
        self._stream_free(number)
        return self._install(self._get(number))

    def _dupfd(self, number: str, least: str) -> str:
        self._stream_free(number)
        return self._install(self._get(number), self._free(int(least)))

    def _dup2(self, number: str, other: str) -> str:
        self._stream_free(number)
        self._stream_free(other)
        return self._install(self._get(number), int(other))

    def _dup3(self, number: str, other: str) -> str:
        if number == other:
            raise Refused(errno.EINVAL)
        return self._dup2(number, other)

    def _read(self, number: str, length: str) -> str:
        self._stream_free(number)
        d = self._file(number)
        got = d.node.content[d.position : d.position + int(length)]
        d.position += len(got)
        return told(got)

    def _pread(self, number: str, length: str, offset: str) -> str:
        self._stream_free(number)
        if int(offset) < 0:
            raise Refused(errno.EINVAL)
        return told(self._file(number).node.content[int(offset) : int(offset) + int(length)])

    def _write(self, number: str, length: str, seed: str) -> str:
        self._stream_free(number)
        d = self._file(number, write=True)
        if d.append:
            d.position = len(d.node.content) if int(length) else d.position
        d.node.write(d.position, made(int(seed), int(length)))
        d.position += int(length)
        return length

    def _pwrite(self, number: str, length: str, offset: str, seed: str) -> str:
        self._stream_free(number)
        if int(offset) < 0:
            raise Refused(errno.EINVAL)
        d = self._file(number, write=True)
        d.node.write(len(d.node.content) if d.append else int(offset), made(int(seed), int(length)))
        return length

    def _readv(self, number: str, length: str, *offset: str) -> str:
        d = self.state.descriptors.get(int(number))   # other than for read, the kernel asks nobody for nothing
        nothing = length == "0" and d and d.node.kind == "folder" and not "".join(offset).startswith("-")
        return told(b"") if nothing else self._pread(number, length, *offset) if offset else self._read(number, length)
    _preadv, _writev, _pwritev = _readv, _write, _pwrite

    def _mapread(self, number: str, length: str) -> str:
        self._stream_free(number)
        d = self._get(number)
        if d.node.kind != "file" or not d.readable or not 0 < int(length) <= len(d.node.content):
            raise Unforetold
        return told(d.node.content[: int(length)])

    def _mapwrite(self, number: str, length: str, offset: str, seed: str) -> str:
        self._stream_free(number)
        d = self._get(number)
        end = int(offset) + int(length)
        if d.node.kind != "file" or not (d.readable and d.writable) or not 0 < end <= len(d.node.content):
            raise Unforetold
        d.node.write(int(offset), made(int(seed), int(length)))
        return "0"

    def _forkwrite(self, number: str, length: str, seed: str) -> str:
        self._stream_free(number)
        d = self.state.descriptors.get(int(number))
        if d is None or d.node.kind != "file" or not d.writable or self.state.streams:
            raise Unforetold
        self._write(number, length, seed)
        return "0"

    def _lseek(self, number: str, offset: str, whence: str) -> str:
        self._stream_free(number)
        d = self._get(number)
        if d.node.kind == "folder":
            raise Unforetold
        base = {"set": 0, "cur": d.position, "end": len(d.node.content)}.get(whence)
        if base is None or base + int(offset) < 0:
            raise Refused(errno.EINVAL)
        d.position = base + int(offset)
        return str(d.position)

    def _ftruncate(self, number: str, size: str) -> str:
        self._stream_free(number)
        if int(size) < 0:
            raise Refused(errno.EINVAL)
        d = self._get(number)
        if not d.writable:
            raise Refused(errno.EINVAL)
        d.node.resize(int(size))
        return "0"

    def _fsize(self, number: str) -> str:
        self._stream_free(number)
        node = self._get(number).node
        if node.kind == "folder":
            raise Unforetold
        return f"{len(node.content)} {node.mode:o} {node.links}"

    def _fsync(self, number: str) -> str:
        self._get(number)
        return "0"

    _fdatasync = _fsync

    def _fchmod(self, number: str, mode: str) -> str:
        self._get(number).node.mode = int(mode, 8)
        return "0"

    # names

    def _unlink(self, path: str) -> str:
        self.state.names.unlink(path)
        return "0"

    _unlinkat = _unlink

    def _remove(self, path: str) -> str:
        if self.state.names.own(path)[2].kind == "folder":
            return self._rmdir(path)
        return self._unlink(path)

    def _rmdir(self, path: str) -> str:
        self.state.names.rmdir(path)
        return "0"

    def _rename(self, old: str, new: str) -> str:
        self.state.names.rename(old, new)
        return "0"

    _renameat = _rename

    def _link(self, old: str, new: str) -> str:
        self.state.names.link(old, new)
        return "0"

    def _symlink(self, target: str, path: str) -> str:
        self.state.names.new(path, Node("link", 0o777, target=target))
        return "0"

    def _mkdir(self, path: str) -> str:
        self.state.names.new(path, Node("folder", 0o755))
        return "0"

    def _chmod(self, path: str, mode: str) -> str:
        self.state.names.existing(path).mode = int(mode, 8)
        return "0"

    def _truncate(self, path: str, size: str) -> str:
        self._stream_file(path)
        if int(size) < 0:
            raise Refused(errno.EINVAL)
        node = self.state.names.existing(path)
        if node.kind == "folder":
            raise Refused(errno.EISDIR)
        node.resize(int(size))
        return "0"

    def _exists(self, path: str) -> str:
        self.state.names.existing(path)
        return "0"

    def _size(self, path: str) -> str:
        node = self.state.names.own(path)[2]
        if node.kind != "file":
            raise Unforetold
        self._unused(node)
        return f"{len(node.content)} {node.mode:o} {node.links}"

    def _readlink(self, path: str) -> str:
        node = self.state.names.own(path)[2]
        if node.kind != "link":
            raise Refused(errno.EINVAL)
        return node.target

    def _tree(self) -> str:
        return self.state.names.tree()

    # streams

    def _fopen(self, slot: str, path: str, mode: str) -> str:
        folder, name = self.state.names.place(path)
        node = folder.names.get(name)
        if node is not None:
            used = [*self.state.descriptors.values(), *(s.description for s in self.state.streams.values())]
            if node.kind != "file" or any(d.node is node for d in used):
                raise Unforetold
        d = self.state.names.open(path, OPEN_MODES[mode], 0o666)
        if mode == "a":
            d.position = len(d.node.content)
        number = self._install(d)
        self.state.streams[int(slot)] = Stream(int(number), d)
        return number

    def _fdopen(self, slot: str, number: str, mode: str) -> str:
        self._stream_free(number)
        d = self._get(number)
        sharing = [n for n, other in self.state.descriptors.items() if other.node is d.node]
        if d.node.kind != "file" or d.append or len(sharing) > 1 or mode not in ("r", "r+"):
            raise Unforetold
        if not d.readable or (mode == "r+" and not d.writable) or (mode == "r" and d.writable):
            raise Unforetold
        self.state.streams[int(slot)] = Stream(int(number), d)
        return number

    def _freopen(self, slot: str, path: str, mode: str) -> str:
        if int(slot) not in self.state.streams:
            raise Unforetold
        node = self.state.names.follow(path)[2]
        if node is None or node.kind != "file" or mode not in ("r", "r+", "a", "w"):
            raise Unforetold  # a failed freopen closes the stream; its FILE is then not ours to use
        number = self.state.streams[int(slot)].descriptor
        others = [d for n, d in self.state.descriptors.items() if n != number]
        if any(d.node is node for d in others):
            raise Unforetold
        del self.state.streams[int(slot)], self.state.descriptors[number]
        answer = self._fopen(slot, path, mode)
        if int(answer) != number:  # freopen keeps the number
            self.state.descriptors[number] = self.state.descriptors.pop(int(answer))
            self.state.streams[int(slot)].descriptor = number
        return str(number)

    def _fclose(self, slot: str) -> str | None:
        stream = self.state.streams.pop(int(slot), None)
        if stream is None:
            return None
        del self.state.descriptors[stream.descriptor]
        return "0"

    def _fgetpos(self, slot: str) -> str | None:
        stream = self.state.streams.get(int(slot))
        if stream is None or stream.pushed:
            return None
        self.positions[int(slot)] = stream.position
        return "0"

    def _fsetpos(self, slot: str) -> str | None:
        stream = self.state.streams.get(int(slot))
        if stream is None or int(slot) not in self.positions:
            return None
        return stream.seek(self.positions[int(slot)], "set")

    # checkpoints

    def _checkpoint(self) -> str:
        self.saved.append(copy.deepcopy(self.state))
        self.ordinals.append(len(self.saved) + len(self.cuts))
        return "index" if self.restorable else "-1 ENOSYS"

    def _restore(self, which: str) -> str | None:
        number = int(which.removeprefix("@"))
        if number >= len(self.saved) or not self.restorable:
            return None
        if self.window and len(self.saved) + len(self.cuts) - self.ordinals[number] >= self.window:
            return None  # pruned
        if self.twins:
            raise Refused(errno.EBUSY)
        self.state = copy.deepcopy(self.saved[number])
        return "0"
