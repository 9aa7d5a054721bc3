"""Ways to ask for a checkpoint: from outside, from the run's own script, by the clock, by a signal."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from lab import PATIENCE, Lab, Session, wait_until

from metamori._area import lib
from metamori.cli.checkpoint import take
from metamori.errors import NoLiveRun
from metamori.runtime.area.run_area import Area
from metamori.runtime.lifecycle import recover
from metamori.store.read import create
from metamori.store.read.store import Store


def test_messages(lab: Lab) -> None:
    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1"])
    first = lab.checkpoint("-m", "before the große change")
    program.must(["write 3 10 1"])
    answer = json.loads(lab.verb("checkpoint", "-m", "second", "--json").stdout)
    assert answer["schema"] == 1
    assert answer["index"] == first + 1
    assert program.end() == 0
    messages = lab.messages()
    assert messages[first] == "before the große change"
    assert messages[first + 1] == "second"


def test_checkpoint_from_the_runs_own_script(lab: Lab) -> None:
    """`metamori checkpoint` inside the run finds the store by METAMORI_STORE and is no part of the run."""
    command = " ".join(lab.argv("checkpoint")[:4]).replace(" --store", "")
    script = f"echo one > file; {command} > index; echo two >> file; {command} -m done >> index"
    done = lab.run(["sh", "-c", script])
    assert done.returncode == 0, done.stderr
    assert (lab.work / "index").read_text().split() == ["1", "2"]
    lab.restore(1)
    assert (lab.work / "file").read_text() == "one\n"


def test_run_inside_a_run_joins_it(lab: Lab) -> None:
    inner = " ".join([*lab.argv("run"), "--", "sh", "-c", "'echo inner > inner'"])
    done = lab.run(["sh", "-c", f"echo outer > outer; {inner}; exit 4"])
    assert done.returncode == 4, done.stderr
    lab.restore(0)
    assert not (lab.work / "inner").exists()
    assert not (lab.work / "outer").exists()


def test_every(lab: Lab) -> None:
    """A checkpoint by the clock."""
    began = time.monotonic()
    program = lab.start("--every", "1s")
    program.must(["open file w,creat"])

    def taken() -> int:
        return max(lab.messages())

    for _ in range(3):
        program.must(["write 3 100 1"])
        before = taken()                   # the next but one has certainly seen the write
        wait_until(lambda before=before: taken() > before + 1, "two checkpoints")
    assert program.end() == 0
    seconds = time.monotonic() - began
    checkpoints = [e for e in lab.log()["checkpoints"] if e["message"] != "end of run" and e["index"]]
    assert 6 <= len(checkpoints) <= seconds, "one a second, and none at once"
    sizes = []
    for entry in checkpoints:
        lab.restore(entry["index"])
        sizes.append((lab.work / "file").stat().st_size)
    assert sizes == sorted(sizes) and {100, 200, 300} <= set(sizes) <= {0, 100, 200, 300}


def test_on_signal(lab: Lab) -> None:
    """`run` receives it, checkpoints, then passes it on."""
    script = "trap 'echo late >> file; exit 7' USR1; echo early > file; echo > ready; "
    script += "while :; do sleep 0.05; done"
    command = [*lab.argv("run", "--on-signal", "USR1"), "--", "sh", "-c", script]
    process = subprocess.Popen(command, cwd=lab.work, env=lab.env)
    try:
        wait_until((lab.work / "ready").exists, "the script")
        process.send_signal(signal.SIGUSR1)
        assert process.wait(PATIENCE) == 7
    finally:
        process.kill()
    assert (lab.work / "file").read_text() == "early\nlate\n"
    taken = [entry["index"] for entry in lab.log()["checkpoints"] if entry["index"]]
    assert len(taken) == 2, "one by the signal, one at the end"
    lab.restore(taken[0])
    assert (lab.work / "file").read_text() == "early\n"


def asked_late(lab: Lab, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object], stop: bool = False) -> str:
    """A checkpoint is asked for while a run is alive, and meanwhile others have the session; why it is refused."""
    really = Area.lock_session

    def late(area: Area, timeout_s: float = 60.0) -> None:
        monkeypatch.setattr(Area, "lock_session", really)
        meanwhile()
        really(area, timeout_s)

    monkeypatch.setattr(Area, "lock_session", late)
    with pytest.raises(NoLiveRun) as refused:
        take(str(lab.store), "late", stop)
    return str(refused.value)


def ends(program: Session) -> None:
    assert program.end() == 0


@pytest.mark.parametrize("stop", [False, True], ids=["", "stop"])
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode", "single"]], ids=["default", "isolate", "single"])
def test_the_run_ends_while_a_checkpoint_waits(
        lab: Lab, monkeypatch: pytest.MonkeyPatch, options: list[str], stop: bool) -> None:
    """Once it failed, some after a minute, by a file that was gone."""
    program = lab.start(*options)
    program.must(["open file w,creat", "write 3 10 1"])
    assert "the last one is just ending" in asked_late(lab, monkeypatch, lambda: ends(program), stop)
    assert list(lab.messages().values())[1:] == ["end of run"]


def test_the_run_ends_when_its_area_has_been_opened(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it was said to have been killed."""
    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1"])
    really = create.is_in_place
    monkeypatch.setattr(create, "is_in_place", lambda *words: (ends(program), really(*words))[1])
    with pytest.raises(NoLiveRun, match="the last one is just ending"):
        take(str(lab.store), "late")


def test_the_run_ends_before_it_answers(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory `metamori run` takes the checkpoint. Once its end was a failure without words of its own."""
    program = lab.start("--memory")
    program.must(["open file w,creat", "write 3 10 1"])

    class Late:
        def __getattr__(self, name: str) -> object:
            if name == "mm_request":
                ends(program)
            return getattr(lib, name)

    monkeypatch.setattr("metamori._area.lib", Late())
    with pytest.raises(NoLiveRun, match="the last one is just ending"):
        take(str(lab.store), "late")
    monkeypatch.undo()
    assert list(lab.messages().values())[1:] == ["end of run"]


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_killed_run_is_completed_while_a_checkpoint_waits(
        lab: Lab, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """All but the removal of its run area. Once the checkpoint came after the last one."""
    program = lab.start(*options)
    program.must(["open file w,creat", "write 3 10 1"])

    def completed() -> None:
        program.kill_all()
        with monkeypatch.context() as patch, Store.open(os.fsencode(lab.store), write=True) as store:
            patch.setattr(recover, "close", lambda session, killed: session.area.close())
            assert "its state is checkpoint 1" in recover.finish_if_needed(store)

    assert "the last one is just ending" in asked_late(lab, monkeypatch, completed)
    assert set(list(lab.messages().values())[1:]) == {"killed"}


def test_a_killed_run_whose_completion_failed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called just ending from then on."""
    def full(*_words: object, **_names: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1"])
    program.kill_all()
    monkeypatch.setattr(recover, "finish", full)
    with Store.open(os.fsencode(lab.store), write=True) as store, pytest.raises(OSError, match="No space"):
        recover.finish_if_needed(store)
    with pytest.raises(NoLiveRun, match="the last one was killed"):
        take(str(lab.store), "late")
    monkeypatch.undo()
    assert set(list(lab.messages().values())[1:]) == {"killed"}
