"""What takes the store's room: bytes by file and by checkpoint."""

from __future__ import annotations

import math
from collections import Counter

from metamori.config import size_text
from metamori.report.axis import LEFT, RIGHT, WIDTH, Axis
from metamori.report.facts import Facts
from metamori.report.svg import Drawing, short_path

FILES = 20
_ROW, _TOP = 20.0, 66.0


def draw(facts: Facts) -> Drawing:
    picture = Drawing(WIDTH, "What takes room")
    axis = Axis(facts.checkpoints)
    rows = [(facts.shown(name), counts) for name, counts in largest(facts.stored, FILES)]
    total = sum(sum(counts.values()) for counts in facts.stored.values())
    picture.text(16, 26, "What takes room", size=15)
    files = f"{len(facts.stored)} file{'s' * (len(facts.stored) != 1)}"
    picture.text(16, 44, f"{size_text(total)} of old and redirected data for {files}; "
                 f"the store takes {size_text(facts.disk_bytes)} on disk. Stronger colour: more (logarithmic).", "m")
    most = max((count for _, counts in rows for count in counts.values()), default=1)
    widest = max((sum(counts.values()) for _, counts in rows), default=1)
    y = _TOP
    for name, counts in rows:
        _row(picture, axis, name, counts, y, most, widest)
        y += _ROW
    if not rows:
        picture.text(LEFT, y + 14, "nothing: all data is in the files themselves", "m")
        y += _ROW
    for index in axis.labelled(30):
        picture.text(axis.x(index), y + 14, str(index), "m", 10, "middle")
    picture.text(LEFT - 10, y + 14, "checkpoint", "m", 10, "end")
    picture.height = y + 28
    return picture


def largest(stored: dict[bytes, Counter[int]], most: int) -> list[tuple[bytes, Counter[int]]]:
    """The files that take most, most first; all others as one row."""
    ordered = sorted(stored.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    rows = ordered[:most]
    others: Counter[int] = Counter()
    for _, counts in ordered[most:]:
        others.update(counts)
    return [*rows, (b"(%d other files)" % (len(ordered) - most), others)] if others else rows


def _row(picture: Drawing, axis: Axis, name: str, counts: Counter[int], y: float, most: int, widest: int) -> None:
    total = sum(counts.values())
    picture.text(LEFT - 10, y + 14, short_path(name, LEFT - 26, 10), "t", 10, "end", name)
    picture.rect(LEFT, y + 2, len(axis.indexes) * axis.spacing, _ROW - 4, "p")
    for column in axis.columns():
        here = sum(counts[index] for index in column)
        if here:
            x, width = axis.span(column)
            shade = 0.2 + 0.8 * math.log2(1 + here) / math.log2(1 + max(most, here))
            label = f"{column[0]}" if len(column) == 1 else f"{column[0]} to {column[-1]}"
            picture.rect(x + (0.5 if width > 6 else 0), y + 2, width - (1 if width > 6 else 0), _ROW - 4, "h", shade,
                         f"{name}\ncheckpoint {label}: {size_text(here)}")
    right = WIDTH - RIGHT + 8
    picture.rect(right, y + 2, max(1.0, (RIGHT - 24) * total / widest), _ROW - 4, "h", 0.25)
    picture.text(right + 4, y + 14, size_text(total), "t", 10)
