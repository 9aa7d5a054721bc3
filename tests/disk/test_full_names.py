"""Calls on names and lengths on a full disk, in a run that may prune: the oldest of its checkpoints make room."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest
from disks import MB, fill, mounted
from lab import Lab, Session

MANY, LONG = 800, "n" * 200
CALLS = {
    "mkdir": "mkdir {}", "symlink": "symlink f0 {}", "link": "link old0 {}", "open": "creat {}", "mkfifo": "mkfifo {}",
    "rename": "rename old{number} {}", "unlink": "unlink old{number}",
}


def with_checkpoints(lab: Lab, *options: object) -> Session:
    """A run with some that hold four megabytes each."""
    (lab.work / "f0").write_bytes(bytes(4 * MB))
    session = lab.start(*options)
    session.must(["open f0 rw"])
    for number in range(MANY):
        (lab.work / f"old{number}").touch()
    for turn in range(1, 5):
        session.must([*(f"pwrite 3 {MB} {at * MB} {turn}" for at in range(4)), "checkpoint"])
    return session


@pytest.mark.in_turn("call")
@pytest.mark.parametrize("call", CALLS)
def test_names_are_given_and_taken_on_a_full_disk(small: Lab, call: str) -> None:
    session = with_checkpoints(small, "--max-bytes", "1G")
    filler = fill(small.folder)
    for number in range(MANY):
        answer = session.ask(CALLS[call].format(LONG + str(number), number=number))
        assert not answer.startswith("-1"), (number, answer)
        if call == "open":
            session.must([f"close {answer}"])
    filler.unlink()
    before = session.ask("tree")
    assert session.end() == 0 and session.stderr() == ""
    assert len(small.log()["checkpoints"]) < 6     # 0, those that were taken, and the end
    assert small.start(native=True).ask("tree") == before
    small.verb("verify")


@pytest.mark.in_turn("line")
@pytest.mark.parametrize(
    "line", [f"hole 3 0 {3 * MB}", "ftruncate 3 0", "truncate f0 0", f"fallocate 4 0 {3 * MB}"]
)
def test_lengths_are_given_and_taken_on_a_full_disk(small: Lab, line: str) -> None:
    session = with_checkpoints(small, "--max-bytes", "1G")
    session.must(["open old0 rw"])
    filler = fill(small.folder)
    assert session.ask(line) == "0"
    filler.unlink()
    before = session.ask("tree")
    assert session.end() == 0 and session.stderr() == ""
    assert len(small.log()["checkpoints"]) < 6
    assert small.start(native=True).ask("tree") == before
    small.verb("verify")


def test_another_full_disk_costs_no_checkpoint(small: Lab, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with mounted(tmp_path / "other", "ext4", 4, make=("-N", "16")) as other:
        session = with_checkpoints(small, "--max-bytes", "1G", "--track", other, "--track", small.work)
        session.must([f"open {other}/file rw,creat"])
        with suppress(OSError):
            for number in range(99):
                (other / str(number)).mkdir()
        for line in ("mkdir {}/c", "creat {}/c", "symlink f0 {}/c"):
            assert session.ask(line.format(other)) == "-1 ENOSPC"
        session.must([f"symlink {other}/target link"])
        assert session.ask("creat link") == "-1 ENOSPC"
        assert session.ask(f"fallocate 4 0 {64 * MB}") == str(errno.ENOSPC)
        assert [session.ask(f"write 4 {MB} 1") for _ in range(6)][-1] == "-1 ENOSPC"
        assert len(small.log()["checkpoints"]) == 5
        assert session.end() == 0 and session.stderr() == ""


def test_what_the_disk_can_never_hold_costs_no_checkpoint(small: Lab) -> None:
    session = with_checkpoints(small, "--max-bytes", "1G")
    session.must(["open old0 rw"])
    assert session.ask(f"fallocate 4 0 {640 * MB}") == str(errno.ENOSPC)
    assert len(small.log()["checkpoints"]) == 5
    assert session.end() == 0 and session.stderr() == ""
