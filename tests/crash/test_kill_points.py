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
    """k: everything that lives; p: the process that makes the call; x and y: the same, when the call has been done."""
    def decide(call: Call) -> str:
        return how if call.number == nth else "k" if how in "kx" and call.number > nth else "g"
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
    ("", "x"), ("--isolate", "x"), ("", "y"),
], ids=["default-all", "default-one", "isolate-all", "isolate-one", "process-all", "default-all-after",
        "isolate-all-after", "default-one-after"])
# files that an index knows and nobody has touched since lose their names: to others, by unlink, the second of two
NAMES = """\
open a w,creat; write 3 5000 1; close 3; open c w,creat; write 3 3000 9; close 3; link c e; checkpoint
open b w,creat; write 3 6000 2; close 3; rename b a; checkpoint; truncate old 900; open b w,creat; write 3 700 3
close 3; rename b old; rename a c; unlink c; unlink log; checkpoint; open old rw; pwrite 3 50 3 8; unlink old; unlink e
rename d0/in gone; checkpoint; write 3 10 14\
""".replace("\n", "; ").split("; ")


@pytest.mark.in_turn("how", 2)
@WAYS
def test_killed_at_some_calls(trial_of, options: str, how: str) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(*options.split())
    total = len(trial.run().calls)
    step = total // SAMPLE
    for nth in range(1 + ord(how) % step, total, step) if how == "k" else range(3, total, 2 * step):
        killed_at(trial, nth, how, options != "--isolate")


@pytest.mark.in_turn("options", 2)
@pytest.mark.parametrize("options", KEPT, ids=["default", "isolate"])
def test_killed_where_something_was_found(trial_of, options: str) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(*options.split())
    for nth in KEPT[options]:
        killed_at(trial, nth, "k", options != "--isolate")


@pytest.mark.in_turn("how")
@pytest.mark.parametrize(("options", "how"), [("", "x"), ("--isolate", "x"), ("", "y")],
                         ids=["default-all", "isolate-all", "default-one"])
def test_killed_when_a_name_goes(trial_of, options: str, how: str) -> None:  # type: ignore[no-untyped-def]
    """A kill that comes while the kernel takes the name: the program does nothing after it. Once what had the name was
    in the store by then, and no index knew."""
    trial = trial_of(*options.split(), script=NAMES)
    calls = [call for call in trial.run().calls if call.name in ("renameat", "unlinkat") and not call.path.startswith(
        str(trial.store))]
    assert len(calls) >= 8
    for call in calls:
        killed_at(trial, call.number, how, options != "--isolate")


def test_killed_when_a_file_was_put_aside(trial_of) -> None:  # type: ignore[no-untyped-def]
    """By a restore inside the program: it is where the next one looks for it, and nothing has said so yet."""
    trial = trial_of()
    calls = [call for call in trial.run().calls if call.name == "rename" and "/kept/r" in call.other]
    assert calls
    for call in calls:
        killed_at(trial, call.number, "x", True)


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_every_call(trial_of, tried: Tried, options: str, how: str, part: int) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(*options.split())
    calls = range(1, len(trial.run().calls) + 1)
    tried(calls, part, lambda nth: killed_at(trial, nth, how, options != "--isolate"))
