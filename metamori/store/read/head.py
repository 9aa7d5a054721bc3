"""What head notes of the user's files: who they were, so that external modifications are noticed later."""

from __future__ import annotations

import os
import stat
import time
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping

from metamori.errors import Damaged
from metamori.store.format.layout import Layout
from metamori.store.format.records import Head, Identity, KeptHome, PifEntry
from metamori.store.io import commit, xattrs
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import Door
from metamori.store.read.state import State
from metamori.tables.pif import nearest_ns
from metamori.tables.record import replace

_COARSE = 5                                # CLOCK_REALTIME_COARSE, which files are stamped with
_STEP_NS = 20_000_000                      # and no longer where the clock is a server's
_GONE = 1                                  # a change time that nothing has
NO_TIME = 1 << 32                          # births below are generations: no clock gave them (birth.c)
_TICKS = 2 * 10**9, 10**9, 10**7           # of filesystems: FAT, ext3 and short inodes of ext4, exFAT


def identity_now(door: Door, path: bytes) -> Identity:
    """Folders change their times with whatever untracked file they hold, fifos with what passes through them: of them
    count dev, ino and, as their size, what they look like."""
    return identity_of(path, lstat_or_none(door, path))


def identity_of(path: bytes, found: os.stat_result | None) -> Identity:
    """Of what was there."""
    if found is None:
        return Identity(path, 0, 0, 0, 0, 0)
    if stat.S_ISDIR(found.st_mode) or stat.S_ISFIFO(found.st_mode):
        return Identity(path, found.st_dev, found.st_ino, _looks(path, found), 0, 0)
    return Identity(path, found.st_dev, found.st_ino, found.st_size, nearest_ns(found.st_mtime_ns), found.st_ctime_ns)


def _looks(path: bytes, found: os.stat_result) -> int:
    """Mode, owner and extended attributes as one number, which is not 0. What is shut stays shut: a command that only
    looks might be killed then."""
    data = repr((found.st_mode, found.st_uid, found.st_gid, xattrs.read(path, b""))).encode()
    return 1 << 32 | zlib.crc32(data)


def as_far_as_noted(noted: Identity, now: Identity) -> Identity:
    """What is there now, without what a store of an earlier version has not noted: what folders and fifos look like."""
    is_old = noted.ino and not (noted.size or noted.ctime_ns or now.ctime_ns)
    return replace(now, size=0) if is_old else now


class NamesNow:
    """The same of all tracked names, and what the way there leads to. That is another thing where a symbolic link
    stands for a folder: what is seen through it has names of its own, and is not there.

    scope: in these folders, those around a name that no index knows are looked at too. replaced: those of them that are
    links by now, or no folders at all; inner: those behind one.
    """

    def __init__(self, door: Door, scope: Iterable[bytes]) -> None:
        self._door, self._scope = door, tuple(os.path.join(each, b"") for each in scope)
        self._leads_away: dict[bytes, bool] = {b"": False}
        self.replaced: list[bytes] = []
        self.inner: list[bytes] = []

    def look(self, paths: Iterable[bytes]) -> Iterator[tuple[Identity, Identity]]:
        """paths: sorted."""
        for path in paths:
            found = lstat_or_none(self._door, path)
            seen = identity_of(path, found)
            is_behind = self._is_behind(_folder_of(path))
            if found is not None and not stat.S_ISREG(found.st_mode):
                self._leads_away[path] = is_behind or stat.S_ISLNK(found.st_mode)
            yield Identity(path, 0, 0, 0, 0, 0) if is_behind else seen, seen

    def _is_behind(self, folder: bytes) -> bool:
        """Whether the way to what is in a folder leads over a link, or nowhere."""
        unknown = []
        while (known := self._leads_away.get(folder)) is None:
            unknown.append(folder)
            folder = _folder_of(folder)
        for each in reversed(unknown):
            if known:
                self.inner.append(each)
            elif each.startswith(self._scope):
                found = lstat_or_none(self._door, each)
                if known := found is not None and not stat.S_ISDIR(found.st_mode):
                    self.replaced.append(each)
            self._leads_away[each] = known
        return known


