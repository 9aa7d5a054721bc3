"""The loop in which `metamori run` waits for its command."""

from __future__ import annotations

import os
import signal
import time

import pytest

from metamori.runtime.lifecycle import child_loop


def test_the_end_is_seen_without_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with several threads may lose it: one that does not block SIGCHLD takes it, and ignores it."""
    asked = []

    def nothing(*_: object) -> None:
        asked.append(time.sleep(0.01))
        assert len(asked) < 1000, "the command has ended, and nobody noticed"

    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
    monkeypatch.setattr(child_loop.signal, "sigtimedwait", nothing)
    status = child_loop.watch(pid, 0, signal.SIGUSR1, lambda: None, lambda: True)
    assert os.waitstatus_to_exitcode(status) == 7
