"""Extended attributes, POSIX ACLs among them: read, and put back.

A set of them is a sorted tuple of (name, value), as NameEntry has it. What an ordinary user may not read is not
in it; what may not be set is left as it is.
"""

from __future__ import annotations

import errno
import os
import stat

from metamori.store.format.records import XattrOp
from metamori.store.io.commit import IN_THE_DARK, lstat_or_none
from metamori.store.io.os_io import REAL, Door, opened_up

Xattrs = tuple[tuple[bytes, bytes], ...]
_REFUSED = (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL)


def read(path: bytes, shut: bytes | None = None) -> Xattrs:
    """Those of a file or folder, never through a symbolic link. What is the caller's own, and may not be read by its
    mode, is opened up for the moment; where `shut` is given, that stands for its values instead. OSError where nobody
    can tell: that is not the same as none."""
    found = []
    try:
        for name in REAL.listxattr(path):
            try:
                found.append((os.fsencode(name), _value(path, name, shut)))
            except OSError as error:
                if error.errno in IN_THE_DARK:
                    raise
    except OSError as error:
        if error.errno in IN_THE_DARK:
            raise
        return ()
    return tuple(sorted(found))


def _value(path: bytes, name: str, shut: bytes | None) -> bytes:
    try:
        return REAL.getxattr(path, name)
    except PermissionError:
        if shut is not None:
            return shut
        with opened_up([path], file_bits=stat.S_IRUSR):
            return REAL.getxattr(path, name)


def apply(door: Door, op: XattrOp) -> None:
    """Exactly these; the mode, which an ACL changes, stays."""
    found = lstat_or_none(door, op.path)
    if found is None or stat.S_ISLNK(found.st_mode):
        return
    have, want = dict(read(op.path)), dict(op.xattrs)
    mode = stat.S_IMODE(found.st_mode)
    for name in sorted(have.keys() | want.keys()):
        if have.get(name) == want.get(name):
            continue
        try:
            _set(door, op.path, name, want.get(name))
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
    if stat.S_IMODE(door.lstat(op.path).st_mode) != mode:
        door.chmod(op.path, mode)


def _set(door: Door, path: bytes, name: bytes, value: bytes | None) -> None:
    try:
        _change(door, path, name, value)
    except PermissionError:
        with opened_up([path], file_bits=stat.S_IWUSR):
            _change(door, path, name, value)


def _change(door: Door, path: bytes, name: bytes, value: bytes | None) -> None:
    if value is None:
        try:
            door.removexattr(path, name)
        except OSError as error:               # XFS shows root an ACL by two names: it has gone with the other
            if error.errno != errno.ENODATA:
                raise
    else:
        door.setxattr(path, name, value)
