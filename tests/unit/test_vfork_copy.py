"""What a child of vfork changes of the library's variables is put back: all but the large tables (process/vfork.c)."""

from __future__ import annotations

import subprocess

from conftest import ROOT

LARGE = "mm_fds readers numbered rooms noted noted_count credentials watched keep path file script left v"
LARGE += " has_thread hands_over from whose"       # of a proxy, which is a program of its own


def test_only_large_tables_lie_behind_the_copy(installed: None) -> None:
    library = ROOT / "metamori" / "libmetamori.so"
    lines = subprocess.run(["nm", "--defined-only", library], check=True, capture_output=True,
                           text=True).stdout.splitlines()  # fmt: skip
    data = [(int(at, 16), name) for at, kind, name in map(str.split, lines) if kind in "dDbB"]
    first = next(at for at, name in data if name == "mm_fds")
    behind = {name.partition(".")[0] for at, name in data if at >= first}
    assert behind - {"_end"} == set(LARGE.split())
