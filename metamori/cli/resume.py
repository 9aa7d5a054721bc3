"""What `metamori run --resume` does before it starts its command: the files go back to the last checkpoint."""

from __future__ import annotations

import time

from metamori.cli import opening
from metamori.cli.restore import truncate_stdio
from metamori.cli.restore_texts import modified_text
from metamori.config import Config
from metamori.errors import RUN_FAILED, ChangedOutside
from metamori.runtime.lifecycle import child_loop, leave_run, process_restart
from metamori.store.read.store import Store
from metamori.store.restore import external_changes, restore, resume_point

PATIENCE_S = 60.0


def wait_for(store: Store) -> None:
    """The run that was interrupted may still be ending: a job is started again as soon as its script is gone."""
    if leave_run.given().get("METAMORI_STORE") == store.path:
        return                             # this very run: the command joins it
    limit = time.monotonic() + PATIENCE_S
    said = False
    while store.is_busy() and time.monotonic() < limit:
        if not said:
            child_loop.say("the previous run is still ending")
        said = True
        time.sleep(0.1)


def files_back(store: Store, config: Config, stdio: bool) -> int | None:
    """The index that the files are at now; None when no run was interrupted, and nothing is touched.

    The caller holds the lock. ChangedOutside when a tracked file was changed since. stdio: what the run inherited (its
    standard output, a file) is cut to its size then, once the files are there: what is cut off does not come back. With
    memory `go_on` does both.
    """
    opening.complete(store)
    index = resume_point.point(store, config.memory, config.resume_at)
    if index is None:
        return None
    changed = store.changed_outside()
    if refused := external_changes.refused(changed):
        raise ChangedOutside(
            f"cannot resume, {modified_text(refused)}; 'metamori restore --force {index}' saves that state as a "
            "checkpoint, then restores", tuple(refused))
    with_memory = bool(config.memory and index and store.meta(index).memory)
    if with_memory:
        process_restart.check(store, index)   # before anything is touched
        process_restart.check_free(store, index)
    if changed:
        external_changes.record(store, resume_point.BEFORE_RESTORE)
    if with_memory:
        return index
    restore.move_home(store, index)
    if stdio:
        truncate_stdio(store, index)
    child_loop.say(f"continuing from checkpoint {index}" if index else
                  "starting from the beginning: there is no checkpoint")
    return index


def go_on(store: Store, config: Config, index: int, environ: dict[str, str], stdio: bool = False,
          said: bool = True) -> int:
    """The program comes back, with its memory if the index has it; the exit status of `run`. said: from where."""
    from metamori.runtime.lifecycle.run_controller import Live, follow, start_again

    if config.on_term:
        child_loop.hold_term()
    def moved() -> None:
        if stdio:
            truncate_stdio(store, index)
        if not said:                       # after that: it may go to the file that is cut
            child_loop.say(f"continuing from checkpoint {index}")

    try:
        session, pid = start_again(store, config, index, environ, moved)
    except child_loop.CannotStart as error:
        child_loop.say(f"{error.filename}: {error.strerror}")
        opening.finish_unborn(store)
        return RUN_FAILED
    return follow(Live(session, config, pid, environ))
