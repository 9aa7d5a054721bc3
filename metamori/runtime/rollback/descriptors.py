"""The descriptors of a process as an index knows them: what the restore inside the program tells C to put back."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from metamori._area import ffi, lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Touch
from metamori.runtime.checkpoint.cut import look
from metamori.runtime.checkpoint.session import Session
from metamori.store.format.records import FitEntry
from metamori.store.io.os_io import opened_up
from metamori.store.read.state import State, parents
from metamori.tables.fit import OTHER_CLOSE_ON_EXEC, descriptors_of
from metamori.tables.record import replace

if TYPE_CHECKING:
    from metamori._area import CData, mm_action, mm_actions


class Gone(MetamoriError):
    """A file that the process had open has no name any more that anybody knows, and it has closed it."""

    errno = errno.ENOENT


def unnamed(session: Session, index: int, slot: int) -> dict[int, bytes]:
    """Of each description at the index whose file's name nothing brings back, by its first descriptor: where to open
    it. By the descriptor that the process still has of it, where the name is gone or another file's. Gone; nothing has
    moved yet."""
    area, number, then = session.area, session.area.process(slot).number, session.store.state(index)
    now = {(area.fit(fit).dev, area.fit(fit).ino): fd for fd, fit in area.descriptors(slot).items()}
    noted: set[bytes] | None = None
    found = {}
    for fit in session.store.meta(index).fits:
        if fit.process != number or not fit.filename:
            continue
        if fit.inode:
            if then.paths(fit.inode) or not (pif := then.pifs.get(fit.inode)) or pif.kept or pif.was_deleted:
                continue
            raise Gone(f"{os.fsdecode(fit.filename)}: not there any more, and open at checkpoint {index}")
        file, st = (fit.dev, fit.ino), look(fit.filename).st
        if st is not None and (st.st_dev, st.st_ino) == file:
            continue
        if area.in_scope(fit.filename):
            noted = noted or {each.path for each in area.journal(area.head.committed_journal)
                              if isinstance(each, Touch)} | then.names.keys()
            if not noted.isdisjoint((fit.filename, *parents(fit.filename))):
                continue
        if file in now:
            found[fit.descriptor] = b"/proc/self/fd/%d" % now[file]
        elif st is None:
            raise Gone(f"{os.fsdecode(fit.filename)}: not there any more, and open at checkpoint {index}")
    return found


def require_room(session: Session, index: int, number: int, actions: mm_actions) -> None:
    """EMFILE; nothing has moved yet."""
    if len(_pieces(session, index, number)) > actions.room:
        raise OSError(errno.EMFILE, "more open descriptions than a restore can put back")


def _pieces(session: Session, index: int, number: int) -> list[tuple[FitEntry, int]]:
    """The process's descriptions, and from which of its descriptors on: an action has room for some."""
    return [(fit, first) for fit in session.store.meta(index).fits if fit.process == number
            for first in range(0, len(descriptors_of(fit)), lib.MM_ACTION_FDS)]


def _numbers(action: mm_action, fit: FitEntry, first: int) -> None:
    same = bool(fit.attributes & os.O_CLOEXEC)
    fds = (fit.descriptor, *fit.dup_list)[first:first + lib.MM_ACTION_FDS]
    action.fd_count = len(fds)
    for i, fd in enumerate(fds):
        action.fds[i] = fd & ~OTHER_CLOSE_ON_EXEC
        action.close_on_exec |= (same != bool(fd & OTHER_CLOSE_ON_EXEC)) << i


def actions_for(session: Session, index: int, number: int, outside: Mapping[int, bytes], actions: mm_actions) -> None:
    """outside: what `unnamed` said."""
    store = session.store
    then = store.state(index)
    slots = {session.area.pif(slot).object: slot for slot in session.area.pifs()}
    pieces = _pieces(session, index, number)
    actions.count = len(pieces)
    base = actions.action + 0              # a pointer: there are more of them than the array's type says
    session.coming_back.clear()
    refused: list[bytes] = []
    for i, (fit, first) in enumerate(pieces):
        _numbers(base[i], fit, first)
        if first:                          # more descriptors of the one before: no path of its own
            continue
        path = outside.get(fit.descriptor) or (
            _where(session, then, slots, fit) if fit.filename else _removed_folder(session, i, fit.mode))
        if fit.descriptor in outside:      # maybe a link, to what it has open
            fit = replace(fit, attributes=fit.attributes & ~os.O_NOFOLLOW)
        unflushed = ffi.from_buffer(fit.unflushed)
        session.coming_back.append(unflushed)
        _action(base[i], fit, path, unflushed)
        refused += [] if os.access(path, _wants(fit.attributes)) else [path]
    session.let_in.close()
    session.let_in = opened_up(refused, file_bits=stat.S_IRUSR | stat.S_IWUSR)   # until the program has its descriptors


def _wants(flags: int) -> int:
    """What may have been open already when the mode forbade it: made so, or shut since."""
    if flags & os.O_PATH:
        return os.F_OK
    return {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK}.get(flags & os.O_ACCMODE, os.R_OK | os.W_OK)


def _removed_folder(session: Session, number: int, mode: int) -> bytes:
    """A folder that `go_on` will remove: empty and without a name, all that one removed before the index was."""
    path = session.store.layout.nameless_folder(number, mode)
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o700)                  # whatever the program's umask is
    return path


def remove_folders(session: Session) -> None:
    run = session.store.layout.run_area
    for name in os.listdir(run):
        if name.startswith(b"folder."):
            os.chmod(os.path.join(run, name), int(name.rsplit(b".", 1)[1], 8))
            os.rmdir(os.path.join(run, name))


def _where(session: Session, then: State, slots: dict[int, int], fit: FitEntry) -> bytes:
    paths = then.paths(fit.inode) if fit.inode else []
    if paths:
        return fit.filename if fit.filename in paths else paths[0]
    if fit.inode in slots:
        return session.store.layout.kept(session.area.kept_name(slots[fit.inode]))
    return fit.filename


def _action(action: mm_action, fit: FitEntry, path: bytes, unflushed: CData) -> None:
    action.flags = fit.attributes & ~os.O_CLOEXEC
    action.position = max(0, fit.seek_pointer)
    action.stream = fit.stream
    action.state.flags, action.state.skip = fit.flags & 0xFFFFFFFF, fit.flags >> 32
    pushed = fit.ungetc[:lib.MM_PUSHED]
    action.state.pushed_count = len(pushed)
    ffi.memmove(action.state.pushed, pushed, len(pushed))
    action.state.unflushed = len(fit.unflushed)
    action.state.unflushed_at = int(ffi.cast("uintptr_t", unflushed))
    ffi.memmove(action.mode, fit.stream_attributes[:15] + b"\0", len(fit.stream_attributes[:15]) + 1)
    ffi.memmove(action.path, path[:4095] + b"\0", len(path[:4095]) + 1)
