"""What a live run is doing: processes, files, buffered data, its last and next checkpoint."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from typing import Any

from metamori.cli import output
from metamori.config import duration_text, parse_duration, size_text
from metamori.errors import NoLiveRun
from metamori.printed import line_text
from metamori.runtime.job import folder
from metamori.store.read.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="repeat until the run ends")
    parser.add_argument("--interval", metavar="DURATION", default="1s", help="with --watch: how often (default 1s)")


def run(arguments: argparse.Namespace) -> int:
    interval = parse_duration(arguments.interval)
    folder.require_store(arguments.store)
    with Store.open(os.path.abspath(arguments.store)) as store:
        found = look(store)
        if arguments.watch and not found["alive"]:
            raise NoLiveRun(f"no run is alive in {store.path}; metamori log lists its checkpoints")
        drawn = _show(arguments, found, 0)
        while arguments.watch and found["alive"]:
            before, began = found, time.monotonic()
            time.sleep(interval)
            found = look(store)
            passed = time.monotonic() - began
            if found["alive"]:
                found["bytes_per_second"] = max(0, int((found["bytes_seen"] - before["bytes_seen"]) / passed))
            drawn = _show(arguments, found, drawn)
    return 0


def look(store: Store) -> dict[str, Any]:
    """One look, at a run's area and then at the store: what is over by the first has its last index by the second."""
    live = _live(store) or _job(store)
    store.refresh()
    newest = store.newest
    found: dict[str, Any] = {
        "alive": False, "head": store.head.index, "newest": newest,
        "last_checkpoint": output.time_utc(store.meta(newest).time_ns) if newest else None,
    }
    return found | live


def _live(store: Store) -> dict[str, Any]:
    """Empty when no run is alive."""
    from metamori._area import lib
    from metamori.runtime.area import launch_record
    from metamori.runtime.area.run_area import BLOCK, Area

    try:
        area = Area(store.path)
    except OSError:
        return {}
    try:
        is_peopled, pids = area.is_peopled(), area.pids()
        if not is_peopled and not area.is_supervised():
            return {}
        files = [_size(area, area.pif(slot)) for slot in area.pifs()]
        launch = launch_record.of_run(area)
        command = shlex.join(word.decode("utf-8", "replace") for word in launch[0].argv) if launch else None
        return {
            "alive": True, "run": area.head.run, "supervisor": area.head.supervisor or None, "processes": pids,
            "command": command, "files": len(files), "bytes_in_files": sum(files),
            "bytes_buffered": area.head.owed * BLOCK, "memory": bool(area.head.flags & lib.MM_MEMORY),
            "bytes_seen": sum(files) + area.head.next_block * BLOCK,
            **_outside(area), "parent": area.head.parent, "next_checkpoint_in": launch_record.due_in(area),
        }
    finally:
        area.close()


def _size(area: Any, pif: Any) -> int:
    """Of a file, as the program sees it; 0 where only the kernel knows it, and not by the name that it had last."""
    from metamori._area import lib

    if pif.flags & lib.MM_VIRTUAL:
        return int(pif.size)
    try:
        found = os.lstat(area.pif_path(pif))
    except OSError:
        return 0
    return found.st_size if (found.st_dev, found.st_ino) == (pif.dev, pif.ino) else 0


def _job(store: Store) -> dict[str, Any]:
    """Of the runs of a job that are on this machine; empty when none is alive."""
    names = [name for name in folder.names(store) if folder.is_alive(store, name)]
    if not names:
        return {}
    runs = [_live(Store(store.layout.node(name), store.door)) for name in names]
    return {"alive": True, "runs": [os.fsdecode(name) for name in names],
            "files": sum(run.get("files", 0) for run in runs),
            "processes": [pid for run in runs for pid in run.get("processes", ())],
            "bytes_seen": sum(run.get("bytes_seen", 0) for run in runs)}


def _outside(area: Any) -> dict[str, Any]:
    from metamori.runtime.area import scope

    count, folders = scope.outside(area)
    return {"files_outside": count, "folders_outside": [
        {"files": files, **output.path_fields(folder, "folder")} for folder, files in folders]}


def _show(arguments: argparse.Namespace, found: dict[str, Any], drawn: int) -> int:
    """Prints; with --watch on a terminal over what was printed before. How many lines there are now."""
    lines = _lines(found)
    if drawn and not arguments.json and output.draws():
        sys.stdout.write(f"\x1b[{drawn}A\x1b[J")
    text = output.table(lines) if sys.stdout.isatty() or not arguments.watch else "; ".join(lines)
    output.result(arguments, {key: value for key, value in found.items() if key != "bytes_seen"}, text)
    output.flush()
    return len(lines)


def _lines(found: dict[str, Any]) -> list[str]:
    newest = f"checkpoint {found['newest']}" if found["newest"] else "none yet"
    if not found["alive"]:
        newest = "" if found["newest"] == found["head"] else f" is {found['newest']}"
        return [f"no run is alive; the files are at checkpoint {found['head']}, the newest{newest}"]
    if "runs" in found:
        return [f"job of {len(found['runs'])} runs: {', '.join(map(line_text, found['runs']))}",
                f"last: {newest}{_age(found['last_checkpoint'])}"]
    rate = f", {size_text(found['bytes_per_second'])}/s" if "bytes_per_second" in found else ""
    due = found["next_checkpoint_in"]
    following = "no timer" if due is None else f"the next in {due:.0f} s"
    count = len(found["processes"])
    return [
        f"run {found['run']}: {line_text(found['command'] or 'by hand')} ({count} process{'es' * (count != 1)})",
        f"files: {found['files']} with {size_text(found['bytes_in_files'])}{rate}",
        f"buffered: {size_text(found['bytes_buffered'])}",
        f"last: {newest}{_age(found['last_checkpoint'])}; {following}",
        *([f"outside of the scope: {outside}"] if (outside := _outside_text(found)) else []),
    ]


def _outside_text(found: dict[str, Any]) -> str:
    from metamori.runtime.area import scope

    return scope.outside_text(found["files_outside"], [
        (output.path_bytes(each, "folder"), each["files"]) for each in found["folders_outside"]])


def _age(stamp: str | None) -> str:
    if stamp is None:
        return ""
    from datetime import UTC, datetime

    seconds = (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()
    return f", {duration_text(max(0, seconds))} ago"

