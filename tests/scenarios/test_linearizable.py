"""Appends and shared positions of several processes and threads at once: what is in the files, at the end and at each
checkpoint, is what some order of whole calls gives, and nothing that had been written is missing.

A checkpoint is one cut: for each writer its records are a prefix of its steps, in order, whole; and the files agree
with each other on how far the writer had come, to within the one step that was under way.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, Session, gone, wait_until
from stops import Stops

RECORD = 32
OLD = 100                                  # records that are there before the run
TICKETS = 20000
CHECKPOINTS = 4
ORDER = ("log", "both", "shared", "table", "done")   # the files in the order of one step


def old_files(work: Path) -> None:
    head = b"".join(b"%-31d\n" % n for n in range(OLD))
    for name in ("log", "both", "shared"):
        (work / name).write_bytes(head)
    (work / "tickets").write_bytes(b"".join(b"%-31d\n" % n for n in range(TICKETS)))
    (work / "table").write_bytes(b" " * RECORD * 64)


def records(data: bytes, what: str) -> dict[int, list[int]]:
    """Writer -> its steps in the order of the file; every record must be whole."""
    assert len(data) % RECORD == 0, f"{what}: half a record at the end"
    found: dict[int, list[int]] = {}
    for at in range(0, len(data), RECORD):
        words = data[at:at + RECORD].split()
        assert words and words[0] == what.encode() and len(words) == 4, f"{what}: a broken record at {at}: {words}"
        found.setdefault(int(words[1]), []).append(int(words[2]))
    return found


def prefix(steps: list[int], what: str) -> int:
    """How far a writer has come; its steps are 1, 2, 3, ... without a gap, each once."""
    assert steps == list(range(1, len(steps) + 1)), f"{what}: not a prefix: {steps[:5]}...{steps[-5:]}"
    return len(steps)


def check(work: Path, writers: int) -> int:
    """One cut; the number of steps in it."""
    reached: dict[str, dict[int, int]] = {name: {} for name in ORDER}
    for name in ("log", "both", "shared"):
        data = (work / name).read_bytes()[OLD * RECORD:]
        for writer, steps in records(data, name).items():
            reached[name][writer] = prefix(steps, name)
    table = (work / "table").read_bytes()
    taken: list[int] = []
    for writer in range(writers):
        words = table[writer * RECORD:(writer + 1) * RECORD].split()
        reached["table"][writer] = int(words[2]) if words else 0
        seen = work / f"seen.{writer:04d}"
        lines = seen.read_bytes() if seen.exists() else b""
        assert len(lines) % RECORD == 0
        mine = [lines[at:at + RECORD] for at in range(0, len(lines), RECORD)]
        taken += [int(each) for each in mine if not each.startswith(b"done")]
        reached["done"][writer] = prefix([int(each.split()[2]) for each in mine if each.startswith(b"done")], "done")
        far = [reached[name].get(writer, 0) for name in ORDER]
        assert far == sorted(far, reverse=True), f"writer {writer}: {far} is no state in between two calls"
        assert far[0] - far[-1] <= 1, f"writer {writer}: {far}"
    assert len(taken) == len(set(taken)), "a record was given to two readers"
    # a ticket may be taken and not yet noted, one for each writer
    if taken:
        assert max(taken) < len(taken) + writers, "records were left out"
    return sum(reached["done"].values())


def start(lab: Lab, program: Path, *words: object) -> Session:
    argv = [*lab.argv("run", *words[3:]), "--", str(program), *map(str, words[:3])]
    session = Session(argv, lab.work, lab.env, lab.folder / f"stderr.{len(lab.sessions)}")
    lab.sessions.append(session)
    return session


@pytest.mark.in_turn("options", 2)
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--isolate", "--cache-size", "0"], ["--mode=single"]],
                         ids=["default", "isolate", "small-cache", "single"])
def test_appends_and_shared_positions(lab: Lab, compiled: Compile, options: list[str]) -> None:
    """Checkpoints from outside while all write; that calls wait for a cut was taken away once: this then fails."""
    old_files(lab.work)
    session = start(lab, compiled("records"), 3, 2, 10_000_000, *options)
    seen = [lab.work / f"seen.{n:04d}" for n in range(6)]
    wait_until(lambda: all(path.exists() for path in seen), "the writers")
    indexes: list[int] = []
    for _ in range(CHECKPOINTS * 5):
        done = lab.verb("checkpoint", code=None)   # it may not come to rest in time
        indexes += [int(done.stdout)] if done.returncode == 0 else []
        if len(indexes) == CHECKPOINTS:
            break
    (lab.work / "stop").touch()
    assert session.end() == 0, session.stderr()
    assert indexes
    at_the_end = check(lab.work, 6)
    before = -1
    for index in indexes if "--mode=single" not in options else []:   # there only the last one is kept
        lab.restore(index)
        reached = check(lab.work, 6)
        assert reached >= before, "a later checkpoint holds less"
        before = reached
    lab.restore(max(lab.messages()))
    assert check(lab.work, 6) == at_the_end > before
    lab.verb("verify")


def test_killed_in_single_mode(lab: Lab, compiled: Compile) -> None:
    """What a kill of everything leaves in place is the last checkpoint's cut."""
    old_files(lab.work)
    session = start(lab, compiled("records"), 3, 2, 10_000_000, "--mode=single")
    seen = [lab.work / f"seen.{n:04d}" for n in range(6)]
    wait_until(lambda: all(path.exists() for path in seen), "the writers")
    last = 0
    for _ in range(8):
        done = lab.verb("checkpoint", code=None)
        last = int(done.stdout) if done.returncode == 0 else last
        if last == 3:
            break
    first = children(session.process.pid)[0]
    family = [session.process.pid, first, *children(first)]
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    session.end()
    wait_until(lambda: all(gone(pid) for pid in family), "everybody's end")
    lab.verb("verify")
    lab.restore(last)
    assert check(lab.work, 6) > 0


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_killed_while_others_go_on(lab: Lab, compiled: Compile, options: list[str]) -> None:
    """One of the processes is killed in the middle: what it had written stays, nobody waits for it."""
    old_files(lab.work)
    session = start(lab, compiled("records"), 3, 2, 10_000_000, *options)
    seen = [lab.work / f"seen.{n:04d}" for n in range(6)]
    wait_until(lambda: all(path.exists() for path in seen), "the writers")
    first = lab.checkpoint()
    victim = children(children(session.process.pid)[0])[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: gone(victim), "the killed one's end")
    second = lab.checkpoint()
    third = lab.checkpoint()
    (lab.work / "stop").touch()
    assert session.end() == 0, session.stderr()
    steps = [check(lab.work, 6)]
    for index in (third, second, first):
        lab.restore(index)
        steps.append(check(lab.work, 6))
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[3]
    lab.verb("verify")


