"""A small disk of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from disks import NoMount, mounted
from lab import Lab

KINDS = ["ext4", "tmpfs"]


@pytest.fixture(params=KINDS)
def small(request: pytest.FixtureRequest, tmp_path: Path, compiled: Compile, installed: None) -> Iterator[Lab]:
    """A laboratory with folder and store on a disk of 64 MB."""
    try:
        with mounted(tmp_path, request.param, 64) as disk:
            lab = Lab(disk, compiled("driver"))
            yield lab
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))
