"""What is in no process: descriptors on their way, closed numbers in sets, connections that were not accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from comeback import Memory, built, comes_back

pytestmark = pytest.mark.usefixtures("installed")


def test_descriptors_on_their_way(tmp_path: Path) -> None:
    """At the right bytes of streams and with the right messages, also those that no process has any more."""
    comes_back(Memory(tmp_path, [built(tmp_path, "passing.c")]), "60ms")


def test_sets_that_watch_what_has_another_number(tmp_path: Path) -> None:
    """Closed, another's by now, and of a child."""
    comes_back(Memory(tmp_path, [built(tmp_path, "sets.c")]), "60ms")


def test_connections_that_nobody_has_accepted(tmp_path: Path) -> None:
    """Accepted in their order, from the same ports, by whoever listens."""
    comes_back(Memory(tmp_path, [built(tmp_path, "backlog.c")]), "60ms")
