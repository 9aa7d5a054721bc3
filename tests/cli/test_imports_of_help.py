"""`metamori --help` answers at once: what it imports is counted, since no test may depend on a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

OURS = {"metamori", "metamori.cli", "metamori.cli.main", "metamori.cli.options", "metamori.cli.options.parser",
        "metamori.errors", "metamori.runtime",
        "metamori.runtime.lifecycle", "metamori.runtime.lifecycle.leave_run", "metamori.printed"}
# What argparse, and Python's own start, bring along is not ours to choose; none of these is needed to print a page.
HEAVY = {"asyncio", "cffi", "ctypes", "dataclasses", "email", "hashlib", "http", "importlib.metadata", "inspect",
         "json", "logging",
         "multiprocessing", "numpy", "pickle", "socket", "sortedcontainers", "ssl", "subprocess", "tempfile",
         "tokenize", "typing_extensions", "unittest", "xml"}


def imported(*words: str) -> set[str]:
    """By metamori with these words, beyond what an interpreter has at its start."""
    code = ("import sys; before = set(sys.modules); from metamori.cli.main import main\n"
            "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
            "print('@@', *sorted(set(sys.modules) - before))")
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.rsplit("@@", 1)[1].split())


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_imports_the_parser_and_no_verb(words: list[str]) -> None:
    found = imported(*words)
    assert {name for name in found if name.startswith("metamori")} <= OURS
    assert not {name for name in found if name in HEAVY or name.split(".")[0] in HEAVY}
    assert len(found) < 60, sorted(found)


def test_run_imports_no_report_and_no_levels() -> None:
    found = imported("run", "--help")
    assert not {name for name in found if name.startswith(("metamori.report", "metamori.levels", "metamori.store"))}
    heavy = HEAVY - {"dataclasses", "inspect", "tokenize"}
    assert not {name for name in found if name.split(".")[0] in heavy}
