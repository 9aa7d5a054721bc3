"""A file that lost the name that the run knows it by, and keeps one that the run has not used."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from lab import Lab

LOSES = {
    "renamed out of the scope": "os.rename('used', '../out/used')",
    "in a folder that is": "os.mkdir('in'); os.rename('used', 'in/used'); os.rename('in', '../out/in')",
    "removed, having been open": "fd = os.open('used', os.O_RDWR); os.unlink('used'); os.close(fd)",
}
KNOWN = "import os\nfor name in 'used', 'other': os.rename(name, 'third'); os.rename('third', name)"
LOSES_A_NAME = """
import metamori, os
{}
print(metamori.checkpoint())
with open("other", "ab") as file:
    file.write(b"more")
"""


@pytest.mark.in_turn("how", "where")
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("how", LOSES)
@pytest.mark.parametrize("where", ["beside", "elsewhere"])
def test_by_no_name_that_this_run_has_used(
    lab: Lab, where: str, how: str, known: bool, request: pytest.FixtureRequest
) -> None:
    """A checkpoint finds a file by a name that only a run before this one has used, or none at all: it is not empty."""
    lab = lab if where == "beside" else request.getfixturevalue("elsewhere")
    del lab.env["METAMORI_TRACK"]
    (lab.folder / "out").mkdir()
    (lab.work / "used").write_bytes(b"o" * 9000)
    os.link(lab.work / "used", lab.work / "other")
    if known:
        assert lab.run([sys.executable, "-c", KNOWN]).returncode == 0
    done = lab.run([sys.executable, "-c", LOSES_A_NAME.format(LOSES[how])])
    assert (done.returncode, done.stderr) == (0, b"")
    taken = int(done.stdout)
    for index, more in ((taken, b""), (taken + 1, b"more"), (0, b""), (taken, b"")):
        lab.restore(index)
        assert (lab.work / "other").read_bytes() == b"o" * 9000 + more, f"at {index}"
    lab.verb("verify")


WRITTEN = {
    "before, by the inner name": "os.truncate('used', 30000); os.rename('used', '../out/used')",
    "by the outer name": "os.rename('used', '../out/used'); os.truncate('../out/used', 30000)",
    "beside the run": "os.rename('used', '../out/used'); "
                      "subprocess.run(['env', '-u', 'LD_PRELOAD', 'METAMORI_DISABLE=1', 'truncate', "
                      "'-s', '30000', '../out/used'])",
}
LEFT = """
import metamori, os, subprocess
{}
metamori.checkpoint()
{}
os.unlink("other")
metamori.checkpoint()
os.truncate("../out/used", 39000)
"""


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("then", ["", "os.truncate('../out/used', 20000)"], ids=["", "and again"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
@pytest.mark.parametrize("how", WRITTEN)
def test_written_to_and_moved_out(lab: Lab, how: str, options: list[str], then: str) -> None:
    """What the checkpoint did not find had the size that it had before the run, and was restored so."""
    del lab.env["METAMORI_TRACK"]
    (lab.folder / "out").mkdir()
    data = os.urandom(70000)
    (lab.work / "used").write_bytes(data)
    os.link(lab.work / "used", lab.work / "other")
    done = lab.run([sys.executable, "-c", LEFT.format(WRITTEN[how], then)], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    first, second = {"used": data, "other": data}, {"other": data[:30000]}
    for index, want in (0, first), (1, second), (2, {}), (1, second):
        lab.restore(index)
        have = {each.name: each.read_bytes() for each in lab.work.iterdir() if each.name in ("used", "other")}
        assert have == want, index
    lab.verb("verify")


RUNS_BY_ANOTHER_NAME = """
import os, subprocess
os.link("program", "other")
with subprocess.Popen(["./program"], stdin=subprocess.PIPE) as running:
    running.stdin.write(b"x")
    os.unlink("program")
    print(subprocess.run(["./other"], stdin=subprocess.DEVNULL).returncode)
"""


def test_a_running_program_by_another_name(elsewhere: Lab) -> None:
    """The store has a copy, and nobody may write to what the kernel runs: nothing need be, all its bytes are there."""
    shutil.copy("/bin/cat", elsewhere.work / "program")
    done = elsewhere.run([sys.executable, "-c", RUNS_BY_ANOTHER_NAME])
    assert (done.returncode, done.stdout) == (0, b"x0\n") or (done.returncode, done.stdout) == (0, b"0\nx"), done
    assert b"is not executed" not in done.stderr
    elsewhere.verb("verify")


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
@pytest.mark.parametrize("how", WRITTEN)
def test_written_to_and_moved_out_with_the_store_elsewhere(elsewhere: Lab, how: str, options: list[str]) -> None:
    """Where the store can have no link the checkpoint does not find it: what it was is lost, and that is said. Once it
    came back with the size from before the run."""
    lab = elsewhere
    del lab.env["METAMORI_TRACK"]
    (lab.folder / "out").mkdir()
    data = os.urandom(70000)
    (lab.work / "used").write_bytes(data)
    os.link(lab.work / "used", lab.work / "other")
    done = lab.run([sys.executable, "-c", LEFT.format(WRITTEN[how], "")], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "other is lost" in lab.restore(1, code=12).stderr
    for index, want in (2, []), (0, ["other", "used"]):
        lab.restore(index)
        have = [each.name for each in sorted(lab.work.iterdir()) if each.read_bytes() == data]
        assert have == want, index
