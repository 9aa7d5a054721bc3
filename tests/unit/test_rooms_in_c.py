"""The rooms of the C half: each uses itself and those below it, and no two files use each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lab import ROOT
from rooms import MOST_FILES, Uses, circles

# From the top down: a room uses itself and those to its right (docs/ARCHITECTURE.md).
ROOMS = ["start", "calls", "libc", "memory", "process", "descriptors", "names", "engine", "area", "base"]
FLOOR = {room: number for number, room in enumerate(ROOMS)}
SOURCES = ROOT / "shim_c" / "src"


def objects() -> dict[str, Path]:
    """What was compiled for the preload library, by its source."""
    folders = sorted(ROOT.glob("build/native-*/shim"), key=lambda path: path.stat().st_mtime)
    found = {source.relative_to(ROOT): folders[-1] / ("_".join(source.relative_to(ROOT).with_suffix("").parts) + ".o")
             for source in ROOT.glob("shim_c/src/**/*.c") if folders}
    return {str(source): path for source, path in found.items() if path.exists()}


def uses() -> Uses:
    """Which file uses which, by their symbols. Of a hook, the default counts, which lies below: a weak object."""
    defined: dict[str, str] = {}
    hooks: dict[str, str] = {}
    wanted: dict[str, list[str]] = {}
    for source, path in objects().items():
        said = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        for kind, symbol in re.findall(r"^[0-9a-f ]*\s(\w) (\S+)$", said, re.MULTILINE):
            if kind == "U":
                wanted.setdefault(symbol, []).append(source)
            elif kind == "V":
                hooks[symbol] = source
            elif kind in "TDBRCGW":
                defined[symbol] = source
    defined |= hooks
    result: Uses = {source: set() for source in objects()}
    for symbol, sources in wanted.items():
        for source in sources:
            if symbol in defined:
                result[source].add(defined[symbol])
    return result


def room(file: str) -> str:
    return Path(file).relative_to("shim_c/src").parts[0]


def upward(graph: Uses) -> list[str]:
    return [f"{here} uses {there}" for here, all_of in sorted(graph.items()) for there in sorted(all_of)
            if FLOOR[room(there)] < FLOOR[room(here)]]


def includes() -> Uses:
    """Which file includes which; those of the C library aside."""
    result: Uses = {}
    for path in [*SOURCES.rglob("*.[ch]"), *SOURCES.rglob("*.def")]:
        named = re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE)
        result[str(path.relative_to(ROOT))] = {f"shim_c/src/{name}" for name in named}
    return result


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"b"}}) == [["b", "c"], ["c", "b"]]


@pytest.mark.skipif(shutil.which("nm") is None, reason="symbols are read with nm (binutils)")
def test_no_file_uses_one_that_uses_it() -> None:
    graph = uses()
    if not graph:
        pytest.skip("nothing has been compiled here")
    assert sum(map(len, graph.values())) > 100
    assert circles(graph) == []


def test_an_arrow_that_runs_up_is_found() -> None:
    below, above = "shim_c/src/area/slots.c", "shim_c/src/names/keep.c"
    assert upward({above: {below}}) == []
    assert upward({below: {above}}) == [f"{below} uses {above}"]


def test_every_room_is_known() -> None:
    assert sorted(path.name for path in SOURCES.iterdir()) == sorted(ROOMS)
    assert [name for name in ROOMS if not (SOURCES / name / f"{name}.h").exists()] == []


@pytest.mark.skipif(shutil.which("nm") is None, reason="symbols are read with nm (binutils)")
def test_a_room_uses_what_is_below_it() -> None:
    assert upward(uses()) == []


def test_a_room_includes_what_is_below_it() -> None:
    graph = includes()
    assert sum(map(len, graph.values())) > 100
    assert [name for there in graph.values() for name in there if not (ROOT / name).exists()] == []
    assert upward(graph) == []
    assert circles(graph) == []


def test_no_room_is_crowded() -> None:
    files = [path for path in SOURCES.rglob("*") if path.suffix in (".c", ".h")]
    counts = {folder: sum(path.parent == folder for path in files) for folder in {path.parent for path in files}}
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}
