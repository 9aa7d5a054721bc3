"""Extended attributes, POSIX ACLs among them: read, compared between two indexes, put back.

A set of them is a sorted tuple of (name, value), as NameEntry has it. What an ordinary user may not read is not
in it; what may not be set is left as it is.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from metamori.store.format.records import XattrOp
from metamori.store.io.os_io import REAL, Door
from metamori.store.read.head import lstat_or_none
from metamori.store.read.state import State

Xattrs = tuple[tuple[bytes, bytes], ...]
_REFUSED = (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL)


def read(path: bytes) -> Xattrs:
    """Those of a file or folder, never through a symbolic link."""
    found = []
    try:
        for name in REAL.listxattr(path):
            try:
                found.append((os.fsencode(name), REAL.getxattr(path, name)))
            except OSError:
                continue
    except OSError:
        return ()
    return tuple(sorted(found))


def plan(here: State, there: State) -> Iterator[XattrOp]:
    """What has to be set so that all that has a name at `there` has its attributes of then."""
    for entry in there.existing():
        want = entry
        if entry.kind == "file":
            known, want = here.said_of(entry.inode), there.said_of(entry.inode) or entry
        elif entry.kind == "symlink":
            continue
        else:
            known = here.names.get(entry.path)
        # what had no name here may have been given some since; what is made anew inherits its folder's default ACL
        if known is None or (known.kind, known.target, known.xattrs) != (entry.kind, entry.target, want.xattrs):
            yield XattrOp(entry.path, want.xattrs)


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
            _set(door, op.path, name, want.get(name), mode)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
    if stat.S_IMODE(door.lstat(op.path).st_mode) != mode:
        door.chmod(op.path, mode)


def _set(door: Door, path: bytes, name: bytes, value: bytes | None, mode: int) -> None:
    try:
        _change(door, path, name, value)
    except PermissionError:
        if mode & stat.S_IWUSR:
            raise
        door.chmod(path, mode | stat.S_IWUSR)  # its owner's; the mode is put back above
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
