"""The beginning of a run: a run number, a disk buffer, a run area.

What takes checkpoints and ends runs is not imported here: a program's start does not wait for it.
"""

from __future__ import annotations

import os

from metamori._area import lib
from metamori.config import Config
from metamori.errors import Damaged, StoreBusy
from metamori.runtime.area import launch_record, scope, wal
from metamori.runtime.area.run_area import BLOCK, Area, make_folder
from metamori.runtime.checkpoint import auto_prune
from metamori.runtime.lifecycle import child_loop, leave_run, run_scope
from metamori.store.format.records import Launch
from metamori.store.io import commit
from metamori.store.io.os_io import NO_ROOM
from metamori.store.read.store import Store
from metamori.tables.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori.runtime.checkpoint.session import Session


class NoRoom(OSError):
    """For the run area: for what a run needs to begin."""


def begin(store: Store, config: Config, supervisor: int = 0, launch: Launch | None = None) -> tuple[Session, str]:
    """As `begin_area`, with the session that takes its checkpoints."""
    from metamori.runtime.checkpoint.session import Session

    area, said = begin_area(store, config, supervisor, launch)
    return Session(store, area), said


def _fill(area: Area, store: Store, config: Config, run: int, flags: int) -> None:
    """So that it can be completed, and then room for the records of its end, whatever it does."""
    head = area.head
    head.run = run
    head.parent = store.head.index
    head.newest = store.newest
    head.first_index = store.newest + 1
    head.next_process = store.next_process()
    head.next_object = store.next_object()
    head.cache_size = config.cache_size
    head.keep_last, head.max_bytes = config.keep_last, config.max_bytes
    head.committed_block = head.epoch_block
    head.committed_journal = 8
    area.flag(flags)
    if code := -lib.mm_room(area.pointer, 0):
        raise NoRoom(code, os.strerror(code)) if code in NO_ROOM else OSError(code, os.strerror(code))


def begin_area(
    store: Store, config: Config, supervisor: int = 0, launch: Launch | None = None
) -> tuple[Area, str]:
    """Start a run in a store whose lock the caller holds. Also returns a line for a person, or "".

    launch: how its command is started, where that is known.
    """
    said = _at_rest(store)
    run = store.next_run()
    tracked = run_scope.settle(store, config, launch.cwd if launch else os.getcwdb(),
                               is_first=run == 1 or config.job is not None)
    _make_buffer(store, run)
    flags = _flags(config) | (lib.MM_SUPERVISED if supervisor else 0)
    wal.start(make_folder(store.path), store.layout.id, run, store.head.index, flags)
    try:
        area = Area(store.path, create=True)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NoRoom(error.errno, error.strerror) from error
        raise
    try:
        _fill(area, store, config, run, flags)
        scope.install(area, tracked)
        _announce(area, store, config, supervisor, launch)
    except BaseException:                  # nothing has happened in it
        area.remove()
        raise
    if others := leave_run.around():
        child_loop.say(others)
    return area, said


def _announce(area: Area, store: Store, config: Config, supervisor: int, launch: Launch | None) -> None:
    """How it was started, and whose it is: from here on it is a run."""
    head = area.head
    if config.job is not None:             # others look at the files, and change them
        head.untracked = head.outside_for_good = 1
    if supervisor:
        child_loop.hold_requests()
    head.supervisor = supervisor
    head.supervisor_start = lib.mm_start_time(supervisor) if supervisor else 0
    if launch:
        if config.resume_at != "*":        # what pruning must leave
            from metamori.store.restore.resume_point import RESUME_AT

            launch = replace(launch, env=(*launch.env, RESUME_AT + os.fsencode(config.resume_at)))
        if config.job is not None:
            launch = replace(launch, env=(*launch.env, launch_record.OF_JOB))
        launch_record.note(area, launch)
    # last: of an area that is not whole yet, a kill leaves nothing that has to be completed
    commit.write_file(store.door, store.layout.alive, b"%d\n" % head.run, durable=False)


def _at_rest(store: Store) -> str:
    """What was interrupted is completed, what others have changed since is an index, and every record is there and
    whole; a line for a person, or "".

    StoreBusy, Damaged.
    """
    said = ""
    if any(commit.exists(store.door, path) for path in store.layout.unfinished):
        said = _complete(store)
    if commit.exists(store.door, store.layout.nodes):
        raise StoreBusy(f"a job in {store.path} was interrupted; 'metamori log' completes it")
    store.settle_in()
    if not store.is_recorded:
        from metamori.store.restore import external_changes
        from metamori.store.restore.resume_point import BEFORE_RUN

        external_changes.record(store, BEFORE_RUN)
    store.refresh()
    for why in (*store.damaged.values(), *store.undo_log.damaged.values(), *store.missing()):
        raise Damaged(f"the store is damaged: {why}")
    return said


def _make_buffer(store: Store, run: int) -> None:
    fd = os.open(store.layout.buffer(run), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, commit.PRIVATE_FILE)
    try:
        os.fchmod(fd, commit.PRIVATE_FILE)        # whatever the umask
        os.ftruncate(fd, BLOCK)            # block 0 reads as zeros
    finally:
        os.close(fd)


def _flags(config: Config) -> int:
    """What of the settings each process of the run goes by."""
    is_single = config.mode == "single"
    given = ((config.isolate or is_single, lib.MM_ISOLATE), (is_single, lib.MM_SINGLE), (config.strict, lib.MM_STRICT),
             (config.durability == "power", lib.MM_POWER), (config.job is not None, lib.MM_JOB),
             (config.memory, lib.MM_MEMORY), (config.on_term, lib.MM_ON_TERM))
    return sum(flag for is_given, flag in given if is_given)


def _complete(store: Store) -> str:
    """What was interrupted before; a line for a person, or ""."""
    from metamori.runtime.lifecycle.recover import finish_if_needed, require_over
    from metamori.store.restore import restore

    require_over(store)
    auto_prune.recover(store)
    restore.recover(store, looks=True)
    return finish_if_needed(store)
