"""Files that lost their names while they are mapped, and memory files: they come back, or it is said why not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from comeback import METAMORI, PATIENCE, Memory, built, comes_back
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")


def test_they_come_back(tmp_path: Path) -> None:
    """Shared by two processes, with and without a descriptor; private, of a library that was replaced, too."""
    library = built(tmp_path, "plugin.c", "-shared", "-fPIC")
    comes_back(Memory(tmp_path, [built(tmp_path, "nameless.c"), library]))


def test_sealed_ones_come_back(tmp_path: Path) -> None:
    """With their seals, whatever was mapped before and whoever has them open."""
    comes_back(Memory(tmp_path, [built(tmp_path, "sealed.c")]), "150ms")


def test_after_an_upgrade(tmp_path: Path) -> None:
    """The program's own file is another one by now: its memory goes on."""
    program, work = tmp_path / "program", tmp_path / "work"
    shutil.copy(shutil.which("gawk") or shutil.which("mawk") or pytest.skip("awk is not installed"), program)
    script = ('BEGIN { for (i = 0; i < 9; i++) { while ((getline line < ("go" i)) < 0) system("sleep 0.01");'
              ' said = said " " line; print said; fflush() } }')
    case = Memory(tmp_path, [program, script], ends=False)
    run = case.start()
    out = tmp_path / "out"
    try:
        for each in range(3):
            (work / f"go{each}.new").write_text(f"line {each}\n")
            (work / f"go{each}.new").rename(work / f"go{each}")
            wait_until(lambda: out.read_bytes().count(b"\n") > each, case.errors())    # noqa: B023
            if each == 1:
                shutil.copy(program, tmp_path / "new")
                with (tmp_path / "new").open("ab") as file:
                    file.write(b"upgraded")
                (tmp_path / "new").rename(program)
            done = case.verb("checkpoint")
            assert done.returncode == 0, done
        case.kill(run)
        run.wait(PATIENCE)
    finally:
        run.kill()
    for each in range(3, 9):
        (work / f"go{each}").write_text(f"line {each}\n")
    for index in case.images()[1:]:
        done = case.verb("restart", str(index))
        assert done.returncode == 0, done
        assert done.stdout.splitlines()[-1] == b" " + b" ".join(b"line %d" % each for each in range(9))


def test_a_program_that_is_no_more(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/usr/bin/sleep", program)
    case = Memory(tmp_path, [program, "6000"], ends=False)
    run = case.start()
    try:
        wait_until(lambda: case.verb("checkpoint").returncode == 0, "it runs")
        program.unlink()
        done = subprocess.run([*METAMORI, "checkpoint"], cwd=case.work, env=case.environment(), capture_output=True,
                              check=False)
        assert done.returncode == 1 and b"its program file was deleted" in done.stderr, done
    finally:
        case.kill_with(run)
