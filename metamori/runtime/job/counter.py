"""The one of a job's runs that counts: it has the lock of the job's store, and takes each checkpoint of the job.

States of a checkpoint: asked -> every run is about to freeze -> every run is frozen -> every run has looked at its
files, and cut -> all go on -> each has its own index -> the job's record is renamed into place. Only then it exists. If
anything fails before, a message says so, all go on, and the next one takes it along.

`Round` is what is to be sent and waited for, without sockets and clocks of its own.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from metamori.errors import MetamoriError, StoreBusy, sentence
from metamori.runtime.checkpoint import job_stamps
from metamori.runtime.checkpoint.job_stamps import Stamps
from metamori.runtime.job import disks, finish, folder, places
from metamori.runtime.job.clock import now_ns
from metamori.runtime.job.disk import Disk
from metamori.runtime.job.fold import JobFold
from metamori.runtime.job.order import Order
from metamori.runtime.job.part import Part
from metamori.runtime.job.relays import DONE, LATE_S, TOLD, Tree
from metamori.runtime.job.wire import Message, Server
from metamori.store.read.store import Store
from metamori.tables.record import mutable

READY_S = 4.0                              # until all are about to freeze; programs go on
FREEZE_S = 4.0                             # until all are frozen, and have cut: those that are stand still
WRITE_S = 120.0                            # until all have written, and say so each second; programs go on
SILENT_S = 4.0                             # without a message from a run that lives
DIED_S = 0.2                               # without an answer, before it is asked whether a run was killed
LOOK_S = 0.02                              # of which no more than this is spent on asking
ARRANGE_S = 0.1                            # between looks at who is to speak through whom: many join at once
_JOIN_S = 5.0


class Refused(MetamoriError):
    """No checkpoint of the job."""


def text_of(error: Exception) -> str:
    """For a person; a mistake of ours with its kind."""
    said = sentence(error) if isinstance(error, MetamoriError | OSError) else ""
    return said or f"{type(error).__name__}: {error}"


class Ended(Refused):
    """A run has ended meanwhile, or was killed."""


class Round:
    """One checkpoint of all: what each has answered so far."""

    def __init__(self, number: int, runs: set[bytes], above: Mapping[bytes, bytes] = MappingProxyType({}),
                 place: Callable[[], int] = lambda: -1) -> None:
        """above: of a run the relay that it is spoken with through, while all stand still (relays.py). place: of the
        instant among all that runs do, asked when all are frozen."""
        self.number, self._runs, self._place = number, frozenset(runs), place
        self._look: Message = {}
        self._above = {who: relay for who, relay in above.items() if who in runs and relay in runs}
        self._below: dict[bytes, set[bytes]] = {}
        for who, relay in self._above.items():
            self._below.setdefault(relay, set()).add(who)
        self._near = self._runs - self._above.keys()
        self._is_late = False
        self.ready, self.frozen, self.looked, self.written = (set(runs) for _ in range(4))   # those still awaited
        self.indexes: dict[bytes, int] = {}
        self.why = ""
        self.is_short = False              # one that is awaited has ended

    def start(self) -> Iterator[tuple[Collection[bytes], Message]]:
        """What takes time before the freeze comes first: who is frozen waits for all others."""
        yield self._runs - self._below.keys(), {"what": "prepare", "round": self.number}
        for relay, below in self._below.items():
            yield (relay,), {"what": "prepare", "round": self.number, "below": [who.hex() for who in below]}

    def told(self, answer: Message) -> frozenset[bytes]:
        """Who must hear it from here."""
        return self._near if answer["what"] in TOLD else self._runs

    def late(self) -> tuple[set[bytes], Message] | None:
        """What relays should have passed on by now, to all that may still wait for it; once."""
        if self._is_late or not self._above or self.ready:
            return None
        self._is_late = True
        if not (self.frozen or self.looked):
            return self.written & self._above.keys(), self._tells("go")
        self._near = self._runs            # so is what follows
        awaited = (self.frozen or self.looked) & (self._above.keys() | self._below.keys())
        return awaited, self._tells("cut") if self.frozen else self._look | self._tells("look")

    def take(self, who: bytes, message: Message) -> Message | None:
        """What all are to be told now, or nothing."""
        if message.get("round") != self.number or self.why:
            return None
        if message["what"] == "ready" and who in self.ready:
            self.ready.remove(who)
            return None if self.ready else self._tells("cut")
        if message["what"] in DONE:
            awaited = self.frozen if message["what"] == "frozen" else self.looked
            if not awaited:
                return None                # a relay, for those that were asked themselves meanwhile
            awaited.discard(who)
            if message.get("all"):
                awaited -= self._below.get(who, frozenset())
            if awaited or awaited is self.looked:
                return None if awaited else self._tells("go")
            self._look = self._tells("look") | {"place": self._place()}
            return self._look
        if message["what"] == "written":
            self.written.discard(who)
            self.indexes[who] = message["index"]
        if message["what"] == "failed":
            return self.give_up(message["why"])
        return None

    def _tells(self, what: str) -> Message:
        return {"what": what, "round": self.number} | ({"alone": True} if self._is_late else {})

    def leave(self, who: bytes) -> None:
        self.is_short = self.is_short or who in self.written

    def give_up(self, why: str) -> Message:
        self.why = why
        return {"what": "abort", "round": self.number}

    @property
    def limit_s(self) -> float:
        """For those that are awaited now."""
        return READY_S if self.ready else FREEZE_S if self.frozen or self.looked else WRITE_S

    @property
    def awaited(self) -> set[bytes]:
        return self.ready or self.frozen or self.looked or self.written

    @property
    def is_over(self) -> bool:
        return bool(self.why) or not self.awaited


@mutable
class Run:
    """A run that has joined."""

    name: bytes
    heard: float


class Counter(threading.Thread):
    """`store` is the job's, locked; it belongs to this thread until it has ended."""

    def __init__(self, store: Store, identity: str, job_run: int, durable: bool, say: Callable[[str], None],
                 base: tuple[int, int] = (0, 0)) -> None:
        """base: between this machine's clock and the job's (clock.py)."""
        super().__init__(name="metamori job", daemon=True)
        self.store, self.identity, self.job_run, self.durable, self.say = store, identity, job_run, durable, say
        self._base = base
        self._runs: dict[bytes, Run] = {}
        self._tree = Tree()
        self._parts: dict[bytes, Part] = {}
        self._joining: list[tuple[bytes, Message]] = []
        self._asked: list[tuple[bytes, Message]] = []
        self._processes: dict[tuple[bytes, int], int] = {}
        self._order = Order(store)
        self._disks: dict[str, Disk] = {}
        self._left = disks.left(store)     # machines
        self._hosts: dict[bytes, str] = {}
        self._completed: dict[bytes, Message] = {}
        self._begun = {*folder.names(store)}           # names: of those that have joined, or one before us
        self._leaving: set[bytes] = set()  # names: their commands have ended, and they record what these did
        self._round = 0
        self._over = threading.Event()
        self.has_failed = self.is_taking = False       # another may have the lock by then
        self.why = ""                      # it has, or this run's before it
        self._looked = self._since = self._arranged = self._placed = time.monotonic()
        self._server = Server()
        try:
            folder.write_counter(store, {"job": identity, "run": job_run, **self._server.reached})
        except BaseException:
            self._server.close()
            raise

    def start(self) -> None:
        try:
            super().start()
        except BaseException:
            self._server.close()
            raise

    def stop(self) -> None:
        """When the checkpoint under way is there, or refused."""
        self._over.set()
        self.join()

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._hear(0.05)
                self._require_place(1)
                if self._asked:
                    self._serve()
        except Exception as error:         # a mistake of ours: who takes the lock next begins anew
            if (why := text_of(error)) != self.why:
                self.say(f"the run that counts begins anew, or another does: {why}")
            self.why = why
            self.store.close()
            self.has_failed = True
        finally:                           # who has asked since asks the next one that counts
            self._server.close()

    def _require_place(self, each_s: float = 0) -> None:
        """Refused: the lock went to another while this machine hung."""
        if time.monotonic() > self._placed + each_s:
            self._placed = time.monotonic()
            if not folder.keeps_place(self.store, self._server.reached):
                raise Refused("another run counts by now")

    def _hear(self, wait_s: float, round_: Round | None = None) -> bool:
        """One message; whether there was one."""
        if round_ is None and not self._tree.is_settled and time.monotonic() > self._arranged + ARRANGE_S:
            self._arranged = time.monotonic()
            for who, message in self._tree.arrange(self._runs):
                self._server.send(who, message)
        got = self._server.receive(wait_s)
        if got is None:
            return False
        who, message = got
        what = message.get("what")
        if what == "hello?":
            self._server.send(who, {"what": "hello", "job": self.identity})
        elif what == "join":
            if round_ is None:
                self._join(who, message)
            else:                          # what it does is not part of the instant
                self._joining.append((who, message))
                for other in self._lines_of(message, who):
                    self._forget(other)    # cut: nobody answers there
                    round_.leave(other)
        elif what == "checkpoint":
            self._asked.append((who, message))
        elif what == "completed":
            self._completed[who] = message
        elif what == "status":
            self._server.send(who, {"what": "status", "relayed": len(self._tree.above), "runs": sorted(
                os.fsdecode(each.name) for each in self._runs.values())})
        elif what == "relay":
            self._tree.serves(who, message["at"])
        elif what == "linked":
            self._tree.linked(who, bytes.fromhex(message["relay"]))
        elif what == "leave":
            if who in self._runs:
                self._leaving.add(self._runs[who].name)
            self._forget(who)
            self._joining = [each for each in self._joining if each[0] != who]
            if round_ is not None:
                round_.leave(who)
        elif what == "alive?":             # one that had joined the one before us, or that we took for dead
            self._server.send(who, {"what": "alive" if who in self._runs else "who?", "sent": message.get("sent"),
                                    "clock": (now_ns(), *self._base)})
        if who in self._runs:
            self._runs[who].heard = time.monotonic()
            if round_ is not None and (answer := round_.take(who, message)):
                self._server.send_all(round_.told(answer), answer)
        return True

    def _forget(self, who: bytes) -> None:
        if self._runs.pop(who, None):
            self._tree.drop(who)

    def _join(self, who: bytes, message: Message) -> None:
        name = os.fsencode(message["name"])
        for other in self._lines_of(message):
            self._forget(other)            # its line was cut
        self._runs[who] = Run(name, time.monotonic())
        self._begun.add(name)
        self._tree.drop(who)               # joined before, it was taken for dead
        self._server.send(who, {"what": "joined"})

    def _lines_of(self, message: Message, but: bytes = b"") -> list[bytes]:
        name = os.fsencode(message["name"])
        return [who for who, run in self._runs.items() if run.name == name and who != but]

    def _tell(self, message: Message) -> None:
        self._server.send_all(self._runs, message)

    def _serve(self) -> None:
        """Those that ask for the same have the same: it is later than all of them asked."""
        text = self._asked[0][1].get("message", "")
        mine = [who for who, message in self._asked if message.get("message", "") == text]
        self._asked = [each for each in self._asked if each[0] not in mine]
        began = time.monotonic()
        self.is_taking = True
        try:
            answer = {"what": "taken", "index": self.take(text)}
        except Exception as error:         # a mistake of ours must not leave the job without one that counts
            answer = {"what": "refused", "why": text_of(error)}
        self.is_taking = False
        for who, message in self._joining:
            self._join(who, message)
        self._joining.clear()
        answer["seconds"] = time.monotonic() - began
        for who in mine:
            self._server.send(who, answer)

    def take(self, message: str) -> int:
        """The job's next index; those that were killed are completed first. Refused, StoreBusy, OSError."""
        while True:
            try:
                return self._take(message)
            except Ended:
                continue                   # each time one less

    def _take(self, message: str) -> int:
        ended = self._settle()
        self._round += 1
        round_ = Round(self._round, set(self._runs), self._tree.above,
                       lambda: job_stamps.take_place(self.store.door, self.store.layout.order))
        if not self._runs:
            raise Refused(f"no job is alive in {self.store.path}")
        names = {who: run.name for who, run in self._runs.items()}     # one that has written may end before all have
        self._agree(round_)
        return self._fold(message, "checkpoint", {names[who]: index for who, index in round_.indexes.items()},
                          ended)

    def _agree(self, round_: Round) -> None:
        """Until all have written. Refused, Ended."""
        for whom, start in round_.start():
            self._server.send_all(whom, start)
        since = begun = time.monotonic()
        awaited, look = round_.awaited, since + DIED_S
        while not round_.is_over:
            now = time.monotonic()
            if round_.awaited is not awaited:
                since, awaited = now, round_.awaited
                begun = begun if awaited is round_.looked else now     # all stand still since before
            if now >= begun + round_.limit_s:
                self._tell(round_.give_up(self._who_fails(awaited)))
                break
            if now > since + LATE_S and (late := round_.late()):
                self._server.send_all(*late)
            self._hear(0.05, round_)
            if time.monotonic() > look and not round_.is_over:
                if silent := self._silent(round_) if awaited is round_.written else ():
                    self._tell(round_.give_up(self._who_fails(silent)))
                    break
                for who in self._killed(round_.written):
                    self._forget(who)
                    round_.leave(who)
                look = time.monotonic() + DIED_S
            if round_.is_short and not round_.is_over:
                self._tell(round_.give_up("a run ended meanwhile"))
                raise Ended
        if round_.why:
            raise Refused(round_.why)

    def _killed(self, awaited: set[bytes]) -> list[bytes]:
        """As many as there is time to look at while all stand still."""
        found, ends = [], time.monotonic() + LOOK_S
        left = list(awaited & self._runs.keys())
        random.shuffle(left)
        for who in left:
            if not folder.is_alive(self.store, self._runs[who].name):
                found.append(who)
            if time.monotonic() > ends:
                break
        return found

    def _silent(self, round_: Round) -> set[bytes]:
        """Of those that write; one says each second that it lives. Not where this one itself stood still meanwhile."""
        now, before = time.monotonic(), self._looked
        self._looked = now
        if now - before > 1:
            self._since = now
        return {who for who in round_.written & self._runs.keys()
                if now - max(self._runs[who].heard, self._since) > SILENT_S}

    def _who_fails(self, awaited: set[bytes]) -> str:
        names = sorted(os.fsdecode(self._runs[who].name) for who in awaited if who in self._runs)
        return f"no answer from {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}"

    def _settle(self) -> set[bytes]:
        """Before a round: all that live have joined, the others are ended, completed where they were killed; these.
        Who has never joined has no command yet."""
        began = time.monotonic()
        while True:
            while self._hear(0):           # all that was said while the last record was written
                pass
            joined = {run.name for run in self._runs.values()}
            silent = {run.name for run in self._runs.values() if time.monotonic() - run.heard > SILENT_S}
            unheard = [name for name in folder.names(self.store) if name not in joined or name in silent]
            alive = {name for name in unheard if folder.is_alive(self.store, name)}
            missing = [name for name in unheard if name not in alive]
            awaited = sorted(alive & self._begun)
            try:
                again = awaited or self._complete(missing)
            except StoreBusy:              # one of them has begun just now
                again = any(folder.is_alive(self.store, name) for name in missing)
                if not again:
                    raise
            if not again:
                break
            self._leaving &= alive
            for name in awaited:
                if time.monotonic() > began + (WRITE_S if name in self._leaving else _JOIN_S):
                    raise Refused(f"no answer from {os.fsdecode(name)}")
            self._hear(0.02)
        for who in [who for who, run in self._runs.items() if run.name in missing]:
            self._forget(who)
        return set(missing)

    def _complete(self, missing: list[bytes]) -> bool:
        """Those that were killed; whether there was one. A run of the same machine does it where one lives: it sees
        that machine's disk, and completes too what of that was left for want of one."""
        of = {name: self._host(name) for name in missing if finish.is_unfinished(self.store, name)}
        hosts = {*of.values()} | self._left
        if not hosts:
            return False
        near = {self._host(run.name): who for who, run in self._runs.items() if run.name not in missing}
        for host in sorted(hosts):
            names = [name for name in of if of[name] == host]
            if host not in near:
                said = [finish.complete_run(self.store, name) for name in names]
            elif host == socket.gethostname():
                said = finish.complete_here(self.store, names)
            else:
                said = self._complete_there(near[host], names)
            for text in filter(None, said):
                self.say(text)
        before, self._left = self._left, disks.left(self.store)
        return bool(of) or self._left != before

    def _host(self, name: bytes) -> str:
        """Read once: it stays what it is from when a run joins, or is killed, on."""
        if name not in self._hosts:
            self._hosts[name] = places.read(self.store, name).host
        return self._hosts[name]

    def _complete_there(self, who: bytes, names: list[bytes]) -> list[str]:
        """What it says. Refused; Ended."""
        self._completed.pop(who, None)
        self._server.send(who, {"what": "complete", "names": [os.fsdecode(name) for name in names]})
        limit = time.monotonic() + WRITE_S
        while who not in self._completed:
            self._hear(0.05)
            if who not in self._runs:
                raise Ended
            run, now = self._runs[who], time.monotonic()
            if now - run.heard > SILENT_S or now > limit:
                self._forget(who)
                raise Ended
        answer = self._completed.pop(who)
        if "why" in answer:
            raise Refused(answer["why"])
        said: list[str] = answer["said"]
        return said

    def _part(self, name: bytes) -> Part:
        """Its store is read on; what else is known of the run stays once it has recorded something: it may begin just
        now."""
        part = self._parts.get(name)
        if part is None:
            node = Store.open(self.store.layout.node(name), door=self.store.door)
            part = Part(name, node, Stamps(node), places.read(self.store, name), 0, 0)
        part.store.refresh()
        if part.store.newest:
            self._parts[name] = part
        return part

    def _fold(self, message: str, reason: str, indexes: dict[bytes, int], ended: set[bytes]) -> int:
        self.store.refresh()
        upto, mapped = folder.folded(self.store)
        parts = []
        for name in sorted({*indexes, *ended}):
            part = self._part(name)
            part.since, part.live = upto.get(name, 0), name in indexes
            part.upto = indexes.get(name, part.store.newest)
            if part.upto > part.since:
                parts.append(part)
        parent = finish.parent_of(self.store, self.job_run)
        fold = JobFold(self.store, parts, parent, self.job_run, mapped, indexes, self._processes, self._order)
        now = time.time_ns()
        self._require_place()
        for text in disks.fold(self.store, self._disks, parts, indexes, parent, self.job_run, reason, message, now,
                               self.durable):
            self.say(text)
        index = fold.commit(message, reason, self.durable, now, self._require_place)
        self._order.folded()
        for part in parts:
            part.stamps.forget(part.upto)
        for text in fold.said:
            self.say(text)
        return index

