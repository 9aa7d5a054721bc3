"""`metamori prune`: which indexes each rule keeps, and that only what it names goes."""

from __future__ import annotations

import json

import pytest
from lab import Lab


@pytest.fixture
def four(lab: Lab) -> Lab:
    """Indexes 1 to 4, the last the end of the run, taken within far less than an hour; index 0 is older than any."""
    session = lab.start()
    session.must(["open f0 rw,creat"])
    for number in (1, 2, 3):
        session.must([f"pwrite 3 50000 0 {number}", "checkpoint"])
    assert session.end() == 0
    return lab


def kept(lab: Lab, *rules: object) -> list[int]:
    """What would be kept, what is then kept, and whether each of that restores."""
    would = json.loads(lab.verb("prune", *rules, "--dry-run", "--json").stdout)
    done = json.loads(lab.verb("prune", *rules, "--json").stdout)
    assert (done["kept"], done["pruned"]) == (would["kept"], would["pruned"])
    for index in done["pruned"]:
        lab.restore(index, code=13)
    for index in done["kept"]:
        lab.restore(index)
    lab.verb("verify")
    return done["kept"]


@pytest.mark.parametrize(("rules", "wanted"), [
    (["--keep-every", "1h"], [0, 4]),
    (["--keep-every", "0.000001s"], [0, 1, 2, 3, 4]),
    (["--keep-last", 2, "--keep-every", "1h"], [0, 3, 4]),
    (["--keep-last", 9], [0, 1, 2, 3, 4]),
    (["--max-bytes", "100M"], [0, 1, 2, 3, 4]),
])
def test_rules(four: Lab, rules: list[object], wanted: list[int]) -> None:
    assert kept(four, *rules) == wanted


@pytest.mark.parametrize("rules", [[], ["--keep-every", "0s"], ["--keep-every", "soon"], ["--keep-last", 0]])
def test_rules_that_say_nothing(four: Lab, rules: list[object]) -> None:
    before = four.log()
    four.verb("prune", *rules, code=2)
    assert four.log() == before
