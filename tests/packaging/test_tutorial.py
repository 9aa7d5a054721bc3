"""The tutorial does what it says: its commands are typed into one shell, and its shown output is compared."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"


@dataclass
class Step:
    """One command as typed, and the lines shown below it (none: the page does not show the output)."""

    command: list[str]
    shown: list[str] = field(default_factory=list)


def steps(page: str) -> list[Step]:
    """The commands of all console blocks, here-documents included, in order."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
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


@pytest.mark.usefixtures("installed")
def test_the_tutorial(tmp_path: Path) -> None:
    """In a folder of the test's own instead of the one that the page names."""
    page = PAGE.read_text().replace("/tmp/try", f"{tmp_path}/try")
    script = []
    for number, step in enumerate(steps(page)):
        script += [f"echo '@@{number}'", *step.command, "echo \"@=$?\""]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("METAMORI_STORE", None)
    done = subprocess.run(["bash"], input="\n".join(script), cwd=tmp_path, env=environment,
                          capture_output=True, text=True, timeout=120)
    answers = re.findall(r"^@@\d+\n(.*?)^@=(\d+)$", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(answers) == len(steps(page)) > 10, done.stderr
    for step, (output, status) in zip(steps(page), answers):
        killed = step.command == ["metamori run -- sh job.sh"]
        assert int(status) == (137 if killed else 0), (step, done.stderr)
        if step.shown:
            lines = [line for line in output.splitlines() if not line.startswith("the files are at")]
            assert lines == step.shown, step
