"""Whose a store is. A store of somebody else is not used, not even to look at: neither by root.

It holds copies of its owner's files and says which paths are to be written, so a stranger's store is a stranger's
program. Links in it would lead writes elsewhere. What a tree from elsewhere says is still data: see docs/security.md.
"""

from __future__ import annotations

import os
import pwd
import stat

from metamori.errors import MetamoriError
from metamori.store.format.layout import Layout
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import Door


class NotOurs(MetamoriError):
    """The store, or something in it, is not this user's own."""


def require_own(door: Door, layout: Layout) -> None:
    """NotOurs unless the store and the files right in it belong to the effective user and are no links."""
    root = layout.root
    found = lstat_or_none(door, root)
    if found is None:
        return
    _own(root, found)
    if stat.S_ISLNK(found.st_mode):        # one's own link to a store somewhere else is fine
        root = os.path.realpath(root)
        found = lstat_or_none(door, root)
        if found is None:
            return
        _own(root, found)
    for path in (*layout.folders, layout.run_area):
        _plain(door, path, stat.S_IFDIR)
    for path in (layout.format, layout.lock, layout.head, layout.intent, layout.leaving, layout.prune, layout.counters,
                 layout.spare):
        _plain(door, path, stat.S_IFREG)


def _plain(door: Door, path: bytes, kind: int) -> None:
    found = lstat_or_none(door, path)
    if found is None:
        return
    _own(path, found)
    if stat.S_IFMT(found.st_mode) != kind:
        raise NotOurs(f"{os.fsdecode(path)} is not what it should be in a store; it is not used")


def _own(path: bytes, found: os.stat_result) -> None:
    if found.st_uid == os.geteuid():
        return
    try:
        name = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        name = f"number {found.st_uid}"
    raise NotOurs(f"{os.fsdecode(path)} belongs to user {name}: a store is used by its owner only; "
                  "--store DIR names one of your own")
