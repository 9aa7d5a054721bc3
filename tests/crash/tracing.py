"""A command whose system calls on files below a folder are asked about one by one (tests/programs/tracer.c)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 240.0


@dataclass(frozen=True)
class Call:
    """The `number`th call that counts, from 1; `other` is the second path of a rename or a link."""

    number: int
    pid: int
    name: str
    length: int
    path: str
    other: str

    def __str__(self) -> str:
        second = f" -> {self.other}" if self.other else ""
        return f"call {self.number}: {self.name} {self.path}{second}"


@dataclass(frozen=True)
class Traced:
    """What came of it. status: as waitpid gives it. calls: those that counted."""

    status: int
    stdout: bytes
    stderr: bytes
    calls: tuple[Call, ...]


Decide = Callable[[Call], str]


def go(_: Call) -> str:
    return "g"


def trace(
    tracer: Path, command: Sequence[object], folder: Path, decide: Decide = go, *, cwd: Path, env: dict[str, str],
    stdin: bytes = b"", program: str = "-", calls: str = "change", also: Sequence[Path] = (),
) -> Traced:
    """Runs it to its end. `decide` answers g, k, p, x, y, s or "f ERRNO" (see the tracer) for calls below `folder`, and
    below those that are `also` given."""
    ask, asked = os.pipe()
    answered, answer = os.pipe()
    out, err, given = (folder.with_name(f"{folder.name}-{what}") for what in ("out", "err", "in"))
    given.write_bytes(stdin)
    with open(out, "wb") as stdout, open(err, "wb") as stderr, open(given, "rb") as source:
        process = subprocess.Popen(
            [str(tracer), str(asked), str(answered), ":".join(map(str, (folder, *also))), program, calls,
             *map(str, command)], cwd=cwd, env=env, stdin=source, stdout=stdout, stderr=stderr,
            pass_fds=(asked, answered))
    os.close(asked)
    os.close(answered)
    seen: list[Call] = []
    status = -1
    try:
        with open(ask, "rb", buffering=0) as questions, open(answer, "wb", buffering=0) as answers:
            for line in iter(questions.readline, b""):
                word = os.fsdecode(line).rstrip("\n").split(" ", 4)
                if word[0] == "E":
                    status = int(word[1])
                elif word[0] == "C":
                    path, _, other = word[4].partition("\t")
                    seen.append(Call(len(seen) + 1, int(word[1]), word[2], int(word[3]), path, other))
                    answers.write(decide(seen[-1]).encode() + b"\n")
    finally:
        process.kill() if process.poll() is None and status < 0 else None
        process.wait(PATIENCE)
    return Traced(status, out.read_bytes(), err.read_bytes(), tuple(seen))
