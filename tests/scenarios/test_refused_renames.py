"""Renames that the kernel refuses, and those that nobody could follow: nothing is saved for them, and nothing lost."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import pytest
from lab import Lab, difference, picture

ELSEWHERE = "/dev/shm"
MIB = 1 << 20
CALLS = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)

def rename(old, new, flags):
    r = libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags)
    return errno.errorcode[ctypes.get_errno()] if r else "done"
"""
FOLDER = CALLS + """
before = [os.lstat(name).st_ctime_ns for name in ("data/one", "data/two")]
for old, new, flags in eval(sys.argv[1]):
    print(rename(old, new, flags))
print([os.lstat(name).st_ctime_ns for name in ("data/one", "data/two")] == before)
"""


@pytest.fixture
def other() -> Iterator[str]:
    """A folder on another filesystem."""
    with tempfile.TemporaryDirectory(dir=ELSEWHERE) as folder:
        yield folder


def test_a_folder_that_stays_is_not_saved(lab: Lab, native_lab: Lab, other: str) -> None:
    """All its files were, as if they had left the scope: with a full store the program got ENOSPC, and mv gave up."""
    if os.stat(other).st_dev == lab.work.stat().st_dev:
        pytest.skip("both are on one filesystem")
    said = []
    for each in (native_lab, lab):
        each.env.pop("METAMORI_TRACK", None)
        (each.work / "data").mkdir()
        (each.work / "there").mkdir()
        (each.folder / "out" / "there" / "some").mkdir(parents=True)
        (each.work / "data" / "one").write_bytes(b"1" * MIB)
        (each.work / "data" / "two").write_bytes(b"2" * MIB)
        (each.work / "other").hardlink_to(each.work / "data" / "two")
        before = picture(each.work)
        out = each.folder / "out"
        calls = [("data", f"{other}/data", 0), ("data", f"{other}/data", 1), (f"{other}/.", "data", 2),
                 ("data", other, 2), ("data", f"{out}/there", 1), ("data", f"{out}/none", 2),
                 ("data", "there", 1), ("data", "none", 2), ("data", "data", 0), ("data", "data", 2)]
        done = each.run([sys.executable, "-c", FOLDER, repr(calls)], native=each is native_lab)
        assert (done.returncode, done.stderr) == (0, b"")
        said.append(done.stdout.decode().split())
        assert not difference(picture(each.work), before)
    assert said[1] == said[0] and said[0][-1] == "True", said
    assert said[0][:2] == ["EXDEV", "EXDEV"]
    saved = sum(path.stat().st_blocks * 512 for path in (lab.store / "buffer").iterdir())
    assert saved < MIB / 2


def test_a_folder_that_may_go_leaves(lab: Lab) -> None:
    """With a slash at its end, too."""
    lab.env.pop("METAMORI_TRACK", None)
    (lab.work / "data").mkdir()
    (lab.work / "data" / "one").write_bytes(b"1" * 9000)
    before = picture(lab.work)
    (lab.folder / "out").mkdir()
    program = CALLS + "print(rename('data/', '../out/data/', 0))"
    assert lab.run([sys.executable, "-c", program]).stdout == b"done\n"
    assert not picture(lab.work)
    lab.restore(0)
    assert not difference(picture(lab.work), before)


DEEP = CALLS + """
home = os.getcwd()
os.chdir("../deep")
while len(os.getcwd()) < 3900:
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
name = "n" * 220
with open(name, "w") as file:
    file.write("new")
print(rename(name, home + "/old", 0), rename(home + "/other", name, 0), rename(home + "/none", name, 0))
print(rename(name, "m" * 220, 0), os.listdir("."))
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_a_path_that_no_call_takes(lab: Lab, options: list[str]) -> None:
    """What had been replaced by such a name was in no index: now it counts as being on another filesystem."""
    lab.env.pop("METAMORI_TRACK", None)
    (lab.folder / "deep").mkdir()
    for name in ("old", "other"):
        (lab.work / name).write_bytes(name.encode() * 3000)
    before = picture(lab.work)
    done = lab.run([sys.executable, "-c", DEEP], *options)
    assert (done.returncode, done.stdout.decode().split()) == \
        (0, ["EXDEV", "EXDEV", "ENOENT", "done", f"['{'m' * 220}']"])
    assert done.stderr.decode().startswith("metamori: files with a path longer than 4095 bytes are not tracked\n")
    assert not difference(picture(lab.work), before)
    lab.restore(0)
    assert not difference(picture(lab.work), before)


REMOVES = """
import ctypes, metamori, os
libc, count = ctypes.CDLL(None), 300
for i in range(count):
    with open(f"f{i}", "w") as file:
        file.write(f"file {i}" * 9)
