"""The one door to the operating system for the store, and for the user's files while they are moved.

A `Door` does what its method says and nothing more; a test hands the store another one that fails, or stops
dead, at the Nth operation. Errors are OSError, as the kernel gave them. Offsets and lengths are bytes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps

from metamori._area import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _Call = TypeVar("_Call", bound=Callable[..., Any])

PIECE_BYTES = 1 << 20
_AT_ONCE = 16 * PIECE_BYTES         # of a long copy
_FICLONERANGE = 0x4020940D
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NOT_SUPPORTED = frozenset(
    (errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.EBADF, errno.EPERM)
)
_FOLDS = lib.mm_crc_folds() != 0    # else zlib is quicker
_rename_new = lib.mm_rename_new


def boot_id() -> bytes:
    """Another one after every start of the machine; b"" where it cannot be read: a sandbox hides /proc/sys."""
    try:
        with open(BOOT_ID, "rb") as file:
            return file.read().strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return b""


def umask() -> int:
    """This process's, without setting it even for an instant: threads of a program under us make files meanwhile."""
    with open("/proc/thread-self/status", "rb") as file:
        for line in file:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)                 # before Linux 4.7 nobody tells
    os.umask(mask)
    return mask


def _keeps_mode(found: os.stat_result) -> bool:
    """Whether what is opened up for a moment gets its mode back: the kernel takes a set-group-id bit away when somebody
    who is not in the group changes the mode."""
    return not found.st_mode & stat.S_ISGID or found.st_gid in (os.getegid(), *os.getgroups()) or os.geteuid() == 0


