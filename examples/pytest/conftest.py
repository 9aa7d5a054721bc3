"""A fixture that undoes what a test did to files: copy it into your own conftest.py.

    metamori run --store /tmp/store -- pytest

Every file that the test changed, made or removed is as it was before, whichever library did it. Without Metamori the
tests run too, and leave behind what they leave behind.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metamori


@pytest.fixture
def undone() -> Iterator[None]:
    if not metamori.active():
        yield
        return
    with metamori.trial("before a test") as attempt:
        yield
        attempt.undo()
