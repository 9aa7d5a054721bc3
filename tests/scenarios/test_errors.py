"""Calls that must fail, and calls that signals interrupt: the kernel's errno, as root and as an ordinary user."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, difference, picture

MODES = [[], ["--isolate"], ["--mode=single"]]
IDS = ["default", "isolate", "single"]
NOBODY = 65534
AS_NOBODY = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--"]
PLACES = [("none", "in-none"), ("read", "in-read"), ("write", "in-write"), ("theirs", "sticky"),
          ("sticky/in", "in-all"), ("all", "in-all"), ("in-none/in", "missing"), ("all/x", "in-all/in")]
HERE = ["sh", "-c", 'exec "$@"', "sh"]


def run(lab: Lab, words: list[object], options: list[str] | None, before: list[str]) -> bytes:
    """What it prints; natively when there are no options. `before` starts the rest as somebody, or somewhere, else."""
    command = [str(word) for word in words]
    if options is not None:
        command = [*lab.argv("run", *options), "--", *command]
    done = lab.run([*before, *command], native=True)
    said = [line for line in done.stderr.splitlines() if b"it may not be read, so its old" not in line]
    assert (done.returncode, said) == (0, []), done.stderr.decode()
    return done.stdout


@pytest.fixture
def open_labs(compiled: Compile, installed: None) -> Iterator[list[Lab]]:
    """Two laboratories, natively and followed, where everybody may go."""
    with tempfile.TemporaryDirectory(prefix="errors-") as folder:
        Path(folder).chmod(0o755)
        program = Path(shutil.copy(compiled("errors"), folder))
        labs = []
        for name in ("native", "follow"):
            Path(folder, name).mkdir()
            labs.append(Lab(Path(folder, name), program))
        yield labs
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=True)


def prepared(lab: Lab, owner: int) -> None:
    """One file and one folder of every kind that says no."""
    for name, mode in (("none", 0), ("read", 0o444), ("write", 0o222), ("all", 0o666)):
        (lab.work / name).write_bytes(b"0123456789")
        (lab.work / f"in-{name}").mkdir()
        (lab.work / f"in-{name}" / "in").write_bytes(b"inside")
        os.chmod(lab.work / name, mode)
    (lab.work / "theirs").write_bytes(b"somebody's")
    (lab.work / "sticky").mkdir()
    (lab.work / "sticky" / "in").write_bytes(b"inside")
    for path in [lab.folder, lab.work, *lab.work.rglob("*")]:
        if path.name != "theirs" and "sticky" not in path.parts:
            os.chown(path, owner, owner)
    for name, mode in (("in-none", 0), ("in-read", 0o555), ("in-write", 0o333), ("sticky", 0o1777)):
        os.chmod(lab.work / name, mode)
    os.chmod(lab.work, 0o755)


@pytest.mark.parametrize("options", MODES, ids=IDS)
@pytest.mark.parametrize("who", ["self", "another"])
def test_permission(open_labs: list[Lab], who: str, options: list[str]) -> None:
    before = HERE
    if who == "another":
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        before = AS_NOBODY
        if open_labs[0].run([*before, *open_labs[0].argv("log")], native=True).returncode != 10:
            pytest.skip("another user cannot read this folder")
    said = []
    for lab, how in zip(open_labs, (None, options)):
        prepared(lab, NOBODY if who == "another" else os.geteuid())
        told = b""
        for file, folder in PLACES:
            told += run(lab, [lab.driver, "denied", file, folder], how, before)
        said.append(told)
    assert said[0] == said[1]
    ordinary = {b"EACCES", b"EPERM"} if os.geteuid() or who == "another" else set()
    assert {b"ENOENT", b"EEXIST", b"ENOTEMPTY", *ordinary} <= set(said[1].split())
    wrong = difference(picture(open_labs[1].work), picture(open_labs[0].work))
    assert not wrong


SHUT = """
import os
fd = os.open("old", os.O_RDWR)
os.chmod("old", 0)
os.pwrite(fd, b"y" * 5000, 100)
"""


@pytest.mark.parametrize("options", MODES, ids=IDS)
def test_a_file_that_keeps_its_owner_out(open_labs: list[Lab], options: list[str]) -> None:
    """Root reads everything; its owner is let in for the moment in which its old bytes are saved."""
    lab, old = open_labs[1], open_labs[1].work / "old"
    old.write_bytes(bytes(20000))
    old.chmod(0o644)
    before = HERE if os.geteuid() else AS_NOBODY
    if not os.geteuid():
        for path in (lab.folder, lab.work, old):
            os.chown(path, NOBODY, NOBODY)
        if lab.run([*before, *lab.argv("log")], native=True).returncode != 10:
            pytest.skip("another user cannot read this folder")
    done = lab.run([*before, *lab.argv("run", *options), "--", sys.executable, "-c", SHUT], native=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert old.stat().st_mode & 0o777 == 0
    if "single" in "".join(options):
        return
    for index, mode, content in ((0, 0o644, bytes(20000)), (1, 0, bytes(100) + b"y" * 5000 + bytes(14900))):
        done = lab.run([*before, *lab.argv("restore", index)], native=True)
        assert done.returncode == 0, done.stderr
        assert old.stat().st_mode & 0o777 == mode
        assert mode == 0 or old.read_bytes() == content
    old.chmod(0o644)                       # for this test itself, where it runs as an ordinary user
    assert old.read_bytes() == content


SHUT_CALLS = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)

def say(word, call):
    try:
        print(name, word, call())
    except OSError as e:
        print(name, word, e.errno)

def punch(fd, start, length):
    ctypes.set_errno(0)
    return libc.fallocate(fd, 3, ctypes.c_long(start), ctypes.c_long(length)), ctypes.get_errno()

for flags in (os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_WRONLY):
    for mode in (0o400, 0o200, 0):
        name = f"{flags}-{mode}"
        fd = os.open(name, flags)
        os.chmod(name, mode)
        say("write", lambda: os.pwrite(fd, b"A" * 3000, 0))
        say("punch", lambda: punch(fd, 4096, 4096))
        say("again", lambda: os.pwrite(fd, b"B" * 3000, 10))
        say("punch", lambda: punch(fd, 0, 4096))
        say("data", lambda: os.lseek(fd, 12000, os.SEEK_DATA))
        say("cut", lambda: os.ftruncate(fd, 5000))
        say("allocate", lambda: os.posix_fallocate(fd, 0, 20000))
        say("map", lambda: mmap.mmap(fd, 4096)[0:20])
        say("mode", lambda: os.fstat(fd).st_mode)
        say("unlink", lambda: os.unlink(name))
        say("late", lambda: os.pwrite(fd, b"C" * 3000, 1000))
        say("linked", lambda: os.fstat(fd).st_nlink)
        os.close(fd)
"""


