"""SIGKILL at any moment: of a run, of a restore, of the commit at an end. What was promised is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time

import pytest
from honest import assert_honest
from lab import Lab, Session, gone, wait_until
from programs import STREAM_FILES, program
from test_linearizable import children
from world import World

Trees = dict[int, frozenset[str]]   # of an index: what it may hold
PARTLY = ("write", "pwrite", "mapwrite", "forkwrite", "restore")   # a kill in the middle may have let a part of it come


class Flood(Session):
    """Sends all lines without waiting, so that a kill comes in the middle of something."""

    def flood(self, lines: list[str], seconds: float) -> list[str]:
        """Kills the program and `metamori run` after `seconds`; the answers that had come by then."""
        victim = self.program()
        assert self.process.stdin and self.process.stdout
        stdin, text = self.process.stdin, "".join(f"{line}\n" for line in lines).encode()

        def send() -> None:
            try:
                stdin.write(text)
                stdin.flush()
            except BrokenPipeError:
                pass

        def kill() -> None:
            time.sleep(seconds)
            os.kill(victim, signal.SIGSTOP)    # from here on it has no more children
            family.extend(children(victim))
            for pid in family:
                os.kill(pid, signal.SIGKILL)

        family = [self.process.pid, victim]
        threads = [threading.Thread(target=send), threading.Thread(target=kill)]
        for thread in threads:
            thread.start()
        answered = b""
        while more := os.read(self.process.stdout.fileno(), 1 << 16):
            answered += more
        for thread in threads:
            thread.join()
        try:
            stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        wait_until(lambda: all(gone(pid) for pid in family), "the killed programs' end")
        return answered.decode().split("\n")[:-1]


def flooded(lab: Lab, seed: int, options: list[str]) -> tuple[Trees, set[str], str]:
    """Expected files of each acknowledged checkpoint, files at the kill, and what was going on then."""
    return flooded_lines(lab, program(seed, 1500), options, random.Random(seed).uniform(0.02, 0.5))


def flooded_lines(
    lab: Lab, lines: list[str], options: list[str], seconds: float
) -> tuple[Trees, set[str], str]:
    argv = [*lab.argv("run", *options), "--", str(lab.driver)]
    session = Flood(argv, lab.work, lab.env, lab.folder / "stderr.flood")
    lab.sessions.append(session)
    answers = session.flood(lines, seconds)
    world = World()
    trees: Trees = {}
    current, pending = world.state.names.tree(), ""
    for line, answer in zip(lines, answers):
        want = world.apply(line)
        assert want is not None
        current = world.state.names.tree()
        if "index" in want.split(" ; "):           # amid several's calls it may show any cut
            index = answer.split(" ; ")[want.split(" ; ").index("index")]
            trees[int(index)] = world.cuts[-1] if " ; " in want else frozenset([current])
            want = want.replace("index", index)
        assert answer == want, f"{line}: have {answer}, want {want}"
    possible = {current}
    if len(answers) < len(lines):
        pending = lines[len(answers)]
        world.apply(pending)
        possible.add(world.state.names.tree())
    return trees, possible, pending


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(7000, 7006))
def test_killed_anywhere(lab: Lab, seed: int, options: list[str]) -> None:
    """Every checkpoint that was acknowledged is there; the killed state is one that the program has seen."""
    trees, possible, pending = flooded(lab, seed, options)
    streams = pending.startswith("f") or any(name in tree for tree in possible for name in STREAM_FILES)
    log = lab.log()["checkpoints"]
    reader = lab.start(native=True)
    killed = [entry["index"] for entry in log if entry["message"].startswith("killed")]
    assert {entry["index"] for entry in log} >= set(trees)
    if killed and not streams and not pending.startswith(PARTLY):
        lab.restore(killed[-1])
        assert reader.ask("tree") in possible
    assert_honest(lab.store, lab.work, trees)


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(7100, 7104))
def test_restore_interrupted(lab: Lab, seed: int) -> None:
    """A restore that was killed is finished or undone by the next verb, and can be repeated."""
    session = lab.start()
    trees = {}
    for number in range(4):
        session.must([f"open f{number} rw,creat,trunc", f"pwrite {3 + number} 900000 0 {number}"])
        session.must([f"pwrite 3 700000 {number * 1000} {number + 9}", f"mkdir d{number}"])
        if number > 1:
            session.must([f"unlink f{number - 1}"])
        trees[int(session.ask("checkpoint"))] = session.ask("tree")
    assert session.end() == 0
    rng, reader = random.Random(seed), lab.start(native=True)
    for _ in range(5):
        target = rng.choice(sorted(trees))
        process = subprocess.Popen(lab.argv("restore", target), cwd=lab.folder, env=lab.env)
        time.sleep(rng.uniform(0.05, 0.35))
        process.kill()
        process.wait()
        target = rng.choice(sorted(trees))
        lab.restore(target)
        assert reader.ask("tree") == trees[target]
    assert_honest(lab.store, lab.work, trees)


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.08])
def test_commit_interrupted(lab: Lab, delay: float) -> None:
    """`metamori run` is killed when its program has just ended: the next verb finishes the commit."""
    session = lab.start("--isolate")
    (lab.work / "old").write_bytes(b"o" * 2_000_000)
    session.must(["open old rw", "write 3 900000 1", "open new w,creat", "write 4 900000 2", "checkpoint"])
    session.must(["pwrite 3 500000 1000 3", "mkdir d", "rename new d/new"])
    wanted = session.ask("tree")
    victim = session.program()
    assert session.process.stdin
    session.process.stdin.write(b"exit 0\n")
    session.process.stdin.flush()
    wait_until(lambda: gone(victim), "the program's end")
    time.sleep(delay)
    session.process.kill()
    session.process.wait()
    log = lab.log()
    reader = lab.start(native=True)
    lab.restore(log["checkpoints"][-1]["index"])
    assert reader.ask("tree") == wanted
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == b"o" * 2_000_000
