"""Which bytes of a file changed at which checkpoint; the line is the end of the file."""

from __future__ import annotations

import math

from metamori.config import size_text
from metamori.printed import name_text
from metamori.report.axis import LEFT, RIGHT, WIDTH, Axis
from metamori.report.facts import Facts
from metamori.report.svg import Drawing, number, short_path

ROWS = 64                                  # cells of a file, from its start to its largest size
_HIGH, _GAP, _TOP = 128.0, 34.0, 76.0
_LEVELS = (0.0, 0.25, 0.45, 0.7, 1.0)      # opacity by how much of a cell changed


def busiest(facts: Facts, most: int) -> list[bytes]:
    """The files of which most was changed, most first; the rest is left out."""
    def changed(path: bytes) -> int:
        return sum(end - start for touch in facts.touched[path].values() for start, end in touch.ranges)

    return sorted(facts.touched, key=lambda path: (-changed(path), path))[:most]


def draw(facts: Facts, paths: list[bytes]) -> Drawing:
    picture = Drawing(WIDTH, "Where files changed")
    axis = Axis(facts.checkpoints)
    picture.text(16, 26, "Where files changed", size=15)
    left_out = len(facts.touched) - len(paths)
    also = f" {len(paths)} of {len(facts.touched)} files." if left_out > 0 else ""
    picture.text(16, 44, "coloured: changed since the checkpoint before; the line: the end of the file." + also,
                 "m")
    y = _TOP
    for path in paths:
        _panel(picture, facts, axis, path, y)
        y += _HIGH + _GAP
    for index in axis.labelled(30):
        picture.text(axis.x(index), y - _GAP + 20, str(index), "m", 10, "middle")
    picture.text(LEFT - 10, y - _GAP + 20, "checkpoint", "m", 10, "end")
    picture.height = y - _GAP + 32
    return picture


def _panel(picture: Drawing, facts: Facts, axis: Axis, path: bytes, y: float) -> None:
    sizes = facts.sizes(path)
    touches = facts.touched[path]
    longest = max([1, *(size for size in sizes.values() if size), *(
        end for touch in touches.values() for _, end in touch.ranges)])
    wide = len(axis.indexes) * axis.spacing
    picture.rect(LEFT, y, wide, _HIGH, "p")
    picture.text(LEFT, y - 5, short_path(facts.shown(path), WIDTH - LEFT - RIGHT), size=11,
                 tip=name_text(path))
    for part in (0.0, 0.5, 1.0):
        at = y + _HIGH * (1 - part)
        picture.text(LEFT - 10, at + 4, size_text(int(longest * part)), "m", 10, "end")
        picture.path(f"M{LEFT} {number(at)}h{number(wide)}", "g")
    for column in axis.columns():
        cells = [0.0] * ROWS
        for index in column:
            if index in touches:
                cells = list(map(max, cells, shares(touches[index].ranges, longest)))
        _cells(picture, axis, column, cells, y)
    _end_line(picture, axis, sizes, longest, y)


def shares(ranges: tuple[tuple[int, int], ...], longest: int) -> list[float]:
    """Of each of ROWS cells of a file `longest` bytes long: the part that lies in `ranges`."""
    found = [0.0] * ROWS
    cell = longest / ROWS
    for start, end in ranges:
        first, last = min(int(start / cell), ROWS - 1), min(math.ceil(end / cell) - 1, ROWS - 1)
        for at in range(first, last + 1):
            found[at] += max(0.0, min(end, (at + 1) * cell) - max(start, at * cell)) / cell
    return [min(1.0, share) for share in found]


def _level(share: float) -> float:
    """Any change at all is seen."""
    return _LEVELS[0] if share <= 0 else next(level for level, limit in zip(_LEVELS[1:], (0.1, 0.4, 0.8, 2.0))
                                              if share <= limit)


def _cells(picture: Drawing, axis: Axis, column: list[int], cells: list[float], y: float) -> None:
    """Neighbours of the same shade are one rectangle."""
    x, width = axis.span(column)
    gap = 1.0 if width > 6 else 0.0
    at, high = 0, _HIGH / ROWS
    while at < ROWS:
        level, start = _level(cells[at]), at
        while at < ROWS and _level(cells[at]) == level:
            at += 1
        if level:
            picture.rect(x + gap / 2, y + _HIGH - at * high, width - gap, (at - start) * high, "h", level)


def _end_line(picture: Drawing, axis: Axis, sizes: dict[int, int | None], longest: int, y: float) -> None:
    """One step per checkpoint; interrupted where there is no file."""
    data, pen_down = "", False
    for index in axis.indexes:
        size = sizes[index]
        if size is None:
            pen_down = False
            continue
        left, height = axis.x(index) - axis.spacing / 2, y + _HIGH * (1 - size / longest)
        data += (f"V{number(height)}" if pen_down else f"M{number(left)} {number(height)}")
        data += f"H{number(left + axis.spacing)}"
        pen_down = True
    if data:
        picture.path(data, "e", 1.5)