def _folder_of(path: bytes) -> bytes:
    """Asked of every name: `dirname` takes longer."""
    return path[:path.rfind(b"/")]


def is_of_another(noted: Identity) -> bool:
    """Whether who noted it has found another file there than the index says, or none."""
    return noted.ctime_ns == _GONE


def same_bytes(one: Identity, other: Identity) -> bool:
    """Whether a file that was `one` and is `other` has the same content, as far as the filesystem tells."""
    return one.ino != 0 and (one.dev, one.ino, one.size, one.mtime_ns) == (
        other.dev, other.ino, other.size, other.mtime_ns)


class Noter:
    """What the next head notes of each path, when files have gone from one state to another.

    Where nothing is, and the index says that there is something, somebody else has taken it away: that is found out.

    Of a path of which both states say the same, and that was not touched on the way, the last head's note counts on: if
    another file is there by now, or other bytes, somebody else has done that, beside a run that did not see it.
    """

    def __init__(self, door: Door, head: Head, here: State, there: State, touched: Container[bytes],
                 theirs: Container[bytes], seen: Mapping[bytes, Identity]) -> None:
        self._seen, self._before = seen, {each.path: each for each in head.identities}
        self._door, self._here, self._there, self._touched, self._theirs = door, here, there, touched, theirs

    def noted(self, now: Identity) -> Identity:
        if now.path in self._seen:
            return self._seen[now.path]
        was = self._before.get(now.path)
        if not now.ino and self._there.names[now.path].kind not in ("absent", "other"):
            one, other = self._here.names.get(now.path), self._there.names[now.path]
            is_it = one is not None and (one.kind, one.inode) == (other.kind, other.inode)
            return was if is_it and was is not None and was.ino else replace(now, ctime_ns=_GONE)
        if was is None or now.path in self._theirs or not self._same(now.path):
            pif = self._replaced(was, now)
            return now if pif is None else Identity(now.path, pif.dev, pif.ino, pif.size, pif.mtime_ns, _GONE)
        return now if was == now or same_bytes(was, now) or self._alike(was, now) else was

    def _replaced(self, was: Identity | None, now: Identity) -> PifEntry | None:
        """The file that a run has left at a path where there is another by now, or less of it, which no restore has put
        there; or the restored one, where somebody has been at it. Of either there may be more by now."""
        entry = self._there.names[now.path]
        pif = self._there.pifs.get(entry.inode) if entry.kind == "file" else None
        if now.path in self._theirs or (pif is not None and now.size > pif.size):
            return pif
        if pif is None or now.path in self._touched:
            return None
        if (now.size, now.mtime_ns) == (pif.size, pif.mtime_ns):
            return None
        if (now.dev, now.ino) == (pif.dev, pif.ino) and now.size >= pif.size:  # it may have got its number
            return None if self._door.birth_ns(now.path) in (0, pif.btime_ns) or not pif.btime_ns else pif
        is_noted = was is not None and (now.dev, now.ino) == (was.dev, was.ino)
        return None if is_noted and (now.dev, now.ino) != (pif.dev, pif.ino) else pif

    def _alike(self, was: Identity, now: Identity) -> bool:
        """Whether what is there is what the index says, only made anew: by a restore inside the program, of which no
        record tells (links, folders and fifos; files where the store is on another filesystem), or by `cp -a`. Whoever
        it was, nothing is lost."""
        entry, found = self._there.names[now.path], lstat_or_none(self._door, now.path)
        if found is None or not was.ino:
            return False
        if entry.kind == "file":           # with all its names: a copy of one of them is another file
            now_at = [identity_now(self._door, path) for path in self._there.paths(entry.inode)]
            return stat.S_ISREG(found.st_mode) and (was.size, was.mtime_ns) == (now.size, now.mtime_ns) and all(
                (each.dev, each.ino) == (now.dev, now.ino) for each in now_at)
        if (found.st_mode, found.st_uid, found.st_gid) != (entry.mode, entry.uid, entry.gid):
            return False
        return entry.kind != "symlink" or (
            found.st_mtime_ns == entry.mtime_ns and self._door.readlink(now.path) == entry.target)

    def _same(self, path: bytes) -> bool:
        one, other = self._here.names.get(path), self._there.names[path]
        return path not in self._touched and one == other and other.kind != "other" and (     # a socket has no bytes
            other.kind != "file" or self._here.pifs.get(other.inode) == self._there.pifs.get(other.inode))


