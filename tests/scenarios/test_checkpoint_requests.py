"""Ways to ask for a checkpoint: from outside, from the run's own script, by the clock, by a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import time

from lab import PATIENCE, Lab, wait_until


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
