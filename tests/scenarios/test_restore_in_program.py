"""metamori_restore inside the program: descriptors, streams and files of the checkpoint work again.

Each scenario is done once, taken back, and done again: every answer must be the same the second time, and
the same as the native program's.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from catalog import DESCRIPTORS, FIELD, NAMES, STREAMS, Scenario
from lab import Lab, Tree, difference


def natively(native: Lab, scenario: Scenario, flush: bool) -> tuple[Tree, list[str], Tree]:
    """The files at the checkpoint, the answers after it and the files at the end, without interruption."""
    scenario.prepare(native.work)
    program = native.start(native=True)
    program.must(line for line in scenario.before)
    if flush:
        program.ask("tree")  # flushes, as the C call does
    at_checkpoint = native.state()
    answers = program.do(scenario.after)
    assert program.end() == 0
    return at_checkpoint, answers, native.state()


def check(lab: Lab, native: Lab, scenario: Scenario, ask: str, options: list[str]) -> None:
    at_checkpoint, answers, at_end = natively(native, scenario, flush=ask == "C")
    scenario.prepare(lab.work)
    program = lab.start(*options)
    program.do(scenario.before)
    index = int(program.ask("checkpoint")) if ask == "C" else lab.checkpoint()
    for turn in ("first", "second", "third"):
        assert program.do(scenario.after) == answers, f"the {turn} time"
        if turn != "third":
            assert program.ask(f"restore {index}") == "0"
    assert program.end() == 0
    lab.assert_state(at_end, "after the run")
    lab.restore(index)
    lab.assert_state(at_checkpoint, f"after restore {index}")


@pytest.mark.parametrize("scenario", DESCRIPTORS + STREAMS + FIELD + NAMES, ids=lambda s: s.name)
def test_taken_back_and_done_again(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    check(lab, native_lab, scenario, "C", [])


@pytest.mark.parametrize("scenario", FIELD[::2] + NAMES[::2] + DESCRIPTORS[:4], ids=lambda s: s.name)
def test_store_on_another_filesystem(
    lab: Lab, native_lab: Lab, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either taken back, or, where a removed file would have to come from the store, refused and nothing changed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == lab.work.stat().st_dev:
            pytest.skip("/dev/shm is no other filesystem")
        monkeypatch.setattr(lab, "store", Path(folder) / "store")
        check(lab, native_lab, scenario, "C", [])


@pytest.mark.parametrize("scenario", STREAMS, ids=lambda s: s.name)
def test_streams_with_a_checkpoint_from_outside(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    """The program does not flush: the bytes in its buffers belong to the checkpoint too."""
    check(lab, native_lab, scenario, "outside", [])


@pytest.mark.parametrize("scenario", DESCRIPTORS + STREAMS[::3] + FIELD + NAMES, ids=lambda s: s.name)
def test_taken_back_in_isolation(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    check(lab, native_lab, scenario, "C", ["--isolate"])


@pytest.mark.parametrize("scenario", DESCRIPTORS[:4] + FIELD[:4], ids=lambda s: s.name)
def test_taken_back_in_single_mode(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    """Single mode keeps the last checkpoint, and only that: it can be gone back to again and again."""
    _, answers, at_end = natively(native_lab, scenario, flush=True)
    scenario.prepare(lab.work)
    program = lab.start("--mode", "single")
    program.do(scenario.before)
    index = int(program.ask("checkpoint"))
    for _ in range(2):
        assert program.do(scenario.after) == answers
        assert program.ask(f"restore {index}") == "0"
    assert program.do(scenario.after) == answers
    assert program.end() == 0
    lab.assert_state(at_end, "after the run")


@pytest.mark.parametrize("scenario", DESCRIPTORS + STREAMS, ids=lambda s: s.name)
def test_scenario_itself_natively(native_lab: Lab, scenario: Scenario) -> None:
    """The scenario is sound: it answers the same in a fresh folder, with and without a flush."""
    _, answers, at_end = natively(native_lab, scenario, flush=True)
    again = Lab(native_lab.folder, native_lab.driver)
    for path in sorted(again.work.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    _, second, end = natively(again, scenario, flush=False)
    if scenario.name != "line buffered":
        assert second == answers
    assert not difference(end, at_end)
