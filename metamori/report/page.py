"""All pictures and the list of checkpoints on one HTML page that needs nothing else."""

from __future__ import annotations

import time
from html import escape

from metamori.config import size_text
from metamori.printed import name_text
from metamori.report import heatmap, space, timeline
from metamori.report.facts import Checkpoint, Facts
from metamori.report.svg import STYLE

HEATMAPS = 12
_PAGE_STYLE = """
body{margin:0 auto;max-width:1000px;padding:1rem;font-family:system-ui,sans-serif;color:#1f2328;background:#fff}
div{overflow-x:auto;margin:0 0 1.5rem}
svg{max-width:100%;min-width:46rem;height:auto;display:block}
table{border-collapse:collapse;font-size:.85rem}
td,th{padding:.2rem .7rem;text-align:right;white-space:nowrap;border-bottom:1px solid #d0d7de}
td:last-child,th:last-child{text-align:left}
@media(max-width:40rem){body{padding:.5rem}td,th{padding:.2rem .35rem}}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}}
"""


def render(facts: Facts, paths: list[bytes] | None = None) -> str:
    """paths: what the heatmap is of; none: what changed most."""
    where = heatmap.draw(facts, paths or heatmap.busiest(facts, HEATMAPS))
    pictures = [timeline.draw(facts), where, space.draw(facts)]
    rows = "\n".join(_row(each) for each in facts.checkpoints[1:])
    title = escape(name_text(facts.store))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width"><title>{title}</title><style>{STYLE}{_PAGE_STYLE}</style></head>\n<body>\n'
            + "".join(f"<div>{picture.render(own_style=False)}</div>\n" for picture in pictures) +
            "<div><table><tr><th>index<th>from<th>time<th>added<th>files<th>what</tr>\n" + rows
            + "</table></div>\n</body></html>\n")


def _row(each: Checkpoint) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.time_ns / 1e9))
    words = escape(each.message or each.reason) + (" (with memory)" if each.has_memory else "")
    return (f"<tr><td>{each.index}<td>{each.parent}<td>{when}<td>{size_text(each.bytes)}<td>{each.files}"
            f"<td>{words}</tr>")
