"""The failures of the field: killed after the checkpoint, restored, run on, like an uninterrupted run."""

from __future__ import annotations

import subprocess
import zlib
from itertools import product

import pytest
from catalog import FIELD, NAMES, Scenario
from lab import Lab, Tree, difference


def uninterrupted(native: Lab, scenario: Scenario) -> tuple[Tree, list[str], Tree]:
    """Natively, in one go: the files at the checkpoint, the answers after it, the files after it."""
    scenario.prepare(native.work)
    program = native.start(native=True)
    program.must(scenario.before)
    at_checkpoint = native.state()
    answers = program.do(scenario.after)
    at_end = native.state()
    assert program.end() == 0
    return at_checkpoint, answers, at_end


def killed_after_checkpoint(lab: Lab, scenario: Scenario, ask: str, kill: str, options: list[str]) -> int:
    """Runs up to the checkpoint, beyond it, and kills; the checkpoint's index."""
    scenario.prepare(lab.work)
    program = lab.start(*options)
    program.must(scenario.before)
    if ask == "C":
        index = int(program.ask("checkpoint"))
    else:
        index = lab.checkpoint()
    assert index >= 1
    program.answers = program.do(scenario.after)  # type: ignore[attr-defined]
    if kill == "program":
        assert program.kill_program() == 128 + 9
    else:
        program.kill_all()
    return index


def run_on(lab: Lab, scenario: Scenario, options: list[str]) -> list[str]:
    """Starts the program again: it opens its files as a restarted program would, and does the rest."""
    program = lab.start(*options)
    program.must(scenario.resume)
    answers = program.do(scenario.after)
    assert program.end() == 0
    return answers


def check(lab: Lab, native: Lab, scenario: Scenario, ask: str, kill: str, options: list[str]) -> None:
    at_checkpoint, answers, at_end = uninterrupted(native, scenario)
    index = killed_after_checkpoint(lab, scenario, ask, kill, options)
    first = lab.sessions[-1].answers  # type: ignore[attr-defined]
    assert first == answers, "answers after the checkpoint differ from the native program's"
    last = lab.log()["checkpoints"][-1]
    if "--isolate" not in options:
        lab.assert_state(at_end, "a killed run must leave what a plain crash would have left")
    assert last["message"] == ("killed by SIGKILL" if kill == "program" else "killed")
    lab.restore(index)
    lab.assert_state(at_checkpoint, f"after restore {index}")
    lab.restore(last["index"])
    lab.assert_state(at_end, f"after going forward to {last['index']}")
    lab.restore(index)
    lab.assert_state(at_checkpoint, f"after restore {index}, again")
    assert run_on(lab, scenario, options) == answers
    lab.assert_state(at_end, "after the resumed run")
    lab.verb("verify")


def variants() -> list[object]:
    chosen = []
    for scenario, ask, kill in product(FIELD, ("C", "outside"), ("program", "all")):
        chosen.append(pytest.param(scenario, ask, kill, [], id=f"{scenario.name}-{ask}-{kill}"))
    for number, scenario in enumerate(FIELD + NAMES):
        ask, kill = ("C", "outside")[number % 2], ("program", "all")[number // 2 % 2]
        if scenario in NAMES:
            chosen.append(pytest.param(scenario, ask, kill, [], id=f"{scenario.name}-{ask}-{kill}"))
        ask, kill = ("outside", "C")[number % 2], ("all", "program")[number // 2 % 2]
        chosen.append(
            pytest.param(scenario, ask, kill, ["--isolate"], id=f"{scenario.name}-{ask}-{kill}-isolate")
        )
    return chosen


@pytest.mark.parametrize("scenario", FIELD + NAMES, ids=lambda s: s.name)
def test_scenario_itself_natively(native_lab: Lab, scenario: Scenario) -> None:
    """The scenario is sound: `resume` works on the files of the checkpoint, and leads to the same end."""
    at_checkpoint, answers, at_end = uninterrupted(native_lab, scenario)
    for path in sorted(native_lab.work.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    scenario.prepare(native_lab.work)
    first = native_lab.start(native=True)
    first.must(scenario.before)
    assert first.kill_program() == -9
    assert not difference(native_lab.state(), at_checkpoint)
    second = native_lab.start(native=True)
    second.must(scenario.resume)
    assert second.do(scenario.after) == answers
    assert second.end() == 0
    assert not difference(native_lab.state(), at_end)


@pytest.mark.in_turn("scenario")
@pytest.mark.parametrize(("scenario", "ask", "kill", "options"), variants())
def test_killed_restored_run_on(
    lab: Lab, native_lab: Lab, scenario: Scenario, ask: str, kill: str, options: list[str]
) -> None:
    check(lab, native_lab, scenario, ask, kill, options)


def test_a_sockets_name_stays_away(lab: Lab) -> None:
    """It leaves with its index and does not come back: its server has to be started. The files beside it do."""
    serve = ("import socket, sys, os; s = socket.socket(socket.AF_UNIX); s.bind('s'); os.chmod('s', 0o600); "
             "open('f', 'w').write('1'); "
             "print('ready', flush=True); sys.stdin.readline(); os.unlink('s'); open('f', 'w').write('2'); "
             "open('s', 'w').write('a file')")
    argv = [*lab.argv("run"), "--", "/usr/bin/python3", "-c", serve]
    with subprocess.Popen(argv, cwd=lab.work, env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin and program.stdout and program.stdout.readline() == b"ready\n"
        served = lab.checkpoint()
        program.stdin.write(b"\n")
        program.stdin.close()
        assert program.wait() == 0
    for index, files in [(served, {"f": "1"}), (0, {}), (served, {"f": "1"}), (served + 1, {"f": "2", "s": "a file"})]:
        lab.restore(index)
        assert {path.name: path.read_text() for path in lab.work.iterdir()} == files
    lab.verb("verify")


def test_a_stream_opened_anew_in_another_mode_appends_again(lab: Lab) -> None:
    """Its position counts from the end that a write has, not from where it had been sought (soak, seed 440041)."""
    session = lab.start()
    session.must(["fopen 0 s0 a", "fputs 0 5 1", "checkpoint", "freopen 0 s0 r+", "restore 1"])
    session.must(["fputs 0 100 2", "fseek 0 500 end", "fputs 0 50 3", "fseek 0 7 cur"])
    assert session.ask("ftell 0") == str(5 + 100 + 50 + 7)
    assert session.end() == 0


def test_what_was_pushed_back_counts_in_a_stream_opened_anew(lab: Lab) -> None:
    """freopen leaves a stream without a buffer, and ftell looks at none that is not there."""
    (lab.work / "f").write_bytes(b"0123456789")
    session = lab.start()
    session.must(["fopen 0 f r", "fread 0 5", "ungetc 0 88", "checkpoint", "freopen 0 f r", "restore 1"])
    assert session.ask("ftell 0") == "4"
    assert session.ask("fread 0 2") == f"2 {zlib.crc32(b'X5'):08x}"
    assert session.end() == 0
