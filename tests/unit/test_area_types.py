"""The types of `metamori._area` are those of the module as it was built, and mypy finds a wrong use by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab import ROOT

STUB = ROOT / "metamori" / "_area.pyi"
WRONG = '''\
from area import ffi, lib, mm_pif

def use(pif: mm_pif, length: int) -> None:
    area = lib.mm_attach(b"", 0)
    lib.mm_table_set(area, pif, 0, 0, 1)
    pif.flags |= lib.MM_KEPT
    first: int = ffi.new("struct mm_range[]", length)[0].block
    lib.mm_table_set(area, 0, 0, 1)                    # an argument less
    lib.mm_table_set(pif, pif, 0, 0, 1)                # not the area
    pif.flag |= lib.MM_KEPT                            # no such field
    lib.MM_KEPT_ = 1                                   # no such constant
    lib.MM_KEPT = 1                                    # a constant
    ffi.new("struct mm_rang *")                        # no such type
    text: bytes = lib.mm_path_at(area, pif.path)       # a pointer
'''


def test_they_are_those_of_the_built_module(tmp_path: Path) -> None:
    made = tmp_path / "_area.pyi"
    module = ROOT / "metamori" / "_area.abi3.so"
    subprocess.run([sys.executable, ROOT / "tools" / "area-types", module, made], check=True)
    assert STUB.read_text() == made.read_text(), "make build"


def test_a_wrong_use_is_found(tmp_path: Path) -> None:
    (tmp_path / "area.pyi").write_text(STUB.read_text())
    (tmp_path / "wrong.py").write_text(WRONG)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
                           "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    comments = {number for number, line in enumerate(WRONG.splitlines(), 1) if "#" in line}
    assert found == comments, done.stdout + done.stderr