def present_head(door: Door, layout: Layout, before: Head, known: State, state: State,
                 kept: tuple[KeptHome, ...] | None, noted: bool, touched: Container[bytes],
                 theirs: Container[bytes], seen: Mapping[bytes, Identity], scope: Iterable[bytes]) -> Head:
    """Head at the index of `state`, before: at that of `known`. See Store.set_head for the rest."""
    if kept is None:
        kept = kept_homes(door, layout, before, state)
    noter = Noter(door, before, known, state, touched, theirs, seen)
    identities = tuple(noter.noted(now) for now, _ in NamesNow(door, scope).look(sorted(state.names)))
    homes = tuple(each if noted and each.ino else kept_now(door, layout, each) for each in kept)
    return Head(state.index, identities, homes)


def wait_past(identities: Iterable[Identity | KeptHome]) -> None:
    """Until whoever writes to one of these files gives it a later time: the clock of files goes in steps of up to 10 ms
    before Linux 6.13, and some filesystems keep no more than whole seconds. It has long gone on, as a rule: what was
    written before this was made durable."""
    newest, tick = max(((each.ctime_ns, _tick(each.ctime_ns)) for each in identities), key=sum, default=(0, 0))
    end = time.monotonic_ns() + max(_STEP_NS, tick)
    while time.clock_gettime_ns(_COARSE) <= newest + max(tick - 1, 0) and time.monotonic_ns() < end:
        time.sleep(0.001)


def _tick(time_ns: int) -> int:
    """For how long a filesystem may give this time."""
    return next((tick for tick in _TICKS if time_ns % tick == 0), 0) if time_ns else 0


def renumbered(door: Door, head: Head, known: Mapping[int, int]) -> Head:
    """Head with the numbers that devices have now: btrfs, overlayfs, device mapper or another order of disks give
    others at each mount. A file that has its number, size and both times still is the one that was noted, on whatever
    device: nobody can set a change time. What holds of one file holds of all that were on its device; a number that one
    has still is not another: the rest is in a snapshot that is mounted there, say. known: used for devices of which no
    file of head tells; somebody may have written head with numbers of now, and been killed then."""
    devices: dict[int, int] = {}
    for each in head.identities:
        if each.ino and each.ctime_ns and devices.get(each.dev) != each.dev:
            now = identity_now(door, each.path)
            if now == replace(each, dev=now.dev):
                devices[each.dev] = now.dev if now.dev == each.dev else devices.get(each.dev, now.dev)
    devices = dict(known) | devices
    if all(was == now for was, now in devices.items()):
        return head
    return replace(head, identities=tuple(replace(each, dev=devices.get(each.dev, each.dev))
                                          for each in head.identities))


def as_copied(door: Door, layout: Layout, head: Head) -> Head:
    """Head of a store that was copied, or came from another filesystem, with its files: inode numbers say nothing then,
    and neither do change times. A file of the size and the mtime that head noted is taken for the one that was meant,
    as rsync does; all others stay as noted, and so are modified outside Metamori.

    Two names of one file count as such only where they are.
    """
    numbers: dict[tuple[int, int], tuple[int, int]] = {}
    identities = []
    for each in head.identities:
        now = identity_now(door, each.path)
        has_no_size = not (each.ctime_ns or now.ctime_ns)      # folders, fifos: `rsync -aH` leaves their attributes out
        alike = bool(each.ino and now.ino) and (each.size == now.size or has_no_size) and _same_time(
            each.mtime_ns, now.mtime_ns)
        if alike and each.mtime_ns:        # not of folders
            alike = numbers.setdefault((each.dev, each.ino), (now.dev, now.ino)) == (now.dev, now.ino)
        identities.append(now if alike else each)
    homes = []
    for kept in head.kept:
        home = kept_now(door, layout, kept)
        alike = bool(kept.ino) and kept.size == home.size and _same_time(kept.mtime_ns, home.mtime_ns)
        homes.append(home if alike else kept)
    return replace(head, identities=tuple(identities), kept=tuple(homes))


