"""Each system call of the tracked program's process fails once: the program hears the kernel's errno and goes on, and
no index is hurt.

`make test` takes some of the calls, `make kills` all: those that change files with every error that they may give,
those that only look with one each.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from conftest import Compile
from slices import PARTS, Tried
from tracing import Call, Decide
from trial import Trial

OPENING = ["EMFILE", "ENOMEM", "EIO"]
CHANGING = ["ENOSPC", "EDQUOT", "EIO", "EROFS"]
WRITING = ["short", "ENOSPC", "EDQUOT", "EIO"]
MAY_FAIL = {
    **dict.fromkeys(["open", "openat", "creat"], OPENING),
    **dict.fromkeys(["write", "pwrite", "writev", "pwritev", "copy_file_range", "sendfile"], WRITING),
    **dict.fromkeys(["fallocate", "fsync", "fdatasync"], WRITING[1:]),
    **dict.fromkeys(["dup", "dup3", "fcntl"], OPENING[:1]),
    **dict.fromkeys(["mmap"], OPENING[1:2]),
    **dict.fromkeys(["read", "pread", "lseek", "getdents64", "fstat", "newfstatat", "statx"], OPENING[1:]),
}
NUMBER = {"ENOSPC": 28, "EDQUOT": 122, "EIO": 5, "EROFS": 30, "EMFILE": 24, "ENOMEM": 12}
SAMPLE = {"change": 10, "any": 6}


def errors(call: Call, calls: str) -> list[str]:
    """What it may give; an opening counts among the changes when it makes a file."""
    found = MAY_FAIL.get(call.name, CHANGING)
    return [*OPENING, *CHANGING] if found is OPENING and calls == "change" else found


def failing(nth: int, error: str) -> Decide:
    answer = "s" if error == "short" else f"f {NUMBER.get(error)}"
    return lambda call: answer if call.number == nth else "g"


def failed_at(trial: Trial, nth: int, error: str, calls: str) -> None:
    done = trial.run(failing(nth, error), trial.driver.name, calls)
    try:
        assert done.status == 0, done
        if b"is not tracked" in done.stderr:      # it could not join its run, and the user was told
            assert trial.verb("verify").code == 0
            return
        trial.check(trial.expected(done.stdout, list(NUMBER)))
    except BaseException:
        print(f"{error} at {done.calls[min(nth, len(done.calls)) - 1]} (of {calls}); {done.stderr!r}")
        raise


@pytest.fixture
def trial(tmp_path, compiled: Compile, installed: None) -> Trial:  # type: ignore[no-untyped-def]
    return Trial(tmp_path, compiled("driver"), compiled("tracer"))


@pytest.mark.in_turn("calls", 2)
@pytest.mark.parametrize("calls", ["change", "any"])
def test_some_calls_fail(trial: Trial, calls: str) -> None:
    seen = trial.run(program=trial.driver.name, calls=calls).calls
    step = len(seen) // SAMPLE[calls]
    for turn, call in enumerate(seen[step // 2::step]):
        which = errors(call, calls)
        failed_at(trial, call.number, which[turn % len(which)], calls)


def test_putting_descriptors_back_fails(trial: Trial) -> None:
    """Once: a descriptor that nobody tracked wrote what no index heard of, and a program waited for itself."""
    seen = trial.run(program=trial.driver.name, calls="any").calls
    first = next(call.number for call in seen if call.name == "dup3")
    after = seen[first:]
    chosen = [seen[first - 1], next(call for call in after if call.name == "statx"),
              next(call for call in after if call.name == "openat" and call.path == str(trial.store / "run"))]
    for call in chosen:
        failed_at(trial, call.number, errors(call, "any")[0], "any")


def every(seen: Iterable[Call], calls: str) -> Iterable[tuple[int, str]]:
    for call in seen:
        which = errors(call, calls)
        chosen = which if calls == "change" else [which[call.number % len(which)]]
        yield from ((call.number, error) for error in chosen)


def test_a_truncation_whose_look_fails(trial: Trial) -> None:
    """It is none, and says so: once it was the kernel's own, past the bytes in the buffer that were written back."""
    seen = trial.run(program=trial.driver.name, calls="any").calls
    looks = [call.number for call in seen if call.name == "newfstatat" and call.path == str(trial.work / "old")]
    failed_at(trial, looks[-1], "EIO", "any")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("calls", ["change", "any"])
def test_every_call_fails(trial: Trial, tried: Tried, calls: str, part: int) -> None:
    seen = trial.run(program=trial.driver.name, calls=calls).calls
    tried(list(every(seen, calls)), part, lambda point: failed_at(trial, *point, calls))
