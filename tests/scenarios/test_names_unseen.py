"""What happens to names that the run is not told of: a file's other name, and what a folder takes along."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


def written_by_one_of_two_names(lab: Lab, options: list[str]) -> int:
    """OTHER_NAME's run, whose bytes must be in the file by the name that is left; the index of its checkpoint."""
    (lab.work / "used").write_bytes(b"o" * 9000)
    os.link(lab.work / "used", lab.work / "other")
    done = lab.run([sys.executable, "-c", OTHER_NAME], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "other").read_bytes() == LAST
    return int(done.stdout)


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_file_goes_on_by_a_name_that_the_run_never_used(lab: Lab, options: list[str]) -> None:
    """Its old bytes were overwritten, then the name that the program knew was taken away."""
    end = written_by_one_of_two_names(lab, options) + 1
    if "--mode=single" in options or os.stat(lab.work).st_dev != os.stat(lab.store).st_dev:
        return  # nothing in a store elsewhere leads to the name that is left (docs/limits.md)
    for index, want in [(end - 1, FIRST), (0, b"o" * 9000), (end - 1, FIRST), (end, LAST), (0, b"o" * 9000)]:
        lab.restore(index)
        assert (lab.work / "other").read_bytes() == want, f"at {index}"
        assert (lab.work / "used").exists() == (index == 0)
    lab.verb("verify")


IN_VAIN = """
import os, metamori
os.unlink("used")
print(metamori.checkpoint())
try:
    os.link("third", "other")
except FileExistsError:
    pass
"""


@pytest.fixture
def elsewhere(lab: Lab) -> Iterator[Lab]:
    """The store is on another filesystem than the files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == os.stat(lab.work).st_dev:
            pytest.skip("/dev/shm is no other filesystem")
        lab.store = Path(folder) / "store"
        yield lab


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_what_is_written_appears_by_the_other_name(elsewhere: Lab, options: list[str]) -> None:
    """The store cannot link the file that loses a name, and the program has it open."""
    taken = written_by_one_of_two_names(elsewhere, options)
    if "--mode=single" not in options:
        for index, there in [(taken, False), (0, True)]:
            elsewhere.restore(index)
            assert (elsewhere.work / "used").exists() == there
    elsewhere.verb("verify")


def test_the_other_name_keeps_its_time(elsewhere: Lab) -> None:
    """A name is taken away of a file that nobody has open; a call in vain tells the run of the one that is left."""
    (elsewhere.work / "used").write_bytes(b"o" * 9000)
    os.utime(elsewhere.work / "used", ns=(10**18, 10**18))
    os.link(elsewhere.work / "used", elsewhere.work / "other")
    (elsewhere.work / "third").touch()
    done = elsewhere.run([sys.executable, "-c", IN_VAIN])
    assert (done.returncode, done.stderr) == (0, b"")
    for index in (int(done.stdout), 0, int(done.stdout) + 1):
        elsewhere.restore(index)
        assert (elsewhere.work / "other").stat().st_mtime_ns == 10**18, index


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


FEW = """
import os, resource
os.makedirs("top/" + "d/" * 30)
taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.rename("top", "moved")
"""


def test_folder_moves_where_few_descriptors_are_left(lab: Lab) -> None:
    """It is deeper than that: what is in it is looked through all the same."""
    done = lab.run([sys.executable, "-c", FEW])
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "moved" / ("d/" * 30)).is_dir()
