"""What /proc says of several processes: in their order, in two parts, whatever the other thread is at."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lab import wait_until

from metamori._area import ffi, lib
from metamori.runtime.memory.proc_look import Looks, ProcLook

LONG = "x" * 100_000                       # an environment that the usual room does not hold


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["sleep", "1000"], env={"NUMBER": str(i), "LONG": LONG if i % 7 == 3 else ""})
               for i in range(40)]
    for each in started:
        wait_until(lambda call=Path(f"/proc/{each.pid}/wchan"): "nanosleep" in call.read_text(), "all sleep")
    yield started
    for each in started:
        each.kill()
        each.wait()


def looks(pids: list[int], **known: int) -> Looks:
    looks.kept = [ffi.new("struct mm_memory *", {"own": [2, -1], **known}) for _ in pids]   # type: ignore[attr-defined]
    return Looks([*zip(pids, looks.kept, strict=True)])                                     # type: ignore[attr-defined]


def test_each_is_told_of_itself(sleepers: list[subprocess.Popen[bytes]]) -> None:
    pids = [each.pid for each in sleepers]
    before = threading.active_count()
    with closing(looks(pids)) as all_of_them:
        found: list[ProcLook] = []
        for seen in all_of_them.first():
            assert [each.fd for each in seen.descriptors()] == [0, 1]      # 2 is one that is not told
            found.append(seen)
        all_of_them.rest(found)
    assert [each.pid for each in found] == pids
    assert threading.active_count() == before
    for number, seen in enumerate(found):
        assert seen.family == (os.getpid(), os.getpgid(0), os.getsid(0))
        launch = seen.launch()
        assert launch.argv == (b"sleep", b"1000")
        assert {b"NUMBER=%d" % number, b"LONG=" + (LONG.encode() if number % 7 == 3 else b"")} <= {*launch.env}
        assert launch.cwd == os.getcwdb()
        assert launch.exe in seen.files


def test_what_is_known_is_not_read(sleepers: list[subprocess.Popen[bytes]]) -> None:
    with closing(looks([sleepers[0].pid], same_program=1)) as one:
        seen, = one.first()
        one.rest([seen])
    assert seen.launch().argv == seen.launch().env == ()


def test_what_is_mapped_alike_is_read_once(sleepers: list[subprocess.Popen[bytes]]) -> None:
    """By what each said of it when it was held; where a name has changed since, of each: all are as they are now."""
    mapped = [Path(f"/proc/{each.pid}/maps").read_bytes() for each in sleepers[:4]]
    key = lib.mm_maps_key(mapped[0], len(mapped[0]))
    for said, once in (key, True), (key ^ 2, False):
        with closing(looks([each.pid for each in sleepers[:4]], maps_key=said)) as several:
            found = [*several.first()]
            several.rest(found)
        assert [seen.maps for seen in found] == ([mapped[0]] * 4 if once else mapped)
        assert [memory.maps_changed for memory in looks.kept] == [not once] * 4     # type: ignore[attr-defined]


def test_one_has_ended(sleepers: list[subprocess.Popen[bytes]]) -> None:
    """Those before it are told of, and no thread is left behind."""
    before = threading.active_count()
    sleepers[5].kill()
    sleepers[5].wait()
    told = []
    with closing(looks([each.pid for each in sleepers])) as all_of_them, pytest.raises(FileNotFoundError):
        for seen in all_of_them.first():
            told.append(seen.pid)
    assert told == [each.pid for each in sleepers[:5]]
    assert threading.active_count() == before


def test_nobody(sleepers: list[subprocess.Popen[bytes]]) -> None:
    with closing(looks([])) as nobody:
        assert [*nobody.first()] == []
        nobody.rest([])


def test_a_pipe_is_known_without_its_link(tmp_path: Path) -> None:
    """By what it is said to be mounted in; a fifo and a socket are asked for."""
    os.mkfifo(tmp_path / "fifo")
    beside = socket.socket()
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    fds = [reader, writer, os.open(tmp_path / "fifo", os.O_RDWR), beside.fileno()]
    with closing(looks([os.getpid()])) as one:
        found = {each.fd: each for seen in one.first() for each in seen.descriptors()}
    for fd in fds:
        st, seen = os.fstat(fd), found[fd]
        assert seen.path == os.readlink(b"/proc/self/fd/%d" % fd)
        assert seen.st[:3] == (st.st_mode, st.st_dev, st.st_ino)
        assert (seen.st.st_nlink, seen.st.st_blksize) == (st.st_nlink, st.st_blksize)
        assert seen.flags & os.O_ACCMODE == fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        assert bool(seen.info) == (fd not in (reader, writer))
    assert found[reader].flags & os.O_NONBLOCK and found[reader].flags & os.O_CLOEXEC
    assert found[reader].st.st_size == fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
    for fd in fds[:3]:
        os.close(fd)
    beside.close()
