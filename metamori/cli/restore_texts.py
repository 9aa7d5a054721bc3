"""What restores tell a person, and what `--json` says of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from metamori.cli import output
from metamori.cli.diff import describe, line
from metamori.printed import line_text, name_text
from metamori.store.read.compare import Change
from metamori.store.read.holders import sentence
from metamori.store.read.store import Store
from metamori.store.restore import external_changes
from metamori.store.restore.chosen_paths import Chosen
from metamori.store.restore.restore_plan import Plan

_NAMED_MAX = 3


def lost_text(index: int, lost: list[bytes]) -> str:
    return sentence(index, lost, output.path_text)


def changed_text(changed: list[bytes]) -> str:
    return f"{modified_text(changed)}; --force saves that state as a checkpoint, then restores"


def modified_text(changed: Sequence[bytes]) -> str:
    return f"modified outside Metamori: {output.paths_text(changed)}"


def lost_fields(ranges: list[tuple[bytes, int, int]]) -> list[dict[str, Any]]:
    return [{**output.path_fields(path), "range": [start, end]} for path, start, end in ranges]


def message(words: Sequence[str], index: int) -> str:
    """What `log` says of it."""
    more = f" and {len(words) - _NAMED_MAX} more" if len(words) > _NAMED_MAX else ""
    return f"{', '.join(map(name_text, words[:_NAMED_MAX]))}{more} as at {index}"


def answer(index: int, before: int, recorded: int, chosen: Chosen, notes: list[str]) -> dict[str, Any]:
    """The fields of `restore`, and the paths that were brought back."""
    return {"index": index, "from": before, "recorded": recorded or None, "notes": notes, "lost": [], "truncated": [],
            "paths": [output.path_fields(path) for path in chosen.changed]}


def text(index: int, before: int, asked: int, chosen: Chosen) -> str:
    """What a person is told."""
    names = [output.path_text(path) for path in chosen.changed]
    if not names:
        return f"already as at checkpoint {asked}"
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    verb = "is" if len(names) == 1 else "are"
    listed = ", ".join(names[:_NAMED_MAX])
    return f"{listed}{more} {verb} as at checkpoint {asked}; the files are at checkpoint {index}, they were at {before}"


def dry_run(arguments: argparse.Namespace, store: Store, what: str, changes: Sequence[Change], changed: list[bytes],
            lost: list[bytes], ranges: list[tuple[bytes, int, int]], work: Plan | None) -> int:
    """What a restore would do, of all files or of some. changed: modified outside Metamori. lost: what cannot be
    restored, ranges: which bytes of it. work: None where these have the restore refused, or recorded first."""
    head, target = store.head.index, arguments.index
    text = [f"from checkpoint {head}{what} to {target}:", *map(line, changes)]
    if refused := external_changes.refused(changed):
        text.append("refused without --force: " + changed_text(refused))
    elif changed:
        text.append(f"{modified_text(changed)}; saved as a checkpoint first")
    if lost:
        text.append("refused without --force: " + lost_text(target, lost))
    written = saved = 0
    if work:
        written = sum(op.end - op.start for op in work.intent.writes)
        saved = sum(save.end - save.start for save in work.saves)
        text += [f"{output.size_text(written)} would be written, {output.size_text(saved)} saved first",
                 *map(line_text, work.notes)]
    data = {"index": target, "from": head, "dry_run": True, "changes": [describe(each) for each in changes],
            "bytes_written": written, "bytes_saved": saved,
            "changed_outside": [output.path_fields(path) for path in changed], "lost": lost_fields(ranges)}
    output.result(arguments, data, output.table(text))
    return 0