def as_nobody(lab: Lab) -> list[str]:
    """How to start something as an ordinary user, to whom all that is in the laboratory is given."""
    if os.geteuid():
        return HERE
    for path in [lab.folder, lab.store.parent, *lab.work.rglob("*"), lab.work]:
        os.chown(path, NOBODY, NOBODY)
    if lab.run([*AS_NOBODY, "test", "-r", sys.executable], native=True).returncode:
        pytest.skip("another user cannot read this folder")
    return AS_NOBODY


@pytest.fixture(params=["here", "elsewhere"])
def stores(request: pytest.FixtureRequest, open_labs: list[Lab]) -> Iterator[list[Lab]]:
    """The laboratories, the store on another filesystem too: it copies there what it links here."""
    if request.param == "here":
        yield open_labs
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == os.stat(open_labs[1].work).st_dev:
            pytest.skip("/dev/shm is no other filesystem")
        open_labs[1].store = Path(folder, "store")
        yield open_labs


@pytest.mark.parametrize("options", MODES, ids=IDS)
def test_calls_on_files_that_were_shut_while_open(stores: list[Lab], options: list[str]) -> None:
    """To write into the middle of a block takes reading, to remove a name a copy: neither is the program's doing."""
    said = []
    for lab, how in zip(stores, (None, options)):
        for flags in (os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_WRONLY):
            for mode in (0o400, 0o200, 0):
                (lab.work / f"{flags}-{mode}").write_bytes(b"o" * 30000)
                os.link(lab.work / f"{flags}-{mode}", lab.work / f"other {flags}-{mode}")
        before = as_nobody(lab)
        said.append(run(lab, [sys.executable, "-c", SHUT_CALLS], how, before).decode())
    assert said[1].splitlines() == said[0].splitlines()
    if "single" not in "".join(options) and stores[1].store.parent != stores[1].folder:
        for index, there in ((0, True), (1, False)):
            done = stores[1].run([*before, *stores[1].argv("restore", index)], native=True)
            assert done.returncode == 0, done.stderr
            assert all((stores[1].work / name).exists() == there for name in ("2-0", "1-256", "1026-128"))
    have, want = ({path.name: opened_up(path) for path in lab.work.iterdir()} for lab in stores)
    assert have == want


