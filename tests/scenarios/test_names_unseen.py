"""What happens to names that the run is not told of: a file's other name, and what a folder takes along."""

from __future__ import annotations

import os
import sys

import pytest
from lab import Lab

MODES = [[], ["--isolate"], ["--mode=single"]]

OTHER_NAME = """
import os, metamori
fd = os.open("used", os.O_RDWR)
os.pwrite(fd, b"A" * 3000, 0)
os.unlink("used")
print(metamori.checkpoint())
os.pwrite(fd, b"B" * 2000, 1000)
os.ftruncate(fd, 8000)
os.close(fd)
"""
FIRST, LAST = b"A" * 3000 + b"o" * 6000, b"A" * 1000 + b"B" * 2000 + b"o" * 5000


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_file_goes_on_by_a_name_that_the_run_never_used(lab: Lab, options: list[str]) -> None:
    """Its old bytes were overwritten, then the name that the program knew was taken away."""
    (lab.work / "used").write_bytes(b"o" * 9000)
    os.link(lab.work / "used", lab.work / "other")
    done = lab.run([sys.executable, "-c", OTHER_NAME], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "other").read_bytes() == LAST
    end = int(done.stdout) + 1
    if "--mode=single" in options or os.stat(lab.work).st_dev != os.stat(lab.store).st_dev:
        return  # nothing in a store elsewhere leads to the name that is left (docs/limits.md)
    for index, want in [(end - 1, FIRST), (0, b"o" * 9000), (end - 1, FIRST), (end, LAST), (0, b"o" * 9000)]:
        lab.restore(index)
        assert (lab.work / "other").read_bytes() == want, f"at {index}"
        assert (lab.work / "used").exists() == (index == 0)
    lab.verb("verify")


EXCHANGE = """
import ctypes, os, metamori
os.mkdir("folder/inner")
print(metamori.checkpoint())
AT_FDCWD, RENAME_EXCHANGE = -100, 2
assert ctypes.CDLL(None).renameat2(AT_FDCWD, b"folder", AT_FDCWD, b"other", RENAME_EXCHANGE) == 0
"""


@pytest.mark.parametrize("other", ["file", "folder"])
def test_folder_exchanged_takes_along_what_is_in_it(lab: Lab, other: str) -> None:
    (lab.work / "folder").mkdir()
    if other == "file":
        (lab.work / "other").write_text("other")
    else:
        (lab.work / "other").mkdir()
    done = lab.run([sys.executable, "-c", EXCHANGE])
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "other" / "inner").is_dir()
    lab.restore(int(done.stdout))
    assert sorted(path.relative_to(lab.work).as_posix() for path in lab.work.rglob("*")) == [
        "folder", "folder/inner", "other"]
    assert (lab.work / "other").is_file() == (other == "file")
    lab.restore(0)
    assert not (lab.work / "folder" / "inner").exists()
