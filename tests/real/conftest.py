"""The laboratory with and without Metamori, side by side."""

from __future__ import annotations

import pytest
from beside import Trial
from lab import Lab


@pytest.fixture
def trial(lab: Lab, native_lab: Lab) -> Trial:
    return Trial(lab, native_lab)
