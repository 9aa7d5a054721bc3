"""Threads that are cancelled wherever they are: no call of theirs stays under way."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab

MODES: dict[str, list[str]] = {"default": [], "isolate": ["--isolate"], "memory": ["--memory"]}
# of an asynchronous type, at any instruction; then in what are cancellation points
AT_ONCE = ("bytes", "names")
DEFERRED = ("deferred-bytes", "deferred-names", "children", "streams", "walks", "others")


def cancelled(lab: Lab, native_lab: Lab, program: object, what: str, options: list[str]) -> None:
    for each in (lab, native_lab):
        (each.work / "file").write_bytes(bytes(65536))
    native = native_lab.run([program, what, "200"], native=True)
    done = lab.run([program, what, "200"], *options)
    assert (done.returncode, done.stdout) == (native.returncode, native.stdout), done.stderr.decode()
    assert done.stdout.endswith(b"0 checkpoints failed\n")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", AT_ONCE)
def test_a_thread_cancelled_at_any_instruction(
    lab: Lab, native_lab: Lab, compiled: Compile, what: str, mode: str
) -> None:
    """Its call counted for ever: every later checkpoint waited for it, and failed."""
    cancelled(lab, native_lab, compiled("cancelled"), what, MODES[mode])


@pytest.mark.in_turn("what")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", DEFERRED)
def test_a_thread_cancelled_where_it_waits(lab: Lab, native_lab: Lab, compiled: Compile, what: str, mode: str) -> None:
    """With memory, one in system() left SIGINT ignored, and the shell at work."""
    cancelled(lab, native_lab, compiled("cancelled"), what, MODES[mode])
