"""A result as a picture (SVG): a panel per metric, a bar per variant, a line from the smallest to the largest value."""
from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

BAR, GAP, LABEL, WIDTH, HEAD = 16, 6, 250, 420, 46
COLOURS = ("#4878a8", "#d98032", "#5a9e57", "#b5524f", "#8a6fae", "#7f6a5c", "#c77fb3")


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _panel(top: float, metric: str, values: dict[str, dict[str, float]]) -> tuple[list[str], float]:
    """The panel's parts and where it ends. Bounds ('too fast to time') are negative: drawn by their size."""
    longest = max(abs(number) for value in values.values() for number in (value["least"], value["most"])) or 1.0
    parts = [_text(0, top + 12, metric, 'font-weight="bold"')]
    y = top + 20
    for number, (name, value) in enumerate(values.items()):
        middle, low, high = (abs(value[key]) / longest * WIDTH for key in ("median", "least", "most"))
        half = y + BAR / 2
        colour = COLOURS[number % len(COLOURS)]
        parts += [_text(LABEL - 6, half + 4, name, 'text-anchor="end"'),
                  f'<rect x="{LABEL}" y="{y}" width="{middle:.1f}" height="{BAR}" fill="{colour}"/>',
                  f'<path d="M{LABEL + min(low, high):.1f} {half}H{LABEL + max(low, high):.1f}" stroke="black"/>',
                  _text(LABEL + max(low, high, middle) + 5, half + 4, f'{abs(value["median"]):,.3g}')]
        y += BAR + GAP
    return parts, y + 14


def svg(document: dict[str, Any]) -> str:
    """The picture of one bench's document."""
    results, where = document["results"], document["machine"]
    metrics = list(dict.fromkeys(metric for series in results.values() for metric in series))
    y: float = HEAD
    parts: list[str] = []
    for metric in metrics:
        more, y = _panel(y, metric, {name: series[metric] for name, series in results.items() if metric in series})
        parts += more
    title = f"{document['bench']}: medians of {document['options'].get('rounds', '?')} rounds, whiskers least to most"
    ground = (f"{where['processor']}, {where['cores']} cores, Linux {where['kernel']}, {where['filesystem']}, "
              f"commit {where['commit']}, {where['time']}")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 90}" height="{y:.0f}" '
        'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>',
        _text(0, 14, title, 'font-size="14"'), _text(0, 30, ground, 'fill="#555"'), *parts, "</svg>\n"])
