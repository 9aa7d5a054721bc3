"""What errno can be is said in the header, from which the man pages are made, and in the manual: the same."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_header_and_manual_name_the_same() -> None:
    header = (ROOT / "shim_c" / "include" / "metamori.h").read_text()
    manual = (ROOT / "docs" / "reference" / "c-api.md").read_text()
    said = set(re.findall(r"\bE[A-Z]{3,}\b", "".join(re.findall(r"/\*.*?\*/", header, re.DOTALL))))
    assert said == set(re.findall(r"`(E[A-Z]{3,})`", manual))
    assert {"EBUSY", "EMFILE"} <= said
