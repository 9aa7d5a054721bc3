"""Verbs as processes that are forked from one that has imported them: most of a verb's time is Python's start.

A verb finds what it would find if it had been started: its words, environment, folder, input, output, signals. Where
its environment is one that could change what is imported, or how the C half is loaded, it is started. So are verbs that
start programs. Its umask and limits are those of when its server began, not of the moment; and a process that it leaves
behind, with its output, is not waited for, as a pipe would be.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
METAMORI = [sys.executable, "-m", "metamori"]
SERVED = ("cat", "checkpoint", "diff", "log", "prune", "redo", "restore", "show", "status", "undo", "verify")
LATER = ("cli.options.parser",)
ASKED_FOR = ("METAMORI_STORE", "METAMORI_TRACK", "PYTEST_CURRENT_TEST")      # by a verb that runs, if by anybody
OURS = (*ASKED_FOR, "METAMORI_CHECKED")
ENOUGH = 3                                 # verbs of one environment, until there is a server for it


def run(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float, stdin: int = subprocess.DEVNULL,
        ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """As subprocess.run, with what it printed."""
    can_be = list(argv[:len(METAMORI)]) == METAMORI and argv[len(METAMORI)] in SERVED and os.path.isdir(cwd)
    if can_be and (server := server_for(env)):
        try:
            return server.run(argv, cwd, env, stdin, timeout)
        except BrokenPipeError:            # somebody has ended it
            del _servers[_key(env)]
    return subprocess.run(argv, cwd=cwd, env=env, stdin=stdin, capture_output=True, timeout=timeout, check=False)


def server_for(env: Mapping[str, str]) -> Server | None:
    if any(name.startswith("METAMORI_") and name not in OURS for name in env):
        return None
    key = _key(env)
    _asked[key] += 1
    if _asked[key] == ENOUGH:
        _servers[key] = Server(env)
    return _servers.get(key)


def _key(env: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in env.items() if name not in ASKED_FOR)


class Server:
    """A process that is no child of the tests', some of which wait for all children; it ends with the channel to it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own = {name: value for name, value in env.items() if name not in ASKED_FOR}
        with theirs:
            subprocess.run([sys.executable, __file__, str(theirs.fileno())], cwd=ROOT, env=own, check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def run(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: int, timeout: float,
            ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
        mine, theirs = socket.socketpair()
        given = os.open(os.devnull, os.O_RDWR) if stdin == subprocess.DEVNULL else os.dup(stdin)
        out, err = os.memfd_create("out"), os.memfd_create("err")
        try:
            with theirs:
                socket.send_fds(self._channel, [b"\0"], [given, out, err, theirs.fileno()])
            mine.sendall(json.dumps([argv[len(METAMORI):], os.path.abspath(cwd), dict(env)]).encode())
            mine.shutdown(socket.SHUT_WR)
            status = self._status(mine, argv, timeout)
            said, wrong = (os.pread(fd, os.fstat(fd).st_size, 0) for fd in (out, err))
            return subprocess.CompletedProcess(argv, status, said, wrong)
        finally:
            mine.close()
            for fd in (given, out, err):
                os.close(fd)

    def _status(self, mine: socket.socket, argv: Sequence[str], timeout: float) -> int:
        mine.settimeout(timeout)
        with mine.makefile("rb") as told:
            pid = int(told.readline())
            try:
                return int(told.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(argv, timeout) from None


_asked: Counter[frozenset[tuple[str, str]]] = Counter()
_servers: dict[frozenset[tuple[str, str]], Server] = {}


def serve(channel: socket.socket) -> None:
    """Comes back in each process that is to be a verb; the one in between tells how that has ended."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)              # nobody waits for those in between
    gc.freeze()
    while True:
        _, fds, _, _ = socket.recv_fds(channel, 1, 4)
        if not fds:
            os._exit(0)
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel.close()
    with socket.socket(fileno=fds[3]) as asked:
        with asked.makefile("rb") as request:
            words, cwd, env = json.load(request)
        pid = os.fork()
        if pid:
            asked.send(b"%d\n" % pid)
            asked.send(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os._exit(0)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[1:] = words


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    sys.path[0] = str(ROOT)
    from metamori.__main__ import main

    for each in (*(f"cli.{verb}" for verb in SERVED), *LATER):
        __import__(f"metamori.{each}")
    sys.argv[0] = str(ROOT / "metamori" / "__main__.py")
    serve(socket.socket(fileno=int(sys.argv[1])))
    main()
