"""How many of the points of the long tests were tried (slices.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from slices import Tried, slice_wanted


@pytest.fixture
def tried(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Tried:
    return Tried(request, record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sums: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()) if getattr(report, "when", "") == "call" else ():
                if name == "points":
                    what, count, failed, of = value
                    sums.setdefault(what, Counter()).update(tried=count, failed=failed, of=of)
    for what, sum in sorted(sums.items()):
        which, of = slice_wanted()
        terminalreporter.write_line(f"{what}: {sum['tried']} of {sum['of']} points, {sum['failed']} failed "
                                    f"(slice {which} of {of})")
