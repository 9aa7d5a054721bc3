"""The laboratory with and without Metamori, side by side."""

from __future__ import annotations

import pytest
from lab import Lab
from trial import Trial


@pytest.fixture
def trial(lab: Lab, native_lab: Lab) -> Trial:
    return Trial(lab, native_lab)
