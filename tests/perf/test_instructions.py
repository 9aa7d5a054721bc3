"""How many instructions the hot calls add to the kernel's own, counted by callgrind: no clock, no noise.

A bound is what was measured when it was written and about a tenth more: a lock, a lookup or a copy more in a call is
past it. Lower a bound when its call becomes cheaper.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from lab import Lab

CALLS = 1000  # of each kind in one measurement (COUNT in hot.c)
FILES = ("unfollowed", "followed", "window", "redirected", "locked")
MODES: dict[str, list[str]] = {"default": [], "isolate": ["--isolate"]}

# file and call: (default, --isolate), instructions more than natively
BOUNDS = {
    "unfollowed pread": (50, 50), "unfollowed read": (46, 46), "unfollowed lseek": (30, 30),
    "unfollowed fstat": (56, 56), "unfollowed read4k": (50, 50), "unfollowed stat": (35, 35),
    "unfollowed open+close": (1205, 1260),
    "fresh pwrite": (200, 735), "fresh write": (196, 760), "fresh pwrite4k": (195, 755),
    "fresh pread": (90, 610), "fresh read": (90, 440), "fresh lseek": (64, 320), "fresh fstat": (56, 308),
    "fresh read4k": (90, 710), "fresh fchmod": (165, 165), "fresh fputc": (5, 5), "fresh fgetc": (5, 5),
    "followed pread": (90, 90), "followed read": (90, 90), "followed lseek": (64, 64), "followed fstat": (56, 295),
    "followed read4k": (90, 90), "followed open+close": (1560, 1575),
    "window first write": (695, 695), "window write": (520, 525), "window pwrite": (505, 510),
    "window pread": (430, 435), "window read": (440, 445), "window byte": (505, 510),
    "redirected pwrite": (755, 775), "redirected write": (780, 800), "redirected pwrite4k": (775, 795),
    "redirected pread": (625, 637), "redirected read": (442, 446), "redirected lseek": (320, 320),
    "redirected fstat": (330, 350), "redirected read4k": (710, 718), "redirected fputc": (5, 5),
    "redirected fgetc": (5, 5), "redirected stat": (335, 350),
    "above ours read": (180, 180),
}

pytestmark = pytest.mark.skipif(not shutil.which("valgrind") or not Path("/usr/include/valgrind/callgrind.h").exists(),
                                reason="valgrind is not installed: nothing counts instructions")


@pytest.fixture(scope="module")
def hot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The measuring program."""
    program = tmp_path_factory.mktemp("hot") / "hot"
    subprocess.run(["gcc", "-O1", "-Wall", "-o", program, Path(__file__).with_name("hot.c")], check=True)
    return program


def counted(lab: Lab, hot: Path, mode: str) -> dict[str, float]:
    """Instructions per call, by the names that the program gives its measurements."""
    for name in FILES:
        (lab.work / name).write_bytes(bytes(range(256)) * 4096)
    first = "true" if mode == "native" else shlex.join(lab.argv("checkpoint"))
    out = lab.folder / "callgrind"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q", hot, lab.work, first]
    # valgrind is static, and the library is in the program that it runs
    done = lab.run(command, *MODES.get(mode, []), native=mode == "native", env={"METAMORI_STATIC": "untracked"})
    assert done.returncode == 0, done.stderr.decode()
    found = {}
    for part in lab.folder.glob("callgrind.*"):
        text = part.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        total = re.search(r"^totals: (\d+)$", text, re.MULTILINE)
        if name and total:
            found[name[1]] = int(total[1]) / CALLS
    return found


@pytest.mark.parametrize("mode", MODES)
def test_what_a_call_adds(lab: Lab, native_lab: Lab, hot: Path, mode: str) -> None:
    native, ours = counted(native_lab, hot, "native"), counted(lab, hot, mode)
    assert native.keys() == ours.keys() == BOUNDS.keys()
    column = list(MODES).index(mode)
    over = [f"{name}: {native[name]:.0f} and {ours[name] - native[name]:.0f} more, at most {bounds[column]} allowed"
            for name, bounds in BOUNDS.items() if ours[name] - native[name] > bounds[column]]
    assert not over, "\n".join(over)

