"""What waits in unix sockets and in sets: descriptors on their way, connections that nobody has accepted, closed numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from comeback import Memory, built, comes_back

pytestmark = pytest.mark.usefixtures("installed")


def test_descriptors_on_their_way(tmp_path: Path) -> None:
    """At the right bytes of streams and with the right messages, also those that no process has any more."""
    comes_back(Memory(tmp_path, [built(tmp_path, "passing.c")]), "60ms")
