"""Random programs through the preload library against the in-memory model, and any checkpoint afterwards.

A failure prints its seed and the line. `tests/model/player.py SEED LENGTH [OPTION...]` makes it small; then
add the seed to KEPT.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from honest import assert_honest
from lab import Lab
from player import play
from programs import program

KEPT: list[int] = []  # seeds that once found something
LENGTH = 400
NEW = [1000 + n for n in range(8)]
FLAVOURS = ["plain", "large", "fortified"]


def everything(
    lab: Lab, seed: int, options: list[str], length: int = LENGTH, several: bool = False, threads: bool = False
) -> None:
    """Plays the program, then reads each checkpoint from the command line, and goes to it."""
    session = lab.start(*options)
    played = play(session, program(seed, length, several=several, threads=threads))
    assert session.end() == 0, session.stderr()
    reader = lab.start(native=True)
    assert reader.ask("tree") == played.world.state.names.tree(), "after the end"
    for (index, _), state in [random.Random(seed).choice(list(zip(played.checkpoints, played.world.saved)))]:
        for path, node in list(state.names.root.names.items())[:1]:
            if node.kind == "file":
                shown = lab.run([*lab.argv("cat"), index, lab.work / path], native=True)
                assert (shown.returncode, shown.stdout) == (0, node.content), f"cat {index} {path}"
    assert_honest(lab.store, lab.work, {**dict(played.checkpoints), **dict(played.cuts)})


@pytest.mark.skipif(os.geteuid() != 0, reason="the model's folders keep nobody out, whatever their mode")
@pytest.mark.parametrize("seed", [*KEPT, *range(2000, 2012)])
def test_model_itself_natively(native_lab: Lab, seed: int) -> None:
    """Where nothing is restored, the kernel is the judge of the model."""
    session = native_lab.start(native=True)
    played = play(session, program(seed, 1500, restorable=False), restorable=False)
    assert session.end() == 0
    assert native_lab.start(native=True).ask("tree") == played.world.state.names.tree()


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", [*KEPT, *NEW])
def test_random_programs(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, seed, options)


@pytest.mark.in_turn("flavour")
@pytest.mark.parametrize("flavour", FLAVOURS[1:])
@pytest.mark.parametrize("seed", [3000, 3001])
def test_other_builds(tmp_path: Path, compiled: Compile, installed: None, flavour: str, seed: int) -> None:
    """The 64-bit and fortified names of the calls."""
    lab = Lab(tmp_path, compiled("driver", flavour))
    try:
        everything(lab, seed, [["--isolate"], []][seed % 2])
    finally:
        lab.close()


@pytest.mark.parametrize("seed", [4000, 4001])
def test_small_cache(lab: Lab, seed: int) -> None:
    """A cache of nothing swaps every mapping to disk."""
    everything(lab, seed, ["--isolate", "--cache-size", "0"])


@pytest.mark.parametrize("seed", [2005, 2016, 2018, 2038])
def test_single_mode(lab: Lab, seed: int) -> None:
    """Every restore is one to the last checkpoint. 2005: a file without a name, which no commit wrote back;
    the others: files written back in isolation, committed, and written to again."""
    session = lab.start("--mode", "single")
    played = play(session, list(to_the_last(program(seed, 250))))
    assert session.end() == 0
    assert lab.start(native=True).ask("tree") == played.world.state.names.tree()


def to_the_last(lines: list[str]) -> Iterator[str]:
    checkpoints = 0
    for line in lines:
        words = line.split(" ")
        before, alone = (words[:2], words[2:]) if words[0] == "on" else ([], words)
        checkpoints += alone == ["checkpoint"]
        if {"cut", "outside"} & set(words) or (words[0] == "together" and "restore" in words):
            continue
        if alone[0] != "restore":
            yield line
        elif checkpoints:
            yield " ".join([*before, "restore", f"@{checkpoints - 1}"])


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(10000, 10100))
def test_many_random_programs(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, seed, options, 1200)


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(5000, 5004))
def test_several_processes_natively(native_lab: Lab, seed: int) -> None:
    session = native_lab.start(native=True)
    played = play(session, program(seed, 1500, restorable=False, several=True), restorable=False)
    assert session.end() == 0
    assert native_lab.start(native=True).ask("tree") == played.world.state.names.tree()


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(5100, 5106))
def test_several_processes(lab: Lab, seed: int, options: list[str]) -> None:
    """Processes that share descriptions and files, and are killed; restores are refused while they live."""
    everything(lab, seed, options, several=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(20000, 20060))
def test_several_processes_for_long(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, seed, options, 1200, several=True)


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True], ids=["threads", "processes-too"])
@pytest.mark.parametrize("seed", range(6000, 6003))
def test_several_threads_natively(native_lab: Lab, seed: int, several: bool) -> None:
    session = native_lab.start(native=True)
    lines = program(seed, 700, restorable=False, several=several, threads=True)
    played = play(session, lines, restorable=False)
    assert session.end() == 0
    assert native_lab.start(native=True).ask("tree") == played.world.state.names.tree()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(6100, 6105))
def test_several_threads(lab: Lab, seed: int, options: list[str]) -> None:
    """Threads act on the same and on different files, one by one and at once; any of them checkpoints and restores,
    also amid what the others do: then the index is some cut through it, with all that the asking thread had done."""
    everything(lab, seed, options, 250, threads=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(6200, 6203))
def test_several_processes_of_several_threads(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, seed, options, 250, several=True, threads=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6300, 6301])
def test_several_threads_in_single_mode(lab: Lab, seed: int) -> None:
    session = lab.start("--mode", "single")
    played = play(session, list(to_the_last(program(seed, 250, threads=True))))
    assert session.end() == 0
    assert lab.start(native=True).ask("tree") == played.world.state.names.tree()


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True], ids=["threads", "processes-too"])
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--isolate", "--cache-size", "0"]],
                         ids=["default", "isolate", "small-cache"])
@pytest.mark.parametrize("seed", range(30000, 30040))
def test_several_threads_for_long(lab: Lab, seed: int, options: list[str], several: bool) -> None:
    everything(lab, seed, options, 800, several=several, threads=True)
