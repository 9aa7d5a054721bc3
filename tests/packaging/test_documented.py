"""The reference pages and the program say the same."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from metamori import errors

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def subclasses(kind: type) -> set[type]:
    return {kind} | {deeper for below in kind.__subclasses__() for deeper in subclasses(below)}


def test_every_exit_code_is_on_its_page() -> None:
    page = (REFERENCE / "exit-codes.md").read_text()
    listed = {int(match) for match in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    raised = {kind.exit_code for kind in subclasses(errors.MetamoriError)}  # type: ignore[attr-defined]
    assert raised <= listed


def usage(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "metamori.cli.main", *words, "--help"], capture_output=True,
                          text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def described() -> dict[str, str]:
    """Verb -> its section of the page of the command line."""
    sections = re.split(r"^## ", (REFERENCE / "cli.md").read_text(), flags=re.MULTILINE)
    heads = ((re.match(r"metamori (\w+)", section), section) for section in sections)
    return {head[1]: section for head, section in heads if head}


@pytest.mark.usefixtures("installed")
def test_every_verb_has_its_section_and_every_section_its_verb() -> None:
    match = re.search(r"\{([\w,]+)\}", usage())
    assert match, "metamori --help lists the verbs"
    assert set(match.group(1).split(",")) == set(described())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("verb", sorted(described()))
def test_every_option_of_a_verb_is_described(verb: str) -> None:
    """By the table that `make docs` makes of the parser (test_manual.py looks at it); of `run` the page names all."""
    real = set(re.findall(r"--[a-z][\w-]*", usage(verb))) - {"--help"}
    section = described()[verb]
    written = set(re.findall(r"--[a-z][\w-]*", section.split("<!--")[0]))
    assert f"<!-- options of {verb} -->" in section
    assert verb != "run" or written == real - {"--store"}
    assert written <= real | {"--help"}, "options that the program does not have"