def _same_time(noted_ns: int, now_ns: int) -> bool:
    """Archives keep whole seconds."""
    return now_ns == noted_ns or now_ns == noted_ns // 10**9 * 10**9


def kept_homes(door: Door, layout: Layout, head: Head, state: State) -> tuple[KeptHome, ...]:
    """Objects without a name at this state whose backing file is in the store: those of head, and the run's."""
    homes = {kept.inode: kept for kept in head.kept}
    for inode, pif in state.pifs.items():
        if pif.kept and inode not in homes:
            homes[inode] = KeptHome(inode, pif.kept)
    return tuple(
        kept for inode, kept in sorted(homes.items())
        if not state.paths(inode) and commit.exists(door, layout.kept(kept.name))
    )


def kept_now(door: Door, layout: Layout, kept: KeptHome) -> KeptHome:
    """With what lstat says of it at present."""
    found = lstat_or_none(door, layout.kept(kept.name))
    if found is None:
        return KeptHome(kept.inode, kept.name)
    return KeptHome(
        kept.inode, kept.name, found.st_ino, found.st_size, nearest_ns(found.st_mtime_ns), found.st_ctime_ns)


def is_as_noted(door: Door, layout: Layout, kept: KeptHome) -> bool:
    """Whether a backing file in the store has the bytes that it had when head was written, as far as that is known. It
    may have a name outside of the scope too: when that goes or changes, its change time does."""
    now = kept_now(door, layout, kept)
    return not kept.ino or (now.ino, now.size, now.mtime_ns) == (kept.ino, kept.size, kept.mtime_ns)


def require_kept(door: Door, layout: Layout, kept: KeptHome) -> None:
    """Damaged when a backing file in the store has not what it had when head was written."""
    if not is_as_noted(door, layout, kept):
        raise Damaged(f"{os.fsdecode(layout.kept(kept.name))}, the only copy of a file, was changed by a name that is "
                      "not tracked; the next run, or 'metamori restore --force', goes on without its bytes")


def objects_at(door: Door, layout: Layout, head: Head, state: State) -> dict[tuple[int, int], tuple[int, int]]:
    """(dev, ino) -> object number of every object that has a backing file at head, and when it was last changed by
    then; 0 is unknown."""
    objects = {}
    for kept in head.kept:
        found = lstat_or_none(door, layout.kept(kept.name))
        if found is not None:
            objects[(found.st_dev, found.st_ino)] = kept.inode, 0
    for identity in head.identities:
        entry = state.names.get(identity.path)
        if entry is not None and entry.kind == "file" and identity.ino:
            objects[(identity.dev, identity.ino)] = entry.inode, identity.ctime_ns
    return objects


def may_be_another(pif: PifEntry | None, dev: int, ino: int, btime_ns: int) -> bool:
    """Whether nothing but the number says that a file is the one that head knows by it: its filesystem notes no births,
    and the record is of another inode."""
    return btime_ns < NO_TIME and (
        pif is None or not btime_ns or (pif.dev, pif.ino, pif.btime_ns) != (dev, ino, btime_ns))


def born_then(pif: PifEntry | None, dev: int, ino: int, btime_ns: int, changed_ns: int = 0) -> bool:
    """Whether a file that has the number of one that head knows is that one, by its birth. The record may be older than
    the file, which a restore has made anew, even with the old number: changed_ns, when it was last changed as head was
    written, is later than its birth. Where that is not known, a record that was made for another inode says nothing."""
    recorded = pif.btime_ns if pif is not None and (pif.dev, pif.ino) == (dev, ino) else 0
    if not btime_ns or btime_ns == recorded:
        return True
    return btime_ns <= changed_ns if changed_ns else not recorded
