"""Threads of one process that ask things of the library at the same time."""

import pytest
from conftest import Compile
from lab import Lab


@pytest.mark.parametrize("what, times", [("fork", 40), ("maps", 60), ("restore", 8)])
def test_at_once(lab: Lab, compiled: Compile, what: str, times: int) -> None:
    """fork: while another thread takes checkpoints, and the child takes one. maps: while another one maps a file that
    the child maps too. restore: while another takes checkpoints. A child waited for ever, the restore said EIO."""
    done = lab.run([compiled("at_once"), what, times], timeout=100)
    assert (done.returncode, done.stdout) == (0, b"good\n"), done
    lab.verb("verify")
