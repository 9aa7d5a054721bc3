"""A program continues from an index: with its memory where the index holds it, else its command from the start.

The files are at the index already. Each new process is one of the same program file, started as the old one was; it
finds its descriptors open, and the preload library fills its memory before anything of it runs
(tree_restart.py, shim_c/src/memory/restore.c).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from metamori._area import lib
from metamori.errors import Damaged, MetamoriError
from metamori.runtime.area import launch_record
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.lifecycle import queue_restart, segment_restart, socket_restart, sysv_restart, tree_restart
from metamori.runtime.lifecycle.descriptor_restart import GONE, in_place, words_of
from metamori.runtime.memory import file_locks, images, proc_inspect, watches
from metamori.store.format.records import Launch, MappedEntry, MemoryEntry, Meta
from metamori.store.read import image, image_chain
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore.resume_point import RESUME_AT
from metamori.tables.fit import descriptors_of

_ENDS_S = 1.0                              # that killed processes may take


class CannotComeBack(MetamoriError):
    """The memory of an index cannot go on here."""


def check(store: Store, index: int) -> tuple[MemoryEntry, ...]:
    """Before anything is touched. CannotComeBack: another kernel, processor, library or user than recorded; Damaged: an
    image of the chain is not what its record says."""
    memory = store.meta(index).memory
    for entry in memory:
        if why := _refuses(store, index, entry):
            raise CannotComeBack(f"the memory of checkpoint {index} cannot be continued: {why}")
    for entry in memory:                   # the program's own side believes every byte of them
        for each, found in image_chain.chain(store, index, entry.pid):
            path = store.layout.memory(each, found.process)
            if wrong := image.check(store.door, path, found):
                raise Damaged(f"the memory of checkpoint {index} cannot be continued: {wrong}")
            if why := _refuses_image(image.read(store.door, path)):
                raise CannotComeBack(f"the memory of checkpoint {index} cannot be continued: {why}")
    return memory


def _refuses(store: Store, index: int, entry: MemoryEntry) -> str:
    """What of the machine is not as it was; "" nothing."""
    if why := images.no_return() or proc_inspect.machine_refuses(entry.machine):
        return why
    if (entry.uid, entry.gid) != (os.geteuid(), os.getegid()):
        return f"it ran as user {entry.uid}, group {entry.gid}"
    if changed := _changed_files(store, index, entry):
        return ", ".join(f"{os.fsdecode(each.path)} is not what it was" for each in changed)
    if path := _missing(store, index, entry):
        return f"{os.fsdecode(path)}, which it watched, is not there"
    if not entry.cwd.endswith(GONE) and not os.path.isdir(entry.cwd) and not _is_made(store, index, entry.cwd):
        return f"the folder that it ran in is gone: {os.fsdecode(entry.cwd)}"
    return ""


def _refuses_image(found: image.Image) -> str:
    """What the program's own side would say, when the files have moved."""
    if found.version != image.VERSION or found.library != proc_inspect.build_of_library().ljust(image.LIBRARY, b"\0"):
        return f"another build of Metamori saved it ({os.fsdecode(found.path)})"
    if name := proc_inspect.kernel_lacks(found.kernels):
        return f"this kernel gives a process no {os.fsdecode(name)}"
    return ""


def check_free(store: Store, index: int, area: Area | None = None) -> None:
    """Nobody has what the programs had; whoever was killed may take a moment. area: of a run that is alive and goes
    back: what it has itself does not count. HeldElsewhere, InUse, KeyTaken, NameTaken, QueueTaken."""
    deadline = time.monotonic() + _ENDS_S
    while True:
        try:
            return _check_free(store.meta(index), area)
        except MetamoriError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


def _check_free(meta: Meta, area: Area | None) -> None:
    own = (os.getpid(), *area.pids()) if area else ()
    for entry in meta.memory:
        file_locks.check(entry.descriptors, own)
    socket_restart.check(tree_restart.descriptions(meta), own)
    segment_restart.check(meta.segments, own)
    sysv_restart.check(meta.segments, area)
    queue_restart.check(meta.segments, own, area)


def _changed_files(store: Store, index: int, entry: MemoryEntry) -> list[MappedEntry]:
    """Files of the run are put back with the others and do not count."""
    names = store.state(index).names
    return [each for each in entry.mapped if each.path not in names and proc_inspect.changed(each)][:3]