def opened_up(path: Path) -> tuple[int, bytes]:
    """A file's mode and bytes, whatever its mode is."""
    mode = path.stat().st_mode
    path.chmod(0o600)
    return mode, path.read_bytes()


TAKEN_AWAY = """
import os
fd = os.open("theirs", os.O_RDWR)
os.pwrite(fd, b"A" * 3000, 0)
print(open("go").read())
os.unlink("theirs")
os.pwrite(fd, b"B" * 3000, 3000)
"""


@pytest.mark.parametrize("stores", ["elsewhere"], indirect=True)
def test_what_another_name_misses_is_said(stores: list[Lab]) -> None:
    """A file of somebody else who takes the right to write away; then it loses one of its names."""
    if os.geteuid():
        pytest.skip("it takes another user's file")
    lab = stores[1]
    before = as_nobody(lab)
    theirs = lab.work / "theirs"
    theirs.write_bytes(b"o" * 9000)
    theirs.chmod(0o666)
    os.link(theirs, lab.work / "other")
    os.mkfifo(lab.work / "go")
    command = [*before, *lab.argv("run"), "--", sys.executable, "-c", TAKEN_AWAY]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=lab.work, env=lab.env, stdout=pipe, stderr=pipe) as program:
        with open(lab.work / "go", "wb") as go:    # it is open and written to
            theirs.chmod(0o444)
            go.write(b"went on")
        out, words = program.communicate(timeout=240)
    assert (program.returncode, out) == (0, b"went on\n")
    assert words.count(b"\n") == 1 and f"what is written to {theirs} does not appear".encode() in words
    assert (lab.work / "other").read_bytes() == b"o" * 9000


@pytest.mark.parametrize("options", MODES, ids=IDS)
def test_read_only_filesystem(open_labs: list[Lab], options: list[str]) -> None:
    mount = "mkdir ro && mount -t tmpfs none ro && mkdir ro/f && echo 1 > ro/a && echo 2 > ro/f/in"
    before = ["unshare", "--mount", "sh", "-c", f'{mount} && mount -o remount,ro ro && exec "$@"', "sh"]
    if os.geteuid() != 0 or open_labs[0].run([*before, "rmdir", "none"], native=True).returncode == 32:
        pytest.skip("a mount needs root")
    shutil.rmtree(open_labs[0].work / "ro", ignore_errors=True)
    words = [open_labs[0].driver, "denied", "ro/a", "ro/f"]
    said = [run(lab, words, how, before) for lab, how in zip(open_labs, (None, options))]
    assert said[0] == said[1]
    assert said[0].count(b"EROFS") > 20


