"""The members of a simulated job (bench/job.py): a store and a line each, all in this process.

A message takes `delay` each way, a freeze and a record as long as they were measured to take of a small run.
"""
from __future__ import annotations

import heapq
import json
import os
import selectors
import sys
import time
import zlib
from typing import Any

import zmq

from metamori.runtime.job import folder
from metamori.store.format.records import Meta, NameEntry, PifEntry, UndoEntry
from metamori.store.io import commit
from metamori.store.read.store import Store

READY_S, FREEZE_S, LOOK_S, WRITE_S, ALIVE_S = 0.001, 0.0003, 0.0007, 0.005, 2.0
BLOCK = bytes(4096)


def made(job: Store, number: int, count: int) -> Store:
    """The store of a run that overwrites a block of its own file before each of `count` checkpoints."""
    node = Store.create_or_open(os.fsdecode(job.layout.node(b"m%d" % number)))
    node.lock()
    node.number_runs_from(number + 2)
    run = node.next_run()
    buffer = node.layout.buffer(run)
    fd = node.door.open(buffer, os.O_RDWR | os.O_CREAT)
    node.door.pwrite(fd, BLOCK, 4096)
    node.door.close(fd)
    node.door.link(buffer, job.layout.buffer(run))
    path = b"/nowhere/file.%d" % number
    for index in range(1, count + 1):
        pif = PifEntry(1, 1, 1000 + number, 1, 1, path, 1, 0, 8192, 1 << 60, 0, 0o100644, 0, 0, index, b"")
        if index > 1:
            node.add_undo([UndoEntry(1, 0, 4096, run, 4096, zlib.crc32(BLOCK))], index - 1, durable=False)
        node.commit_checkpoint(Meta(index, index - 1, time.time_ns(), "", "checkpoint", run, 1, bytes_added=4096,
                                    names=(NameEntry(path, "file", 1, 0o100644, 0, 0, index),), pifs=(pif,)),
                               durable=False)
    return node


class Members:
    """Their lines."""

    def __init__(self, reached: dict[str, Any], count: int, delay_s: float) -> None:
        context = zmq.Context(io_threads=1)
        context.set(zmq.MAX_SOCKETS, count + 10)
        self.delay_s, self.due, self.serial = delay_s, [], 0
        self.lines = []
        self.selector = selectors.DefaultSelector()
        for number in range(count):
            line = context.socket(zmq.DEALER)
            line.curve_serverkey = reached["server"].encode()
            line.curve_publickey, line.curve_secretkey = reached["public"].encode(), reached["secret"].encode()
            line.connect(f"tcp://127.0.0.1:{reached['port']}")
            self.lines.append(line)
            self.send(number, {"what": "join", "name": f"m{number}"})
            self.later(time.monotonic() + ALIVE_S * (1 + number / count), number, {"what": "alive?"})
            self.selector.register(line.getsockopt(zmq.FD), selectors.EVENT_READ, number)
            self.take(number)

    def send(self, number: int, message: dict[str, Any]) -> None:
        self.lines[number].send(json.dumps(message).encode())
        self.take(number)                  # its descriptor tells only of what came since it was last asked

    def later(self, at: float, number: int, message: dict[str, Any]) -> None:
        self.serial += 1
        heapq.heappush(self.due, (at, self.serial, number, message))

    def turn(self) -> None:
        wait = max(0.0, min(0.05, self.due[0][0] - time.monotonic()))
        for key, _ in self.selector.select(wait):
            if isinstance(key.data, int):
                self.take(key.data)
        while self.due[0][0] <= time.monotonic():
            _, _, number, message = heapq.heappop(self.due)
            self.send(number, message)
            if message["what"] == "alive?":
                self.later(time.monotonic() + ALIVE_S, number, message)

    def take(self, number: int) -> None:
        line = self.lines[number]
        while line.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            message, now = json.loads(line.recv()), time.monotonic()
            if message["what"] == "prepare":
                self.later(now + 2 * self.delay_s + READY_S, number, {"what": "ready", "round": message["round"]})
            elif message["what"] == "cut":
                self.later(now + 2 * self.delay_s + FREEZE_S, number, {"what": "frozen", "round": message["round"]})
            elif message["what"] == "look":
                self.later(now + 2 * self.delay_s + LOOK_S, number, {"what": "looked", "round": message["round"]})
            elif message["what"] == "go":
                self.later(now + 2 * self.delay_s + WRITE_S, number,
                           {"what": "written", "round": message["round"], "index": message["round"]})


def main() -> None:
    store, count, delay_s, checkpoints = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    job = Store.open(store)
    nodes = [made(job, number, checkpoints) for number in range(count)]
    print("made", flush=True)
    sys.stdin.readline()
    reached = folder.read_counter(job)
    assert reached is not None and len(nodes) == count and commit.exists(job.door, job.layout.job)
    members = Members(reached, count, delay_s)
    while True:                            # until it is killed
        members.turn()


if __name__ == "__main__":
    main()