SURVIVOR = """
import os, time
if os.fork():
    while not os.path.exists("started"):
        time.sleep(0.01)
    os._exit(0)
table, log = os.open("table", os.O_RDWR), os.open("log", os.O_WRONLY | os.O_APPEND)
n, end = 0, time.monotonic() + 3
while time.monotonic() < end or n < 1000:
    n += 1
    os.pwrite(table, b"%-31d" % n, n % 2000 * 32)
    os.write(log, b"%-31d" % n)
    if n == 500:
        os.close(os.open("started", os.O_CREAT | os.O_WRONLY))
os.write(os.open("count", os.O_CREAT | os.O_WRONLY), b"%d" % n)
"""


@pytest.mark.in_turn("options", 2)
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolate", "single"])
def test_a_survivor_writes_on_through_the_end(lab: Lab, options: list[str]) -> None:
    """The run's first process ends and the buffered bytes are written back, while another one goes on writing."""
    (lab.work / "table").write_bytes(b"-" * 32 * 2000)
    (lab.work / "log").write_bytes(b"")
    assert lab.run([sys.executable, "-c", SURVIVOR], *options).returncode == 0
    count = lab.work / "count"
    wait_until(lambda: count.exists() and count.read_bytes() != b"", "the survivor")
    wait_until(lambda: lab.verb("restore", max(lab.messages()), code=None).returncode == 0, "the end of the run")
    last = int(count.read_bytes())
    assert (lab.work / "log").read_bytes() == b"".join(b"%-31d" % n for n in range(1, last + 1))
    table = (lab.work / "table").read_bytes()
    for n in range(max(1, last - 1999), last + 1):
        assert table[n % 2000 * 32:][:31] == b"%-31d" % n


