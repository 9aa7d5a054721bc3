"""The rooms of the Python half: each uses itself and those below it, and no two modules use each other.

What is imported inside a function counts, and what is imported only for its types too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lab import ROOT
from rooms import MOST_FILES, Uses, circles

# From the top down: a room uses itself and those below it (docs/ARCHITECTURE.md). It is a folder, or a module in none.
ROOMS = [
    "__main__", "elsewhere", "cli", "cli/options", "cli/shells", "report", "pytest_plugin", "metamori", "reading",
    "indexes",
    "levels", "levels/api", "levels/protect", "levels/formats", "levels/setup",
    "runtime/job", "runtime/inside", "runtime/lifecycle", "runtime/recovery", "runtime/rollback", "runtime/checkpoint",
    "runtime/memory", "runtime/area", "runtime",
    "store/prune", "store/restore", "store/read", "store/io", "store/format", "store",
    "config", "errors", "printed", "tables",
]
FLOOR = {room: number for number, room in enumerate(ROOMS)}
NATIVE = {"metamori._area"}                # built from C; not in the tree as Python


def modules() -> dict[str, Path]:
    """Dotted names, and where they are."""
    found = {}
    for path in (ROOT / "metamori").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """`metamori` itself is the interface for Python programs."""
    path = modules_here[module]
    folder = path.relative_to(ROOT / "metamori").parent
    if folder.parts:
        return str(folder)
    return "metamori" if path.stem == "__init__" else path.stem


def imported(text: str, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a source names in an import, wherever the import stands."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not looked at"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known or name in NATIVE else node.module or "" for name in inner]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "metamori")


def uses() -> Uses:
    return {module: set(imported(path.read_text(), modules_here)) - NATIVE - {module}
            for module, path in modules_here.items()}


def upward(graph: Uses) -> list[str]:
    return [f"{here} uses {there}" for here, all_of in sorted(graph.items()) for there in sorted(all_of)
            if FLOOR[room(there)] < FLOOR[room(here)]]


modules_here = modules()


def test_imports_are_found_wherever_they_stand() -> None:
    known = {"metamori.a": Path(), "metamori.a.b": Path(), "metamori.c": Path()}
    text = """
import metamori.c
from metamori._area import lib
from metamori.a import b, name
if TYPE_CHECKING:
    from metamori.a.b import C
def late():
    from os import path
    from metamori import c
"""
    assert sorted(imported(text, known)) == [
        "metamori._area", "metamori.a", "metamori.a.b", "metamori.a.b", "metamori.c", "metamori.c"]


def test_an_arrow_that_runs_up_is_found() -> None:
    below, above = "metamori.store.io.commit", "metamori.store.read.store"
    assert upward({above: {below}}) == []
    assert upward({below: {above}}) == [f"{below} uses {above}"]


def test_every_room_is_known() -> None:
    assert sorted({room(module) for module in modules_here}) == sorted(ROOMS)


def test_no_module_uses_one_that_uses_it() -> None:
    graph = uses()
    assert sum(map(len, graph.values())) > 500
    assert {there for all_of in graph.values() for there in all_of} <= modules_here.keys()
    assert circles(graph) == []


def test_a_room_uses_what_is_below_it() -> None:
    assert upward(uses()) == []


def test_no_room_is_crowded() -> None:
    """An `__init__.py` aside, which only says what its folder is."""
    folders = [path.parent for path in modules_here.values() if path.stem != "__init__"]
    assert {folder: folders.count(folder) for folder in folders if folders.count(folder) > MOST_FILES} == {}
