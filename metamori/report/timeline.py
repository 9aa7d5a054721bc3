"""The tree of checkpoints: a lane per branch, bytes as a number and a bar, where a restore went back to."""

from __future__ import annotations

import time

from metamori.config import size_text
from metamori.printed import name_text
from metamori.report.axis import LEFT, WIDTH, Axis, lanes
from metamori.report.facts import Checkpoint, Facts
from metamori.report.svg import Drawing, number, short, short_path

_TOP = 62
_BAR = 26.0


def draw(facts: Facts) -> Drawing:
    picture = Drawing(WIDTH, "Checkpoints")
    axis, lane = Axis(facts.checkpoints), lanes(facts.checkpoints)
    count = max(lane.values()) + 1
    height = 84 if count <= 8 else 40 if count <= 24 else 18
    rows: dict[int, float] = {index: _TOP + height * at + 22 for index, at in lane.items()}
    _title(picture, facts)
    _links(picture, facts, axis, lane, rows)
    most = max((each.bytes for each in facts.checkpoints), default=0)
    for each in facts.checkpoints:
        _point(picture, each, axis, rows[each.index], most, each.index == facts.head, height)
    if height == 84:
        _words(picture, facts, axis, lane, rows)
    bottom = _TOP + height * count + (8 if height == 84 else 22)
    for index in axis.labelled(30):
        picture.text(axis.x(index), bottom, str(index), "m", 10, "middle")
    picture.text(LEFT - 10, bottom, "checkpoint", "m", 10, "end")
    picture.height = bottom + 14
    return picture


def _title(picture: Drawing, facts: Facts) -> None:
    taken = [each for each in facts.checkpoints if each.index]
    picture.text(16, 26, "Checkpoints", size=15)
    said = f"{len(taken)} in {short_path(name_text(facts.store), 420)}, {size_text(facts.disk_bytes)} on disk"
    if taken:
        said += f", {_clock(taken[0].time_ns)} to {_clock(taken[-1].time_ns)}"
    picture.text(16, 44, said + f"; the files are at {facts.head} (ring)", "m")


def _clock(time_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_ns / 1e9))


def _links(picture: Drawing, facts: Facts, axis: Axis, lane: dict[int, int], rows: dict[int, float]) -> None:
    """From parent to child; a lane's own line is one path, a branch a dashed curve: somebody went back there."""
    straight: dict[tuple[int, float], list[float]] = {}
    for each in facts.checkpoints:
        if each.parent is None:
            continue
        x, y, from_x, from_y = axis.x(each.index), rows[each.index], axis.x(each.parent), rows[each.parent]
        if lane[each.index] == lane[each.parent]:
            straight.setdefault((lane[each.index], y), []).extend((from_x, x))
            continue
        bend = min(14.0, (x - from_x) / 2)
        picture.path(f"M{number(from_x)} {number(from_y)}C{number(from_x + bend)} {number(from_y)} {number(from_x)} "
                     f"{number(y)} {number(from_x + 2 * bend)} {number(y)}L{number(x)} {number(y)}", "r")
    for (_, y), points in straight.items():
        pairs = "".join(f"M{number(a)} {number(y)}H{number(b)}" for a, b in zip(points[::2], points[1::2]))
        picture.path(pairs, "s", 2 if axis.spacing > 4 else 1)


def _point(picture: Drawing, each: Checkpoint, axis: Axis, y: float, most: int, is_head: bool, height: float) -> None:
    x, radius = axis.x(each.index), max(0.6, min(5.0, axis.spacing * 0.3, height / 6))
    if is_head:
        picture.path(f"M{number(x - radius - 4)} {number(y)}a{number(radius + 4)} {number(radius + 4)} 0 1 0 "
                     f"{number(2 * radius + 8)} 0a{number(radius + 4)} {number(radius + 4)} 0 1 0 "
                     f"{number(-2 * radius - 8)} 0", "e", 1.5)
    if each.bytes and most and height > 20:
        tall = max(1.0, _bar(each.bytes, most) * min(_BAR, height - 16))
        wide = max(0.5, min(14.0, axis.spacing * 0.6))
        picture.rect(x - wide / 2, y + radius + 4, wide, tall, "h", 0.5)
    picture.circle(x, y, radius, "d", _tip(each))


def _bar(count: int, most: int) -> float:
    """Between 0 and 1, by the cube root: a megabyte beside a gigabyte is still seen. A full bar is the largest."""
    return float((count / most) ** (1 / 3))


def _tip(each: Checkpoint) -> str:
    if each.parent is None:
        return "0: before the first run"
    memory = ", with the program's memory" if each.has_memory else ""
    return (f"{each.index}, from {each.parent}: {each.message or each.reason}\n{size_text(each.bytes)} added, "
            f"{each.files} file{'s' * (each.files != 1)}{memory}\n"
            f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(each.time_ns / 1e9))}")


def _words(picture: Drawing, facts: Facts, axis: Axis, lane: dict[int, int], rows: dict[int, float]) -> None:
    """What a checkpoint is above its dot, its bytes below, as far as there is room; where a branch came from."""
    numbered = set(axis.labelled(46))
    ends: dict[tuple[int, str], float] = {}
    for each in facts.checkpoints:
        at, x, y = lane[each.index], axis.x(each.index), rows[each.index]
        if each.parent is not None and lane[each.parent] != at and x - 8 > ends.get((at, "back"), 0.0):
            picture.text(x - 8, y - 24, f"back to {each.parent}", "w", 10)
            ends[at, "back"] = x + 56
        if each.index in numbered and each.bytes and axis.spacing > 8:
            picture.text(x, y + 5 + 4 + _BAR + 11, size_text(each.bytes), "m", 9, "middle")
        words = each.message or ("" if each.reason == "checkpoint" else each.reason)
        if not words or x - 8 < ends.get((at, "words"), 0.0) or axis.spacing < 8:
            continue
        room = min(WIDTH - x, _room(facts, each, axis, lane))
        if room > 30:
            text = short(words, room, 10)
            picture.text(x - 8, y - 12, text, "t", 10, tip=words)
            ends[at, "words"] = x - 8 + len(text) * 10 * 0.56


def _room(facts: Facts, each: Checkpoint, axis: Axis, lane: dict[int, int]) -> float:
    """To the next checkpoint of the lane that has words of its own."""
    later = (other for other in facts.checkpoints if other.index > each.index and lane[other.index] == lane[each.index]
             and (other.message or other.reason != "checkpoint"))
    following = next(later, None)
    return axis.x(following.index) - axis.x(each.index) - 4 if following else WIDTH
