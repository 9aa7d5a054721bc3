"""What a restore would do, of all files or of some: for `--dry-run`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from metamori.cli import output
from metamori.cli import restore_texts as texts
from metamori.cli.diff import describe, line
from metamori.printed import line_text
from metamori.store.read.compare import Change
from metamori.store.read.store import Store
from metamori.store.restore import external_changes
from metamori.store.restore.restore_plan import Plan

Ranges = list[tuple[bytes, int, int]]      # of paths


def show(arguments: argparse.Namespace, store: Store, what: str, changes: Sequence[Change], changed: list[bytes],
         lost: list[bytes], ranges: Ranges, work: Plan | None) -> int:
    """changed: modified outside Metamori. lost: what cannot be restored, ranges: which bytes of it. work: None where
    these have the restore refused, or recorded first."""
    head, target = store.head.index, arguments.index
    text = [f"from checkpoint {head}{what} to {target}:", *map(line, changes)]
    if refused := external_changes.refused(changed):
        text.append("refused without --force: " + texts.changed_text(refused))
    elif changed:
        text.append(f"{texts.modified_text(changed)}; saved as a checkpoint first")
    if lost:
        text.append("refused without --force: " + texts.lost_text(target, lost))
    written = saved = 0
    if work:
        written = sum(op.end - op.start for op in work.intent.writes)
        saved = sum(save.end - save.start for save in work.saves)
        text += [f"{output.size_text(written)} would be written, {output.size_text(saved)} saved first",
                 *map(line_text, work.notes)]
    data = {"index": target, "from": head, "dry_run": True, "changes": [describe(each) for each in changes],
            "bytes_written": written, "bytes_saved": saved,
            "changed_outside": [output.path_fields(path) for path in changed], "lost": texts.lost_fields(ranges)}
    output.result(arguments, data, output.table(text))
    return 0
