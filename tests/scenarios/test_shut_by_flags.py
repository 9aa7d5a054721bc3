"""What the kernel keeps of a file beside its mode: the flags of chattr, which keep all writers out, and file
capabilities, which end with the first byte that is written over."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from stops import Stops

MODES = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")   # cap_net_raw=ep

SHUTS = """
import fcntl, os, struct, subprocess, sys

def tried(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return error.strerror

def shut(name, flag):
    fd = os.open(name, os.O_RDONLY)
    flags = bytearray(4)
    fcntl.ioctl(fd, 0x80086601, flags)
    fcntl.ioctl(fd, 0x40086602, struct.pack("i", struct.unpack("i", flags)[0] | flag))
    os.close(fd)

fds = [os.open(name, os.O_RDWR) for name in ("immutable", "append", "closed")]
for fd in fds:
    os.pwrite(fd, b"written over", 100)
os.close(fds[2])
for name, flag in (("immutable", 16), ("append", 32), ("closed", 16)):
    shut(name, flag)
print(tried(os.pwrite, fds[0], b"no", 50), tried(os.pwrite, fds[1], b"yes", 50))
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(tried(os.pwrite, fds[0], b"no", 60), tried(os.pwrite, fds[1], b"yes", 60), os.pread(fds[0], 12, 100))
end = os.open("append", os.O_WRONLY | os.O_APPEND)
os.write(end, b"appended")
"""
NAMES = ("immutable", "append", "closed")


def opened(*folders: Path) -> None:
    subprocess.run(["chattr", "-i", "-a", *(folder / name for folder in folders for name in NAMES)], check=True)


@pytest.fixture
def both(lab: Lab, native_lab: Lab) -> Iterator[tuple[Lab, Lab]]:
    """Under Metamori and natively; what was shut is opened in the end."""
    for each in (lab, native_lab):
        for name in NAMES:
            (each.work / name).write_bytes(b"old " * 5000)
    if os.getuid() != 0 or subprocess.run(["chattr", "+i", lab.work / "closed"], capture_output=True).returncode:
        pytest.skip("this filesystem has no flags, or they are not ours to set")
    opened(lab.work)
    yield lab, native_lab
    opened(lab.work, native_lab.work)


@MODES
def test_a_file_that_the_program_shuts(both: tuple[Lab, Lab], options: list[str]) -> None:
    """Its redirected bytes could never have been written back, and the run's end failed."""
    lab, native_lab = both
    native = native_lab.run([sys.executable, "-c", SHUTS, "true"], native=True)
    done = lab.run([sys.executable, "-c", SHUTS, *lab.argv("checkpoint")], *options)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", native.stdout)
    opened(lab.work, native_lab.work)
    for name in NAMES:
        assert (lab.work / name).read_bytes() == (native_lab.work / name).read_bytes(), name
    end = {name: (lab.work / name).read_bytes() for name in NAMES}
    lab.restore(0, "--force")              # chattr has changed them outside
    assert all((lab.work / name).read_bytes() == b"old " * 5000 for name in NAMES)
    lab.restore(2)
    assert all((lab.work / name).read_bytes() == end[name] for name in NAMES)
    lab.verb("verify")


BY_PATH = """
import ctypes, os, struct
fd, libc = os.open("immutable", os.O_RDWR), ctypes.CDLL(None, use_errno=True)
os.pwrite(fd, b"written over", 100)
immutable = struct.pack("Q4I", 8, 0, 0, 0, 0)
print(libc.syscall(469, -100, b"immutable", immutable, len(immutable), 0), ctypes.get_errno(), os.pread(fd, 12, 100))
"""


@MODES
def test_a_file_that_is_shut_by_its_path(both: tuple[Lab, Lab], options: list[str]) -> None:
    """By file_setattr(2), which came with Linux 6.17: as above."""
    lab, native_lab = both
    native = native_lab.run([sys.executable, "-c", BY_PATH], native=True)
    done = lab.run([sys.executable, "-c", BY_PATH], *options)
    if b"-1 38" in native.stdout:
        pytest.skip("no file_setattr")
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", native.stdout)
    assert (lab.work / "immutable").read_bytes() == (native_lab.work / "immutable").read_bytes()


APPENDS = """
import os, subprocess, sys
fd = os.open("append", os.O_WRONLY | os.O_APPEND)
os.write(fd, b"appended")
for call in (lambda: os.ftruncate(fd, 10), lambda: os.truncate("append", 10), lambda: os.open("append", os.O_RDWR)):
    try:
        print(call())
    except OSError as error:
        print(error.strerror)
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
os.write(fd, b" twice")
print(os.fstat(fd).st_size)
"""


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolate", "single"])
def test_a_file_that_can_be_appended_to_only(both: tuple[Lab, Lab], options: list[str]) -> None:
    """What was redirected could never be written back; a restore that could not cut it was half done, and waited."""
    lab, native_lab = both
    for each in both:
        subprocess.run(["chattr", "+a", each.work / "append"], check=True)
    native = native_lab.run([sys.executable, "-c", APPENDS, "true"], native=True)
    done = lab.run([sys.executable, "-c", APPENDS, *lab.argv("checkpoint")], *options)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", native.stdout)
    assert (lab.work / "append").read_bytes() == b"old " * 5000 + b"appended twice"
    if "--mode=single" in options:
        return
    said = lab.restore(0, code=1).stderr
    assert "append: Operation not permitted; no file was touched" in said
    (lab.work / "closed").write_bytes(b"the store does not wait for it")
    lab.verb("log")
    opened(lab.work)
    lab.restore(0, "--force")
    assert (lab.work / "append").read_bytes() == b"old " * 5000


TAKES = """
import os, sys

def tried(call, *words):
    before = os.stat(words[-1])
    try:
        return call(*words)
    except OSError as error:
        return error.strerror, os.stat(words[-1]).st_ctime_ns == before.st_ctime_ns

open("made", "w").close()
for name in ("immutable", "append", "folder/in", "appending/in"):
    print(tried(os.unlink, name), tried(os.rename, "made", name))
print(sorted(os.listdir(sys.argv[1])))
"""


def test_what_the_kernel_does_not_let_go_is_not_kept(both: tuple[Lab, Lab]) -> None:
    """All of it was copied before, which on a full disk was ENOSPC; or its ctime moved."""
    lab, native_lab = both
    for each in both:
        for name in ("folder", "appending"):
            (each.work / name).mkdir()
            (each.work / name / "in").write_bytes(b"old " * 5000)
        for name, flag in (("immutable", "+i"), ("append", "+a"), ("folder", "+i"), ("appending", "+a")):
            subprocess.run(["chattr", flag, each.work / name], check=True)
    try:
        (native_lab.folder / "kept").mkdir()
        native = native_lab.run([sys.executable, "-c", TAKES, native_lab.folder / "kept"], native=True)
        done = lab.run([sys.executable, "-c", TAKES, lab.store / "kept"])
    finally:
        shut = [each.work / name for each in both for name in ("folder", "appending")]
        subprocess.run(["chattr", "-i", "-a", *shut], check=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", native.stdout)
    assert native.stdout.endswith(b"[]\n") and native.stdout.count(b"('Operation not permitted', True)") == 8


@pytest.mark.parametrize(("flag", "goes"), [("+i", False), ("+a", True)], ids=["immutable", "append-only"])
def test_names_that_would_come_where_none_can(both: tuple[Lab, Lab], flag: str, goes: bool) -> None:
    """All that comes before was done, and the rest waited: after the run, and inside the program."""
    lab = both[0]
    folder = lab.work / "folder"
    folder.mkdir()
    (folder / "in").write_bytes(b"old " * 5000)
    before = lab.state()
    session = lab.start()
    session.must(["checkpoint", "open immutable w,trunc", "rename closed other", "unlink folder/in"])
    then = lab.state()
    subprocess.run(["chattr", flag, folder], check=True)
    try:
        if not goes:
            assert session.ask("restore 1") == "-1 EPERM"
            lab.assert_state(then, "nothing has moved")
        assert session.end() == 0, session.stderr()
        said = lab.restore(0, "--force", code=0 if goes else 1).stderr
        if not goes:
            assert "folder: Operation not permitted; no file was touched" in said
            lab.assert_state(then, "nothing has moved")
    finally:
        subprocess.run(["chattr", "-i", "-a", folder], check=True)
    lab.restore(0, "--force")
    lab.assert_state(before, "as before the run")
    lab.verb("verify")


@pytest.mark.parametrize("flag", ["+i", "+a"], ids=["immutable", "append-only"])
@pytest.mark.parametrize(("first", "then", "shut"), [
    ([], "mkdir folder", "folder"), (["open closed rw", "close 3", "link closed second"], "unlink second", "closed"),
], ids=["folder", "link"])
def test_what_can_neither_go_nor_be_linked(
        both: tuple[Lab, Lab], first: list[str], then: str, shut: str, flag: str) -> None:
    """The restore was half done at a folder that it could not remove, and a second name became a file of its own."""
    lab = both[0]
    session = lab.start()
    session.must([*first, "checkpoint"])
    before = lab.state()
    session.must([then, "open immutable w,trunc"])
    after = lab.state()
    subprocess.run(["chattr", flag, lab.work / shut], check=True)
    try:
        assert session.ask("restore 1") == "-1 EPERM"
        lab.assert_state(after, "nothing has moved")
        assert session.end() == 0, session.stderr()
        said = lab.restore(1, code=1).stderr
        assert f"{shut}: Operation not permitted; no file was touched" in said
        lab.assert_state(after, "nothing has moved")
    finally:
        subprocess.run(["chattr", "-i", "-a", lab.work / shut], check=True)
    lab.restore(1, "--force")
    lab.assert_state(before, "as it was")
    assert (lab.work / "closed").stat().st_nlink == (2 if first else 1)
    lab.verb("verify")


LOSES = """
import os, subprocess, sys
fd = os.open("program", os.O_RDWR)
print(len(os.listxattr("program")))
os.pwrite(fd, b"another program", 100)
print(len(os.listxattr("program")))
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
"""


@MODES
def test_capabilities_are_not_those_of_other_bytes(lab: Lab, options: list[str]) -> None:
    """A checkpoint had what was written over with the capabilities of what was there, and a restore gave it these."""
    program = lab.work / "program"
    program.write_bytes(b"old " * 5000)
    try:
        os.setxattr(program, "security.capability", CAPABILITY)
    except OSError:
        pytest.skip("capabilities are root's to give, where the filesystem has them")
    done = lab.run([sys.executable, "-c", LOSES, *lab.argv("checkpoint")], *options)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"1\n0\n")
    for index, capabilities in ((1, []), (0, ["security.capability"]), (1, []), (2, [])):
        lab.restore(index)
        assert os.listxattr(program) == capabilities, index


GIVEN_AGAIN = """
import os, sys
with open("program", "r+b") as file:
    file.seek(9000)
    file.write(b"new")
os.setxattr("program", "security.capability", bytes.fromhex(sys.argv[1]))
"""


@MODES
def test_capabilities_that_other_bytes_were_given_too(lab: Lab, options: list[str]) -> None:
    """Two indexes had the same ones, and the kernel takes them from what a restore, or the end of a run, writes to."""
    program = lab.work / "program"
    program.write_bytes(b"old " * 5000)
    try:
        os.setxattr(program, "security.capability", CAPABILITY)
    except OSError:
        pytest.skip("capabilities are root's to give, where the filesystem has them")
    done = lab.run([sys.executable, "-c", GIVEN_AGAIN, CAPABILITY.hex()], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert os.listxattr(program) == ["security.capability"]
    for index in (0, 1, 0):
        lab.restore(index)
        assert os.listxattr(program) == ["security.capability"], index


@pytest.mark.parametrize("by", ["the program", "somebody else"])
@MODES
def test_shut_when_the_store_has_copied_it(
        both: tuple[Lab, Lab], tmp_path: Path, options: list[str], by: str) -> None:
    """What had been appended in place behind a redirected byte was missing from then on."""
    lab = both[0]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if Path(folder).stat().st_dev == lab.work.stat().st_dev:
            pytest.skip("both are on one filesystem")
        lab.store, path = Path(folder, "store"), lab.work / "closed"
        path.write_bytes(b"o" * 5000)
        stops = Stops(tmp_path / "stops")
        lab.env |= stops.env
        program = lab.start(*options)
        program.must(["thread 0", "checkpoint", "open closed rw", "pwrite 3 10 4200 1"])
        if by == "the program":
            program.must(["pwrite 3 1000 5000 2", "close 3"])
        else:
            program.must(["close 3"])
            with path.open("ab") as file:
                file.write(b"a" * 1000)
        stops.arm("keep.copies")
        program.must(["begin 0 unlink closed"])
        stops.wait("keep.copies")
        subprocess.run(["chattr", "+i", path], check=True)
        stops.go("keep.copies")
        assert program.ask("await 0") == "-1 EPERM"
        subprocess.run(["chattr", "-i", path], check=True)
        before = program.ask("tree")
        program.must(["open closed r", "pread 3 6000 0", "checkpoint"])
        assert program.ask("tree") == before and before.count(":6000:") == 1, before
        assert program.end() == 0
        data = path.read_bytes()
        assert len(data) == 6000 and data[5000:].count(b"\0") < 100
        lab.restore(1, "--force")
        lab.restore(2)
        assert path.read_bytes() == data
