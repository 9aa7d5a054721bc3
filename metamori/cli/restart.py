"""Continue from a checkpoint: restore the files, then continue the program, or start its command again."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from metamori import indexes
from metamori.cli import opening, output
from metamori.cli.resume import go_on
from metamori.cli.run import add_on_term, add_outside, environment, own_part, signal_number
from metamori.config import Config, parse_duration
from metamori.errors import ChangedOutside, MetamoriError

if TYPE_CHECKING:
    from metamori.store.read.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="INDEX", nargs="?", type=indexes.wanted,
                        help="a checkpoint (default: the newest with memory, else the newest)")
    parser.add_argument("--every", metavar="DURATION", help="take a checkpoint this often: 30s, 10m")
    parser.add_argument("--on-signal", metavar="SIG", help="take a checkpoint when this signal comes, then pass it on")
    add_on_term(parser)
    add_outside(parser)
    parser.add_argument("--stdio", action="store_true",
                        help="also truncate inherited regular files (run ... >> out.log) to their size at INDEX")
    parser.add_argument("--force", action="store_true",
                        help="restore although files were modified outside Metamori; saves them first")


def run(arguments: argparse.Namespace) -> int:
    from metamori.runtime.lifecycle.run_controller import newest_with_memory

    store = opening.for_writing(arguments)
    try:
        if arguments.index is not None:
            index = indexes.find(store, arguments.index)
        else:
            index = newest_with_memory(store) or store.newest
            output.say(f"continuing from checkpoint {index}")
        config = _config(arguments, store, index)
        environ = own_part(environment(config, {}))
        _check(arguments, store, index)
        return go_on(store, config, index, environ, arguments.stdio)
    finally:
        store.close()


def _config(arguments: argparse.Namespace, store: Store, index: int) -> Config:
    """As the run was told."""
    meta = store.meta(index) if index else None
    return Config.make({
        "store": store.path, "mode": meta.mode if meta else None, "isolate": meta.isolate or None if meta else None,
        "memory": bool(meta and meta.memory) or None,
        "every": parse_duration(arguments.every) if arguments.every else None,
        "on_signal": signal_number(arguments.on_signal) if arguments.on_signal else None,
        "on_term": arguments.on_term == "checkpoint", "outside": arguments.outside,
    })


def _check(arguments: argparse.Namespace, store: Store, index: int) -> None:
    """Whatever speaks against it, before anything is moved."""
    from metamori.cli.restore_texts import changed_text
    from metamori.runtime.area import launch_record
    from metamori.runtime.lifecycle import process_restart
    from metamori.store.restore import external_changes
    from metamori.store.restore.resume_point import BEFORE_RESTORE

    store.require_restorable(index)
    if index and store.meta(index).memory:
        process_restart.check(store, index)
        process_restart.check_free(store, index)
    else:
        launch = launch_record.of_index(store, index)
        if not os.path.isdir(launch.cwd):
            raise MetamoriError(f"the folder that the command ran in is gone: {os.fsdecode(launch.cwd)}")
    changed = store.changed_outside()
    refused = [] if arguments.force else external_changes.refused(changed)
    if refused:
        raise ChangedOutside(changed_text(refused), tuple(refused))
    if recorded := external_changes.record(store, BEFORE_RESTORE) if changed or arguments.force else 0:
        output.say(f"the modified files were saved as checkpoint {recorded}")
