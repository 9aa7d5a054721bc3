"""A mini-application that is killed and resumed: memory and files as if nothing had happened."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import launch
import pytest

STEPS = 60


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="module")
def reference(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted run leaves."""
    launch.need("openmpi")
    folder = tmp_path_factory.mktemp("reference")
    launch.configure(folder)
    program = launch.compiled("stencil", "openmpi", built)
    done = launch.run(folder, *launch.command("openmpi", 4, program, STEPS, 1))
    return {"out": done.stdout.encode(), **content(folder)}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[tr][re]*.[0-9]*")}


def story(folder: Path, program: Path, mpi: str, level: int, lost: list[int], at: int, whole: bool,
          seed: int, ranks: int = 4, harm: Callable[[], None] = lambda: None) -> dict[str, bytes]:
    """Killed once after `at` checkpoints, nodes deleted, resumed to the end."""
    assert 3 * (at + 9) < STEPS, "the resumed one has something to do"
    generator = random.Random(seed)
    more = generator.random() * 0.1

    def ready() -> bool:
        if launch.taken(folder) < at:
            return False
        nonlocal more
        more -= 0.01
        return more < 0
    words = launch.command(mpi, ranks, program, STEPS * 10_000, level, tracked=True)
    launch.killed(folder, words, program.name, ready, whole, stops=at + 8)
    for node in lost:
        shutil.rmtree(folder / "Local" / f"node{node}")
    harm()
    done = launch.run(folder, *launch.command(mpi, ranks, program, STEPS, level, tracked=True))
    assert "resumed at step" in done.stderr
    return {"out": done.stdout.encode(), **content(folder)}


@pytest.mark.in_turn("level", 2)
@pytest.mark.parametrize("level, lost, whole, mpi", [
    (1, [], True, "openmpi"), (2, [0, 2], True, "openmpi"), (3, [1, 2], True, "openmpi"),
    (4, [0, 1, 2, 3], True, "openmpi"), pytest.param(3, [0, 3], False, "openmpi", marks=pytest.mark.slow),
    pytest.param(2, [1, 3], True, "mpich", marks=pytest.mark.slow),
])
def test_killed_and_resumed(level, lost, whole, mpi, built, reference, tmp_path):
    launch.need(mpi)
    program = launch.compiled("stencil", mpi, built)
    launch.configure(tmp_path)
    found = story(tmp_path, program, mpi, level, lost, 3, whole, level)
    assert found == reference


@pytest.mark.in_turn("level", 2)
@pytest.mark.parametrize("level, lost, version", [
    (1, [], 2), pytest.param(2, [0, 2], 1, marks=pytest.mark.slow), (3, [1, 2], 2),
    pytest.param(4, [0, 1, 2, 3], 1, marks=pytest.mark.slow)])
def test_fti_ff_killed_and_resumed(level, lost, version, built, reference, tmp_path):
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path, ckpt_io=3, ftiff_version=version)
    assert story(tmp_path, program, "openmpi", level, lost, 3, True, 50 + level) == reference


def flip(path: Path) -> None:
    """One bit of a byte in its middle; one that the kill left empty is damaged as it is."""
    if not path.stat().st_size:
        return
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))


def another(path: Path) -> None:
    """That of the next node, of the same checkpoint: whole, as long, and not its own.

    The ranks were killed at any moment: of a checkpoint that was begun, or of an old one half removed, the next node
    may have nothing. What cannot be another's is gone then, so that it cannot stand in either.
    """
    node = next(int(part[4:]) for part in path.parts if part.startswith("node"))
    theirs = Path(str(path).replace(f"node{node}", f"node{node ^ 1}").replace(f"{node}.fti", f"{node ^ 1}.fti"))
    if theirs.exists():
        path.write_bytes(theirs.read_bytes())
    else:
        path.unlink()


@pytest.mark.parametrize("level, harm", [
    pytest.param(2, {"node0/*/l2/*/*Rank*": another, "node3/*/l2/*/*Pcof*": another}, marks=pytest.mark.slow),
    pytest.param(3, {"node2/*/l3/*/*Rank*": another}, marks=pytest.mark.slow),
    (2, {"node0/*/l2/*/*Rank*": flip, "node2/*/l2/*/*Pcof*": flip, "node2/*/l2/*/*Rank*": Path.unlink}),
    (3, {"node0/*/l3/*/*Rank*": flip, "node1/*/l3/*/*RSed*": lambda path: path.write_bytes(path.read_bytes()[:-9]),
         "node2/*/l3/*/*": flip}),
])
def test_damaged_files_count_as_lost(level, harm, built, reference, tmp_path):
    """Another's, flipped, cut off, deleted: in every index, so that no older one can stand in."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path)

    def damage() -> None:
        for pattern, how in harm.items():
            found = list((tmp_path / "Local").glob(pattern))
            assert found
            for path in found:
                how(path)
    assert story(tmp_path, program, "openmpi", level, [], 3, True, 60 + level, harm=damage) == reference


def test_a_group_s_parity_that_is_another_s_is_never_used_in_silence(built, tmp_path):
    """It is whole and of the right sizes; what it brings back is no file that anybody wrote."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path)
    launch.killed(tmp_path, launch.command("openmpi", 4, program, 100_000, 3), program.name,
                  lambda: launch.taken(tmp_path) >= 2)
    for pattern in ("node0/*/l3/*/*Rank*", "node*/*/l3/*/*RSed*"):
        for path in sorted((tmp_path / "Local").glob(pattern)):
            another(path)
    done = launch.run(tmp_path, *launch.command("openmpi", 4, program, 300, 3), well=False)
    assert "FTI_Init gave -2" in done.stderr and "no checkpoint is left" in done.stderr


def test_too_many_lost_nodes_are_said(built, tmp_path):
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path)
    launch.killed(tmp_path, launch.command("openmpi", 4, program, 100_000, 3), program.name,
                  lambda: launch.taken(tmp_path) >= 2)
    for node in range(3):
        shutil.rmtree(tmp_path / "Local" / f"node{node}")
    done = launch.run(tmp_path, *launch.command("openmpi", 4, program, 300, 3), well=False)
    assert "FTI_Init gave -2" in done.stderr and "no checkpoint is left" in done.stderr


def test_that_nothing_is_left_is_said_beside_heads(built, tmp_path):
    """Which serve meanwhile; the first process of all may be one."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path, head=1, node_size=2, group_size=2)
    launch.killed(tmp_path, launch.command("openmpi", 4, program, 100_000, 3), program.name,
                  lambda: launch.taken(tmp_path) >= 2)
    for folder in ("Local", "Global"):
        shutil.rmtree(tmp_path / folder)
    done = launch.run(tmp_path, *launch.command("openmpi", 4, program, 300, 3), well=False)
    assert "FTI_Init gave -2" in done.stderr and "no checkpoint is left" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_a_hundred_random_kills(level, built, reference, tmp_path):
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    for seed in range(100):
        generator = random.Random(1000 * level + seed)
        lost = {1: [], 2: generator.choice([[0], [1, 3], [0, 2]]), 3: generator.sample(range(4), 2),
                4: [0, 1, 2, 3]}[level]
        folder = tmp_path / str(seed)
        folder.mkdir()
        launch.configure(folder)
        found = story(folder, program, "openmpi", level, lost, generator.randint(1, 8), generator.random() < 0.7, seed)
        assert found == reference, f"seed {seed}, lost {lost}"
        shutil.rmtree(folder)
