"""The second half of a checkpoint, done while the program goes on: by a head, or by a thread of this process.

At most one is under way. Whoever needs its result, or wants to begin the next, waits for it (`collect`).
A head is the first process of a node (head = 1). A thread sends messages only if the program has asked MPI to let any
thread call it (MPI_THREAD_MULTIPLE); if not, levels 2 and 3 are protected at once, and level 4 is copied by the thread.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from metamori.errors import MetamoriError
from metamori.levels.protect import checkpoint
from metamori.levels.protect.checkpoint import Order, Part
from metamori.levels.protect.job import Crew
from metamori.levels.protect.record import Record
from metamori.levels.setup.paths import Paths

END = None


@dataclass(frozen=True, slots=True)
class Errand:
    """What a process asks its head to do."""

    order: Order
    rank: int
    size: int
    checksum: str
    needs: list[int]


class Heads:
    """The program's side of a head."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        node = crew.topology.node_of(crew.world.rank)
        self.head = crew.topology.nodes[node][0]
        self.waiting = False

    def takes(self, level: int) -> bool:
        return level > 1

    def start(self, order: Order, part: Part) -> None:
        self.crew.world.send(Errand(order, part.rank, part.size, part.checksum, part.needs), self.head,
                             self.crew.settings.ckpt_tag)
        self.waiting = True

    def collect(self) -> Record | str | None:
        """The record, what went wrong, or None when nothing was under way."""
        if not self.waiting:
            return None
        self.waiting = False
        return self.crew.world.receive(self.head, self.crew.settings.ckpt_tag)   # type: ignore[no-any-return]

    def end(self) -> None:
        self.crew.world.send(END, self.head, self.crew.settings.ckpt_tag)


class Threads:
    """A thread of this process. `free`: it may call MPI, and has communicators of its own; else it only copies, and
    what has to be agreed upon waits for collect()."""

    def __init__(self, crew: Crew, free: bool) -> None:
        self.crew, self.free = crew, free
        self.group = crew.group.duplicate() if free else crew.group
        self.app = crew.app.duplicate() if free else crew.app
        self.thread: threading.Thread | None = None
        self.result: Record | str = ""
        self.left: tuple[Order, Part] | None = None

    def takes(self, level: int) -> bool:
        return self.free or level == 4

    def start(self, order: Order, part: Part) -> None:
        def work() -> None:
            try:
                if self.free:
                    self.result = checkpoint.post(self.group, self.app, [part], order, self.crew.settings)
                else:
                    self.result = checkpoint.protect(self.group, [part], order, self.crew.settings)
            except Exception as error:     # told to whoever collects
                self.result = str(error) or type(error).__name__
        self.left = None if self.free else (order, part)
        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def collect(self) -> Record | str | None:
        if self.thread is None:
            return None
        self.thread.join()
        self.thread = None
        if self.left is None or isinstance(self.result, Record):
            return self.result
        order, part = self.left
        try:
            return checkpoint.settle(self.group, self.app, [part], order, self.crew.settings, self.result)
        except checkpoint.NotTaken as error:
            return str(error)

    def end(self) -> None:
        if self.free:
            self.group.free()
            self.app.free()


def choose(crew: Crew) -> Heads | Threads | None:
    """Who does the second half of the levels that are not inline; None: nobody but the process itself."""
    chosen = crew.settings
    if crew.topology.heads:
        return Heads(crew)
    if chosen.inline_l2 and chosen.inline_l3 and chosen.inline_l4:
        return None
    return Threads(crew, crew.app.all(crew.app.threads))


def serve(crew: Crew) -> None:
    """A head's life: errands of all processes of its node, until all have said that they are done, or one of them sends
    FTI's token for that by itself (an int, FTI_ENDW, with final_tag)."""
    chosen, topology = crew.settings, crew.topology
    node = topology.nodes[topology.node_of(crew.world.rank)]
    sector = topology.place(crew.world.rank)[0]
    heads = crew.heads
    while crew.world.comes(chosen.ckpt_tag, chosen.final_tag):
        errands = [crew.world.receive(rank, chosen.ckpt_tag, patient=True) for rank in node[1:]]
        if errands[0] is END:
            return
        parts = []
        for position, errand in enumerate(errands, 1):
            paths = Paths(chosen, crew.exec_id, topology.names[topology.node_of(crew.world.rank)], sector, position)
            parts.append(Part(errand.rank, paths, errand.size, errand.checksum, errand.needs))
        answer: Record | str
        try:
            answer = checkpoint.post(crew.group, heads, parts, errands[0].order, chosen)
        except MetamoriError as error:
            answer = str(error)
        for rank in node[1:]:
            crew.world.send(answer, rank, chosen.ckpt_tag)
