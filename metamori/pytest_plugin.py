"""pytest --metamori: what the body of each test does to files is undone when it has ended, passed or failed.

pytest runs under `metamori run`. What fixtures set up stays until they take it down themselves: a fixture of a session
or a module serves the next tests too. A test whose files cannot be undone ends with an error that says why.
"""

from __future__ import annotations

import errno
from collections.abc import Generator

import pytest

import metamori

_WHY = {errno.EBUSY: "another process of the run is alive", errno.EAGAIN: "a process of the run does not come to rest"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("metamori").addoption(
        "--metamori", action="store_true", help="undo what each test does to files; under metamori run")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--metamori"):
        if not metamori.active():
            raise pytest.UsageError("--metamori needs a run: metamori run -- python -m pytest --metamori")
        config.pluginmanager.register(_Undoing(), "metamori-undoing")


class _Undoing:
    """The outermost of all around a test's body: what was printed has been read from its file before that goes back."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        index = metamori.checkpoint(item.nodeid)
        yield
        try:
            metamori.restore(index)
        except OSError as error:
            why = _WHY.get(error.errno or 0, error.strerror)
            raise pytest.UsageError(f"the files of {item.nodeid} were not undone: {why}") from error
