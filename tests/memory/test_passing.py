"""What is in no process: descriptors on their way, closed numbers in sets, connections that were not accepted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comeback import PROGRAMS, Memory, built, comes_back
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")


def test_descriptors_on_their_way(tmp_path: Path) -> None:
    """At the right bytes of streams and with the right messages, also those that no process has any more."""
    comes_back(Memory(tmp_path, [built(tmp_path, "passing.c")]), "60ms")


def test_sets_that_watch_what_has_another_number(tmp_path: Path) -> None:
    """Closed, another's by now, and of a child."""
    comes_back(Memory(tmp_path, [built(tmp_path, "sets.c")]), "60ms")


def test_connections_that_nobody_has_accepted(tmp_path: Path) -> None:
    """Accepted in their order, from the same ports, by whoever listens."""
    comes_back(Memory(tmp_path, [built(tmp_path, "backlog.c")]), "60ms")


# each processor numbers sockets from a batch of its own
BY_TURNS = """
import os, socket, sys, time
processors = sorted(os.sched_getaffinity(0))
server = socket.create_server(("127.0.0.1", 0), backlog=64)
clients = []
for n in range(32):
    os.sched_setaffinity(0, processors[n % 2:][:1])
    clients.append(socket.create_connection(server.getsockname()))
os.sched_setaffinity(0, processors)
open("begun", "w")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
ports = [each.getsockname()[1] for each in clients]
print([ports.index(server.accept()[1][1]) for _ in ports])
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_connections_made_on_several_processors(tmp_path: Path) -> None:
    """Within a tick of the kernel's clock, too, they are accepted in the order in which they were made."""
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", BY_TURNS, tmp_path / "go"], ends=False)
    run = case.start()
    try:
        wait_until(lambda: (case.work / "begun").exists(), "they are connected")
        done = case.verb("checkpoint")
        assert done.returncode == 0, done
    finally:
        case.kill_with(run)
        run.wait()
    (tmp_path / "go").touch()
    done = case.verb("restart", "1")
    assert (done.returncode, done.stdout) == (0, f"{list(range(32))}\n".encode()), done


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("how", [("3000", "4", "50"), ("500", "3", "150", "leaves")], ids=["waits", "leaves"])
@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_a_server_that_is_always_behind(tmp_path: Path, family: str, how: tuple[str, ...]) -> None:
    """Whatever the instant, clients have sent what it has not accepted; some have closed. None of it is lost."""
    case = Memory(tmp_path, ["/usr/bin/python3", PROGRAMS / "loaded.py", family, *how])
    case.may_refuse = lambda line: "leaves" in how and "was closed and not accepted yet" in line   # a long backlog
    comes_back(case, "150ms")


SEALED = """
import fcntl, os, socket, sys, time
ADD, GET, FUTURE = 1033, 1034, 16
one, other = socket.socketpair()
def sealed(name):
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 8192)
    fcntl.fcntl(fd, ADD, FUTURE)
    return fd
kept = sealed("kept")
sent = os.open(f"/proc/self/fd/{kept}", os.O_RDWR)
socket.send_fds(one, [b"x"], [sent])
os.close(sent)
if not os.path.exists("keeps"):
    os.close(kept)
open("begun", "w")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
_, (got,), _, _ = socket.recv_fds(other, 1, 1)
sys.exit(fcntl.fcntl(got, GET))
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_a_sealed_memory_file_on_its_way(tmp_path: Path, keeps: bool) -> None:
    """Whoever has it open, too, seals it; else it is said that it cannot come back."""
    command = ["/usr/bin/python3", "-c", SEALED, str(tmp_path / "go")]
    case = Memory(tmp_path, command, ends=False, setup={"keeps": b""} if keeps else {})
    run = case.start()
    try:
        wait_until(lambda: (case.work / "begun").exists(), "it is sent")
        done = case.verb("checkpoint")
        assert (done.returncode == 0) == keeps, done
        assert keeps or b"a descriptor that was sent to descriptor" in done.stderr
        case.kill(run)
        run.wait()
        if keeps:
            (tmp_path / "go").touch()
            done = case.verb("restart", str(case.images()[-1]))
            assert done.returncode == 16, done
    finally:
        run.kill()
        run.wait()


OF_A_PROCESS = """
import os, socket, time
one, other = socket.socketpair()
fd = os.open("/proc/self/stat", os.O_RDONLY)
socket.send_fds(one, [b"x"], [fd])
os.close(fd)
open("begun", "w")
time.sleep(600)
"""


def test_a_file_of_a_process_on_its_way_is_refused(tmp_path: Path) -> None:
    """No process has that number when it is back."""
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", OF_A_PROCESS], ends=False)
    run = case.start()
    try:
        wait_until(lambda: (case.work / "begun").exists(), "it is sent")
        done = case.verb("checkpoint")
        assert done.returncode and b"of a process, which cannot come back" in done.stderr, done
    finally:
        case.kill(run)
        run.wait()


GIVEN = """
import os, socket, sys
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [2])
_, (fd,), _, _ = socket.recv_fds(other, 9, 9)
open("ready", "w").close()
while not os.path.exists("go"):
    os.sched_yield()
print(os.write(fd, b"said"))
"""


def test_what_the_run_was_given_stays_of_outside(tmp_path: Path) -> None:
    """Sent on, too, it is no file of the run: others may write to it, and whoever continues gives its own."""
    (tmp_path / "script").write_text(GIVEN)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"], setup={"go": b""})
    (case.work / "go").unlink()
    case.is_saved_and_killed()
    with (tmp_path / "err").open("ab") as file:
        file.write(b"somebody else's")
    (case.work / "go").touch()
    done = case.verb("restart", "1")
    assert (done.returncode, done.stdout, done.stderr.endswith(b"said")) == (0, b"4\n", True), done