@pytest.mark.parametrize("options", MODES, ids=IDS)
def test_interrupted(open_labs: list[Lab], options: list[str]) -> None:
    said = []
    for lab, how in zip(open_labs, (None, options)):
        (lab.work / "old").write_bytes(bytes(100000))
        said.append(run(lab, [lab.driver, "interrupted"], how, HERE))
    assert said[0] == said[1]
    assert said[0].count(b"not restarted: EINTR") == 4
    assert b"in a storm: 0 wrong, often" in said[0]
    assert (open_labs[0].work / "old").read_bytes() == (open_labs[1].work / "old").read_bytes()
    if "single" not in "".join(options):
        open_labs[1].restore(0)
        assert (open_labs[1].work / "old").read_bytes() == bytes(100000)


@pytest.mark.parametrize("options", MODES, ids=IDS)
def test_times_that_cannot_be_read(options: list[str], lab: Lab, tmp_path: Path, compiled: Compile) -> None:
    """The C library faults where it reads them, the kernel says EFAULT; either way nothing stays locked."""
    (tmp_path / "native").mkdir()
    native = Lab(tmp_path / "native", compiled("bad_times"))
    said = []
    for where, how in ((native, None), (lab, options)):
        (where.work / "old").write_bytes(bytes(10000))
        said.append(run(where, [compiled("bad_times")], how, HERE))
    assert said[0] == said[1]
    assert b"EFAULT" in said[1] and b"faults" in said[1]


SAYS_CREATE = """
import os
for name in ("shut", "theirs", "sticky/in"):
    try:
        os.close(os.open(name, os.O_CREAT | (os.O_RDONLY if name == "shut" else os.O_WRONLY)))
        print("opened")
    except OSError as e:
        print(e.errno)
"""


@pytest.mark.parametrize("options", MODES, ids=IDS)
def test_what_is_there_is_opened_as_asked(open_labs: list[Lab], options: list[str]) -> None:
    """A folder is EISDIR to O_CREAT before it is forbidden; and the kernel hears O_CREAT for somebody else's file:
    fs.protected_regular and fs.protected_fifos look at nothing else."""
    lab = open_labs[1]
    if os.geteuid() or not shutil.which("strace"):
        pytest.skip("only root can make another's files, and strace shows the calls")
    prepared(lab, NOBODY)
    (lab.work / "shut").mkdir(mode=0)
    (lab.work / "theirs").chmod(0o666)
    (lab.work / "sticky" / "in").chmod(0o666)
    trace = ["strace", "-f", "-qq", "-o", "trace", "-e", "trace=open,openat,openat2"]
    command = [*trace, "/usr/bin/python3", "-c", SAYS_CREATE]
    told = [run(lab, command, how, AS_NOBODY) for how in (None, options)]
    assert told[0] == told[1]
    assert told[1].split()[0] == str(errno.EISDIR).encode()
    for name in ("theirs", "sticky/in"):
        calls = [line for line in (lab.work / "trace").read_text().splitlines() if f'"{name}"' in line]
        opened = [line for line in calls if "= -1" not in line]
        assert opened and all("O_CREAT" in line for line in opened), opened


IN_ROOT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("root")
root = os.open("root", os.O_RDONLY)
how = (ctypes.c_uint64 * 3)(os.O_RDWR | os.O_CREAT, 0o600, 0x10)
for name in (b"../shut/new", b"/shut/new", b"../new"):
    fd = libc.syscall(437, root, name, how, 24)
    print(fd >= 0, 0 if fd >= 0 else ctypes.get_errno())
"""


@pytest.mark.parametrize("options", MODES, ids=IDS)
def test_a_root_that_a_path_cannot_leave(open_labs: list[Lab], options: list[str]) -> None:
    """What stands outside of it under the same name is not asked for: not even whether one may look there."""
    said = []
    for lab, how in zip(open_labs, (None, options)):
        before = as_nobody(lab)
        (lab.work / "shut").mkdir(mode=0 if os.geteuid() == 0 else 0o755)
        said.append(run(lab, [sys.executable, "-c", IN_ROOT], how, before).decode().splitlines())
    assert said[1] == said[0] == [f"False {errno.ENOENT}"] * 2 + ["True 0"]
    wrong = difference(picture(open_labs[1].work), picture(open_labs[0].work))
    assert not wrong
