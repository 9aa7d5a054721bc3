"""Processes, descriptors, pipes, sockets and shared memory, in their plain meaning: no kernel, no time."""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class File:
    content: bytearray = field(default_factory=bytearray)
    mapped: bool = False
    named: bool = True
    locked: Open | None = None


@dataclass(eq=False)
class Open:
    """An open description. waiting: what can be read, piece by piece; of sockets at its own end."""

    kind: str                              # file, memfd, eventfd, reader, writer, socket
    file: File = field(default_factory=File)
    at: int = 0
    appends: bool = False
    count: int = 0
    type: int = 0
    peer: Open | None = None
    waiting: list[bytes] = field(default_factory=list)
    shut: bool = False                     # it sends nothing more
    tcp: bool = False
    holders: int = 0

    @property
    def bytes(self) -> int:
        return sum(map(len, self.waiting))

    @property
    def streams(self) -> bool:
        return self.kind in ("reader", "writer") or self.type == socket.SOCK_STREAM

    def queue(self) -> Open:
        """Where what is written arrives."""
        assert self.peer
        return self.peer

    def can_send(self) -> bool:
        return self.kind in ("writer", "socket") and bool(self.queue().holders) and not self.shut

    def view(self, closes: bool) -> str:
        """As a process that has it sees it."""
        if self.kind in ("file", "memfd"):
            flags = os.O_RDWR | (os.O_APPEND if self.appends else 0)
            content = self.file.content
            return f"{flags:o} {int(closes)} file {len(content)} at {self.at} {zlib.crc32(content):08x}"
        flags = {"reader": os.O_RDONLY, "writer": os.O_WRONLY}.get(self.kind, os.O_RDWR)
        if self.kind == "eventfd" or self.tcp:
            return f"{flags:o} {int(closes)}"
        at = self.queue() if self.kind == "writer" else self
        count = at.bytes
        if self.type == socket.SOCK_DGRAM:
            count = len(at.waiting[0]) if at.waiting else 0
        return f"{flags:o} {int(closes)} holds {count}"

    def is_at_end(self) -> bool:
        return self.streams and self.peer is not None and (not self.peer.holders or self.peer.shut)


@dataclass(eq=False)
class Region:
    content: bytearray
    size: int
    shared: bool


@dataclass(eq=False)
class Process:
    name: int
    parent: Process | None
    log: list[str] = field(default_factory=list)
    slots: dict[int, Open] = field(default_factory=dict)
    closes: set[int] = field(default_factory=set)          # slots that are closed on exec
    regions: dict[int, Region] = field(default_factory=dict)
    children: dict[int, Process] = field(default_factory=dict)   # until they are waited for
    status: int = -1                       # as wait says it; -1: alive
    came: int = 0
    blocked: bool = False
    pending: bool = False
    mask: int = 0o022
    below: bool = False
    group: int = 0                         # the name of who leads it
    session: int = 0

    def view(self) -> Iterator[str]:
        for number, this in sorted(self.slots.items()):
            yield f"slot {number}: {this.view(number in self.closes)}"
        for number, region in sorted(self.regions.items()):
            yield f"region {number}: {region.size} {zlib.crc32(region.content[:region.size]):08x}"
        for number, child in sorted(self.children.items()):
            code, status = 0, 0
            if child.status >= 0:
                killed = child.status & 127
                code = os.CLD_KILLED if killed else os.CLD_EXITED
                status = killed or child.status >> 8
            yield f"child {number}: 0 {code} {status}"
        yield (f"signals {self.came} {int(self.blocked)} {int(self.pending)}, mask {self.mask:o}, in "
               f"{'below' if self.below else 'work'}, group {self.group}, session {self.session}")
