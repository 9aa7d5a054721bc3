"""Who is on the network, or on the machine, and has not the keys of a job: garbage at its ports, other users."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import subprocess
import threading
import time
from contextlib import suppress

import pytest
from lab import Lab, Tree, picture, wait_until
from ranks import checkpoint, end, job
from test_job import counter, everything_back

pytestmark = pytest.mark.slow               # the daily suite has 40 minutes

zmq = pytest.importorskip("zmq")

NOBODY = 65534
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE".ljust(22, b"\0") + bytes(32)   # of ZMTP, up to the handshake


def talk(port: int, over: threading.Event, seed: int) -> None:
    """Garbage of all kinds, again and again."""
    random_ = random.Random(seed)
    context = zmq.Context()
    while not over.is_set():
        what = random_.randrange(5)
        with suppress(OSError, zmq.ZMQError):
            if what == 4:                  # a well-kept client with the wrong keys
                line = context.socket(zmq.DEALER)
                line.linger = 0
                line.curve_serverkey, _ = zmq.curve_keypair()
                line.curve_publickey, line.curve_secretkey = zmq.curve_keypair()
                line.connect(f"tcp://127.0.0.1:{port}")
                line.send(b'{"what": "checkpoint"}')
                line.poll(30)
                line.close()
                continue
            with socket.create_connection(("127.0.0.1", port), 1) as line:
                line.settimeout(0.05)
                line.sendall([random_.randbytes(4000), b"GET / HTTP/1.1\r\n\r\n", GREETING + random_.randbytes(300),
                              GREETING[:random_.randrange(60)]][what])
                line.recv(100)
    context.destroy(linger=0)


@pytest.mark.slow
def test_garbage_at_the_ports(lab: Lab) -> None:
    """And connections that say nothing."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 2)
    port = json.loads((lab.store / "job").read_bytes())["port"]
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(90)]
    over = threading.Event()
    talkers = [threading.Thread(target=talk, args=(port, over, seed)) for seed in range(2)]
    for talker in talkers:
        talker.start()
    try:
        for step in range(2):
            for number, rank in enumerate(ranks):
                rank.do("append", "common", f"{step}{number}")
            time.sleep(0.3)
            began = time.monotonic()
            checkpoint(lab, seen)
            assert time.monotonic() - began < 10
        assert "job of 2 runs" in lab.verb("status").stdout
    finally:
        over.set()
        for talker in talkers:
            talker.join()
        for line in silent:
            line.close()
    assert list(lab.messages()) == [0, 1, 2]
    assert end(ranks) == ""
    everything_back(lab, seen)


def test_more_connections_than_a_program_may_have_files(lab: Lab) -> None:
    """Of somebody who says nothing: nobody could ask for a checkpoint, and the run's own end could not be recorded. The
    program's limit is its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1000:
        pytest.skip("needs a higher limit of files")
    seen: dict[int, Tree] = {0: picture(lab.work)}
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        ranks = job(lab, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    one = counter(lab, ranks)
    port = json.loads((lab.store / "job").read_bytes())["port"]
    silent = [socket.socket() for _ in range(200)]
    for line in silent:
        line.setblocking(False)
        line.connect_ex(("127.0.0.1", port))
    held = f"/proc/{one.process.pid}/fd"
    wait_until(lambda: len(os.listdir(held)) >= 100, "they are let in")
    assert resource.prlimit(one.program(), resource.RLIMIT_NOFILE) == (100, hard)
    for rank in ranks:
        rank.do("append", "common", "more")
    checkpoint(lab, seen)
    assert end(ranks) == ""
    for line in silent:
        line.close()
    everything_back(lab, seen)


def as_nobody(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=lab.env | {"HOME": "/"}, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[],
                          text=True, capture_output=True, check=False)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user: needs root")
def test_another_user_of_the_machine(lab: Lab) -> None:
    """Nothing in the store is theirs to read, and their verbs and runs are refused with a message; the folders
    around it are open."""
    above = lab.store.parent
    modes = {}
    while (mode := above.stat().st_mode & 0o7777) & 0o055 != 0o055:
        modes[above] = mode
        above = above.parent
    before = os.umask(0)                   # the job's own files must not depend on it
    try:
        ranks = job(lab, 2)
        for folder, mode in modes.items():
            folder.chmod(mode | 0o755)
        checkpoint(lab, {})
        counts = counter(lab, ranks)
        for path in (lab.store, *lab.store.rglob("*")):
            if not path.is_symlink() and path.lstat().st_nlink and "kept" not in path.parts:
                assert not path.lstat().st_mode & 0o077 or path == lab.store / ".gitignore", path
        python = lab.argv("log")[0]
        if as_nobody(lab, python, "-c", "import metamori").returncode:
            pytest.skip("another user cannot run this Python")
        for words in (("checkpoint",), ("status",), ("log",), ("restore", "--to", "/nowhere", "1"),
                      ("run", "--job", "--", "true"), ("prune", "--keep-last", "1")):
            said = as_nobody(lab, *lab.argv(*words))
            assert said.returncode and "belongs to user" in said.stderr and not said.stdout, (words, said)
        for pid in (counts.process.pid, counts.program()):
            said = as_nobody(lab, "cat", f"/proc/{pid}/environ", str(lab.store / "job"))
            assert said.returncode and not said.stdout
    finally:
        os.umask(before)
        for folder, mode in modes.items():
            folder.chmod(mode)
    assert checkpoint(lab, {}) == 2
    assert end(ranks) == ""
