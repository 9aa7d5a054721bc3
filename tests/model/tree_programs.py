"""Random programs of several processes (tests/memory/programs/family.c), and what each is to write into its log.

A step is chosen among those whose outcome nothing but the steps before it decides.
"""

from __future__ import annotations

import errno
import random
import signal
import socket
import zlib
from collections.abc import Iterator

from tree_model import File, Open, Process, Region

PROCESSES, SLOTS, REGIONS, PAGE = 12, 16, 8, 4096
_MESSAGES = (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
_AT_ONCE, _PIECES = 3000, 6                # bytes of a write, and writes, that pipes and sockets take without a reader


def made(size: int, seed: int) -> bytes:
    found = bytearray(size)
    for place in range(size):
        seed = (seed * 1664525 + 1013904223) & 0xffffffff
        found[place] = seed >> 24
    return bytes(found)


class Program:
    """Written step by step, from a seed. log: of each process, what it is to write."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.first = Process(0, None)
        self.all = [self.first]
        self.files: dict[int, File] = {}
        choices = [(weight, getattr(self, f"_{name}")) for name, weight in _WEIGHTS.items()]
        while len(self.lines) < steps:
            weights, whats = zip(*choices, strict=True)
            self.random.choices(whats, weights)[0](self.random.choice(self.alive))
            if self.random.random() < 0.15:
                self._step(self.random.choice(self.alive), "pause", self.random.randrange(8000))
        self._see_all()
        self._drain()
        self._see_all()
        self.first.log.append(f"{len(self.lines)} end")

    @property
    def alive(self) -> list[Process]:
        return [each for each in self.all if each.status < 0]

    def logs(self) -> dict[str, bytes]:
        return {f"log.{each.name}": "".join(f"{line}\n" for line in each.log).encode() for each in self.all}

    def _step(self, who: Process, what: str, *numbers: int, waits: bool = True) -> int:
        self.lines.append(" ".join(map(str, (who.name, int(waits), what, *numbers))))
        return len(self.lines) - 1

    def _says(self, who: Process, at: int, text: str) -> None:
        who.log.append(f"{at} {text}")

    def _seed(self) -> int:
        return self.random.randrange(1 << 31)

    # -- processes -----------------------------------------------------------------------------------

    def _fork(self, who: Process) -> None:
        if len(self.all) == PROCESSES or len(self.alive) > 7:
            return
        child = Process(len(self.all), who, slots=dict(who.slots), closes=set(who.closes), came=who.came,
                        blocked=who.blocked, mask=who.mask, below=who.below, group=who.group, session=who.session)
        child.regions = {number: each if each.shared else Region(bytearray(each.content), each.size, False)
                         for number, each in who.regions.items()}
        for each in child.slots.values():
            each.holders += 1
        who.children[child.name] = child
        self.all.append(child)
        self._step(who, "fork", child.name)
        self._step(child, "pause", 0)      # until it is there

    def _may_end(self, who: Process) -> bool:
        """Nothing is lost by what it alone has open."""
        own: dict[Open, int] = {}
        for each in who.slots.values():
            own[each] = own.get(each, 0) + 1
        return all(count < each.holders or self._may_close(each) for each, count in own.items())

    @staticmethod
    def _may_close(this: Open) -> bool:
        return this.kind != "socket" or not this.waiting

    def _ends(self, who: Process, status: int) -> None:
        for number in list(who.slots):
            self._let_go(who, number)
        who.status = status
        for child in who.children.values():
            child.parent = None
        who.children = {number: child for number, child in who.children.items() if child.status < 0}

    def _exit(self, who: Process) -> None:
        if who.parent and self._may_end(who):
            status = self.random.randrange(100)
            self._step(who, "exit", status, waits=False)
            self._step(who.parent, "ended", who.name)
            self._ends(who, status << 8)

    def _kill(self, who: Process) -> None:
        victims = [each for each in who.children.values() if each.status < 0 and self._may_end(each)]
        if victims:
            victim, number = self.random.choice(victims), self.random.choice((signal.SIGKILL, signal.SIGTERM))
            self._step(who, "kill", victim.name, number)
            self._ends(victim, number)

    def _wait(self, who: Process) -> None:
        ended = [each for each in who.children.values() if each.status >= 0]
        if ended:
            child = self.random.choice(ended)
            self._says(who, self._step(who, "wait", child.name), f"waited {child.name} {child.status:04x}")
            del who.children[child.name]

    def _signal(self, who: Process) -> None:
        alive = [each for each in who.children.values() if each.status < 0]
        if alive:
            child = self.random.choice(alive)
            self._step(who, "signal", child.name)
            if child.blocked:
                child.pending = True
            else:
                child.came += 1
                self._step(child, "pause", 0)  # until it has come

    def _block(self, who: Process) -> None:
        who.blocked = not who.blocked
        self._step(who, "block", int(who.blocked))
        if who.pending and not who.blocked:
            who.pending, who.came = False, who.came + 1

    def _group(self, who: Process) -> None:
        if who.parent and who.session != who.name:
            who.group = who.name
            self._step(who, "group")

    def _session(self, who: Process) -> None:
        if who.parent and who.group != who.name:
            who.group = who.session = who.name
            self._step(who, "session")

    def _umask(self, who: Process) -> None:
        who.mask = self.random.choice((0, 0o22, 0o77, 0o27))
        self._step(who, "umask", who.mask)

    def _folder(self, who: Process) -> None:
        who.below = not who.below
        self._step(who, "folder", int(who.below))

    def _checkpoint(self, who: Process) -> None:
        self._step(who, "checkpoint")
        self._see(who)

    def _work(self, who: Process) -> None:
        self._step(who, "work", self.random.randrange(2000000))

    # -- memory --------------------------------------------------------------------------------------

    def _free(self, who: Process, taken: dict[int, Open] | dict[int, Region], most: int) -> int:
        return next((number for number in range(most) if number not in taken), -1)

    def _anonymous(self, who: Process, shared: bool) -> None:
        number, pages = self._free(who, who.regions, REGIONS), self.random.randint(1, 6)
        if number >= 0:
            self._step(who, "shared" if shared else "private", number, pages)
            who.regions[number] = Region(bytearray(pages * PAGE), pages * PAGE, shared)

    def _shared(self, who: Process) -> None:
        self._anonymous(who, True)

    def _private(self, who: Process) -> None:
        self._anonymous(who, False)

    def _map(self, who: Process) -> None:
        number = self._free(who, who.regions, REGIONS)
        wanted = [(slot, each.file) for slot, each in who.slots.items()
                  if each.kind in ("file", "memfd") and each.file.named and len(each.file.content) >= PAGE]
        if number >= 0 and wanted:
            slot, file = self.random.choice(wanted)
            pages = self.random.randint(1, min(6, len(file.content) // PAGE))
            self._step(who, "map", number, pages, slot)
            file.mapped = True
            who.regions[number] = Region(file.content, pages * PAGE, True)

    def _unmap(self, who: Process) -> None:
        if who.regions:
            number = self.random.choice(list(who.regions))
            self._step(who, "unmap", number)
            del who.regions[number]

    def _store(self, who: Process) -> None:
        if who.regions:
            number, this = self.random.choice(list(who.regions.items()))
            start = self.random.randrange(this.size)
            size, seed = self.random.randint(1, min(5000, this.size - start)), self._seed()
            self._step(who, "store", number, start, size, seed)
            this.content[start:start + size] = made(size, seed)

    # -- descriptors ---------------------------------------------------------------------------------

    def _take(self, who: Process, number: int, this: Open) -> None:
        if number in who.slots:
            self._let_go(who, number)
        who.slots[number] = this
        this.holders += 1

    def _let_go(self, who: Process, number: int) -> None:
        this = who.slots.pop(number)
        who.closes.discard(number)
        this.holders -= 1
        if this.holders == 0 and this.file.locked is this:
            this.file.locked = None

    def _new(self, who: Process, count: int = 1) -> list[int]:
        free = [number for number in range(SLOTS) if number not in who.slots]
        return free[:count] if len(free) >= count else []

    def _open(self, who: Process) -> None:
        if new := self._new(who):
            name, appends = self.random.randrange(6), self.random.random() < 0.3
            self._step(who, "open", new[0], name, int(appends))
            self._take(who, new[0], Open("file", self.files.setdefault(name, File()), appends=appends))

    def _unlink(self, who: Process) -> None:
        names = [name for name, each in self.files.items() if not each.mapped]
        if names:
            name = self.random.choice(names)
            self._step(who, "unlink", name)
            self.files.pop(name).named = False

    def _memfd(self, who: Process) -> None:
        if new := self._new(who):
            pages = self.random.randint(1, 8)
            self._step(who, "memfd", new[0], pages)
            self._take(who, new[0], Open("memfd", File(bytearray(pages * PAGE))))

    def _eventfd(self, who: Process) -> None:
        if new := self._new(who):
            count = self.random.randint(1, 9)
            self._step(who, "eventfd", new[0], count)
            self._take(who, new[0], Open("eventfd", count=count))

    def _two(self, who: Process, what: str, number: int, one: Open, other: Open) -> None:
        one.peer, other.peer = other, one
        if new := self._new(who, 2):
            self._step(who, what, *new, number)
            self._take(who, new[0], one)
            self._take(who, new[1], other)
            if what == "pipe" and number:
                who.closes.update(new)

    def _pipe(self, who: Process) -> None:
        self._two(who, "pipe", self.random.randrange(2), Open("reader"), Open("writer"))

    def _pair(self, who: Process) -> None:
        kind = int(self.random.choice((socket.SOCK_STREAM, *_MESSAGES)))
        self._two(who, "pair", kind, Open("socket", type=kind), Open("socket", type=kind))

    def _tcp(self, who: Process) -> None:
        kind = int(socket.SOCK_STREAM)
        self._two(who, "tcp", 0, Open("socket", type=kind, tcp=True), Open("socket", type=kind, tcp=True))

    def _dup(self, who: Process) -> None:
        new = self._new(who)
        if new and who.slots:
            number = self.random.choice(list(who.slots))
            self._step(who, "dup", number, new[0])
            self._take(who, new[0], who.slots[number])

    def _close(self, who: Process) -> None:
        for number in self.random.sample(list(who.slots), len(who.slots)):
            if who.slots[number].holders > 1 or self._may_close(who.slots[number]):
                self._step(who, "close", number)
                self._let_go(who, number)
                return

    def _flags(self, who: Process) -> None:
        if who.slots:
            number = self.random.choice(list(who.slots))
            closes = number not in who.closes
            self._step(who, "flags", number, int(closes))
            (who.closes.add if closes else who.closes.discard)(number)

    def _of_kind(self, who: Process, *kinds: str) -> list[tuple[int, Open]]:
        return [(number, each) for number, each in who.slots.items() if each.kind in kinds]

    def _write_file(self, who: Process) -> None:
        for number, this in self.random.sample(found := self._of_kind(who, "file", "memfd"), min(1, len(found))):
            size, seed = self.random.randint(1, 9000), self._seed()
            at = self.random.randrange(20000)
            if here := self.random.random() < 0.5:
                step = self._step(who, "write", number, size, seed)
                at = this.at
            else:
                step = self._step(who, "pwrite", number, size, seed, at)
            content = this.file.content
            at = len(content) if this.appends else at
            if at > len(content):
                content.extend(bytes(at - len(content)))
            content[at:at + size] = made(size, seed)
            this.at = at + size if here else this.at
            self._says(who, step, f"wrote {size}")

    def _read_file(self, who: Process) -> None:
        for number, this in self.random.sample(found := self._of_kind(who, "file", "memfd"), min(1, len(found))):
            size = self.random.randint(1, 9000)
            step = self._step(who, "read", number, size)
            data = bytes(this.file.content[this.at:this.at + size])
            this.at += len(data)
            self._got(who, step, data)

    def _got(self, who: Process, step: int, data: bytes) -> None:
        self._says(who, step, f"got {len(data)} {zlib.crc32(data):08x}")

    def _seek(self, who: Process) -> None:
        for number, this in self.random.sample(found := self._of_kind(who, "file", "memfd"), min(1, len(found))):
            this.at = self.random.randrange(20000)
            self._says(who, self._step(who, "seek", number, this.at), f"at {this.at}")

    def _truncate(self, who: Process) -> None:
        found = [each for each in self._of_kind(who, "file", "memfd") if not each[1].file.mapped]
        for number, this in self.random.sample(found, min(1, len(found))):
            size, content = self.random.randrange(30000), this.file.content
            self._step(who, "truncate", number, size)
            if size > len(content):
                content.extend(bytes(size - len(content)))
            del content[size:]

    def _lock(self, who: Process) -> None:
        for number, this in self.random.sample(found := self._of_kind(who, "file"), min(1, len(found))):
            taken = this.file.locked not in (None, this)
            this.file.locked = this.file.locked if taken else this
            self._says(who, self._step(who, "lock", number), f"lock {errno.EAGAIN if taken else 0}")

    def _add(self, who: Process) -> None:
        for number, this in self._of_kind(who, "eventfd")[:1]:
            more = self.random.randint(1, 1000)
            self._step(who, "add", number, more)
            this.count += more

    def _count(self, who: Process) -> None:
        for number, this in self._of_kind(who, "eventfd")[:1]:
            if this.count:
                self._says(who, self._step(who, "take", number), f"took {this.count}")
                this.count = 0

    # -- what goes from one to another -----------------------------------------------------------------

    def _send(self, who: Process) -> None:
        found = [(number, this) for number, this in self._of_kind(who, "writer", "socket")
                 if this.can_send() and len(this.queue().waiting) < _PIECES]
        for number, this in self.random.sample(found, min(1, len(found))):
            size, seed = self.random.randint(1, _AT_ONCE), self._seed()
            self._says(who, self._step(who, "write", number, size, seed), f"wrote {size}")
            this.queue().waiting.append(made(size, seed))

    def _to_nobody(self, who: Process) -> None:
        for number, this in self._of_kind(who, "writer")[:1]:
            if not this.queue().holders:
                self._says(who, self._step(who, "write", number, 5, 1), f"wrote -{errno.EPIPE}")

    def _receive(self, who: Process) -> None:
        found = [(number, this) for number, this in self._of_kind(who, "reader", "socket")
                 if this.waiting or this.is_at_end()]
        for number, this in self.random.sample(found, min(1, len(found))):
            self._receives(who, number, this)

    def _receives(self, who: Process, number: int, this: Open) -> None:
        if this.type in _MESSAGES:
            data = this.waiting.pop(0)
            self._says(who, self._step(who, "receive", number), f"received {len(data)} {zlib.crc32(data):08x}")
            return
        all_of_it = b"".join(this.waiting)
        size = self.random.randint(1, max(1, len(all_of_it)))
        self._got(who, self._step(who, "read", number, size), all_of_it[:size])
        rest = all_of_it[size:]
        self._left(this, rest)

    @staticmethod
    def _left(this: Open, rest: bytes) -> None:
        """Piece for piece, as much room as they took."""
        pieces = []
        for piece in this.waiting[::-1]:
            if rest:
                pieces.insert(0, rest[-len(piece):])
                rest = rest[:-len(piece)]
        this.waiting[:] = pieces

    def _both(self) -> tuple[Process, int, Process, int] | None:
        """Somebody who can write and another who can read it, with nothing on its way."""
        ways = [(one, number, other, its)
                for one in self.alive for number, this in self._of_kind(one, "writer", "socket")
                if this.streams and this.can_send() and not this.queue().waiting
                for other in self.alive if other is not one
                for its, end in other.slots.items() if end is this.queue()]
        return self.random.choice(ways) if ways else None

    def _awaited(self, _: Process) -> None:
        """It waits for what is written only then."""
        if (found := self._both()) and found[2].name:
            writer, number, reader, its = found
            size, seed = self.random.randint(1, _AT_ONCE), self._seed()
            first = self._step(reader, "read", its, size, waits=False)
            if self.random.random() < 0.7 and writer.name:
                self._step(writer, "pause", self.random.randrange(60000), waits=False)
            step = self._step(writer, "write", number, size, seed)
            self._says(writer, step, f"wrote {size}")
            self._got(reader, first, made(size, seed))

    def _large(self, _: Process) -> None:
        """More than the pipe or the socket holds: whoever writes is held up."""
        if (found := self._both()) and found[0].name:
            writer, number, reader, its = found
            size, seed = self.random.randint(100000, 500000), self._seed()
            first = self._step(writer, "write", number, size, seed, waits=False)
            if self.random.random() < 0.7:
                self._step(self.first, "pause", self.random.randrange(60000), waits=False)
            step = self._step(reader, "read", its, size)
            self._says(writer, first, f"wrote {size}")
            self._got(reader, step, made(size, seed))

    def _shut(self, who: Process) -> None:
        found = [each for each in self._of_kind(who, "socket") if each[1].streams and each[1].can_send()]
        for number, this in self.random.sample(found, min(1, len(found))):
            self._step(who, "shut", number)
            this.shut = True

    def _pass(self, _: Process) -> None:
        """A descriptor over a socket. On its way it may be in no process."""
        ways = [(one, number, other, its) for one in self.alive for number, this in self._of_kind(one, "socket")
                if not this.tcp and this.can_send() and not this.queue().waiting
                for other in self.alive for its, end in other.slots.items() if end is this.queue()]
        if ways:
            one, number, other, its = self.random.choice(ways)
            if new := self._new(other):
                what = self.random.choice(list(one.slots))
                this = one.slots[what]
                self._step(one, "send", number, what)
                this.holders += 1          # the message
                if this.file.named and (one, what) != (other, its) and self.random.random() < 0.7:
                    self._step(one, "close", what)
                    self._let_go(one, what)
                if self.random.random() < 0.7:
                    self._step(one, "checkpoint")
                self._step(other, "obtain", its, new[0])
                self._take(other, new[0], this)
                this.holders -= 1

    # -- what they see -----------------------------------------------------------------------------------

    def _see_all(self) -> None:
        for each in self.alive:
            self._see(each)

    def _see(self, who: Process) -> None:
        step = self._step(who, "see")
        for line in who.view():
            self._says(who, step, line)

    def _drain(self) -> None:
        for who, number, this in self._all_open():
            while this.waiting and this.kind != "writer":
                self._receives(who, number, this)
            if this.kind == "eventfd" and this.count:
                self._count_of(who, number, this)

    def _count_of(self, who: Process, number: int, this: Open) -> None:
        self._says(who, self._step(who, "take", number), f"took {this.count}")
        this.count = 0

    def _all_open(self) -> Iterator[tuple[Process, int, Open]]:
        for who in self.alive:
            for number, this in sorted(who.slots.items()):
                yield who, number, this


_WEIGHTS = {
    "fork": 6, "exit": 1, "kill": 1, "wait": 1.5, "signal": 2, "block": 1.5, "group": 0.7, "session": 0.5, "umask": 0.7,
    "folder": 1, "checkpoint": 1, "work": 3, "shared": 2, "private": 2, "map": 2, "unmap": 1, "store": 8, "open": 4,
    "unlink": 1, "memfd": 2, "eventfd": 1, "pipe": 4, "pair": 4, "tcp": 1, "dup": 2, "close": 4, "flags": 1,
    "write_file": 6, "read_file": 4, "seek": 2, "truncate": 1, "lock": 1.5, "add": 1, "count": 0.7, "send": 12,
    "to_nobody": 1, "receive": 8, "awaited": 3, "large": 1.5, "shut": 1, "pass": 4}
