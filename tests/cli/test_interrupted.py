"""Ctrl-C at any moment of any verb: silence or one sentence, and the status of an interrupt; never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROOT, Lab

# SIGINT to itself at the Nth event that Python's audit hooks see (imports, files opened, folders listed, ...) once the
# first line of the program has run: what the interpreter does before is not ours
AT = """
import os, runpy, signal, sys
nth, seen, begun = int(sys.argv.pop(1)), 0, False
signal.signal(signal.SIGINT, signal.default_int_handler)   # whatever who runs the tests does with it
def hook(event, details):
    global seen, begun
    begun = begun or signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    seen += begun
    if begun and seen == nth:
        os.kill(os.getpid(), signal.SIGINT)
sys.argv[0] = "metamori"
sys.addaudithook(hook)
if nth == 0:
    import atexit
    exit_now = os._exit
    os._exit = lambda status: (sys.stderr.write(f"@@ {seen}"), sys.stderr.flush(), exit_now(status))
try:
    runpy.run_module("metamori", run_name="__main__", alter_sys=True)
finally:
    if nth == 0:
        sys.stderr.write(f"@@ {seen}")
"""
VERBS = {
    "log": [], "show": [1], "diff": [0, 1], "cat": [1, "f"], "restore": [1, "--dry-run"], "verify": [], "status": [],
    "undo": [], "redo": [], "prune": ["--keep-last", "5"], "report": ["timeline"], "doctor": [], "config": ["--libs"],
    "checkpoint": [], "restart": [], "run": ["--", "true"],
}
PLACES = (0.02, 0.3, 0.6, 0.8, 0.97)


def at_event(lab: Lab, nth: int, verb: str, words: list[object]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", AT, str(nth), verb]
    argv += ["--store", str(lab.store)] if verb != "config" else []
    return subprocess.run([*argv, *map(str, words)], cwd=lab.work, env=lab.env | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False)


@pytest.mark.parametrize("verb", VERBS)
def test_at_moments_of_a_verb(lab: Lab, verb: str) -> None:
    lab.run(["sh", "-c", "echo one > f"])
    events = int(at_event(lab, 0, verb, VERBS[verb]).stderr.rsplit("@@ ", 1)[1])
    assert events > 50
    for place in PLACES:
        done = at_event(lab, max(1, int(events * place)), verb, VERBS[verb])
        where = f"{verb} at {place}: {done.returncode} {done.stderr}"
        assert "Traceback" not in done.stderr and "ignored" not in done.stderr, where
        lines = done.stderr.splitlines()
        assert len(lines) <= 1 and all(line.startswith("metamori: ") for line in lines), where
        assert done.returncode in (130, -2) or place > 0.9 or verb == "run", where   # which passes it on
    lab.verb("verify")


def test_the_command_begins_with_the_same(lab: Lab) -> None:
    """Its first import is the module that does this first."""
    imports = [line for line in (Path(ROOT) / "tools/metamori").read_text().splitlines() if "import" in line]
    assert imports == ["from metamori.__main__ import main"]
