"""A verb on a live run is killed, or interrupted by Ctrl-C, at any line of Python; the programs of the run go on.

After a restore they find all files at one index or at the other, and what they write then is in the next checkpoints
and in the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from honest import assert_honest, verb
from lab import PATIENCE, Lab, Session, gone

from metamori.errors import RUN_FAILED, MetamoriError
from metamori.runtime.area.run_area import Area
from metamori.runtime.lifecycle import run_controller
from metamori.runtime.rollback import live_rollback
from metamori.store.read.store import Store

FOLDERS = ("/metamori/runtime/", "/metamori/store/")


def ended_in(lab: Lab, at: int, number: int, *words: object) -> tuple[int, int]:
    """The wait status of the verb that gets a signal at its `at`th line, and how many it had if it came to its end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with open(reader, "rb") as lines:
            return os.waitpid(pid, 0)[1], int(lines.read() or 0)
    seen = 0

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if not any(part in frame.f_code.co_filename for part in FOLDERS):
            return None
        if event == "line":
            seen += 1
            if seen == at:
                os.kill(os.getpid(), number)
        return look

    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 99
    sys.settrace(look)
    try:
        code = verb(lab.store, *map(str, words)).code
    except KeyboardInterrupt:
        code = 130
    finally:
        sys.settrace(None)
        os.write(writer, b"%d" % seen)
        os._exit(code)


def begun(lab: Lab, *options: str) -> tuple[Session, dict[int, str]]:
    """Two indexes that differ in bytes, sizes and names."""
    session = lab.start(*options)
    session.must(["fill a w,creat 60000 1", "fill b w,creat 5000 2", "mkdir d", "fill d/in w,creat 300 3",
                  "fill gone w,creat 70 4"])
    trees = {int(session.ask("checkpoint")): session.ask("tree")}
    session.must(["open a rw", "pwrite 3 20000 9000 5", "ftruncate 3 50000", "close 3", "fill b w,trunc 9000 6",
                  "rename d e", "unlink gone", "fill new w,creat 8000 7"])
    trees[int(session.ask("checkpoint"))] = session.ask("tree")
    return session, trees


def but_written(tree: str) -> str:
    return " ".join(word for word in tree.split() if not word.startswith(("log:", "a:")))


def goes_on(lab: Lab, session: Session, trees: dict[int, str], said: object) -> None:
    session.must(["fill log w,creat 3000 9", "open a rw", "pwrite 3 300 100 8", "close 3"])
    assert but_written(session.ask("tree")) in map(but_written, trees.values()), (said, session.ask("tree"))
    found = dict(trees)
    found[lab.checkpoint()] = session.ask("tree")
    session.must(["fill log w,trunc 200 10", "fill later w,creat 10 11"])
    end = session.ask("tree")
    assert session.end() == 0
    assert_honest(lab.store, lab.work, found | {max(found) + 1: end})
    assert session.stderr() == ""


def lines_of_it(lab: Lab, options: list[str]) -> int:
    session, _ = begun(lab, *options)
    status, lines = ended_in(lab, 1 << 60, signal.SIGKILL, "restore", 1)
    assert status == 0 and lines > 500, (status, lines)
    assert session.end() == 0
    for folder in (lab.store, lab.work):
        os.system(f"rm -r {folder}")
    lab.work.mkdir()
    return lines


def at_each(lab: Lab, options: list[str], number: int, parts: int, first: int) -> None:
    lines, kills = lines_of_it(lab, options), 0
    for at in range(1 + first * lines // parts // 7, lines, max(1, lines // parts)):
        session, trees = begun(lab, *options)
        said = ended_in(lab, at, number, "restore", 1)
        kills += said[0] != 0
        goes_on(lab, session, trees, (at, lines, said))
        os.system(f"rm -r {lab.store} {lab.work}")
        lab.work.mkdir()
    assert kills >= parts // 3


@pytest.mark.in_turn("how", 2)
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_at_some_lines(lab: Lab, options: list[str], how: str) -> None:
    at_each(lab, options, signal.Signals[how], 12, 3)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(7))
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_at_many_lines(lab: Lab, options: list[str], how: str, first: int) -> None:
    at_each(lab, options, signal.Signals[how], 60, first)


