"""Where a filter refuses what a container's default one does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built

pytestmark = pytest.mark.usefixtures("installed")


def test_what_could_not_come_back_is_not_begun(tmp_path: Path) -> None:
    confined, program = built(tmp_path, "confined.c"), built(tmp_path, "own.c")
    case = Memory(tmp_path, [program])
    command = [confined, *METAMORI, "run", "--memory", "--", program]
    done = subprocess.run(command, cwd=case.work, env=case.environment(), capture_output=True, timeout=300, check=False)
    assert done.returncode == 125 and b"no program could come back with its memory here" in done.stderr, done
    assert done.stdout == b""