def _missing(store: Store, index: int, entry: MemoryEntry) -> bytes:
    """A path that it watched by inotify; b"": all are there, or will be."""
    names = store.state(index).names
    return next((path for each in entry.descriptors for *_, path in watches.of(each)
                 if path not in names and not os.path.lexists(path)), b"")


def _is_made(store: Store, index: int, folder: bytes) -> bool:
    """With the files."""
    return any(path == folder or path.startswith(folder + b"/") for path in store.state(index).names)


def launch_of(store: Store, index: int) -> Launch:
    """How the run that continues from an index was started, for its own record."""
    return launch_record.of_index(store, index)


@dataclass(frozen=True)
class Start:
    """All that the new process needs before it begins. tree: of one that comes back with its memory."""

    launch: Launch
    environ: dict[bytes, bytes]
    tree: tree_restart.Tree | None = None

    def fork(self) -> int:
        return tree_restart.fork_as(self.tree.family[0].pid) if self.tree else os.fork()


def prepare(session: Session, index: int, environ: dict[str, str]) -> Start:
    """With memory: the run area says how to come back. environ: what Metamori itself adds."""
    store, area = session.store, session.area
    meta = store.meta(index) if index else None
    added = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
    if meta is None or not meta.memory:
        launch = launch_record.of_index(store, index)
        own = tuple(each for each in launch.env if not each.startswith(RESUME_AT))
        return Start(launch, {**_environ(own), **added})
    members = []
    for entry in meta.memory:
        launch = Launch(entry.exe, entry.argv, entry.env, entry.cwd, entry.umask, entry.limits)
        launch_record.note(area, launch, f"process.{entry.pid}")
        chain = tuple(store.layout.memory(each, found.process)
                      for each, found in reversed(image_chain.chain(store, index, entry.pid)))
        members.append(tree_restart.Member(entry, launch, {**_environ(entry.env), **added},
                                           _followed(session, meta, entry), chain))
    return Start(members[0].launch, members[0].environ, tree_restart.Tree(area, meta, tuple(members)))


def _environ(lines: tuple[bytes, ...]) -> dict[bytes, bytes]:
    return dict(line.split(b"=", 1) for line in lines if b"=" in line)


def _followed(session: Session, meta: Meta, entry: MemoryEntry) -> dict[int, bytes]:
    """Where the file of each tracked descriptor is now; one without a name is tracked again in the store."""
    state = session.store.state(meta.index)
    fits = {fd: fit for fit in meta.fits if fit.process == entry.process for fd in descriptors_of(fit)}
    found = {}
    for each in entry.descriptors:
        if each.kind == "followed" and each.same_as < 0:
            fit = fits.get(each.descriptor)
            inode = fit.inode if fit else 0
            names = state.paths(inode) if inode else []
            path = each.path.removesuffix(b" (deleted)")
            if names:
                found[each.descriptor] = path if path in names else names[0]
            else:
                found[each.descriptor] = (inode and _nameless(session, state, inode)) or path
    return found


def _nameless(session: Session, state: State, inode: int) -> bytes:
    """A file that only descriptors hold: the run area is told of it, as the run that unlinked it did."""
    area, store = session.area, session.store
    for slot in area.pifs():
        if area.pif(slot).object == inode:
            return store.layout.kept(area.kept_name(slot))
    name = next((kept.name for kept in store.head.kept if kept.inode == inode), b"%d" % inode)
    home = store.layout.kept(name)
    if not os.path.exists(home):
        return b""
    pif = state.pifs[inode]
    slot = area.new_pif(home, pif.filename)
    p = area.pif(slot)
    p.object, p.fresh_from, p.deleted = inode, pif.size, 1
    p.old_size, p.old_mtime_ns, p.old_mode, p.old_uid, p.old_gid = pif.size, pif.mtime_ns, pif.mode, pif.uid, pif.gid
    p.flags |= lib.MM_NAMELESS | lib.MM_KEPT | lib.MM_INDEXED
    area.touch_pif(slot)
    own = store.layout.kept(area.kept_name(slot))
    os.rename(home, own)
    return own


def become(start: Start) -> None:
    """In the child: everything as it was, then the program. Does not return; OSError."""
    if start.tree is not None:
        start.tree.become()
    in_place(start.launch)
    os.execve(start.launch.exe, words_of(start.launch), start.environ)
