"""One process with sockets: servers go on, connections come back as reset, what is in the way is said."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest
from comeback import PROGRAMS, Memory, running
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")


def server(folder: Path) -> Memory:
    case = Memory(folder, ["/usr/bin/python3", PROGRAMS / "server.py"], setup={"go": b""})
    (case.work / "go").unlink()
    return case


def ports(case: Memory) -> dict[str, int]:
    wait_until(lambda: (case.folder / "out").read_bytes().endswith(b"\n"), f"it says its ports: {case.errors()}")
    found: dict[str, int] = json.loads((case.folder / "out").read_bytes())
    return found


def client(port: int) -> socket.socket:
    this = socket.create_connection(("127.0.0.1", port))
    this.settimeout(60)
    return this


def asked(this: socket.socket, what: str) -> dict:
    this.send(what.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        answer += this.recv(65536)
    found: dict = json.loads(answer)
    return found


def listens(port: int) -> bool:
    with closing(socket.socket()) as this:
        return this.connect_ex(("127.0.0.1", port)) == 0


def checkpoint(case: Memory) -> int:
    done = case.verb("checkpoint")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_server_goes_on(tmp_path: Path) -> None:
    """At the first, a middle and the last of ten indexes: every socket as it was, and connections as reset."""
    case = server(tmp_path)
    states = {}
    with running(case.start("--outside", "close")) as run:
        at = ports(case)
        with closing(client(at["tcp"])) as this:
            for _ in range(10):
                state = asked(this, "count")
                states[checkpoint(case)] = state
        case.kill_with(run)
    indexes = list(states)
    for index in (indexes[0], indexes[5], indexes[9]):
        goes_on(case, at, index, states[index])


def goes_on(case: Memory, at: dict[str, int], index: int, state: dict) -> None:
    (case.work / "go").unlink(missing_ok=True)
    with running(case.restart_in_background(index, "--outside", "close")) as run:
        wait_until(lambda: listens(at["tcp"]) or run.poll() is not None, f"it listens: {case.errors()}")
        with closing(client(at["tcp"])) as this:
            asked(this, "look")
            wait_until(lambda: asked(this, "look")["here"] == 1, "the connections that were are gone")
            found = asked(this, "look")
            assert found["count"] == state["count"], index
            assert found["known"] == state["known"], index
            assert found["waiting"] == state["waiting"], index
            assert found["ended"] == [104], index      # ECONNRESET, once for the one connection
            assert asked(this, "count")["count"] == state["count"] + 1
        for family, name in ((socket.AF_UNIX, str(case.work / "name")), (socket.AF_INET, ("127.0.0.1", at["shared"]))):
            with closing(socket.socket(family)) as this:
                this.connect(name)
        with closing(socket.socket(type=socket.SOCK_DGRAM)) as this:
            this.settimeout(60)
            this.sendto(b"hello", ("127.0.0.1", at["udp"]))
            assert this.recv(100) == b"hello"
        index = checkpoint(case)           # and it can be saved again
        (case.work / "go").touch()
        assert run.wait(300) == case.native.status, case.errors()
    (case.work / "go").unlink()
    with running(case.restart_in_background(index, "--outside", "close")) as run:
        wait_until(lambda: listens(at["tcp"]) or run.poll() is not None, f"it listens: {case.errors()}")
        (case.work / "go").touch()
        assert run.wait(300) == case.native.status, case.errors()


def test_a_connection_is_refused_by_name(tmp_path: Path) -> None:
    """Without --outside close; what waits for others is no connection."""
    case = server(tmp_path)
    with running(case.start()) as run:
        at = ports(case)
        assert checkpoint(case) == 1
        with closing(client(at["tcp"])) as this:
            asked(this, "count")
            done = case.verb("checkpoint")
            port = this.getsockname()[1]
        assert done.returncode == 1
        assert f"is a connection to 127.0.0.1:{port}, which leads out of the run".encode() in done.stderr, done.stderr
        assert b"descriptor " in done.stderr and b"--outside close" in done.stderr
        (case.work / "go").touch()
        assert run.wait(300) == case.native.status, case.errors()
    assert case.images() == [1]


@pytest.mark.parametrize("what", ["port", "name"])
def test_an_address_that_is_in_use(tmp_path: Path, what: str) -> None:
    """Said before a file is touched; free again, the program goes on."""
    case = server(tmp_path)
    with running(case.start()) as run:
        at = ports(case)
        assert checkpoint(case) == 1
        case.kill_with(run)
    (case.work / "name").unlink()
    assert case.verb("log").returncode == 0
    with closing(socket.socket(socket.AF_UNIX if what == "name" else socket.AF_INET)) as other:
        other.bind(str(case.work / "name") if what == "name" else ("127.0.0.1", at["tcp"]))
        other.listen()
        (case.work / "untouched").write_text("by nobody")
        done = case.verb("restart", "1")
        text = "name is in use" if what == "name" else f"127.0.0.1:{at['tcp']} is in use"
        assert done.returncode == 1 and text.encode() in done.stderr, done
        assert b" is in use, where the program had the socket of descriptor " in done.stderr
    (case.work / "go").touch()
    done = case.verb("restart", "--force", "1")
    assert done.returncode == case.native.status, done
    assert done.stdout == b"".join(case.native.output.splitlines(True)[1:])


BACK = """
import ctypes, socket
metamori = ctypes.CDLL(None)
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
good = metamori.metamori_checkpoint()
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
accepted.shutdown(socket.SHUT_WR)          # its port would be taken for a minute
if good > 0:
    metamori.metamori_restore(good)
