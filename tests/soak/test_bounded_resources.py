"""What a process holds stays bounded, however long it lives: memory, descriptors, the run area's disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from lab import ROOT, Lab, Session

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


EXTENTS = r"""
#include <fcntl.h>
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One byte in every second block of an old file: each is an extent of its own. A checkpoint after each tenth. */
int main(int argc, char **argv)
{
    long extents = atol(argv[argc - 1]);
    int fd = open("old", O_RDWR);
    for (long i = 0; i < extents; i++) {
        if (pwrite(fd, "x", 1, i * 8192) != 1)
            return 1;
        if ((i + 1) % (extents / 10) == 0) {
            long pages = 0, resident = 0;
            FILE *file;
            if (metamori_checkpoint() < 0)
                return 2;
            file = fopen("/proc/self/statm", "r");
            if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2)
                return 3;
            fclose(file);
            printf("%ld %d\n", resident * 4096, open("/dev/null", O_RDONLY | O_CLOEXEC));
            close(fd + 1);
        }
    }
    return 0;
}
"""


@pytest.mark.parametrize("extents", [5000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_extents(lab: Lab, extents: int) -> None:
    """What they cost in memory is said here; every one of them is in each index that should have it."""
    source, program = lab.folder / "extents.c", lab.folder / "extents"
    source.write_text(EXTENTS)
    subprocess.run(["gcc", "-O1", f"-I{ROOT}/shim_c/include", source, "-o", program], check=True)
    with (lab.work / "old").open("wb") as old:
        old.truncate(extents * 8192)
    done = lab.run([program, extents], "--durability", "process", timeout=3000)
    assert done.returncode == 0, done.stderr
    said = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(said) == 10 and len({descriptor for _, descriptor in said}) == 1
    each = (said[-1][0] - said[1][0]) / (extents * 0.8)
    print(f"{extents} extents: {each:.0f} bytes of memory for each, {said[-1][0] / MB:.0f} MB in the end")
    assert said[-1][0] - said[1][0] < 16 * MB or each < 600
    for index, ends in ((5, extents // 2), (10, extents), (0, 0)):
        lab.verb("restore", index, timeout=1800)
        with (lab.work / "old").open("rb") as old:
            for i in {0, extents // 20, extents // 2 - 1, extents // 2, extents - 1}:
                old.seek(i * 8192)
                assert old.read(2) == (b"x\0" if i < ends else b"\0\0"), (index, i)
    lab.verb("verify", timeout=1800)


def test_names_that_come_and_go(lab: Lab) -> None:
    """Restart files with numbers in their names: of each a pruned store keeps the name and the number (docs/limits.md),
    and nothing else."""
    session = lab.start("--keep-last", "2", "--durability", "process")
    sizes = []
    for number in range(1, 25):
        session.must([f"open restart.{number:04d} rw,creat", "write 3 100 1", "close 3"])
        session.must([f"unlink restart.{number - 2:04d}"] if number > 2 else [])
        session.must(["checkpoint"])
        sizes.append(sum(path.stat().st_size for path in (lab.store / "checkpoints").iterdir()))
    assert sizes[-1] - sizes[5] <= 18 * 500, sizes
    assert session.end() == 0
    assert len(list((lab.store / "kept").iterdir())) < 8