def children(pid: int) -> list[int]:
    text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(word) for word in text.split()]


def test_checker_itself(native_lab: Lab, compiled: Compile) -> None:
    """Natively all holds; a lost, a doubled and a torn record are found."""
    old_files(native_lab.work)
    assert native_lab.run([compiled("records"), 3, 2, 50], native=True).returncode == 0
    assert check(native_lab.work, 6) == 300
    for name, change in (("log", lambda b: b[:OLD * RECORD] + b[(OLD + 1) * RECORD:]),
                         ("both", lambda b: b + b[-RECORD:]), ("shared", lambda b: b[:-5])):
        path = native_lab.work / name
        good = path.read_bytes()
        path.write_bytes(change(good))
        with pytest.raises(AssertionError):
            check(native_lab.work, 6)
        path.write_bytes(good)


@pytest.mark.parametrize("options", [["--cache-size", "0"], ["--isolate", "--cache-size", "0"]], ids=" ".join)
def test_a_read_of_several_pieces_sees_a_write_as_a_whole(lab: Lab, options: list[str]) -> None:
    """As XFS has it. The write comes when the first of two blocks was read."""
    stops = Stops(lab.folder / "stops")
    lab.env |= stops.env
    (lab.work / "f").write_bytes(b"old" * 10_000)
    driver = lab.start(*options)
    driver.must(["thread 0", "open f rw", "checkpoint"])
    driver.must(f"pwrite 3 4096 {at} 2" for at in (8192, 4096))        # they lie apart
    before = driver.ask("pread 3 8192 4096")
    stops.arm("data.piece")
    driver.ask("begin 0 pread 3 8192 4096")
    stops.wait("data.piece")
    driver.must(["pwrite 3 8192 4096 3"])
    stops.go("data.piece")
    assert driver.ask("await 0") in (before, driver.ask("pread 3 8192 4096"))
    assert driver.end() == 0


@pytest.mark.parametrize("options", [["--cache-size", "0"], ["--isolate", "--cache-size", "0"]], ids=" ".join)
@pytest.mark.parametrize("change", ["pwrite 3 10 4200 2", "ftruncate 3 20000", "map 3 5000 rw shared 0"])
def test_a_read_of_a_block_that_is_made_whole(lab: Lab, options: list[str], change: str) -> None:
    """What had been appended in it, in place, was zeros for who had found it but not read it yet."""
    stops = Stops(lab.folder / "stops")
    lab.env |= stops.env
    (lab.work / "f").write_bytes(b"old" * 2000)
    driver = lab.start(*options)
    driver.must(["thread 0", "open f rw", "pwrite 3 10 4100 1", "checkpoint"])
    with (lab.work / "f").open("ab") as file:
        file.write(b"new" * 1000)
    before = driver.ask("pread 3 4096 4096")
    stops.arm("data.found")
    driver.ask("begin 0 pread 3 4096 4096")
    stops.wait("data.found")
    driver.must([change])
    stops.go("data.found")
    assert driver.ask("await 0") in (before, driver.ask("pread 3 4096 4096"))
    assert driver.end() == 0


def test_a_read_beside_the_first_cut(lab: Lab) -> None:
    """In isolation. For a moment what is in place behind that counted, which had been written over."""
    stops = Stops(lab.folder / "stops")
    lab.env |= stops.env
    (lab.work / "f").write_bytes(b"old" * 67936)
    driver = lab.start("--isolate")
    driver.must(["thread 0", "thread 1", "open f rw", "pwrite 3 203808 0 1"])
    before = driver.ask("pread 3 4096 200")
    stops.arm("size.said")
    driver.ask("begin 0 ftruncate 3 100")
    stops.wait("size.said")
    driver.ask("begin 1 pread 3 4096 200")
    time.sleep(0.3)                        # it has read, or waits: nothing tells
    stops.go("size.said")
    assert driver.ask("await 0") == "0"
    assert driver.ask("await 1") in (before, driver.ask("pread 3 4096 200"))
    assert driver.end() == 0