print(metamori.checkpoint(), flush=True)
child = os.fork()
if not child:
    for i in range(count):
        while os.path.exists("x"):
            pass
        os.rename(f"f{i}", "x")
    os._exit(0)
removed = 0
while removed < count:
    removed += libc.remove(b"x") == 0
os.waitpid(child, 0)
"""


def test_what_comes_while_nothing_is_there(lab: Lab) -> None:
    """remove() found nothing, and removed what came then: that was in no index any more."""
    done = lab.run([sys.executable, "-c", REMOVES])
    assert done.returncode == 0, done
    assert not picture(lab.work)
    lab.verb("verify")
    lab.restore(int(done.stdout))
    assert {name: entry.content for name, entry in picture(lab.work).items()} == \
        {f"f{i}": f"file {i}".encode() * 9 for i in range(300)}


IN_ROOT = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
root = os.open("root", os.O_PATH | os.O_DIRECTORY)
for name in ("absolute", "nowhere else", "relative", "folder/up", "chain"):
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o644, 0x10)
    fd = libc.syscall(437, root, os.fsencode(name), how, len(how))
    assert fd >= 0, (name, os.strerror(ctypes.get_errno()))
    os.write(fd, name.encode() * 900)
    os.close(fd)
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_made_through_a_link_in_another_root(lab: Lab, options: list[str]) -> None:
    """By openat2 with RESOLVE_IN_ROOT: the link led out of that, and the new file was in no index."""
    lab.env.pop("METAMORI_TRACK", None)
    for folder in ("etc", "none such", "folder"):
        (lab.work / "root" / folder).mkdir(parents=True)
    links = {"absolute": "/etc/metamori-made", "nowhere else": "/none such/file", "relative": "etc/beside",
             "folder/up": "../../../etc/above", "chain": "/etc/link", "etc/link": "../none such/second"}
    for name, target in links.items():
        (lab.work / "root" / name).symlink_to(target)
    before = picture(lab.work)
    done = lab.run([sys.executable, "-c", IN_ROOT], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    after = picture(lab.work)
    made = ("etc/above", "etc/beside", "etc/metamori-made", "none such/file", "none such/second")
    assert sorted(after.keys() - before.keys()) == [f"root/{name}" for name in made]
    for index, want in ((0, before), (1, after), (0, before)):
        lab.restore(index)
        assert not difference(picture(lab.work), want), index


HERE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.chdir("folder")
times = (ctypes.c_long * 4)(1000, 0, 1000, 0)
assert libc.utimensat(-100, b"", times, 0x1000) == 0
if os.geteuid() == 0:
    assert libc.fchownat(-100, b"", 1, 1, 0x1000) == 0
"""


def test_attributes_of_the_present_folder(lab: Lab) -> None:
    """Given by no name at all, with AT_EMPTY_PATH and AT_FDCWD."""
    def attributes() -> tuple[int, ...]:
        found = (lab.work / "folder").stat()
        return found.st_uid, found.st_gid, found.st_mtime_ns

    (lab.work / "folder").mkdir()
    os.utime(lab.work / "folder", ns=(5000, 5000))
    before = attributes()
    assert lab.run([sys.executable, "-c", HERE]).returncode == 0
    after = attributes()
    assert after != before
    for index, want in ((0, before), (1, after), (0, before)):
        lab.restore(index)
        assert attributes() == want, index
