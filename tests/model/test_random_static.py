"""Random programs, linked statically: their calls are seen by the kernel alone, checkpoints come from outside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Compile
from honest import assert_honest
from lab import Lab
from player import Play
from programs import program

OPTIONS = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
EVERY = 50                             # lines between checkpoints


@pytest.fixture
def static_driver(compiled: Compile) -> Path:
    return compiled("driver", "static")


def without_links(tree: str) -> str:
    """The store's links count too: what `stat` says is the kernel's (docs/limits.md)."""
    return re.sub(r"(:f:\d+:\d+:)\d+:", r"\1", tree)


def everything(lab: Lab, driver: Path, seed: int, options: list[str], length: int, several: bool) -> None:
    """As the model has it, while it runs, at its end, and at each checkpoint."""
    session = lab.start(*options, driver=driver)
    playing, wanted = Play(session, restorable=False), {}
    for number, line in enumerate(program(seed, length, restorable=False, several=several, deadly=False)):
        if line == "tree":
            assert without_links(session.ask(line)) == without_links(playing.world.state.names.tree()), number
        elif "fsize" not in line:
            playing.line(line)
        if number % EVERY == EVERY - 1:
            session.ask("tree")        # it flushes: what streams have not written, the kernel does not have
            wanted[lab.checkpoint()] = playing.world.state.names.tree()
    assert session.end() == 0, session.stderr()
    assert session.stderr() == ""
    assert lab.start(native=True).ask("tree") == playing.world.state.names.tree(), "after the end"
    assert_honest(lab.store, lab.work, wanted)


@pytest.mark.in_turn("seed", 2)
@OPTIONS
@pytest.mark.parametrize(("seed", "several"), [(1, False), (2, False), (3, True)])
def test_random_static_programs(
    lab: Lab, static_driver: Path, seed: int, several: bool, options: list[str]
) -> None:
    everything(lab, static_driver, seed, options, 300, several)


@OPTIONS
@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_static_programs(
    lab: Lab, static_driver: Path, seed: int, several: bool, options: list[str]
) -> None:
    everything(lab, static_driver, seed, options, 1000, several)
