"""Doing what an intent says. Every step can be done again after a stop anywhere; none undoes a later one.

Order: names, then content, then size, mode, owner and time, then fsyncs, of files for their times' sake too: head is
about to note these, and a btrfs, or a disk that the store is not on, has not got them by an fsync of head. What
name_plan.py says after "here the moved names are made durable" runs as a second intent, which counts what is done. So
do steps 4 and 5 where 2 and 3, done again, would find by the old paths what 4 and 5 have brought there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from metamori.errors import ChangedOutside, Damaged, MetamoriError
from metamori.store.format import files, layout
from metamori.store.format.records import NO_LIMIT, Identity, Intent, KeptHome, NameOp, SizeOp, WriteOp
from metamori.store.io import commit, xattrs
from metamori.store.io.buffers import write_zeros
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import MANY, Door, can_be_whole
from metamori.store.read.head import NO_TIME
from metamori.store.read.store import Store
from metamori.tables.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    _T = TypeVar("_T")

_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class Applier:
    """One application of an intent. Raises MetamoriError naming the file; the intent then stays.

    record: where the intent is on disk; it is replaced there where a step must not be done twice. looks: after a stop,
    files that somebody has replaced or removed since stay so: `theirs`.
    """

    def __init__(self, store: Store, durable: bool, record: bytes, looks: bool = False) -> None:
        self._store, self._door, self._durable, self._record = store, store.door, durable, record
        self._looks, self.theirs = looks, list[bytes]()
        self._folders: set[bytes] = set()
        self._of_head: set[tuple[int, int]] = set()
        self._drops: dict[bytes, bytes] = {}   # names that go at the end, and what the same file has then

    def run(self, intent: Intent) -> None:
        self._drops = {op.path: op.other for op in intent.names if op.op == "drop"}
        since_ns = self._door.lstat(self._record).st_mtime_ns if self._looks else 0
        after = self._names(intent)
        if self._looks:
            intent = self._without_theirs(intent, since_ns)
        for size in intent.sizes:
            self._guarded(size.path, self._tighten, size)
        writes = groupby(sorted(intent.writes, key=lambda op: (op.path, op.start)), key=lambda op: op.path)
        for path, group in writes:
            self._guarded(path, self._write, path, list(group))
        for size in intent.sizes:
            self._guarded(size.path, self._size, size)
        for op in after:
            if op.op == "mkdir":
                self._name(op)
        for attributes in intent.xattrs:
            self._guarded(attributes.path, xattrs.apply, self._door, attributes)
        if self._durable:
            self.sync_all({op.path for ops in (intent.writes, intent.sizes, intent.xattrs) for op in ops}
                          | self._folders)
        self._folders.clear()

    def _without_theirs(self, intent: Intent, since_ns: int) -> Intent:
        """Where a file is not that of head, and has not come as a new one or a copy, somebody has put it there. Numbers
        of devices change with a boot, and are not looked at; those of files are given anew: before since_ns, when the
        intent was written, its file had been born. One of the same tick may have come after it: it is theirs."""
        store, head = self._store, self._store.head
        names, pifs = store.state(head.index).names, store.state(intent.target).pifs
        known: dict[int, KeptHome | Identity] = {each.inode: each for each in head.kept}
        known.update((names[each.path].inode, each) for each in head.identities if each.ino)
        comes = {path for op in intent.names for path in (op.path, op.other)}
        made = {op.path for op in intent.names if op.op == "create"}
        ends = {op.path: op.end for op in sorted(intent.writes, key=lambda op: op.end)}

        def is_ours(inode: int, path: bytes, found: os.stat_result) -> bool:
            was = known.get(inode)
            if was is None or path in made:
                return path in comes
            if was.ino == found.st_ino and self._door.birth_ns(path) <= max(was.ctime_ns, since_ns - 1, NO_TIME):
                return True
            # of a copy that is being written the size tells, but no time
            longest = max(was.size, ends.get(path, 0))
            return path in comes and (was.size <= found.st_size <= longest or found.st_size == pifs[inode].size)

        for inode, path in sorted({(op.inode, op.path) for ops in (intent.writes, intent.sizes) for op in ops}):
            found = self._guarded(path, lstat_or_none, self._door, path)
            if found is None or not stat.S_ISREG(found.st_mode) or not (
                    is_ours(inode, path, found) or path.startswith(store.layout.root + b"/")):
                self.theirs.append(path)
        gone = set(self.theirs)
        return replace(intent, writes=tuple(op for op in intent.writes if op.path not in gone),
                       sizes=tuple(op for op in intent.sizes if op.path not in gone),
                       xattrs=tuple(op for op in intent.xattrs if op.path not in gone))

    def _guarded(self, path: bytes, step: Callable[..., _T], *values: object) -> _T:
        try:
            return step(*values)
        except OSError as error:
            raise MetamoriError(f"{os.fsdecode(path)}: {error.strerror}; nothing is lost. Run the same "
                                "command again to finish") from error

    # -- names -----------------------------------------------------------------------------------

    def _names(self, intent: Intent) -> tuple[NameOp, ...]:
        """Returns the last steps: those for the modes and times of folders are to be done again at the end."""
        last = len(intent.names)
        while last > intent.done and intent.names[last - 1].op in ("drop", "mkdir"):
            last -= 1
        begun, after = intent.names[intent.done:last], intent.names[last:]
        first = [op for op in begun if op.op == "keep"]
        for op in first:
            self._name(op)
        if first:                          # a power cut may not leave the unlink that follows without the link
            self._sync_folders()
        arriving = next((n for n, op in enumerate(begun) if not _leaves(op)), len(begun))
        for op in begun[len(first):arriving]:
            self._name(op)
        if _come_where_some_left(begun[:arriving], begun[arriving:]):
            self._note_done(intent, intent.done + arriving)
        for op in begun[arriving:]:
            self._name(op)
        if begun and any(op.op == "drop" for op in after):
            self._note_done(intent, last)
        for op in after:
            if op.op == "drop":
                self._name(op)
        return after

    def _note_done(self, intent: Intent, done: int) -> None:
        """The record keeps its time: what somebody has made since is later than that, after another stop too."""
        self._sync_folders()
        since_ns = self._door.lstat(self._record).st_mtime_ns
        write_intent(self._store, replace(intent, done=done), self._durable, self._record, since_ns)

    def _name(self, op: NameOp) -> None:
        self._folders.update(os.path.dirname(path) for path in (op.path, op.other) if path)
        self._folders.update([op.path] if op.op == "mkdir" else ())
        self._guarded(op.path, getattr(self, "_" + op.op), op)

    def _is(self, path: bytes, dev: int, ino: int) -> bool:
        """A device may have had another number when the intent was written; the file had been born by then. Where no
        clock tells, head knows the number of now, and what is kept is nobody else's."""
        found = lstat_or_none(self._door, path)
        if found is None or found.st_ino != ino or found.st_dev == dev:
            return found is not None and found.st_ino == ino
        if (born := self._door.birth_ns(path)) >= NO_TIME:
            return born < self._door.lstat(self._record).st_mtime_ns
        if not self._of_head:
            self._of_head = {(each.dev, each.ino) for each in self._store.head.identities}
        return (found.st_dev, ino) in self._of_head or os.path.dirname(path) == self._store.layout.kept_folder

    def _keep(self, op: NameOp) -> None:
        if self._is(op.path, op.dev, op.ino) and not commit.exists(self._door, op.other):
            self._link_or_copy(op.path, op.other, goes=True)

    def _unlink(self, op: NameOp) -> None:
        if self._is(op.path, op.dev, op.ino):
            self._door.unlink(op.path)

    def _rename(self, op: NameOp) -> None:
        back = op.ino == 0 and commit.exists(self._door, op.path)
        if back or self._is(op.path, op.dev, op.ino):
            self._door.rename(op.path, op.other)

    def _rmdir(self, op: NameOp) -> None:
        try:
            self._door.rmdir(op.path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise

    def _mkdir(self, op: NameOp) -> None:
        found = lstat_or_none(self._door, op.path)
        if found is None:
            self._door.mkdir(op.path, stat.S_IMODE(op.mode))
        elif not stat.S_ISDIR(found.st_mode):
            raise ChangedOutside(f"{os.fsdecode(op.path)} is in the way: it is not a folder", (op.path,))
        if stat.S_ISDIR(op.mode):          # of one that no index knows there are permissions to begin with only
            self._attributes(op.path, op.mode, op.uid, op.gid, op.mtime_ns)

    def _link(self, op: NameOp) -> None:
        path, goes = op.other, op.other in self._drops
        source, target = lstat_or_none(self._door, path), lstat_or_none(self._door, op.path)
        if source is None and goes:        # it has moved to another of its names
            path, goes = self._drops[path], False
            source = lstat_or_none(self._door, path)
        if source is None:
            return
        if target is None:
            self._link_or_copy(path, op.path, goes)
        elif not os.path.samestat(source, target) and self._can_link(path, op.path):
            raise ChangedOutside(f"{os.fsdecode(op.path)} is in the way", (op.path,))

    def _can_link(self, source: bytes, target: bytes) -> bool:
        """Where links cannot be made, a file that is there already is the copy of an earlier attempt."""
        trial = layout.temporary(target)
        try:
            self._door.link(source, trial)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno in _CANNOT_LINK:
                return False
            raise
        self._door.unlink(trial)
        return True

    def _create(self, op: NameOp) -> None:
        if not commit.exists(self._door, op.path):
            self._door.close(self._door.open(op.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def _symlink(self, op: NameOp) -> None:
        found = lstat_or_none(self._door, op.path)
        if found is None:
            self._door.symlink(op.target, op.path)
        self._own(op.path, op.uid, op.gid)
        self._owners(self._door.set_mtime, op.path, op.mtime_ns)

    def _fifo(self, op: NameOp) -> None:
        if not commit.exists(self._door, op.path):
            self._door.mkfifo(op.path, stat.S_IMODE(op.mode))
        self._attributes(op.path, op.mode, op.uid, op.gid, op.mtime_ns)

    def _node(self, op: NameOp) -> None:
        if not commit.exists(self._door, op.path):
            if not op.target:              # a socket is its server's to make
                return
            try:
                self._door.mknod(op.path, op.mode, int(op.target))
            except PermissionError:        # devices are the administrator's to make
                return
        self._attributes(op.path, op.mode, op.uid, op.gid, op.mtime_ns)

    def _drop(self, op: NameOp) -> None:
        try:
            self._door.unlink(op.path)
        except FileNotFoundError:
            pass

    def _link_or_copy(self, source: bytes, target: bytes, goes: bool) -> None:
        """A further name where the filesystem allows; else a copy, complete before it has its name. goes: the source's
        name is to go anyhow. Of somebody else's file no link may be made; it moves, and so stays his."""
        try:
            self._door.link(source, target)
            return
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            theirs = goes and error.errno == errno.EPERM and self._door.lstat(source).st_uid != os.geteuid()
        if theirs:
            try:
                self._door.rename_new(source, target)
                return
            except PermissionError:
                pass
        copy_file(self._store, source, target, self._durable)

    # -- content ---------------------------------------------------------------------------------

    def _open(self, path: bytes) -> int:
        """For writing, never through a symbolic link, never waiting on a fifo."""
        flags = os.O_RDWR | os.O_NONBLOCK
        found = self._door.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ChangedOutside(f"{os.fsdecode(path)} is not a regular file any more", (path,))
        try:
            return self._door.open(path, flags)
        except PermissionError:
            self._door.chmod(path, stat.S_IMODE(found.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
            return self._door.open(path, flags)

    def _tighten(self, op: SizeOp) -> None:
        """Before old bytes come back: nobody may read them who may not in the end, at no instant."""
        found = self._door.lstat(op.path)
        if stat.S_ISREG(found.st_mode) and (found.st_uid, found.st_gid) != (op.uid, op.gid) and os.geteuid() == 0:
            self._door.chmod(op.path, 0)
            self._door.chown(op.path, op.uid, op.gid)
        mode = stat.S_IMODE(found.st_mode) & (stat.S_IMODE(op.mode) | stat.S_IRWXU)
        if stat.S_ISREG(found.st_mode) and stat.S_IMODE(self._door.lstat(op.path).st_mode) != mode:
            self._owners(self._door.chmod, op.path, mode)

    def _is_written(self, path: bytes, ops: list[WriteOp]) -> bool:
        """Whether a file has these bytes already."""
        fd = self._door.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            for _, _, start, end, run, place in ops:
                want = self._store.buffers.read(run, place, end - start) if run else bytes(end - start)
                if self._door.pread(fd, end - start, start) != want:
                    return False
            return True
        finally:
            self._door.close(fd)

    def _write(self, path: bytes, ops: list[WriteOp]) -> None:
        try:
            fd = self._open(path)
        except PermissionError:            # somebody else's, of which there is a copy: what nobody has changed is there
            if self._is_written(path, ops):
                return
            raise
        try:
            for op in ops:
                if not op.run:
                    write_zeros(self._door, fd, op.start, op.end)
            self._store.buffers.copy_out(
                fd, ((op.run, op.buffer_start, op.end - op.start, op.start) for op in ops if op.run))
        finally:
            self._door.close(fd)

    def _size(self, op: SizeOp) -> None:
        if op.size not in (NO_LIMIT, self._door.lstat(op.path).st_size):
            fd = self._open(op.path)
            try:
                self._door.ftruncate(fd, op.size)
            finally:
                self._door.close(fd)
        self._attributes(op.path, op.mode, op.uid, op.gid, op.mtime_ns)

    def _attributes(self, path: bytes, mode: int, uid: int, gid: int, mtime_ns: int) -> None:
        """Owner before mode, because a change of owner clears set-id bits; time last."""
        mode = stat.S_IMODE(mode)
        if not self._own(path, uid, gid):
            mode &= ~(stat.S_ISUID | stat.S_ISGID)  # another owner's set-id bits are not ours to give
        if stat.S_IMODE(self._door.lstat(path).st_mode) != mode:
            self._owners(self._door.chmod, path, mode)
        if self._door.lstat(path).st_mtime_ns != mtime_ns:
            self._owners(self._door.set_mtime, path, mtime_ns)

    def _owners(self, change: Callable[[bytes, int], None], path: bytes, value: int) -> None:
        """Of what is somebody else's, and may well be written to, this is only his to change: it stays as it is."""
        try:
            change(path, value)
        except PermissionError:
            if os.geteuid() in (0, self._door.lstat(path).st_uid):
                raise

    def _own(self, path: bytes, uid: int, gid: int) -> bool:
        """Whether it has this owner now: an ordinary user cannot give files away."""
        found = self._door.lstat(path)
        if (found.st_uid, found.st_gid) != (uid, gid):
            try:
                self._door.chown(path, uid, gid)
            except PermissionError:
                return False
        return True

    def sync_all(self, paths: Iterable[bytes]) -> None:
        """Files, and folders with other names or attributes: each, or the whole of a disk where there are many."""
        by_device = dict[int, list[bytes]]()
        for path in sorted(paths):
            found = self._guarded(path, lstat_or_none, self._door, path)
            if found is not None and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                by_device.setdefault(found.st_dev, []).append(path)
        for device, of_it in by_device.items():
            whole = len(of_it) > MANY and can_be_whole(device)
            if not (whole and any(self._guarded(path, self._sync, path, self._door.syncfs) for path in of_it)):
                for path in of_it:
                    self._guarded(path, self._sync, path, self._door.fsync)

    def _sync(self, path: bytes, how: Callable[[int], None]) -> bool:
        """False: it may not be opened. It is somebody else's: a file that nothing was written to, or a folder that may
        be written to but not read."""
        try:
            fd = self._door.open_shut(path, os.O_RDONLY | os.O_NONBLOCK)
        except PermissionError:
            return False
        try:
            how(fd)
        finally:
            self._door.close(fd)
        return True

    def _sync_folders(self) -> None:
        if self._durable:
            for folder in sorted(self._folders):
                try:
                    commit.fsync_folder(self._door, folder)
                except PermissionError:  # one that we may write to but not read
                    pass
        self._folders.clear()


def _leaves(op: NameOp) -> bool:
    """Whether a step takes a name away; a folder that comes from aside has no `ino`."""
    return op.op in ("keep", "unlink", "rmdir") or (op.op == "rename" and op.ino != 0)


def _come_where_some_left(leaving: Iterable[NameOp], arriving: Iterable[NameOp]) -> bool:
    """Whether a folder, with all that is in it, or a symbolic link comes to a path at or below which names leave: done
    again, the leaving would take what came. Files that it takes are linked again, empty folders made again."""
    come = {op.other if op.op == "rename" else op.path for op in arriving if op.op in ("rename", "symlink")}
    return bool(come) and any(not come.isdisjoint(_and_above(op.path)) for op in leaving)


def _and_above(path: bytes) -> Iterator[bytes]:
    while len(path) > 1:
        yield path
        path = os.path.dirname(path)


def write_intent(store: Store, intent: Intent, durable: bool, record: bytes, since_ns: int | None = None,
                 sync_folder: bool = True) -> None:
    """From here on the move is to be completed, whatever happens. since_ns: when that began, if it was before now."""
    data = files.encode_intent(intent, store.layout.id)
    commit.write_file(store.door, record, data, durable, sync_folder, since_ns)


def read_intent(store: Store, record: bytes) -> Intent | None:
    """The move that was begun, if there is one. Damaged."""
    try:
        return files.decode_intent(commit.read_file(store.door, record), store.layout.id)
    except FileNotFoundError:
        return None
    except files.FormatError as error:
        raise Damaged(f"{os.fsdecode(record)}: {error}") from error


def copy_file(store: Store, source: bytes, target: bytes, durable: bool = True) -> None:
    """Copy a regular file with its holes, mode, owner and time; `target` appears only when it is whole. Where the owner
    cannot be given, set-id bits would lend the powers of whoever copies: they stay away."""
    door, temporary = store.door, layout.temporary(target)
    reader = door.open(source, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = door.fstat(reader)
        mode = stat.S_IMODE(found.st_mode)
        commit.remove_file(door, temporary, durable=False)   # of an attempt before this; nobody else's is written to
        writer = door.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, commit.PRIVATE_FILE)
        try:
            door.ftruncate(writer, found.st_size)
            copy_data(door, reader, writer, found.st_size)
            try:
                door.chown(temporary, found.st_uid, found.st_gid)
            except PermissionError:
                mode &= ~(stat.S_ISUID | stat.S_ISGID)
            door.fchmod(writer, mode)      # a change of owner clears set-id bits
            door.set_mtime(temporary, found.st_mtime_ns)
            if durable:                    # the time too: head is about to note it
                door.fsync(writer)
        finally:
            door.close(writer)
    finally:
        door.close(reader)
    door.rename(temporary, target)


def copy_data(door: Door, reader: int, writer: int, size: int) -> None:
    """All data ranges of an open file into another of the same size; shared blocks where possible."""
    if size and door.clone_range(reader, 0, writer, 0, 0):
        return
    for start, end in door.data_ranges(reader, 0, size):
        door.copy_range(reader, start, writer, start, end - start)


