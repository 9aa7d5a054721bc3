"""Several processes, each with several threads, at once; one is killed amid it, or everything is.

What a process that was killed had done is some of its calls, in order; the others are not held up and lose nothing.
Each checkpoint, also one from outside amid it all, is a cut. Crowds are in the programs of test_random_programs.py too.
"""

from __future__ import annotations

import random
import struct
import tempfile
from itertools import islice
from pathlib import Path

import pytest
from cuts import in_its_order, outcomes, possible
from honest import assert_honest
from lab import Lab, gone, wait_until
from player import Play, play
from programs import Author, Crowd, program
from test_linearizable import children
from test_random_programs import everything, to_the_last
from together import Item, process_of, split

WAYS = {"default": [], "isolate": ["--isolate"], "small-cache": ["--isolate", "--cache-size", "0"]}
HEAD, ITEM = struct.Struct("=4i18i"), struct.Struct("=4i512s512s")   # the driver's board
TRIES = 20000


def last_crowd(rng: random.Random, playing: Play) -> list[Item]:
    """What several processes do when the end comes: one of them ends everything."""
    while True:
        author = Author(rng, playing.world, deadly=False)
        items = split(Crowd(author, author.everybody()).line().split(" ")[1:])
        actors = sorted({who for who, _ in items})
        if len({process_of(who) for who in actors}) > 1 and len(actors) < 5:
            break
    who, at = rng.choice(actors), rng.randrange(2, len(items) + 1)
    return [*items[:at], (who, ["doom"]), *(item for item in items[at:] if item[0] != who)]


def told(board: Path, count: int) -> list[str]:
    """What was done, from memory that outlives everybody."""
    data, answers = board.read_bytes(), []
    for place in range(count):
        _, _, state, _, _, answer = ITEM.unpack_from(data, HEAD.size + place * ITEM.size)
        answers.append(answer.split(b"\0")[0].decode() if state == 2 else "-?"[state])
    return answers


def killed(lab: Lab, seed: int, options: list[str], board: Path) -> tuple[Play, list[Item], list[str]]:
    """A random program, and in the middle of a crowd everything is killed, `metamori run` too."""
    rng = random.Random(seed)
    session = lab.start(*options)
    session.must([f"board {board}"])
    playing = Play(session)
    lines = program(seed, 600, several=True, threads=True)
    for line in lines if "--mode" not in options else to_the_last(lines):
        playing.line(line)
        if len(playing.world.saved) > 1 and playing.world.twins and not playing.world.state.streams and (
                rng.random() < 0.05):
            break
    else:
        pytest.skip("nobody else lived")
    assert session.process.stdin
    playing.end()
    items = last_crowd(rng, playing)
    first = children(session.process.pid)[0]
    family = [first, *children(first)]
    text = " ; ".join(f"{who} {' '.join(line)}" for who, line in items)
    session.process.stdin.write(f"together {text}\n".encode())
    session.process.stdin.flush()
    assert session.end() == -9
    wait_until(lambda: all(gone(pid) for pid in family), "everybody's end")
    return playing, items, told(board, len(items))


def everything_killed(lab: Lab, seed: int, options: list[str]) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="board-") as board:
        playing, items, answers = killed(lab, seed, options, Path(board.name))
    world, reader = playing.world, lab.start(native=True)
    others = [item for item in items if item[1] != ["doom"]]
    heard = [answer for item, answer in zip(items, answers) if item[1] != ["doom"]]
    for (who, line), answer, want in zip(others, heard, world.foretold(others)):
        assert answer in ("?", "-", want) or want == "index", f"{who} {line}: have {answer}, want {want}"
    assert in_its_order(others, heard), heard
    log = lab.log()["checkpoints"]
    trees = [(index, frozenset([tree])) for index, tree in playing.checkpoints] + playing.cuts
    cut = [int(answer) for (_, line), answer in zip(others, heard) if line == ["cut"] and answer.isdigit()]
    trees += [(index, possible(world, others, world._tree, heard)) for index in cut]
    if "--mode" in options:                    # only the last is kept
        trees = trees[-1:]
    assert {index for index, _ in trees} <= {entry["index"] for entry in log}, "an answered checkpoint is missing"
    ends = [entry["index"] for entry in log if entry["message"].startswith("killed")]
    if ends and "--mode" not in options:
        lab.restore(ends[-1])
        have, dead = reader.ask("tree"), {process_of(who) for who, _ in items}
        assert any(here == have for here in islice(_trees(playing, others, heard, dead), TRIES)), (
            f"no state that was reached: {list(zip(others, heard))}\n{have}\n{world._tree()}")
    assert_honest(lab.store, lab.work, dict(trees))


