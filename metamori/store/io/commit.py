"""Writing a file so that it is there whole or not at all: temporary name, fsync, rename, fsync of the folder.

`durable=False` (``--durability process``) leaves the fsyncs out: what was written survives the death of every
process, not a power cut.
"""

from __future__ import annotations

import errno
import os

from metamori.store.format import layout
from metamori.store.io.os_io import Door

# a path that leads nowhere, whatever stands on its way; one that is too long leads nowhere for us
NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
IN_THE_DARK = (errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE)  # nobody can tell what is there

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def write_file(door: Door, path: bytes, data: bytes, durable: bool = True, sync_folder: bool = True,
               mtime_ns: int | None = None) -> None:
    """Put `data` at `path`, mode 0600 whatever the umask. On an error either the old file is there or the new one,
    whole: the new one where only its name could not be made durable."""
    write_beside(door, path, data, durable)
    if mtime_ns is not None:
        door.set_mtime(layout.temporary(path), mtime_ns)
    door.rename(layout.temporary(path), path)
    if durable and sync_folder:
        fsync_folder(door, os.path.dirname(path))


def write_new(door: Door, path: bytes, data: bytes, durable: bool = True) -> None:
    """As `write_file`, under a name that nothing has yet: FileExistsError, and what is there stays. On an error nothing
    has the name."""
    write_beside(door, path, data, durable)
    try:
        door.rename_new(layout.temporary(path), path)
    except FileExistsError:
        remove_file(door, layout.temporary(path), durable=False)
        raise
    try:
        if durable:
            fsync_folder(door, os.path.dirname(path))
    except OSError:
        remove_file(door, path, durable=False)
        raise


def write_beside(door: Door, path: bytes, data: bytes, durable: bool = True) -> None:
    """Write the file that is to be at `path` under its temporary name, and no further."""
    temporary = layout.temporary(path)
    fd = door.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    try:
        door.fchmod(fd, PRIVATE_FILE)
        door.pwrite(fd, data, 0)
        if durable:
            door.fsync(fd)
    except OSError:
        remove_file(door, temporary, durable=False)    # its room may be what was held for the end of the run
        raise
    finally:
        door.close(fd)


def read_file(door: Door, path: bytes) -> bytes:
    """The whole of a file of the store."""
    fd = door.open(path, os.O_RDONLY)
    try:
        return door.pread(fd, door.fstat(fd).st_size, 0)
    finally:
        door.close(fd)


def remove_file(door: Door, path: bytes, durable: bool = True) -> None:
    """Remove a file of the store; no error when it is not there."""
    try:
        door.unlink(path)
    except FileNotFoundError:
        return
    if durable:
        fsync_folder(door, os.path.dirname(path))


def make_folder(door: Door, path: bytes) -> None:
    """A private folder; no error when it is there already."""
    try:
        door.mkdir(path, PRIVATE_FOLDER)
    except FileExistsError:
        return
    door.chmod(path, PRIVATE_FOLDER)


def fsync_folder(door: Door, path: bytes) -> None:
    """Make the names in a folder durable. One that is gone has none, and neither has what stands in its place."""
    try:
        fd = door.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno in NOTHING_THERE:
            return
        raise
    try:
        door.fsync(fd)
    finally:
        door.close(fd)


def lstat_or_none(door: Door, path: bytes) -> os.stat_result | None:
    """None when nothing has this name."""
    try:
        return door.lstat(path)
    except OSError as error:
        if error.errno in NOTHING_THERE:
            return None
        raise


def exists(door: Door, path: bytes) -> bool:
    """Whether anything, a broken symbolic link included, has this name."""
    return lstat_or_none(door, path) is not None