@contextmanager
def _opened(path: bytes, file_bits: int) -> Iterator[None]:
    """What is the caller's own and whose mode keeps him out lets him in: a folder to list, change and enter it, of a
    file's mode these bits are set.

    By a descriptor: it may have another name, or none, when its mode comes back. A mode that somebody gave it meanwhile
    stays. What cannot be opened up is left as it is: the call itself says why.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        found = os.fstat(fd)
        mode, place = stat.S_IMODE(found.st_mode), f"/proc/thread-self/fd/{fd}"
        opened = mode | (stat.S_IRWXU if stat.S_ISDIR(found.st_mode) else file_bits)
        if opened == mode or found.st_uid != os.geteuid() or not _keeps_mode(found):
            yield
            return
        with suppress(OSError):
            os.chmod(place, opened)
        try:
            yield
        finally:
            if stat.S_IMODE(os.fstat(fd).st_mode) == opened:
                os.chmod(place, mode)
    finally:
        os.close(fd)


def _let_in(*which: int, inside: bool = False) -> Callable[[_Call], _Call]:
    """For a call by paths, its arguments number `which`: what the folders of the user's own on the way to them refuse
    him, as their modes do, is tried once more with these opened up for the moment. inside: a path that is a folder too.
    """
    def of(call: _Call) -> _Call:
        @wraps(call)
        def once_more(door: Door, *values: Any, **named: Any) -> Any:
            try:
                return call(door, *values, **named)
            except PermissionError as error:
                if error.errno != errno.EACCES:
                    raise
            with opened_up([values[each] for each in which], inside):
                return call(door, *values, **named)
        return once_more  # type: ignore[return-value]
    return of


def opened_up(paths: list[bytes], inside: bool = False, file_bits: int = 0) -> ExitStack:
    """The user's own folders around paths, the highest first, let him in until this is closed. inside: those that the
    paths are, too; file_bits: and files at the paths have these bits of their mode."""
    found = set(paths) if inside or file_bits else set()
    for path in paths:
        while (path := os.path.dirname(path)) not in (b"", b"/"):
            found.add(path)
    opened = ExitStack()
    try:
        for path in sorted(found):
            opened.enter_context(_opened(path, file_bits))
    except BaseException:
        opened.close()
        raise
    return opened


class Door:
    """Thin calls. `copy_range` and `punch_hole` choose the cheapest way that the filesystem has.

    A folder that keeps its own owner out does not keep the store out (root is kept out of none).
    """

    def expect(self, what: str, nbytes: int | Callable[[], int], how: str = "written") -> None:
        """So many bytes are to be written, read or freed for what now begins; a door that shows it takes note."""

    def show(self, shown: bool) -> None:
        """Whether somebody waits for what is done from here on; nobody does while a command runs."""

    @_let_in(0)
    def open(self, path: bytes, flags: int, mode: int = 0o600) -> int:
        """A descriptor, close-on-exec; never follows a symbolic link in the last component."""
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    def open_shut(self, path: bytes, flags: int) -> int:
        """`open`, of a file of the user's own also where its mode forbids him that: a change time alone says nothing of
        what it holds."""
        try:
            return self.open(path, flags)
        except PermissionError:
            with opened_up([path], file_bits=stat.S_IRUSR | (flags & os.O_ACCMODE and stat.S_IWUSR)):
                return self.open(path, flags)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        parts = []
        while length:
            part = os.pread(fd, min(length, PIECE_BYTES), offset)
            if not part:
                break
            parts.append(part)
            length -= len(part)
            offset += len(part)
        return b"".join(parts)

    @_let_in(0)
    def read_short(self, path: bytes, length: int, mtime_ns: int, to: Any, room: int) -> int | None:
        """A short file's bytes into memory, zeros after them up to the end of the room: their CRC-32. None: once they
        have been read it is not a file of this length and time of change."""
        found: int = lib.mm_crc32_of_short(path, length, mtime_ns, to, room)
        if found < 0:
            raise OSError(-found, os.strerror(-found), path)
        return found & 0xffffffff if found else None

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """All of `data`, or an error."""
        view = memoryview(data)
        while view:
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done

    def checksum(self, fd: int, length: int, offset: int, crc: int = 0) -> tuple[int, int]:
        """The CRC-32 (zlib's) of bytes whose CRC-32 is `crc` and of up to `length` more, and how many these were: fewer
        only at the end of the file."""
        if not _FOLDS:
            data = self.pread(fd, length, offset)
            return zlib.crc32(data, crc), len(data)
        answer = ffi.new("uint32_t *", crc)
        done = lib.mm_crc32_of_file(fd, offset, length, answer)
        if done < 0:
            raise OSError(-done, os.strerror(-done))
        return answer[0], done

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def syncfs(self, fd: int) -> None:
        if lib.syncfs(fd) < 0:
            raise OSError(ffi.errno, os.strerror(ffi.errno))

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fchmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    @_let_in(0)
    def lstat(self, path: bytes) -> os.stat_result:
        return os.lstat(path)

    def birth_ns(self, path: bytes, follow: bool = False) -> int:
        """When the file itself was made, not through a symbolic link unless told so; 0: not known (statx)."""
        try:
            return self._birth_ns(path, follow)
        except OSError:
            return 0

    @_let_in(0)
    def _birth_ns(self, path: bytes, follow: bool) -> int:
        born = int(lib.mm_birth_ns(path, follow))
        if born < 0:
            raise OSError(-born, os.strerror(-born), path)
        return born

    def is_shut_by_flags(self, path: bytes, may_grow: bool = False) -> bool:
        """Whether chattr has made it immutable; or, unless may_grow, such that it can be appended to only."""
        return bool(lib.mm_has_flags(path, not may_grow))

    @_let_in(0, 1, inside=True)
    def rename(self, source: bytes, target: bytes) -> None:
        os.rename(source, target)

    @_let_in(0, 1)
    def rename_new(self, source: bytes, target: bytes) -> None:
        """`rename` to a name that is free; FileExistsError, and nothing is done, when it is not."""
        code = -_rename_new(source, target)
        if code in (errno.EINVAL, errno.ENOSYS):           # of the filesystem, or of the kernel
            if os.path.lexists(target):
                code = errno.EEXIST
            else:
                os.rename(source, target)
                code = 0
        if code:
            raise OSError(code, os.strerror(code), source, None, target)

    @_let_in(0, 1)
    def link(self, source: bytes, target: bytes) -> None:
        os.link(source, target, follow_symlinks=False)

    @_let_in(0)
    def unlink(self, path: bytes) -> None:
        os.unlink(path)

    @_let_in(0)
    def mkdir(self, path: bytes, mode: int) -> None:
        os.mkdir(path, mode)

    @_let_in(0)
    def rmdir(self, path: bytes) -> None:
        os.rmdir(path)

    @_let_in(1)
    def symlink(self, target: bytes, path: bytes) -> None:
        os.symlink(target, path)

    @_let_in(0)
    def readlink(self, path: bytes) -> bytes:
        return os.readlink(path)

    @_let_in(0)
    def mkfifo(self, path: bytes, mode: int) -> None:
        os.mkfifo(path, mode)

    @_let_in(0)
    def mknod(self, path: bytes, mode: int, device: int) -> None:
        os.mknod(path, mode, device)

    @_let_in(0)
    def chmod(self, path: bytes, mode: int) -> None:
        """Mode of a file or folder, never through a symbolic link: ELOOP.

        By the thread's own descriptors: in the program the runtime's thread has a table of them to itself, and
        /proc/self would lead to a file of the program's.
        """
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            os.chmod(f"/proc/thread-self/fd/{fd}", mode)
        finally:
            os.close(fd)

    @_let_in(0)
    def chown(self, path: bytes, uid: int, gid: int) -> None:
        os.chown(path, uid, gid, follow_symlinks=False)

    @_let_in(0)
    def set_mtime(self, path: bytes, mtime_ns: int) -> None:
        """Modification time; the access time stays."""
        atime_ns = os.lstat(path).st_atime_ns
        os.utime(path, ns=(atime_ns, mtime_ns), follow_symlinks=False)

    @_let_in(0)
    def listxattr(self, path: bytes) -> list[str]:
        return os.listxattr(path, follow_symlinks=False)

    @_let_in(0)
    def getxattr(self, path: bytes, name: str) -> bytes:
        return os.getxattr(path, name, follow_symlinks=False)

    @_let_in(0)
    def setxattr(self, path: bytes, name: bytes, value: bytes) -> None:
        os.setxattr(path, name, value, follow_symlinks=False)

    @_let_in(0)
    def removexattr(self, path: bytes, name: bytes) -> None:
        os.removexattr(path, name, follow_symlinks=False)

    @_let_in(0, inside=True)
    def listdir(self, path: bytes) -> list[bytes]:
        return os.listdir(path)

    def walk(self, top: bytes) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]:
        """As os.walk: folders from the top, of which the caller may take out those that he does not want walked."""
        try:
            found = self._scan(top)
        except OSError:                    # gone, or somebody else's
            return
        folders = [name for name, is_folder in found if is_folder]
        yield top, folders, [name for name, is_folder in found if not is_folder]
        for name in folders:
            yield from self.walk(os.path.join(top, name))

    @_let_in(0, inside=True)
    def _scan(self, path: bytes) -> list[tuple[bytes, bool]]:
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    def flock(self, fd: int) -> bool:
        """Whether the exclusive lock was had at once."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def data_ranges(self, fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) that are not holes, in order."""
        while start < end:
            try:
                data = os.lseek(fd, start, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            if data >= end:
                return
            hole = min(os.lseek(fd, data, os.SEEK_HOLE), end)
            yield data, hole
            start = hole

    def clone_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> bool:
        """Share the blocks where the filesystem can (FICLONERANGE); False where it cannot."""
        try:
            fcntl.ioctl(target, _FICLONERANGE, struct.pack("=qQQQ", source, source_at, length, target_at))
        except OSError as error:
            if error.errno in _NOT_SUPPORTED:
                return False
            raise
        return True

    def copy_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> int:
        """Bytes copied (fewer than `length` only when the source ends): in the kernel where possible.

        The disk begins to write the first part of a long copy while the next is made: an fsync will want all of it.
        """
        done = 0
        while done < length and hasattr(os, "copy_file_range"):
            try:
                step = os.copy_file_range(
                    source, target, min(length - done, _AT_ONCE), source_at + done, target_at + done
                )
                if step >= PIECE_BYTES:
                    _flush(target, target_at + done, step)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
                break
            if step == 0:
                break
            done += step
        while done < length:
            data = self.pread(source, min(length - done, PIECE_BYTES), source_at + done)
            if not data:
                break
            self.pwrite(target, data, target_at + done)
            done += len(data)
        return done

    def punch_hole(self, fd: int, start: int, end: int) -> bool:
        """Make [start, end) read as zeros and free its blocks; False where the filesystem cannot."""
        code = -lib.mm_punch_hole(fd, start, end - start)
        if code == 0:
            return True
        if code in _NOT_SUPPORTED:
            return False
        raise OSError(code, os.strerror(code))


def _flush(fd: int, start: int, length: int) -> None:
    """The disk begins to write a range; nobody waits for it."""
    lib.mm_write_out(fd, start, length, 0)


REAL = Door()


# where more files of one filesystem than this are to be durable, all of it is at once. Measured, 500 new files of 2 KB
# on ext4: 0.8 to 1.4 s by fdatasync of each, 0.02 to 0.06 s by syncfs, which also waits for what others have written
MANY = 64
# whose syncfs is known to leave nothing out; not those of a network, or of a server in user space
WHOLE = frozenset((b"ext2", b"ext3", b"ext4", b"xfs", b"f2fs", b"tmpfs"))


def can_be_whole(device: int) -> bool:
    """By /proc/self/mountinfo: device number, and the type behind the dash. syncfs tells of errors since Linux 5.8."""
    release = os.uname().release.split(".")
    if [int(number) for number in release[:2] if number.isdigit()] < [5, 8]:
        return False
    number = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            found = [words for words in map(bytes.split, mounts) if words[2] == number]
            return any(words[words.index(b"-") + 1] in WHOLE for words in found)
    except OSError:
        return False
