"""A run is killed at a system call that changes a file, and afterwards everything is as promised.

`make test` takes some of the calls, `make kills` every one of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Compile
from slices import PARTS, Tried
from tracing import Call, Decide
from trial import Trial

SAMPLE = 12
KEPT = {"": [30, 78, 109, 127, 158, 163, 172, 217], "--isolate": [109]}   # once found something


def killing(nth: int, how: str) -> Decide:
    """k: everything that lives; p: the process that makes the call."""
    def decide(call: Call) -> str:
        return how if call.number == nth or (how == "k" and call.number > nth) else "g"
    return decide


@pytest.fixture
def trial_of(tmp_path: Path, compiled: Compile, installed: None):  # type: ignore[no-untyped-def]
    return lambda *options, **more: Trial(tmp_path, compiled("driver"), compiled("tracer"), options, **more)


def killed_at(trial: Trial, nth: int, how: str, present: bool) -> None:
    done = trial.run(killing(nth, how))
    try:
        trial.check(trial.expected(done.stdout), present)
    except BaseException:
        print(f"killed ({how}) at call {nth}: {done.calls[min(nth, len(done.calls)) - 1]}; {done.stderr!r}")
        raise


WAYS = pytest.mark.parametrize(("options", "how"), [
    ("", "k"), ("", "p"), ("--isolate", "k"), ("--isolate", "p"), ("--durability process", "k"),
], ids=["default-all", "default-one", "isolate-all", "isolate-one", "process-all"])


@WAYS
def test_killed_at_some_calls(trial_of, options: str, how: str) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(*options.split())
    total = len(trial.run().calls)
    step = total // SAMPLE
    chosen = {*range(1 + len(how) * ord(how) % step, total, step), *KEPT.get(options, ())} if how == "k" else \
        {*range(3, total, 2 * step)}
    for nth in sorted(chosen):
        killed_at(trial, nth, how, options != "--isolate")


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_every_call(trial_of, tried: Tried, options: str, how: str, part: int) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(*options.split())
    calls = range(1, len(trial.run().calls) + 1)
    tried(calls, part, lambda nth: killed_at(trial, nth, how, options != "--isolate"))
