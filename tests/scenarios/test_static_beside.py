"""Static programs beside tracked ones, under limits of their own, below tracers, and what they start themselves."""

from __future__ import annotations

import pytest
from lab import Lab
from test_static_programs import BUSYBOX, OPTIONS, every_index, is_static

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")


@OPTIONS
def test_a_tracked_program_below_a_static_one_becomes_static(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """It writes its files back before: calls that are shown, and that nobody else may make, for it holds locks."""
    steps = [f"bash -c '{BUSYBOX} echo more >> log; :'; cat log",
             f"bash -c 'exec 3<> old; echo X >&3; {BUSYBOX} echo Y >&3; :'; head -c 8 old"]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)