def test_nobody_carries_it_through(lab: Lab) -> None:
    """`metamori run` was killed, too: no checkpoint is taken of half of each. The restore can be repeated."""
    session, trees = begun(lab)
    area = Area(str(lab.store))
    session.process.send_signal(signal.SIGSTOP)    # it would, after a second
    area.head.restoring, area.head.supervisor = 2, 0
    said = lab.verb("checkpoint", code=1).stderr
    assert "the files are half way in a killed restore: repeat it" in said
    assert lab.restore(1).returncode == 0 and area.head.restoring == 0
    assert session.ask("tree") == trees[1]
    area.close()
    session.process.send_signal(signal.SIGCONT)
    assert session.end() == 0


def test_it_cannot_be_carried_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise MetamoriError("bytes are damaged")

    monkeypatch.setattr(live_rollback, "carry_through", fails)
    live: Any = object.__new__(run_controller.Live)
    live._half_way_since = 0.0
    live.session, said = SimpleNamespace(area=SimpleNamespace(head=SimpleNamespace(restoring=2))), []
    live._tell = said.append
    live.look_at_restore()
    assert said == ["a killed restore cannot be carried through: bytes are damaged"] and live._half_way_since
    monkeypatch.setattr(live_rollback, "carry_through", lambda session: None)
    live.look_at_restore()                 # somebody else is at it
    assert not live._half_way_since


IMPATIENT = """
import sys
from metamori.cli.main import main
from metamori.runtime.lifecycle import run_controller
run_controller._HALF_WAY_S = 0
sys.exit(main())
"""


def test_it_cannot_be_carried_through_for_good(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs would wait for ever: the run is ended, and the next command completes it when it can."""
    with monkeypatch.context() as patch:
        patch.setattr(lab, "argv", lambda *words: [sys.executable, "-c", IMPATIENT, *Lab.argv(lab, *words)[3:]])
        session, trees = begun(lab)
    program, intent = session.program(), Path(os.fsdecode(Store(str(lab.store)).layout.run_intent))
    intent.mkdir()                         # it cannot be read
    area = Area(str(lab.store))
    area.head.restoring = 2
    assert session.process.wait(PATIENCE) == RUN_FAILED and gone(program)
    assert "the run has ended: a killed restore could not be carried through: " in session.stderr()
    area.close()
    assert "Is a directory" in lab.verb("log", code=1).stderr
    intent.rmdir()
    lab.verb("log")
    assert_honest(lab.store, lab.work, trees | {3: trees[1]})


# -- a checkpoint ------------------------------------------------------------------------------------------------------


def checkpoints(lab: Lab, options: list[str], number: int, parts: int) -> None:
    """Each one that is killed leaves what it saw to the next."""
    session = lab.start(*options)
    session.must(["open f rw,creat", "write 3 20000 1", "open g rw,creat", "write 4 30000 2", "map 4 30000 rw shared 0",
                  "checkpoint", "mkdir d"])
    lines = ended_in(lab, 1 << 60, signal.SIGKILL, "checkpoint")[1]
    trees, step = {}, max(1, lines // parts)
    for at in range(1 + number, lines, step):
        session.must([f"pwrite 3 700 {at * 300 % 18000} {at}", f"ftruncate 3 {at * 700 % 9000 + 9000}",
                      f"poke 0 300 {at % 29000} {at}", f"fill n{at % 3} w,creat,trunc 100 {at}",
                      f"rename n{at % 3} d/m{at % 2}"])
        status, _ = ended_in(lab, at, number, "checkpoint")
        assert status, at
        session.must([f"pwrite 3 5000 {at * 100 % 9000} {at + 1}", f"fill d/m{at % 2} w,creat 50 {at}"])
        trees[int(session.ask("checkpoint"))] = session.ask("tree")
    session.must(["pwrite 3 20000 0 77", "poke 0 30000 0 78"])
    assert session.end() == 0 and session.stderr() == ""
    assert_honest(lab.store, lab.work, trees)


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_checkpoints_at_some_lines(lab: Lab, options: list[str], how: str) -> None:
    checkpoints(lab, options, signal.Signals[how], 25)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_checkpoints_at_many_lines(lab: Lab, options: list[str], how: str) -> None:
    checkpoints(lab, options, signal.Signals[how], 500)
