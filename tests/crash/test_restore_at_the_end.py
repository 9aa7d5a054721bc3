"""A restore beside the end of a run: of a live run, or of one that is over, and of none in between."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Compile
from tracing import Call
from trial import Trial, tree_of

LINES = ["open old rw", "pwrite 3 3000 2000 5", "checkpoint", "pwrite 3 9000 2500 6", "rename gone there"]


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("verb", ["restore", "checkpoint"])
def test_between_the_last_index_and_the_end(
    tmp_path: Path, compiled: Compile, installed: None, options: list[str], verb: str
) -> None:
    """Once the files went to the index, and the store had them at the run's end."""
    trial = Trial(tmp_path, compiled("driver"), compiled("tracer"), options, LINES)
    asked: list[subprocess.Popen[str]] = []

    def decide(call: Call) -> str:
        if call.name == "rename" and call.path == str(trial.store / "run") and not asked:
            argv = [*map(str, trial.lab.argv(verb)), *(["1"] if verb == "restore" else [])]
            asked.append(subprocess.Popen(argv, env=trial.lab.env, text=True, stderr=subprocess.PIPE))
            with suppress(subprocess.TimeoutExpired):
                asked[0].wait(2)           # if it waits for the run's end, that may come
        return "g"

    done = trial.run(decide)
    assert done.status == 0, done
    _, said = asked[0].communicate(timeout=60)
    assert asked[0].returncode == {"restore": 11, "checkpoint": 15}[verb], said
    assert {"restore": "in use", "checkpoint": "the last one is just ending"}[verb] in said
    told = trial.verb("restore", 1)
    assert (told.code, told.err) == (0, ""), told
    assert tree_of(trial.work) == trial.expected(done.stdout).indexes[1]
    assert trial.verb("verify").code == 0
