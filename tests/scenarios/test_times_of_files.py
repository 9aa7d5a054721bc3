"""Files dated before 1970, far in the future, or where 64 bits of nanoseconds do not reach: runs go on, and every index
has their times."""

from __future__ import annotations

import os
import stat
import sys

import pytest
from lab import Lab

SECOND = 10**9
BEFORE_1970, AFTER_2038, LAST = -631_152_000 * SECOND + 5, 7_258_118_400 * SECOND + 999_999_999, 2**63 - 1

STEPS = """
import os, subprocess, sys, time

def put(path, at, data):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, data, at)
    times = os.fstat(fd).st_mtime, os.stat(path).st_mtime
    os.close(fd)
    assert all(abs(each - time.time()) < 60 for each in times), times

put("over", 100, b"new")
assert os.lstat("over").st_mtime == os.stat("other name").st_mtime
with open("more", "ab") as file:
    file.write(b"more")
os.unlink("gone")
os.chmod("only its mode", 0o600)
for name in ("moved", "link", "pipe", "folder"):
    os.rename(name, name + " away")
with open("made", "w") as file:
    file.write("made")
os.utime("made", ns=(int(sys.argv[1]),) * 2)
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
put("made", 0, b"M")
os.utime("over", ns=(int(sys.argv[1]),) * 2)
"""


def seen(lab: Lab) -> dict[str, tuple[object, ...]]:
    found = {}
    for path in sorted(lab.work.iterdir()):
        status = path.lstat()
        time = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
        found[path.name] = status.st_mode, time, path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
    return found


def prepare(lab: Lab, time_ns: int) -> None:
    for name in ("over", "more", "gone", "only its mode", "moved"):
        (lab.work / name).write_bytes(b"old" * 7000)
    os.link(lab.work / "over", lab.work / "other name")
    (lab.work / "link").symlink_to("over")
    os.mkfifo(lab.work / "pipe")
    (lab.work / "folder").mkdir()
    for path in lab.work.iterdir():
        os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)


@pytest.mark.parametrize("time_ns", [BEFORE_1970, AFTER_2038], ids=["before 1970", "2200"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_every_index_has_them(lab: Lab, time_ns: int, options: list[str]) -> None:
    prepare(lab, time_ns)
    states = {0: seen(lab)}
    done = lab.run([sys.executable, "-c", STEPS, str(time_ns), *lab.argv("checkpoint")], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    states[2] = seen(lab)
    assert states[2]["over"][1] == time_ns and states[2]["moved away"][1] == time_ns
    lab.restore(1)
    states[1] = seen(lab)
    assert states[1]["made"][1:] == (time_ns, b"made") and states[1]["more"][1] == states[2]["more"][1]
    assert time_ns != states[1]["over"][1] == states[1]["other name"][1]
    for index in (0, 1, 2, 1, 0, 2):
        lab.restore(index)
        assert seen(lab) == states[index], index
    lab.verb("verify")


def test_beyond_2262(lab: Lab) -> None:
    """The nearest that a record can say; nothing else is any worse for it, and nobody has changed these files."""
    time_ns = LAST // SECOND * SECOND + 10 * SECOND
    prepare(lab, time_ns)
    if os.lstat(lab.work / "over").st_mtime_ns != time_ns:
        pytest.skip("no file of this filesystem can have such a time")
    before = seen(lab)
    done = lab.run([sys.executable, "-c", STEPS, str(time_ns), *lab.argv("checkpoint")])
    assert (done.returncode, done.stderr) == (0, b"")
    for index in (0, 1, 0, 2, 0):
        lab.restore(index)
    have = seen(lab)
    assert {name: (mode, data) for name, (mode, _, data) in have.items()} == {
        name: (mode, data) for name, (mode, _, data) in before.items()}
    assert have["over"][1] == have["gone"][1] == LAST
    lab.verb("verify")


ASKED = """
import os
fd, same = os.open("over", os.O_RDWR), 0
for i in range(300):
    before = os.fstat(fd).st_mtime_ns
    os.ftruncate(fd, 21000 + i) if i % 3 == 2 else os.pwrite(fd, b"x", (i, 20999 + i)[i % 3])
    same += before == os.fstat(fd).st_mtime_ns
print(same)
"""


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=str)
def test_every_write_shows_to_who_asks(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """Since Linux 6.13, between two ticks of its clock."""
    for each in (lab, native_lab):
        (each.work / "over").write_bytes(b"old" * 7000)
    if native_lab.run([sys.executable, "-c", ASKED], native=True).stdout != b"0\n":
        pytest.skip("this kernel, or this filesystem, has no finer times than its ticks")
    done = lab.run([sys.executable, "-c", ASKED], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n", b"")


def test_a_folder_of_the_first_second_of_1970(lab: Lab) -> None:
    """As archives have them: it came back with the time of the restore, and without a mode that the umask forbids."""
    folder = lab.work / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    os.utime(folder, ns=(0, 0))
    before = folder.stat()
    assert lab.run(["rmdir", "folder"]).returncode == 0
    lab.restore(0)
    after = folder.stat()
    assert (oct(after.st_mode), after.st_mtime_ns) == (oct(before.st_mode), 0)