print("came back", good, accepted.getsockname() == server.getsockname())
"""


def test_a_rollback_inside(tmp_path: Path) -> None:
    """The port of a server that did not set SO_REUSEADDR is free for its new process at once."""
    script = tmp_path / "program.py"
    script.write_text(BACK)
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", "print()"])
    done = case.verb("run", "--memory", "--", "/usr/bin/python3", str(script))
    assert done.returncode == 0 and done.stdout == b"came back 0 True\n", done


TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
open("at work", "w").close()
while not os.path.exists("go"):
    os.sched_yield()
try:
    print(os.isatty(terminal), os.write(terminal, b"said\\n"))
except OSError as error:
    print(os.strerror(error.errno))
"""


@pytest.mark.parametrize("policy", ["refuse", "close", "stdio"])
def test_a_terminal(tmp_path: Path, policy: str) -> None:
    _outer, terminal = os.openpty()
    script = tmp_path / "program.py"
    script.write_text(TERMINAL)
    case = Memory(tmp_path, ["/usr/bin/python3", script, os.ttyname(terminal)], setup={"go": b""})
    (case.work / "go").unlink()
    with running(case.start("--outside", policy)) as run:
        wait_until((case.work / "at work").exists, "it is ready")
        done = case.verb("checkpoint")
        assert (done.returncode == 0) == (policy != "refuse"), done
        if policy == "refuse":
            assert b"is a terminal, '/dev/pts/" in done.stderr and b"leads out of the run" in done.stderr
            return
        case.kill_with(run)
    (case.work / "go").touch()
    os.close(terminal)
    again, terminal = os.openpty()
    done = case.verb("restart", "--force", "1", stdin=terminal)
    said = done.stdout.splitlines()[-1]
    assert said == (b"True 5" if policy == "stdio" else b"Input/output error"), done
    if policy == "stdio":
        assert os.read(again, 100).replace(b"\r", b"") == b"said\n"


CLOSED = """
import hashlib, socket
server = socket.socket(socket.AF_UNIX)
server.bind("name"); server.listen()
ends = []
tcp = socket.create_server(("127.0.0.1", 0))
for n in range(4):
    listens = tcp if n > 1 else server
    client = socket.socket(listens.family)
    client.connect(listens.getsockname())
    accepted, _ = listens.accept()
    gone, left = (client, accepted) if n % 2 else (accepted, client)
    gone.send(b"last words")
    gone.close()
    ends.append(left)
state = b""
for n in range(20):
    for i in range(20000):
        state = hashlib.sha256(state * 10).digest()
    print(state.hex(), flush=True)
for end in ends:
    print(end.recv(100), end.recv(100))
print(ends[0].getpeername(), ends[1].getsockname(), ends[2].getpeername() == ends[3].getsockname() == tcp.getsockname())
server.close()
"""


def test_what_the_other_end_said_before_it_closed(tmp_path: Path) -> None:
    """By a unix socket of a name, and by TCP: to the one that was accepted, and to the one that connected."""
    script = tmp_path / "program.py"
    script.write_text(CLOSED)
    case = Memory(tmp_path, ["/usr/bin/python3", script])
    case.everywhere(case.run_and_kill("200ms", 2))
