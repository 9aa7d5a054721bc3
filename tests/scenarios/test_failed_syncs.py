"""What a disk has refused once the kernel does not write again: no later checkpoint of the run says it is durable."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Compile
from honest import verb
from lab import Lab

from metamori._area import lib
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint import auto_prune
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.checkpoint.session_state import SessionState
from metamori.store.io.os_io import Door


@pytest.mark.parametrize("what", ["buffer", "home"])
def test_no_checkpoint_after_a_failed_sync(lab: Lab, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    (lab.work / "f").write_bytes(b"f" * 100_000)
    session = lab.start()
    session.must(["open f rw", "open g rw,creat", "pwrite 3 9000 4096 1", "write 4 70000 2", "checkpoint",
                  "pwrite 3 9000 30000 3", "write 4 70000 4"])
    name, failed = "fsync" if what == "buffer" else "fdatasync", []
    real, end = getattr(Door, name), "/buffer/1" if what == "buffer" else "/g"

    def once(door: Door, fd: int) -> None:
        if not failed and os.path.realpath(f"/proc/self/fd/{fd}").endswith(end):
            failed.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(door, fd)

    monkeypatch.setattr(Door, name, once)
    said = verb(lab.store, "checkpoint")
    assert said.code and failed and "no checkpoint was taken: Input/output error" in said.err
    said = verb(lab.store, "checkpoint")
    assert said.code == 1 and "no checkpoint of it can be made durable before its end" in said.err
    assert session.ask("checkpoint") == "-1 EIO"
    content = [session.ask(f"pread {fd} 200000 0") for fd in (3, 4)]
    assert session.end() == 0
    native = lab.start(native=True)
    native.must(["open f rw", "open g rw"])
    assert [native.ask(f"pread {fd} 200000 0") for fd in (3, 4)] == content
    assert max(lab.messages()) == 2
    lab.verb("verify")
    session = lab.start()                  # the next run has another buffer
    session.must(["open f rw", "pwrite 3 10 10 1", "checkpoint"])
    assert session.end() == 0


def test_of_a_process_run_nothing_is_synced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lab.start("--durability", "process")
    session.must(["open f w,creat", "write 3 70000 1"])
    monkeypatch.setattr(Door, "fdatasync", lambda door, fd: 1 / 0)
    assert verb(lab.store, "checkpoint").code == 0
    session.must(["checkpoint"])
    assert session.end() == 0


def test_a_checkpoint_that_failed_is_not_there(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where its record has its name, which could not be made durable."""
    session = lab.start()
    session.must(["open f w,creat", "write 3 70000 1", "checkpoint", "write 3 70000 2"])
    real, failed = Door.fsync, []

    def once(door: Door, fd: int) -> None:
        there = list(lab.store.glob("checkpoints/2.meta.*"))
        if not failed and there and os.path.realpath(f"/proc/self/fd/{fd}") == str(there[0].parent):
            failed.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(door, fd)

    with monkeypatch.context() as patch:
        patch.setattr(Door, "fsync", once)
        said = verb(lab.store, "checkpoint")
    assert said.code and failed
    assert set(lab.messages()) == {0, 1}
    session.must(["checkpoint"])
    assert session.end() == 0
    assert max(lab.messages()) == 3
    lab.verb("verify")


@pytest.mark.parametrize(("had_lost", "loses", "is_taken"), [(False, False, True), (True, False, True),
                                                             (False, True, False), (True, True, False)])
def test_a_full_disk_at_the_end(monkeypatch: pytest.MonkeyPatch, had_lost: bool, loses: bool, is_taken: bool) -> None:
    """It is pruned as at any other time, also where a sync had failed before; not where this one's sync has."""
    tried = []

    def take(*_: object) -> int:
        tried.append(1)
        assert session.area.head.unsynced or not had_lost      # whoever is killed here leaves it so
        if len(tried) == 1:
            session.area.head.unsynced += loses
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return 7

    head: Any = SimpleNamespace(unsynced=int(had_lost), flags=lib.MM_POWER)
    session: Any = SessionState(SimpleNamespace(), SimpleNamespace(head=head))  # type: ignore[arg-type]
    session._take = take
    monkeypatch.setattr(auto_prune, "has_made_room", lambda session: True)
    if is_taken:
        assert Session._take_with_room(session, "", "end", False) == 7
    else:
        with pytest.raises(OSError, match="No space"):
            Session._take_with_room(session, "", "end", False)
    assert bool(head.unsynced) == (had_lost or loses)


