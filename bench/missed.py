"""Why a row of DESIGN 8 is not reached: what limits it, what was tried. The texts are in missed.toml only."""
from __future__ import annotations

import re
import tomllib
from pathlib import Path

OTHER = "Not looked into yet."
# what a row is called (searched for the pattern), its filesystem ("": any), the text
WHY: list[tuple[str, str, str]] = [
    (each["rows"], each.get("filesystem", ""), " ".join(each["text"].split()))
    for each in tomllib.loads(Path(__file__).with_name("missed.toml").read_text())["why"]]


def why(what: str, filesystem: str) -> str:
    """The first text that fits."""
    return next((text for pattern, where, text in WHY if where in ("", filesystem) and re.search(pattern, what)), OTHER)
