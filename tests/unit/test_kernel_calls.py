"""System calls that Python has no function for (build_area.py), beside what Python or /proc says of the same."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from metamori._area import ffi, lib
from metamori.store.io.os_io import Door


def test_a_hole_is_punched_and_the_size_stays(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 3 * 4096)
    fd = os.open(path, os.O_RDWR)
    if Door().punch_hole(fd, 4096, 8192):
        assert path.read_bytes() == b"x" * 4096 + bytes(4096) + b"x" * 4096
    os.close(fd)
    assert lib.mm_punch_hole(fd, 0, 4096) == -errno.EBADF


def test_writing_begins() -> None:
    assert lib.mm_write_out(-1, 0, 1, 0) == -errno.EBADF


def test_when_a_file_was_made(tmp_path: Path) -> None:
    path, link = tmp_path / "f", tmp_path / "link"
    path.touch()
    time.sleep(0.05)                       # the clock of files goes in steps
    link.symlink_to(path)
    said = subprocess.run(["stat", "-c", "%W", path], capture_output=True, text=True, check=True).stdout
    made = Door().birth_ns(bytes(path))
    assert made // 10**9 == int(said.replace("-", "0"))
    assert Door().birth_ns(bytes(link), follow=True) == made
    assert not made or Door().birth_ns(bytes(link)) > made
    assert Door().birth_ns(bytes(tmp_path / "none")) == 0
    assert lib.mm_birth_ns(bytes(tmp_path / "none"), 0) == -errno.ENOENT


def test_a_copy_of_a_descriptor_is_the_same_description(tmp_path: Path) -> None:
    first = os.open(tmp_path, os.O_RDONLY)
    copy, other = os.dup(first), os.open(tmp_path, os.O_RDONLY)
    assert lib.mm_order_of_descriptions(os.getpid(), first, os.getpid(), copy) == 0
    assert {lib.mm_order_of_descriptions(os.getpid(), *two) for two in ((first, os.getpid(), other),
                                                                        (other, os.getpid(), first))} == {1, 2}
    process = os.pidfd_open(os.getpid())
    taken = lib.mm_take_descriptor(process, first)
    assert taken < 0 or lib.mm_order_of_descriptions(os.getpid(), first, os.getpid(), taken) == 0
    assert lib.mm_take_descriptor(process, 100000) < 0
    for fd in (first, copy, other, process, *([taken] if taken >= 0 else ())):
        os.close(fd)


def test_what_is_in_a_pipe_is_copied_and_stays() -> None:
    reader, writer = os.pipe()
    from_copy, to_copy = os.pipe()
    os.write(writer, b"abc")
    assert lib.mm_tee(reader, to_copy, 3) == 3
    assert os.read(from_copy, 10) == os.read(reader, 10) == b"abc"
    assert lib.mm_tee(reader, to_copy, 3) == -errno.EAGAIN
    for fd in (reader, writer, from_copy, to_copy):
        os.close(fd)


def test_names_of_sockets() -> None:
    one, other = socket.socket(), socket.socket()
    address = struct.pack("=H2s4s8x", socket.AF_INET, bytes(2), bytes((127, 0, 0, 1)))
    assert lib.mm_bind(one.fileno(), address, len(address)) == 0
    one.listen()
    into, length = ffi.new("char[]", 128), ffi.new("uint32_t *", 128)
    assert lib.mm_name_of_socket(one.fileno(), 0, into, length) == 0
    name = bytes(ffi.buffer(into, length[0]))
    assert struct.unpack("!H", name[2:4])[0] == one.getsockname()[1]
    assert lib.mm_name_of_socket(other.fileno(), 1, into, length) == -errno.ENOTCONN
    assert lib.mm_connect(other.fileno(), name, len(name)) == 0
    assert other.getpeername() == one.getsockname()
    assert lib.mm_bind(other.fileno(), name, len(name)) == -errno.EINVAL
    one.close()
    other.close()


def test_epoll_signals_and_timers() -> None:
    timer = lib.mm_timerfd(1, os.O_NONBLOCK, 0, struct.pack("=qqqq", 0, 0, 0, 1))
    watcher = lib.mm_epoll()
    assert timer >= 0 and watcher >= 0
    assert lib.mm_epoll_add(watcher, timer, struct.pack("=IQ", select.EPOLLIN, 7)) == 0
    assert lib.mm_epoll_add(watcher, timer, struct.pack("=IQ", select.EPOLLIN, 7)) == -errno.EEXIST
    assert select.epoll.fromfd(watcher).poll(60)[0][1] == select.EPOLLIN
    assert struct.unpack("=Q", os.read(timer, 8)) == (1,)
    signals = lib.mm_signalfd(1 << 9, os.O_NONBLOCK)
    assert "sigmask:\t0000000000000200" in Path(f"/proc/self/fdinfo/{signals}").read_text()
    os.close(timer)
    os.close(signals)


def test_the_store_and_memory_images_need_no_ctypes() -> None:
    names = ("store.io.os_io", "runtime.memory.proc_inspect", "runtime.memory.sockets",
             "runtime.lifecycle.process_restart")
    code = "".join(f"import metamori.{name}\n" for name in names) + "import sys\nassert 'ctypes' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2])
