"""A job of several runs on this machine: each runs a program that does to files what it is told."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import killing
from lab import Lab, Tree, gone, picture, wait_until

RANK = r"""
import json, os, sys
fds = {}
def at(path, flags):
    if path not in fds:
        fds[path] = os.open(path, flags, 0o644)
    return fds[path]
def do(what, path, *more):
    if what == "write":
        os.pwrite(at(path, os.O_RDWR | os.O_CREAT), more[1].encode("latin1"), more[0])
    elif what == "append":
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(fd, more[0].encode("latin1")); os.close(fd)
    elif what == "read":
        with open(path, "rb") as file:
            return file.read().decode("latin1")
    elif what == "truncate":
        os.truncate(path, more[0])
    elif what == "anew":
        with open(path, "wb") as file:
            file.write(more[0].encode("latin1"))
    elif what == "utime":
        os.utime(path, (more[0], more[0]))
    elif what == "close":
        os.close(fds.pop(path)) if path in fds else None
    elif what == "checkpoint":
        import metamori
        return metamori.checkpoint(path)
    elif what == "restore":
        import metamori
        return metamori.restore(int(path))
    elif what == "exit":
        os._exit(int(path))
    else:
        getattr(os, what)(path, *more)
print("ready", flush=True)
for line in sys.stdin:
    try:
        answer = do(*json.loads(line))
    except OSError as error:
        answer = {"errno": error.errno}
    print(json.dumps(answer), flush=True)
"""


class Rank:
    """One run of the job."""

    said = ""                              # what was heard of it

    def __init__(self, lab: Lab, *options: str, env: Mapping[str, str] | None = None,
                 order: Path | None = None) -> None:
        """order: of killing.py, for `metamori run`."""
        start = lab.argv("run", "--job", *options)
        variables = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"} | dict(env or {})
        if order:
            start, variables["KILL_ORDER"] = killing.argv(start), str(order)
        self.process = subprocess.Popen(
            [*start, "--", sys.executable, "-c", RANK], cwd=lab.work, env=variables, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ready(self) -> Rank:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.process.stderr and self.process.stderr.read()
        return self

    def ask(self, *words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"ended with {self.process.wait()}: {self.process.stderr and self.process.stderr.read()}"
        return json.loads(line)

    def do(self, *words: Any) -> Any:
        self.ask(*words)
        return self.answer()

    def program(self) -> int:
        """The pid of what `metamori run` runs."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def kill(self) -> None:
        """`metamori run` and its program, as when a node dies."""
        self.process.send_signal(signal.SIGSTOP)
        pid = self.program()
        self.process.kill()
        os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: gone(pid), "the killed program is still there")

    def end(self, status: int = 0) -> str:
        """What it said."""
        if self.process.poll() is None:
            try:
                self.ask("exit", str(status))
            except BrokenPipeError:
                pass
        assert self.process.stderr is not None
        said = self.said + self.process.stderr.read()
        self.process.wait()
        return said

    def heard(self) -> str:
        """What it has said so far."""
        assert self.process.stderr is not None
        fd = self.process.stderr.fileno()
        while select.select([fd], [], [], 0)[0] and (more := os.read(fd, 9999)):
            self.said += more.decode()
        return self.said


def job(lab: Lab, count: int = 3, *options: str) -> list[Rank]:
    """The first may not be the one that counts."""
    ranks = [Rank(lab, *options) for _ in range(count)]
    return [rank.ready() for rank in ranks]


def end(ranks: list[Rank]) -> str:
    """All at once; what they said."""
    for rank in ranks:
        if rank.process.poll() is None:
            rank.ask("exit", "0")
    return "".join(rank.end() for rank in ranks)


def checkpoint(lab: Lab, seen: dict[int, Tree], message: str = "") -> int:
    """A checkpoint while nobody writes, and what the files are then."""
    index = int(lab.verb("checkpoint", "-m", message, cwd=lab.work).stdout)
    seen[index] = picture(lab.work)
    return index
