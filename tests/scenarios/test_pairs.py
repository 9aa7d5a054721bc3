"""Two threads or processes make calls on the same names at the same moment: nothing is lost, and no call answers what
it could not answer natively. The program is tests/programs/pairs.c, the judge tests/pairs.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Compile


@pytest.mark.parametrize("sides", ["threads", "processes"])
def test_natively_some_order_explains_every_pair(tmp_path: Path, compiled: Compile, sides: str) -> None:
    """The judge itself: it accuses nobody who is innocent."""
    program, numbers = compiled("pairs"), ["1", "60", "3"]
    done = subprocess.run([program, "run", "names", sides, *numbers], cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "oracle").mkdir()
    judged = subprocess.run([program, "oracle", "names", *numbers], cwd=tmp_path / "oracle", input=done.stdout,
                            capture_output=True, check=False)  # fmt: skip
    assert judged.stdout == b"180 pairs, 0 wrong\n", judged
