"""The model's processes and threads: who they are, and what several of them do at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from cuts import in_its_order, outcomes, possible
from files_model import Description, Refused, Unforetold
from together import (
    BY_STREAM,
    OF_THE_CROWD,
    OUTSIDE,
    Item,
    answers_of,
    in_order,
    process_of,
    split,
    victims,
)  # fmt: skip

if TYPE_CHECKING:
    from world import State

NOT_IN_THREADS = {*OF_THE_CROWD - {"restore"}, "thread", "on", "together", "endthread", "cancelthread", "in", "endtwin",
                  "killtwin"}
TWINS_DO = {
    "open", "openat", "creat", "close", "dup", "dup2", "dup3", "dupfd", "read", "readv", "pread", "preadv", "write",
    "writev", "pwrite", "pwritev", "lseek", "ftruncate", "truncate", "fsize", "fsync", "fdatasync", "fchmod", "unlink",
    "unlinkat", "remove", "rename", "renameat", "link", "symlink", "mkdir", "rmdir", "chmod", "size", "exists",
    "readlink", "tree", "forkwrite", "mapread", "fill", "thread", "on", "together", "endthread", "cancelthread",
}  # fmt: skip


class Several:
    """What World knows of processes and threads."""

    state: State
    restorable: bool

    def __init__(self) -> None:
        self.twins: dict[int, dict[int, Description]] = {}  # the descriptors of processes forked off
        self.threads: set[int] = set()  # of the process that acts
        self.in_twin = False
        self.twins_threads: dict[int, set[int]] = {}
        self.cuts: list[frozenset[str]] = []  # for each checkpoint amid several's calls: the possible trees

    def apply(self, line: str) -> str | None:
        raise NotImplementedError

    def _tree(self) -> str:
        return self.state.names.tree()

    # processes that share what they inherited

    def as_process(self, process: str):  # type: ignore[no-untyped-def]
        return self.as_twin(int(process)) if process.isdigit() else nullcontext()

    @contextmanager
    def as_twin(self, which: int) -> Iterator[None]:
        """Another process does it: the same files and descriptions, its own numbers."""
        mine, self.state.descriptors = self.state.descriptors, self.twins[which]
        threads, self.threads = self.threads, self.twins_threads[which]
        self.in_twin = True
        try:
            yield
        finally:
            self.state.descriptors, self.threads = mine, threads
            self.in_twin = False

    def _twin(self, which: str) -> str:
        if int(which) in self.twins or self.state.streams:
            raise Unforetold
        self.twins[int(which)] = dict(self.state.descriptors)
        self.twins_threads[int(which)] = set()
        return "0"

    def _in(self, which: str, *line: str) -> str | None:
        if int(which) not in self.twins or line[0] not in TWINS_DO:
            raise Unforetold
        with self.as_twin(int(which)):
            return self.apply(" ".join(line))

    def _endtwin(self, which: str) -> str:
        if self.twins.pop(int(which), None) is None:
            raise Unforetold
        return "0"

    def _killtwin(self, which: str) -> str:
        self._endtwin(which)
        return "-9"

    # threads of one process

    def _thread(self, which: str) -> str:
        if int(which) in self.threads:
            raise Unforetold
        self.threads.add(int(which))
        return "0"

    def _endthread(self, which: str) -> str:
        if int(which) not in self.threads:
            raise Unforetold
        self.threads.remove(int(which))
        return "0"

    def _cancelthread(self, which: str) -> str:
        self._endthread(which)
        return "1"

    def _on(self, which: str, *line: str) -> str | None:
        """A thread sees what all the others see."""
        if int(which) not in self.threads or line[0] in NOT_IN_THREADS or not self._may(line[0]):
            raise Unforetold
        return self.apply(" ".join(line))

    def _together(self, *words: str) -> str:
        """Several at once; left out where the result depends on who comes first. Who is killed has done all first."""
        items = split(words)
        answers = self.foretold(items)
        if self.restorable and not victims(items) and ("index" in answers or OUTSIDE in items):
            self.cuts.append(possible(self, items, self._tree))
        self._do(items)
        return " ; ".join(answers)

    def _do(self, items: list[Item]) -> None:
        with self.after([(who, line) for who, line in in_order(items) if line[0] not in OF_THE_CROWD], keep=True):
            for process in victims(items):
                del self.twins[int(process)]

    @contextmanager
    def after(self, calls: Sequence[tuple[str, Sequence[str]]], keep: bool = False) -> Iterator[None]:
        """The state when actors have done these calls; it does not stay, unless `keep`."""
        with nullcontext() if keep else self.trying():
            opened: dict[str, str] = {}
            for who, call in calls:
                if call[0] == "fill_write" and opened.get(who, "").startswith("-1"):
                    continue
                with self.as_process(process_of(who)):
                    opened[who] = self.apply(" ".join(call)) or ""
            yield

    def would_write_at(self, who: str, call: Sequence[str]) -> int:
        """Where a write begins."""
        if call[0] == "fill_write":
            if "append" in call[2]:
                with suppress(Refused):    # in this order it was not opened
                    return len(self.state.names.existing(call[1]).content)
            return 0
        with self.as_process(process_of(who)):
            found = self.state.descriptors.get(int(call[1]))
        if found is None:
            return 0                           # it writes nothing
        if found.append:                       # pwrite too: Linux puts it at the end (pwrite(2), bugs)
            return len(found.node.content)
        return int(call[3]) if call[0].startswith("pwrite") else found.position

    def lost_some(self, line: str, have: str, ask: Callable[[str], str]) -> str:
        """One of several was killed amid their lines. Learns from answers and by asking what it had done, goes on
        with that. What is wrong, or nothing."""
        items, answers = split(line.split(" ")[1:]), have.split(" ; ")
        want, dead = self.foretold(items), victims(items)
        for (who, words), answer, foretold in zip(items, answers, want):
            lost = process_of(who) in dead and answer in ("?", "-")
            if not lost and answer != foretold and not (foretold == "index" and answer.isdigit()):
                return f"{who} {' '.join(words)}: have {answer}, want {foretold}"
        if len(answers) != len(items) or not in_its_order(items, answers):
            return f"answers out of order: {have}"
        if self.restorable and (OUTSIDE in items or any(
                words[0] == "cut" and answer.isdigit() for (_, words), answer in zip(items, answers))):
            self.cuts.append(possible(self, items, self._tree, answers))
        told = [(question, ask(question)) for question in self._questions(dead)]
        closest: list[str] = []
        for reached in outcomes(self, items, answers, dead):
            with reached:
                for process in dead:
                    del self.twins[int(process)]
                wrong = [f"{question}: {answer}\n    for {here}" for question, answer in told
                         if (here := self.apply(question)) != answer]
                found = self.state, self.twins
            if not wrong:
                self.state, self.twins = found
                for process in dead:
                    self.twins_threads.pop(int(process), None)
                return ""
            closest = wrong if not closest or len(wrong) < len(closest) else closest
        return f"{have}\n  nothing that it may have done explains this:\n  " + "\n  ".join(closest)

    def _questions(self, dead: set[str]) -> list[str]:
        """What tells states apart: names, positions, and what descriptors still lead to."""
        tables = {"": self.state.descriptors} | {f"in {n} ": t for n, t in self.twins.items() if str(n) not in dead}
        streams = {s.descriptor for s in self.state.streams.values()}
        questions = ["tree"]
        for before, table in tables.items():
            for number, found in sorted(table.items()):
                if found.node.kind == "file" and number not in streams:
                    questions += [f"{before}lseek {number} 0 cur", f"{before}fsize {number}"]
                    questions += [f"{before}pread {number} 1000000 0"] * found.readable
        return questions

    def foretold(self, items: list[Item]) -> list[str]:
        """The answers; nothing is changed."""
        dead = victims(items)
        if not all(self._is_there(who) and self._may_now(who, line, dead) for who, line in items):
            raise Unforetold
        if len(dead) > 1 or not dead <= set(map(str, self.twins)):
            raise Unforetold
        with self.trying():
            answers = answers_of(self, items)
        if ("index" in answers or OUTSIDE in items) and any(line[0] in BY_STREAM for _, line in items):
            raise Unforetold  # what a stream has in memory may be in the cut or not
        return answers

    def _is_there(self, actor: str) -> bool:
        process, dot, thread = actor.partition(".")
        if actor == "x":
            return not self.in_twin
        if not dot:
            return actor.isdigit() and int(actor) in self.threads
        if self.in_twin or (process != "m" and (not process.isdigit() or int(process) not in self.twins)):
            return False
        with self.as_process(process):
            return thread == "m" or (thread.isdigit() and int(thread) in self.threads)

    def _may_now(self, who: str, line: list[str], dead: set[str]) -> bool:
        process = process_of(who)
        if line[0] == "restore":  # by the first process: refused as long as somebody else is sure to live
            return process not in dead and (process.isdigit() or set(map(str, self.twins)) > dead)
        if line[0] == "kill":
            return process not in ("", line[1])
        if line[0] == "die":
            return process.isdigit()
        with self.as_process(process):
            return self._may(line[0])

    @contextmanager
    def trying(self) -> Iterator[None]:
        kept = self.state, self.twins
        self.state, self.twins = copy.deepcopy(kept)
        try:
            yield
        finally:
            self.state, self.twins = kept

    def _cut(self) -> str:
        return "index" if self.restorable else "-1 ENOSYS"

    def _may(self, name: str) -> bool:
        return not self.in_twin or name in TWINS_DO or name in OF_THE_CROWD - {"restore"}
