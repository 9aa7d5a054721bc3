"""The C declarations that Python sees, cut out of the shim's own headers: one source for both sides."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[3] / "shim_c" / "src"
_MARKED = re.compile(r"/\* CDEF-BEGIN \*/\n(.*?)/\* CDEF-END \*/", re.DOTALL)


def declarations(header: str) -> str:
    """The marked part of a header, as cffi reads it."""
    found = _MARKED.search((SOURCES / header).read_text())
    if found is None:
        raise ValueError(f"{header} has no part for Python")
    text = re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL)
    return re.sub(r"^(#define \w+ \d+)\s*$", r"\1", text, flags=re.MULTILINE)
