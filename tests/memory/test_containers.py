"""Where a filter refuses what a container's default one does, and wherever the kernel chooses the addresses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built
from lab import ROOT

pytestmark = pytest.mark.usefixtures("installed")


@pytest.mark.in_turn("checked", 2)
@pytest.mark.parametrize("checked", ["", "1"])
def test_it_comes_back_there_and_outside(tmp_path: Path, checked: str) -> None:
    """The checked build begins each such process twice, as when something lies in the way by chance."""
    confined, program = built(tmp_path, "confined.c"), built(tmp_path, "own.c")
    case = Memory(tmp_path, [program])
    if checked:
        case.added["METAMORI_CHECKED"] = "1"

    def done(*words: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*map(str, words)], cwd=case.work, env=case.environment(), capture_output=True,
                              timeout=300, check=False)

    first = done(confined, *METAMORI, "run", "--memory", "--", program)
    assert first.returncode == case.native.status and first.stdout == case.native.output, first
    assert first.stderr.count(b"taken") == 4 and b"every checkpoint will be a full image" in first.stderr
    for before in ([confined], [], [confined]):
        for index in (4, 1):
            again = done(*before, *METAMORI, "restart", index)
            assert again.returncode == case.native.status, again
            assert b"came back" in again.stderr and case.native.output.endswith(again.stdout)
            assert (case.work / "lines").read_bytes() == case.native.files["lines"].content


@pytest.mark.parametrize(("what", "words"), [("places", b"heap and stack lie"), ("moves", b"move the kernel's pages")])
def test_where_nothing_could_be_restarted(tmp_path: Path, what: str, words: bytes) -> None:
    """Said before a command is started, before a file is touched, and by doctor; without --memory all is as ever."""
    confined, program = built(tmp_path, "confined.c"), built(tmp_path, "own.c")
    case = Memory(tmp_path, [program])
    assert case.start().wait(300) == case.native.status, case.errors()
    head = case.log()["head"]

    def done(*command: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([str(confined), *METAMORI, *map(str, command)], cwd=case.work, capture_output=True,
                              env=case.environment() | {"CONFINED": what}, timeout=300, check=False)

    (case.work / "lines").write_text("mine")
    refused = done("run", "--memory", "--", program)
    assert refused.returncode == 125 and words in refused.stderr and refused.stderr.count(b"\n") == 1, refused
    assert (case.work / "lines").read_text() == "mine" and not refused.stdout
    refused = done("restart", "--force", "2")
    assert refused.returncode == 1 and words in refused.stderr and case.log()["head"] == head, refused
    assert (case.work / "lines").read_text() == "mine"
    assert words in done("doctor").stdout
    assert done("run", "--", program).returncode == case.native.status


def test_programs_lie_where_the_kernel_puts_them(tmp_path: Path) -> None:
    """Natively they do, and so they do in a run with memory: nothing in it needs the same addresses again."""
    program = ["/bin/sh", "-c", "head -n 1 /proc/self/maps"]
    case = Memory(tmp_path, program)
    found = {case.verb("run", "--memory", "--", *program).stdout for _ in range(3)}
    if Path("/proc/sys/kernel/randomize_va_space").read_text().strip() == "0":
        pytest.skip("this kernel chooses no addresses")
    assert len(found) == 3, found


@pytest.mark.parametrize("name", ["libmetamori.so", "libmetamori-checked.so"])
def test_an_image_holds_all_variables_that_may_hold_addresses(name: str) -> None:
    """MM_VARIABLES of image_engine.h; the arrays behind them (.sbss.large) hold none."""
    words = int(re.search(r"MM_VARIABLES (\d+)", (ROOT / "shim_c/src/memory/image_engine.h").read_text())[1])  # type: ignore[index]
    command = ["readelf", "-lSW", ROOT / "metamori" / name]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    start = int(re.search(r"LOAD +\S+ (\S+) \S+ \S+ \S+ RW ", table)[1], 16)  # type: ignore[index]
    bss = re.search(r" \.bss +NOBITS +(\S+) \S+ (\S+)", table)
    assert bss and int(bss[1], 16) + int(bss[2], 16) <= start + words * 8 - 8
