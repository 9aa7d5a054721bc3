"""What a process holds stays bounded, however long it lives: memory, descriptors, the run area's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab import Lab, Session

MB = 1 << 20


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def rounds(session: Session, count: int) -> None:
    for number in range(count):
        session.must([f"pwrite 3 3000 {number % 7 * 4096} {number}", "open f1 rw,creat,trunc", "write 4 100 1"])
        session.must(["close 4", "checkpoint"])


@pytest.mark.parametrize(("first", "more"), [(150, 300), pytest.param(2000, 8000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [["--keep-last", "3"], []], ids=["pruning", "keeping all"])
def test_checkpoints(lab: Lab, first: int, more: int, options: list[str]) -> None:
    (lab.work / "f0").write_bytes(bytes(40000))
    session = lab.start("--durability", "process", *options)
    session.must(["open f0 rw"])
    pid = session.program()
    rounds(session, first)
    before, open_before, area = rss(pid), descriptors(pid), disk(lab.store / "run")
    rounds(session, more)
    grown = rss(pid) - before
    assert descriptors(pid) == open_before
    each = grown / more
    assert grown < 4 * MB or each < (200 if options else 6000), f"{each:.0f} bytes for each checkpoint"
    assert disk(lab.store / "run") < area + (4 * MB if options else 600 * more + 4 * MB)
    assert session.end() == 0
    if options:
        assert len(list((lab.store / "checkpoints").iterdir())) < 20
        assert disk(lab.store / "buffer") < MB


@pytest.mark.parametrize("files", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_files_opened_and_closed(lab: Lab, files: int) -> None:
    """New files, written, closed and removed before anybody knows them: they leave nothing behind."""
    session = lab.start()
    pid = session.program()

    def some(count: int) -> None:
        for number in range(count):
            session.must([f"open n{number} rw,creat", "write 3 100 1", "close 3", f"unlink n{number}"])

    some(files // 3)
    before, open_before, area = rss(pid), descriptors(pid), disk(lab.store / "run")
    some(files)
    assert descriptors(pid) == open_before
    assert rss(pid) < before + 8 * MB + 250 * files     # the journal, which is mapped: one note for a path
    assert disk(lab.store / "run") < area + 2 * MB + 300 * files
    session.must(["checkpoint"])
    assert session.end() == 0
