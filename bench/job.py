"""A checkpoint of a job against the number of its runs: on this machine, and simulated to thousands.

`runs`: each is a `metamori run --job` whose program appends to a file of its own every millisecond, which shows how
long it stands still, and overwrites 4 KiB of another, of which more is saved ahead (`write`). `members`: the one that
counts, its messages and its record are the real ones; the runs are lines of a second process (job_members.py), which
answer later by the time that a message takes, a freeze and a record. That process does the work of thousands, so how
long they stand still is told by simulated time (job_pause.py).
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from bench import measure, table

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINTS = 8
PROGRAM = """
import os, sys, time
fd, log = os.open(sys.argv[1], os.O_RDWR), os.open(sys.argv[1] + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
block = bytes(range(256)) * 16
while os.path.exists("going"):
    for at in range(0, 1 << 20, 4096):
        began = time.monotonic()
        os.write(log, b"x")                # of what it appends nothing has to be saved before
        stood = time.monotonic() - began
        os.pwrite(fd, block, at)
        took = time.monotonic() - began
        if took > 0.0002:
            print(began, stood, took, flush=True)
        time.sleep(0.001)
"""


def numbers_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=numbers_of, default=(1, 2, 4, 8, 16), metavar="N,...", help="(1,2,4,8,16)")
    parser.add_argument("--members", type=numbers_of, default=(16, 256, 1024, 4096), metavar="N,...",
                        help="simulated (16,256,1024,4096)")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"), help="for the simulated stores (/dev/shm)")
    parser.add_argument("--delay", type=float, default=0.1, metavar="MS", help="of a simulated message (0.1)")


def real(count: int, args: argparse.Namespace) -> measure.Numbers:
    from metamori.runtime.job import member

    with measure.fresh_folder(args.dir) as folder:
        (folder / "going").touch()
        store = folder / "store"
        for number in range(count):
            (folder / f"file.{number}").write_bytes(bytes(1 << 20))
        runs = []
        for number in range(count):
            with open(folder / f"out.{number}", "wb") as out:
                runs.append(subprocess.Popen(
                    [measure.metamori(), "run", "--job", "--store", str(store), "--", sys.executable, "-c", PROGRAM,
                     f"file.{number}"], cwd=folder, stdout=out))
        wait_for(lambda: joined(store) == count)
        member.ask(str(store), "first")
        spans = []
        for _ in range(CHECKPOINTS):
            time.sleep(0.2)
            began = time.monotonic()
            member.ask(str(store), "")
            spans.append((began, time.monotonic()))
        (folder / "going").unlink()
        for run in runs:
            if run.wait():
                raise measure.Failed(f"a run of the job ended with {run.returncode}")
        rows = [[tuple(map(float, line.split())) for line in (folder / f"out.{number}").read_text().splitlines()]
                for number in range(count)]

        def longest(kind: int) -> list[list[float]]:
            """Of each checkpoint, of each run: pause, or write."""
            return [[max((row[kind] for row in mine if row[0] < ended and row[0] + row[2] > began), default=0.0)
                     for mine in rows] for began, ended in spans]

        return {"checkpoint, ms": 1000 * measure.median([ended - began for began, ended in spans]),
                "pause, ms": 1000 * measure.median([measure.median(each) for each in longest(1)]),
                "longest pause, ms": 1000 * measure.median([max(each) for each in longest(1)]),
                "write, ms": 1000 * measure.median([measure.median(each) for each in longest(2)])}


def joined(store: Path) -> int:
    from metamori.errors import MetamoriError
    from metamori.runtime.job import member

    try:
        return len(member.runs(str(store)))
    except (MetamoriError, OSError):
        return 0


def wait_for(condition, seconds: float = 120) -> None:  # type: ignore[no-untyped-def]
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise measure.Failed("the job did not come up")
        time.sleep(0.05)


def simulated(count: int, args: argparse.Namespace) -> measure.Numbers:
    from bench import job_pause
    from metamori.runtime.job import member
    from metamori.runtime.job.counter import Counter
    from metamori.store.io import commit
    from metamori.store.read.store import Store

    with measure.fresh_folder(args.tmpfs) as folder:
        store = Store.create_or_open(str(folder / "store"))
        store.lock()
        run = store.next_run()
        commit.make_folder(store.door, store.layout.nodes)
        commit.write_file(store.door, os.path.join(store.layout.nodes, b"run"), b"%d" % run)
        members = subprocess.Popen([sys.executable, "-m", "bench.job_members", str(folder / "store"), str(count),
                                    str(args.delay / 1000), str(CHECKPOINTS)], cwd=ROOT, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        assert members.stdin and members.stdout
        try:
            if members.stdout.readline() != "made\n":
                raise measure.Failed("the members' stores could not be made")
            counter = Counter(store, "simulated", run, False, lambda text: print(text, file=sys.stderr))
            counter.start()
            members.stdin.write("join\n")
            members.stdin.flush()
            wait_for(lambda: joined(folder / "store") == count)
            used, spans = [], []
            for _ in range(CHECKPOINTS):
                began, cpu = time.monotonic(), time.process_time()
                member.ask(str(folder / "store"), "")
                spans.append(time.monotonic() - began)
                used.append(time.process_time() - cpu)
            counter.stop()
        finally:
            members.kill()
            members.wait()
            store.close()
        cost = job_pause.measured()
        other = Store.create_or_open(str(folder / "other"))
        median, longest = job_pause.pauses(other, count, args.delay / 1000, cost, CHECKPOINTS)
        return {"checkpoint, ms": 1000 * measure.median(spans[1:]), "pause, ms": 1000 * measure.median(median),
                "longest pause, ms": 1000 * measure.median(longest), "CPU s": measure.median(used[1:]),
                "message sent, us": 1e6 * cost.send, "taken, us": 1e6 * cost.take}


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    kinds = {f"runs, {count:,}": (lambda count=count: real(count, args)) for count in args.runs}
    kinds |= {f"members, {count:,}": (lambda count=count: simulated(count, args)) for count in args.members}
    return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    columns = ["checkpoint, ms", "pause, ms", "longest pause, ms", "write, ms", "CPU s", "message sent, us",
               "taken, us"]
    return table.render(["", *columns], [
        [name, *(table.number(measure.median(series[column])) if column in series else "" for column in columns)]
        for name, series in results.items()])
