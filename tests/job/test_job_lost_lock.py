"""The machine of the one that counts hangs for so long that the filesystem gives its lock away, and comes back."""

from __future__ import annotations

import os
import signal
import time

import pytest
import test_job_ends
from lab import Lab, Tree, picture
from ranks import end
from test_job import everything_back
from test_job_ends import Held, asked, three

pytest.importorskip("zmq")

LOSES = """
import fcntl
def loses():
    while not (where / "lose").exists():
        time.sleep(0.01)
    for each in threading.enumerate():
        if isinstance(each, counter.Counter):
            fcntl.flock(each.store._lock_fd, fcntl.LOCK_UN)
            (where / "lose.reached").touch()
threading.Thread(target=loses, daemon=True).start()
sys.exit(main())
"""


def taken(lab: Lab, seen: dict[int, Tree], seconds: float) -> bool:
    """A checkpoint, within that time."""
    limit = time.monotonic() + seconds
    while (done := lab.verb("checkpoint", code=None, cwd=lab.work)).returncode:
        assert "no checkpoint was taken" in done.stderr or "no answer from" in done.stderr, done.stderr
        if time.monotonic() > limit:
            return False
    seen[int(done.stdout)] = picture(lab.work)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("point", ["", "say cut", "say go", "fold", "commit"])
def test_it_counts_no_more(lab: Lab, monkeypatch: pytest.MonkeyPatch, point: str, dies: bool) -> None:
    """All checkpoints of the job were refused until its run ended, and it could write a record of its own."""
    monkeypatch.setattr(test_job_ends, "HELD", test_job_ends.HELD.replace("sys.exit(main())\n", LOSES))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks: list[Held] = three(lab, seen)
    one, program = ranks[0], ranks[0].program()
    verb = None
    if point:
        one.arm(point)
        verb = asked(lab)
        one.wait(point)
    one.arm("lose")
    one.wait("lose")
    for pid in (one.process.pid, program):
        os.kill(pid, signal.SIGSTOP)
    if dies:                               # the other that counts takes it in
        one.process.kill()
        os.kill(program, signal.SIGKILL)
        one.process.wait()
        ranks.remove(one)
    else:
        assert not taken(lab, seen, 1)
        for number, rank in enumerate(ranks[1:]):
            rank.do("write", "shared", 5000 * number, f"while {number}" * 1000)
        for pid in (program, one.process.pid):
            os.kill(pid, signal.SIGCONT)
        if point:
            one.go(point)
    if verb:
        verb.communicate(timeout=60)
    for step in range(2):
        for number, rank in enumerate(ranks):
            rank.do("append", "common", "after")
            rank.do("write", "shared", 5000 * number + 100, f"{step}{number}" * 1000)
        assert taken(lab, seen, 30)
    last = picture(lab.work)
    said = end(ranks)
    assert "Traceback" not in said and "lost" not in said, said
    seen[max(lab.messages())] = last
    everything_back(lab, seen)