@pytest.mark.parametrize(("name", "counts"), [("EIO", True), ("EROFS", True), ("EINTR", False), ("ENOSYS", False)])
def test_what_a_sync_of_the_log_was_refused_for(lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str,
                                                counts: bool) -> None:
    """Only what the disk has not taken; by the runtime, and by the library in an fsync."""
    session = lab.start()
    session.must(["open f rw,creat", "write 3 70000 1", "checkpoint", "pwrite 3 9000 4096 2", "fsync 3"])
    area = Area(os.fspath(lab.store))
    area.head.ahead_synced = 0
    number = getattr(errno, name)

    def refused(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refused)
        with pytest.raises(OSError, match=os.strerror(number)):
            wal.sync(area)
    area.close()
    assert session.ask("checkpoint").startswith("-1 EIO") == counts
    assert session.end() == 0
    lines = "open f rw\npwrite 3 9000 4096 2\nfsync 3\ncheckpoint\n"
    refuse = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=fdatasync:error={name}:when=1"]
    if not shutil.which("strace") or lab.run([*refuse, "true"], native=True).returncode:
        pytest.skip("no strace, or no right to trace")
    done = lab.run([*lab.argv("run"), "--", *refuse, str(lab.driver)], native=True, stdin=lines.encode())
    assert f"-1 {name}" in done.stdout.decode()
    assert ("-1 EIO" in done.stdout.decode().splitlines()[-1]) == counts, done


PROGRAMS_OWN = """
import ctypes, errno, metamori, mmap, os, struct, sys
way = sys.argv[1]
def aio():
    libc, block = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(struct.pack("i164x", 51))
    libc.aio_fsync(os.O_SYNC, block)
    while libc.aio_error(block) == errno.EINPROGRESS:
        pass
    print(libc.aio_error(block))
os.dup2(os.open("f", os.O_RDWR), 50)
os.dup2(os.open("g", os.O_RDWR | os.O_CREAT), 51)
os.write(51, b"g" * 5000)
os.pwrite(50, b"f" * 5000, 0)
try:
    {"fsync": lambda: os.fsync(51), "fdatasync": lambda: os.fdatasync(51), "mapped": lambda: mmap.mmap(50, 4096),
     "msync": lambda: mmap.mmap(51, 5000).flush(), "aio": aio}[way]()
except OSError as error:
    print(error.errno)
try:
    metamori.checkpoint()
except OSError:
    print("no checkpoint")
"""


@pytest.mark.parametrize("way, call, argument, value", [
    ("fsync", 74, 0, 51), ("fdatasync", 75, 0, 51), ("mapped", 75, 0, 50), ("msync", 26, 2, 4), ("aio", 74, 0, 51)])
@pytest.mark.parametrize("error", [errno.EIO, errno.EINVAL], ids=["refused", "another"])
def test_a_sync_in_the_program_fails(lab: Lab, compiled: Compile, way: str, call: int, argument: int, value: int,
                                     error: int) -> None:
    """Its own, or one that a call of its makes: the kernel has told of it once, and tells no checkpoint."""
    (lab.work / "f").write_bytes(b"f" * 100_000)
    refuse = [compiled("refuse"), call, error, argument, 0xffffffff, value]
    done = lab.run([*refuse, sys.executable, "-c", PROGRAMS_OWN, way])
    wanted = f"{error}\nno checkpoint\n" if error == errno.EIO else f"{error}\n"
    assert (done.returncode, done.stdout.decode()) == (0, wanted), done.stderr
