"""What a person may mean wrong of a job's store: each verb says what is there and what to name, and changes nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, Tree, picture
from ranks import Rank, checkpoint, end, job

pytest.importorskip("zmq")

LOOKS = ["log", "status", "verify", "diff 0 1", "cat 1 common", "show 1", "report OUT.html", "restore 1 --to OUT"]
CHANGES = ["restore 0", "restore --force 0", "restore --dry-run 0", "restore 0 common", "undo", "redo",
           "prune --keep-last 1", "restart", "run -- true", "run --resume -- true", "run --job -- true"]


def said(lab: Lab, words: str, store: Path) -> tuple[int, str]:
    verb, *more = words.replace("OUT", str(lab.folder / f"of.{store.name}")).split()
    done = lab.verb(verb, *more, store=store, cwd=lab.work, code=None)
    return done.returncode, done.stderr


@pytest.fixture(params=["alive", "a run was killed", "all were killed"])
def ranks(lab: Lab, request: pytest.FixtureRequest) -> Iterator[list[Rank]]:
    """Of a job with a checkpoint, and something since. All that live are the last ones."""
    ranks = job(lab)
    for number in range(2):
        for rank in ranks:
            rank.do("append", "common", f"{number}")
        if not number:
            checkpoint(lab, {})
    left = {"alive": 3, "a run was killed": 2, "all were killed": 0}[request.param]
    while len(ranks) > left:
        ranks.pop(0).kill()
    yield ranks
    end(ranks)


def test_a_run_is_named_where_the_job_is_meant(lab: Lab, ranks: list[Rank]) -> None:
    """Its files alone are of no index of the job; a look at what it has recorded completes nothing."""
    before = picture(lab.work)
    nodes = lab.store / "nodes"
    for node in [each.parent for each in nodes.glob("*/format")]:
        recorded = picture(node / "checkpoints")
        for words in CHANGES:
            code, text = said(lab, words, node)
            assert (code, text) == (125 if words.startswith("run") else 1,
                                    f"metamori: {node} is part of the job's store {lab.store}: --store {lab.store}\n")
        for words in LOOKS:
            assert said(lab, words, node)[0] == 0, words
        assert picture(node / "checkpoints") == recorded
        assert picture(lab.work) == before
    if ranks:
        seen: dict[int, Tree] = {}
        for rank in ranks:
            rank.do("append", "common", "later")
        index = checkpoint(lab, seen)
        assert "lost" not in end(ranks)
        lab.restore(index)
        lab.assert_state(seen[index], "the job's checkpoint")
    else:
        lab.verb("log")
        lab.assert_state(before, "completed")
    lab.restore(0)
    assert not (lab.work / "common").exists()
    lab.verb("verify")


@pytest.mark.parametrize("words", [*LOOKS, *CHANGES, "checkpoint"])
def test_folders_in_which_a_job_keeps_stores(lab: Lab, words: str) -> None:
    store = lab.folder / "a store"
    (store / "nodes").mkdir(parents=True)
    for name in ("format", "nodes/run"):
        (store / name).write_text("there\n")
    for folder in (store / "nodes", store / "disks"):
        code, text = said(lab, words, folder)
        assert code == (125 if words.startswith("run") else 10)
        assert text == f"metamori: there is no store at {folder}; the job's is {store}: --store '{store}'\n"
    assert not (store / "disks").exists()


def test_no_such_run_and_no_such_checkpoint(lab: Lab) -> None:
    ranks = job(lab, 2)
    ranks[0].do("append", "common", "a")
    checkpoint(lab, {})
    nobody = lab.store / "nodes" / "nobody"
    for words in ("checkpoint", "log", "status", "restore 1", "prune --keep-last 1"):
        code, text = said(lab, words, nobody)
        assert code in (1, 10) and ("no store at" in text or "--store" in text), (words, text)
    for words in ("diff 0 7", "cat 7 common", "show 7", "restore 7 --to OUT"):
        code, text = said(lab, words, lab.store)
        assert code == 13 and "there is no checkpoint 7; there are 0 to 1" in text, (words, text)
    for words in ("restore 1", "undo", "prune --keep-last 1", "restart 1"):
        code, text = said(lab, words, lab.store)
        assert code == 11 and "in use" in text, (words, text)
    for words in ("run -- true", "run --resume -- true", "run --job another -- true"):
        code, text = said(lab, words, lab.store)
        assert code == 125 and "in use" in text, (words, text)
    assert end(ranks) == ""
    for words in ("restore 7", "restart 7"):
        code, text = said(lab, words, lab.store)
        assert code == 13 and "there is no checkpoint 7" in text, (words, text)
    code, text = said(lab, "checkpoint", lab.store)
    assert code == 15 and "no run is alive" in text
    assert subprocess.run(["test", "-e", nobody], check=False).returncode
