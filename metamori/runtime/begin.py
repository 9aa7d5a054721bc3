"""The beginning of a run: a run number, a disk buffer, a run area."""

from __future__ import annotations

import os

from metamori._area import lib
from metamori.config import Config
from metamori.errors import Damaged
from metamori.runtime import ahead, launches
from metamori.runtime.area import BLOCK, Area, make_folder
from metamori.runtime.recover import finish_if_needed, require_over
from metamori.runtime.session import Session
from metamori.store.checked import missing
from metamori.store.commit import PRIVATE_FILE
from metamori.store.head import require_kept
from metamori.store.records import Launch
from metamori.store.store import Store


def begin(store: Store, config: Config, supervisor: int = 0, launch: Launch | None = None) -> tuple[Session, str]:
    """Start a run in a store whose lock the caller holds. Also returns a line for a person, or "".

    launch: how its command is started, where that is known.
    """
    from metamori.store import founding, move, prune

    require_over(store)
    prune.recover(store)
    move.recover(store)
    said = finish_if_needed(store)
    founding.note_place(store.door, store.layout)
    if store.changed_outside():
        from metamori.store import present

        present.record(store, "start of run")
    store.refresh()
    for why in (*store.damaged.values(), *store.undo_log.damaged.values(), *missing(store)):
        raise Damaged(f"the store is damaged: {why}")
    for kept in store.head.kept:
        require_kept(store.door, store.layout, kept)
    run = store.next_run()
    fd = os.open(store.layout.buffer(run), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.fchmod(fd, PRIVATE_FILE)        # whatever the umask
        os.ftruncate(fd, BLOCK)            # block 0 reads as zeros
    finally:
        os.close(fd)
    isolate = config.isolate or config.mode == "single"
    flags = (lib.MM_ISOLATE if isolate else 0) | (lib.MM_SINGLE if config.mode == "single" else 0)
    flags |= (lib.MM_POWER if config.durability == "power" else 0) | (lib.MM_SUPERVISED if supervisor else 0)
    flags |= lib.MM_MEMORY if config.memory else 0
    ahead.start(make_folder(store.path), run, store.head.index, flags)
    area = Area(store.path, create=True)
    head = area.head
    head.run = run
    head.parent = store.head.index
    head.newest = store.newest
    head.next_process = store.next_process()
    head.next_object = store.next_object()
    head.cache_size = config.cache_size
    head.keep_last, head.max_bytes = config.keep_last, config.max_bytes
    head.committed_block = head.epoch_block
    head.committed_journal = 8
    head.flags |= flags
    head.supervisor = supervisor
    head.supervisor_start = lib.mm_start_time(supervisor) if supervisor else 0
    if launch:
        launches.note(area, launch)
    return Session(store, area), said
