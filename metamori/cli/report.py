"""Pictures of the history as SVG, or all of them on one HTML page; both open offline."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from metamori.cli import opening, output
from metamori.errors import MetamoriError, Usage

if TYPE_CHECKING:
    from metamori.report.facts import Facts
    from metamori.store.read.store import Store

PICTURES = ("timeline", "heatmap", "space")
HEATMAPS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="PICTURE",
                        help="timeline, heatmap or space; or FILE.html for one page with all")
    parser.add_argument("-o", "--output", metavar="FILE", help="where the SVG goes (default: standard output)")
    parser.add_argument("--file", metavar="PATH", action="append", default=[],
                        help="heatmap: of this file, instead of those that changed most; may be repeated")


def run(arguments: argparse.Namespace) -> int:
    is_page = arguments.what.endswith((".html", ".htm"))
    if not is_page and arguments.what not in PICTURES:
        raise Usage(f"'{arguments.what}' is not a picture: timeline, heatmap, space, or FILE.html for a page of all")
    if is_page and arguments.output:
        raise Usage("name a file for the page: metamori report FILE.html")
    if arguments.file and arguments.what in PICTURES and arguments.what != "heatmap":
        raise Usage(f"--file says what the heatmap shows; {arguments.what} is of all files")
    if not is_page and not arguments.output and not arguments.json and sys.stdout.isatty():
        raise Usage(f"a picture needs a file: metamori report {arguments.what} -o {arguments.what}.svg")
    from metamori.report import facts, page

    with opening.for_reading(arguments) as store:
        found = facts.gather(store)
        wanted = _wanted(arguments, store, found)
    text = page.render(found, wanted) if is_page else _picture(arguments, found, wanted)
    target = arguments.what if is_page else arguments.output
    data = {"checkpoints": len(found.checkpoints) - 1, "head": found.head, "file": target}
    if target:
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
        output.result(arguments, data, "")
    else:
        output.result(arguments, data | {"svg": text}, text.rstrip("\n"))
    return 0


def _picture(arguments: argparse.Namespace, found: Facts, wanted: list[bytes]) -> str:
    from metamori.report import heatmap, space, timeline

    if arguments.what == "timeline":
        return timeline.draw(found).render()
    if arguments.what == "space":
        return space.draw(found).render()
    return heatmap.draw(found, wanted or heatmap.busiest(found, HEATMAPS)).render()


def _wanted(arguments: argparse.Namespace, store: Store, found: Facts) -> list[bytes]:
    """The files that --file names, as the store knows them."""
    paths = []
    for text in arguments.file:
        known = next((path for path in opening.meant(store, text) if path in found.touched), None)
        if known is None:
            raise MetamoriError(f"{text}: no checkpoint of this store changed such a file (see metamori log, diff)")
        paths.append(known)
    return paths
