"""A run limits its own checkpoints: what others took, and 0, stays until `metamori prune` (docs/adr/0031)."""

from __future__ import annotations

import random

import pytest
from lab import Lab


def work(lab: Lab, session, seed: int, rounds: int) -> dict[int, str]:
    """Some rounds of rewriting, truncating, renaming and removing, a checkpoint after each: what each was."""
    rng = random.Random(seed)
    taken = {}
    for number in range(rounds):
        for name in ("a", "b", "c"):
            fd = int(session.ask(f"open {name} rw,creat"))
            session.must([f"pwrite {fd} {rng.randrange(1, 90000)} {rng.randrange(60000)} {seed * 100 + number}",
                          f"ftruncate {fd} {rng.randrange(20000, 120000)}", f"close {fd}"])
        session.must(["unlink c"] if number % 2 else ["rename c d"])
        taken[int(session.ask("checkpoint"))] = session.ask("tree")
    return taken


@pytest.mark.parametrize("mode", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("limit", [["--keep-last", 2], ["--max-bytes", "4K"]], ids=["keep-last", "max-bytes"])
def test_a_run_prunes_nobody_elses_checkpoints(lab: Lab, mode: list[str], limit: list[object]) -> None:
    for name in ("a", "b", "c", "old"):
        (lab.work / name).write_bytes(name.encode() * 70000)
    reader = lab.start(native=True)
    states = {0: reader.ask("tree")}
    session = lab.start(*mode)
    states |= work(lab, session, 1, 3)
    assert session.end() == 0
    before = [entry["index"] for entry in lab.log()["checkpoints"]]
    states[before[-1]] = reader.ask("tree")
    lab.restore(2)                          # the next run grows from the middle: head is not the newest
    session = lab.start(*mode, *limit)
    states |= work(lab, session, 2, 4)
    session.must(["unlink old"])
    assert session.end() == 0
    there = [entry["index"] for entry in lab.log()["checkpoints"]]
    states[there[-1]] = reader.ask("tree")
    own = sorted(states)[len(before):]
    assert there == before + (own[-2:] if limit[0] == "--keep-last" else own[-1:])
    if limit[0] == "--max-bytes":
        assert "this run's checkpoints take more than 4 KiB (--max-bytes): " in session.stderr()
        assert "which only 'metamori prune' may take away" in session.stderr()
    assert session.stderr().count("\n") == session.stderr().count("--max-bytes") == (limit[0] == "--max-bytes")
    lab.verb("verify")
    for index in there:
        lab.restore(index)
        assert reader.ask("tree") == states[index], f"restore {index}"
    lab.restore(own[0], code=13)
    lab.verb("prune", "--keep-last", 1)
    assert len(lab.log()["checkpoints"]) <= 3      # 0 is in the log for ever, as pruned; the newest, and head's
    lab.verb("verify")


def test_a_prune_costs_what_the_run_has_taken(lab: Lab) -> None:
    """Whatever the store holds besides: a live run does not look at it."""
    from metamori.store.prune.prune import prune
    from metamori.store.read.store import Store
    from metamori.tables.retention import Rules

    session = lab.start()
    work(lab, session, 3, 12)
    assert session.end() == 0
    with Store.open(str(lab.store)) as store:
        first, read = store.newest - 1, []
        store.indexes                       # noqa: B018  the records themselves are read when a store is opened
        state = store.state
        store.state = lambda index, doubtful=False: read.append(index) or state(index, doubtful)  # type: ignore
        done = prune(store, Rules(keep_last=1), first=first, dry_run=True)
        assert done.kept == (first + 1,) and done.dropped == (first,) and set(read) <= {first, first + 1}


def test_a_backing_file_has_the_name_of_no_other_file(lab: Lab) -> None:
    """Records go on saying that of one which no index needs any more: head took the next file's for both."""
    session = lab.start("--keep-last", 2)

    def make(name: str) -> None:
        fd = int(session.ask(f"open {name} rw,creat"))
        session.must([f"write {fd} 9000 1", f"close {fd}"])

    make("a")
    session.must(["checkpoint", "unlink a", "checkpoint"])
    session.must(["checkpoint"])           # no index that is left has a
    make("b")
    there = session.ask("checkpoint"), session.ask("tree")
    session.must(["unlink b"])
    assert session.end() == 0
    last = lab.log()["head"]
    reader = lab.start(native=True)
    for index, tree in (*[(int(there[0]), there[1]), (last, reader.ask("tree"))] * 2, (int(there[0]), there[1])):
        lab.restore(index)
        assert reader.ask("tree") == tree, f"restore {index}"
    assert lab.run("true").returncode == 0
    lab.verb("verify")
