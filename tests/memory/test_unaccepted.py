"""Who has sent over a connection that nobody has accepted stays parked while the others run on: never for good."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
from comeback import METAMORI, Memory
from lab import wait_until

from metamori._area import lib
from metamori.runtime.area.run_area import Area

pytestmark = pytest.mark.usefixtures("installed")

# the server accepts when it is told to; of the clients one has sent, one has not
BEHIND = """
import os, socket, time
def counts(name, until):
    n = 0
    while not os.path.exists(until):
        n += 1
        with open(name, "w") as file:
            file.write(str(n))
        time.sleep(0.005)
server = socket.create_server(("127.0.0.1", 0))
clients = []
for data in (b"sent", b""):
    clients.append(os.fork())
    if clients[-1] == 0:
        at = server.getsockname()
        server.close()
        this = socket.create_connection(at)
        this.sendall(data)
        open(f"ready{len(clients)}", "w").write(str(os.getpid()))
        counts(f"count{len(clients)}", "go")
        this.sendall(b"after")
        os._exit(5)
counts("count0", "accept")
accepted = [server.accept()[0] for _ in clients]
found = [b"".join(iter(lambda: each.recv(99), b"")) for each in accepted]
print(sorted(found), [os.waitpid(each, 0)[1] for each in clients])
"""
# the client is parked for what it sent to the one, amid connecting to the other, which takes one at a time
CONNECTS = """
import os, socket, threading, time
one, other = (socket.create_server(("127.0.0.1", 0), backlog=0) for _ in range(2))
child = os.fork()
if child == 0:
    at, there = one.getsockname(), other.getsockname()
    one.close()
    other.close()
    sent, fills, late = socket.create_connection(at), socket.create_connection(there), socket.socket()
    sent.sendall(b"sent")
    connects = threading.Thread(target=lambda: (late.connect(there), late.sendall(b"late")))
    connects.start()
    while late.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 2:
        time.sleep(0.005)
    open("ready1", "w").write(str(os.getpid()))
    connects.join()
    while not os.path.exists("go"):
        time.sleep(0.005)
    os._exit(0)
open("ready2", "w").write(str(os.getpid()))
while not os.path.exists("accept"):
    time.sleep(0.005)
accepted = [each.accept()[0] for each in (other, other, one)]
print([accepted[n].recv(9) for n in (1, 2)], os.wait()[1])
"""
OUTPUT = b"[b'after', b'sentafter'] [1280, 1280]\n"
REFUSED = b"which holds what was sent and was not accepted yet"


ALL = ("count0", "count1", "count2")


@contextmanager
def begun(folder: Path, text: str, names: tuple[str, ...]) -> Iterator[tuple[Memory, subprocess.Popen[bytes]]]:
    case = Memory(folder, ["/usr/bin/python3", "-c", text], ends=False)
    run = case.start()
    try:
        wait_until(lambda: all(said(case, name) for name in ("ready1", "ready2", *names)), "they have begun")
        yield case, run
    finally:
        case.kill_with(run)
        run.wait()


def behind(folder: Path) -> AbstractContextManager[tuple[Memory, subprocess.Popen[bytes]]]:
    return begun(folder, BEHIND, ALL)


def said(case: Memory, name: str) -> str:
    with suppress(FileNotFoundError):
        return (case.work / name).read_text()
    return ""


def all_run(case: Memory, names: tuple[str, ...] = ALL) -> None:
    before = {name: said(case, name) for name in names}
    wait_until(lambda: all(said(case, name) not in ("", before[name]) for name in names), "all of them run")


def tell(case: Memory, *names: str) -> None:
    for name in names:
        (case.work / name).touch()


@contextmanager
def asked(case: Memory) -> Iterator[subprocess.Popen[bytes]]:
    """For a checkpoint, until the client that has sent stays parked while the other one runs."""
    verb = subprocess.Popen([*METAMORI, "checkpoint"], cwd=case.work, env=case.environment(), stderr=subprocess.PIPE)
    area = Area(str(case.store))
    slots = {area.process(slot).pid: slot for slot in area.processes()}
    client, other = (lib.mm_memory_of(area.pointer, slots[int(said(case, name))]) for name in ("ready1", "ready2"))
    try:
        wait_until(lambda: client.state == lib.MM_MEMORY_HELD and other.state == lib.MM_MEMORY_IDLE, "it is parked")
        yield verb
    finally:
        area.close()
        verb.kill()
        verb.wait()


def test_a_server_that_does_not_accept(tmp_path: Path) -> None:
    """The checkpoint is refused, and all go on."""
    with behind(tmp_path) as (case, run):
        done = case.verb("checkpoint")
        assert done.returncode == 1 and REFUSED in done.stderr, done
        all_run(case)
        tell(case, "accept", "go")
        assert run.wait(300) == 0, case.errors()
        assert (tmp_path / "out").read_bytes() == OUTPUT


def test_a_server_that_accepts_meanwhile(tmp_path: Path) -> None:
    """There is a checkpoint, which has what was sent."""
    with behind(tmp_path) as (case, run):
        with asked(case) as verb:
            tell(case, "accept")
            assert verb.wait(60) == 0, verb.stderr.read()
        all_run(case, ALL[1:])
        case.kill_with(run)
        run.wait()
        tell(case, "go")
        done = case.verb("restart", "--force", "1")
        assert done.returncode == 0 and done.stdout == OUTPUT, done


@pytest.mark.parametrize("which", ["metamori run", "the client"])
def test_somebody_is_killed_meanwhile(tmp_path: Path, which: str) -> None:
    """Nobody stays parked."""
    with behind(tmp_path) as (case, run):
        with asked(case) as verb:
            os.kill(run.pid if which == "metamori run" else int(said(case, "ready1")), signal.SIGKILL)
            assert verb.wait(60) != 0
        all_run(case, ALL if which == "metamori run" else ("count0", "count2"))


def test_the_parked_one_is_stopped_meanwhile(tmp_path: Path) -> None:
    """By job control: nobody waits longer for it, and it goes on when it is continued."""
    with behind(tmp_path) as (case, run):
        with asked(case) as verb:
            client = int(said(case, "ready1"))
            os.kill(client, signal.SIGSTOP)
            assert verb.wait(12) == 1      # whoever waits for it to stand does so for 20 s
        all_run(case, ("count0", "count2"))
        tell(case, "accept")
        wait_until(lambda: case.verb("checkpoint").returncode == 0, "it is accepted")
        os.kill(client, signal.SIGCONT)
        all_run(case, ALL[1:])
        tell(case, "go")
        assert run.wait(300) == 0, case.errors()
        assert (tmp_path / "out").read_bytes() == OUTPUT


def test_a_connection_is_made_meanwhile(tmp_path: Path) -> None:
    """The call that makes it returns when all are back: it was in the middle of it."""
    with begun(tmp_path, CONNECTS, ()) as (case, run):
        with asked(case) as verb:
            tell(case, "accept")
            assert verb.wait(60) == 0, verb.stderr.read()
        case.kill_with(run)
        run.wait()
        tell(case, "go")
        done = case.verb("restart", "--force", "1")
        assert (done.returncode, done.stdout) == (0, b"[b'late', b'sent'] 0\n"), done
