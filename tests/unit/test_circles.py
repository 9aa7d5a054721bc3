"""No circle of files in the C half: of two that use each other, neither can be read alone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lab import ROOT

Uses = dict[str, set[str]]


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


def circles(graph: Uses) -> list[list[str]]:
    """Files from which a way leads back to themselves: what is left when all that use nothing have gone, and all that
    nobody uses."""
    left = {file: there - {file} for file, there in graph.items()}
    while True:
        used = {each for there in left.values() for each in there}
        gone = {file for file, there in left.items() if not there or file not in used}
        if not gone:
            return [[file, *sorted(there)] for file, there in sorted(left.items())]
        left = {file: there - gone for file, there in left.items() if file not in gone}


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
