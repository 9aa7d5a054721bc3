"""Try, and take it back: a block whose files are undone when it fails."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metamori.runtime.inside import client
from metamori.runtime.lifecycle import leave_run


class Trial:
    """A try in progress; `index` is the checkpoint that it goes back to."""

    def __init__(self, index: int) -> None:
        self.index = index

    def undo(self) -> None:
        """Leave the block; the files are as they were when it began. No error comes out of the block."""
        raise Undone(self)


class Undone(BaseException):
    """How `undo` leaves the block; no `except Exception` of the tried code catches it."""


@contextmanager
def trial(message: str | None) -> Iterator[Trial]:
    """See metamori.trial."""
    if leave_run.given().get("METAMORI_MEMORY"):
        raise OSError(errno.EOPNOTSUPP, "a trial undoes files only; with run --memory the whole program goes back: use "
                      "metamori.checkpoint and metamori.restore")
    attempt = Trial(client.checkpoint(message))
    try:
        yield attempt
    except Undone as undone:
        client.restore(attempt.index)
        if undone.args != (attempt,):
            raise                          # an outer trial is meant: it goes further back
    except BaseException:
        client.restore(attempt.index)
        raise


def add_magic(shell: Any) -> None:
    """IPython's %%trial: a cell whose files are undone when it fails. The rest of its line is the message."""
    def cell_magic(line: str, cell: str) -> None:
        with trial(line.strip() or None) as attempt:
            if not shell.run_cell(cell).success:
                attempt.undo()

    shell.register_magic_function(cell_magic, "cell", "trial")
