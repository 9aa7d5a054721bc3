"""Where the stores of the random drivers lie."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab

STORES = ["beside", "inside", "elsewhere"]


@pytest.fixture
def somewhere(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The store beside the folders, in one of them, or on another filesystem."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        where = STORES[request.node.callspec.params["seed"] % 3]
        lab.store = {"beside": lab.store, "inside": lab.work / ".metamori", "elsewhere": Path(folder, "store")}[where]
        yield lab