def _trees(playing: Play, items: list[Item], answers: list[str], dead: set[str]):  # type: ignore[no-untyped-def]
    for reached in outcomes(playing.world, items, answers, dead):
        with reached:
            tree = playing.world._tree()
        yield tree


@pytest.mark.parametrize("seed", range(8000, 8002))
def test_natively(native_lab: Lab, seed: int) -> None:
    """The kernel judges the model, with processes killed amid the others too."""
    session = native_lab.start(native=True)
    played = play(session, program(seed, 400, False, several=True, threads=True), restorable=False)
    assert session.end() == 0
    assert native_lab.start(native=True).ask("tree") == played.world.state.names.tree()


def test_the_model_finds_what_is_wrong(native_lab: Lab) -> None:
    """Of a process that was killed: a call that it cannot have done, and one that was answered and is not there."""
    session = native_lab.start(native=True)
    playing = Play(session, restorable=False)
    for line in ("open f0 rw,creat", "write 3 9000 1", "twin 0"):
        playing.line(line)
    line = "together 0.m pwrite 3 100 0 7 ; 0.m die ; m.m nap 2000 ; 0.m pwrite 3 100 5000 8"
    assert playing.world.lost_some(line, session.ask(line), session.ask) == ""
    assert not playing.world.twins
    for wrong in ("pwrite 3 1 5000 9", "pwrite 3 1 0 9"):
        playing.line("twin 0")
        have = session.ask(line)
        session.ask(wrong)
        assert "nothing that it may have done" in playing.world.lost_some(line, have, session.ask)
        del playing.world.twins[0]
        playing.line("pwrite 3 9000 0 1")
    session.end()


def test_the_model_lets_a_killed_append_end_with_a_page(native_lab: Lab) -> None:
    """By pwrite too, which puts it at the end (seed 5000, once)."""
    session = native_lab.start(native=True)
    playing = Play(session, restorable=False)
    for line in ("open f0 rw,creat,append", "write 3 2730 1", "twin 0"):
        playing.line(line)
    session.ask("in 0 pwrite 3 1366 60000 7")
    line = "together 0.m pwrite 3 6000 60000 7 ; m.m kill 0"
    assert playing.world.lost_some(line, "? ; 0", session.ask) == ""
    session.end()


@pytest.mark.parametrize("way", WAYS)
def test_crowds(lab: Lab, way: str) -> None:
    everything(lab, 8100, WAYS[way], 150, several=True, threads=True)


def test_in_single_mode(lab: Lab) -> None:
    session = lab.start("--mode", "single")
    played = play(session, list(to_the_last(program(8101, 200, several=True, threads=True))))
    assert session.end() == 0
    assert lab.start(native=True).ask("tree") == played.world.state.names.tree()


@pytest.mark.parametrize("way", ["default", "isolate"])
def test_everything_killed_amid_a_crowd(lab: Lab, way: str) -> None:
    everything_killed(lab, 8200, WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads-too"])
@pytest.mark.parametrize("seed", range(8300, 8340))
def test_natively_for_long(native_lab: Lab, seed: int, threads: bool) -> None:
    session = native_lab.start(native=True)
    played = play(session, program(seed, 1200, False, several=True, threads=threads), restorable=False)
    assert session.end() == 0
    assert native_lab.start(native=True).ask("tree") == played.world.state.names.tree()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(8400, 8430))
def test_everything_killed_for_long(lab: Lab, seed: int, way: str) -> None:
    everything_killed(lab, seed, WAYS[way])
