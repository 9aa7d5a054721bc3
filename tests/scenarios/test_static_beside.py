"""Static programs beside tracked ones, under limits of their own, below tracers, and what they start themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lab import Lab
from stops import Stops
from test_errors import as_nobody
from test_static_kills import READY, goes_on
from test_static_paths import built
from test_static_programs import BUSYBOX, OPTIONS, every_index, is_static, open_folder, prepare, programs  # noqa: F401

OPENS = """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int fd = open("late", O_RDWR);
    printf("%d\\n", fd < 0 ? errno : (int)pwrite(fd, "S", 1, 0));
    return 0;
}
"""

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")


@OPTIONS
def test_a_tracked_program_below_a_static_one_becomes_static(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """It writes its files back before: calls that are shown, and that nobody else may make, for it holds locks."""
    steps = [f"bash -c '{BUSYBOX} echo more >> log; :'; cat log",
             f"bash -c 'exec 3<> old; echo X >&3; {BUSYBOX} echo Y >&3; :'; head -c 8 old"]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)


def test_a_file_that_comes_while_it_is_looked_for(lab: Lab) -> None:
    """Of one that was not there the program hears that, and does not get one that nobody follows."""
    stops = Stops(lab.folder / "stops")
    prepare(lab)
    program = built(lab.folder, OPENS)
    with subprocess.Popen([*lab.argv("run"), "--", "sh", "-c", f"{READY}; {program}"], cwd=lab.work,
                          env=lab.env | stops.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdout.readline() == b"ready\n"
        stops.arm("proxy.made")
        goes_on(run)
        stops.wait("proxy.made")
        (lab.work / "late").write_text("late\n")
        stops.go("proxy.made")
        assert run.stdout.read() == b"2\n"
        assert run.wait(60) == 0
    assert (lab.work / "late").read_text() == "late\n"


def ordinary(lab: Lab) -> list[str]:
    prepare(lab)
    return as_nobody(lab)


@pytest.mark.parametrize("limit", ["ulimit -n 1024", "ulimit -f 8"])
def test_the_first_static_program_is_under_limits(open_folder: Path, limit: str) -> None:  # noqa: F811
    """They are not those of the others, nor is it the end of tracking if it cannot be tracked itself."""
    lab = Lab(open_folder, Path(BUSYBOX))
    begin = ordinary(lab)
    (lab.work / "old").write_bytes(b"o" * 300000)
    script = f"({limit}; {BUSYBOX} true); {BUSYBOX} sh -c 'printf X | dd of=old bs=1 seek=200000 conv=notrunc'"
    done = lab.run([*begin, *lab.argv("run"), "--", "bash", "-c", script], native=True)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.decode().splitlines() if line.startswith("metamori")]
    assert len(said) == 1 and "it is static" in said[0]
    assert (lab.work / "old").read_bytes()[200000:200002] == b"Xo"
    assert lab.run([*begin, *lab.argv("restore", 0)], native=True).returncode == 0
    assert (lab.work / "old").read_bytes() == b"o" * 300000
