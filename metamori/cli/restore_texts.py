"""What restores tell a person, and what `--json` says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metamori.cli import output
from metamori.printed import name_text
from metamori.store.read.holders import sentence
from metamori.store.restore.chosen_paths import Chosen

_NAMED_MAX = 3


def lost_text(index: int, lost: list[bytes]) -> str:
    return sentence(index, lost, output.path_text)


def changed_text(changed: list[bytes]) -> str:
    return f"{modified_text(changed)}; --force saves that state as a checkpoint, then restores"


def modified_text(changed: Sequence[bytes]) -> str:
    return f"modified outside Metamori: {names_text(changed)}"


def names_text(paths: Sequence[bytes]) -> str:
    names = ", ".join(output.path_text(path) for path in paths[:5])
    return names + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")


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
