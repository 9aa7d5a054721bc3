"""The console blocks of a page, typed into one shell; what it shows below a command is compared with what that says.

A line `$ COMMAND` is typed, with the lines of its here-document (ended by END). Lines below it are its output, on both
standard output and standard error; `…` in them stands for anything, and a command without such lines may say what it
likes. A page whose sections are recipes of their own gives each a new folder and a new shell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Step:
    """One command as typed, and the lines shown below it (none: the page does not show the output)."""

    command: list[str]
    shown: list[str] = field(default_factory=list)


@dataclass
class Answer:
    step: Step
    said: list[str]
    status: int


def steps(text: str) -> list[Step]:
    """The commands of all console blocks, here-documents included, in order."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        inside_document = False
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step([line[2:]]))
                inside_document = "<<'END'" in line
            elif inside_document:
                found[-1].command.append(line)
                inside_document = line != "END"
            else:
                found[-1].shown.append(line)
    return found


def sections(text: str) -> dict[str, str]:
    """Heading -> what stands below it, for the sections that have something to type."""
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return {head: body for head, body in zip(parts[1::2], parts[2::2]) if steps(body)}


def environment(**more: str) -> dict[str, str]:
    """Whoever has just installed Metamori: its commands are found, and nothing is set."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("METAMORI")}
    return found | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"} | more


def typed(todo: list[Step], folder: Path, limit: float = 240, shell: Sequence[str] = ("bash",),
          **more: str) -> list[Answer]:
    """All of them in one shell that begins in `folder`. Seconds until it is given up: `limit`."""
    script = ["exec 2>&1"]
    for number, step in enumerate(todo):
        script += [f"echo '@@{number}'", *step.command, 'echo "@=$?"']
    done = subprocess.run(shell, input="\n".join([*script, ""]), cwd=folder, env=environment(**more),
                          capture_output=True, text=True, timeout=limit, check=False)
    answers = re.findall(r"^@@\d+\n(.*?)^@=(\d+)$", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(answers) == len(todo), (done.stdout[-2000:], done.stderr)
    return [Answer(step, said.splitlines(), int(status)) for step, (said, status) in zip(todo, answers)]


def same(shown: str, said: str) -> bool:
    """A shown line, in which `…` stands for anything and runs of blanks for each other, and a line that was said."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in shown.split("…"))
    return re.fullmatch(pattern.replace(r"\ ", " ?"), " ".join(said.split())) is not None


def compare(answers: list[Answer]) -> None:
    """Every command ended with 0, and said what the page shows."""
    for each in answers:
        killed = any("the command was killed by SIGKILL" in line for line in each.said)
        assert each.status == (137 if killed else 0), each
        assert not any("Traceback" in line for line in each.said), each
        if each.step.shown:
            assert len(each.said) == len(each.step.shown), each
            assert all(map(same, each.step.shown, each.said)), each
