"""What `checkpoint --stop` says where nothing stands still."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from metamori.cli import checkpoint
from metamori.runtime.area.run_area import NotAtRest
from metamori.runtime.checkpoint import stop_writers
from metamori.runtime.checkpoint.stop_writers import MoreWriters, StoppedWriters


def test_one_that_stays_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is let go again."""
    with subprocess.Popen(["sleep", "1000"]) as one:
        stopped = StoppedWriters(SimpleNamespace())
        monkeypatch.setattr(stopped, "_writers", lambda: iter([one.pid]))
        monkeypatch.setattr(stop_writers.os, "waitpid", lambda *_: (0, 0))
        monkeypatch.setattr(stop_writers, "_PATIENCE_S", 1.0)
        with pytest.raises(NotAtRest, match="does not stop: it stays in a system call"):
            stopped.stop()
        monkeypatch.undo()
        with open(f"/proc/{one.pid}/status") as status:
            assert "TracerPid:\t0\n" in status.read()
        one.kill()


def test_one_that_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as one:
        one.wait()
        stopped = StoppedWriters(SimpleNamespace())
        left = [[one.pid], []]
        monkeypatch.setattr(stopped, "_writers", lambda: iter(left.pop(0)))
        monkeypatch.setattr(stop_writers, "_threads", lambda pid: [pid])
        stopped.stop()
        assert not left and not stopped._stopped


def test_writers_that_do_not_cease(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def more(message: str) -> int:
        raise MoreWriters

    monkeypatch.setattr(StoppedWriters, "stop", lambda self: None)
    with pytest.raises(NotAtRest, match="other programs begin to write all the time: no checkpoint was taken"):
        area = SimpleNamespace(path=str(tmp_path))
        checkpoint._with_stopped(SimpleNamespace(area=area, stopped=None, checkpoint=more), "")
