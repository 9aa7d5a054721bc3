"""Stores on the nodes' own disks: lost with their node, and the job's files come back from the level all the same."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import launch
import pytest
from test_resume import STEPS, built, content, reference  # noqa: F401  fixtures


def words(program: Path, steps: int, level: int) -> list[str]:
    """Each rank is a node: a run of its own, with a store of its own."""
    run = f'exec "$0" -m metamori run --store "$PWD/store$OMPI_COMM_WORLD_RANK" -- {program} {steps} {level}'
    return ["mpirun.openmpi", "-n", "4", "sh", "-c", run, sys.executable]


def killed(folder: Path, program: Path, level: int, more: int = 3) -> None:
    wanted = launch.taken(folder) + more
    launch.killed(folder, words(program, STEPS * 10_000, level), program.name, lambda: launch.taken(folder) >= wanted,
                  stops=more + 1)
    for rank in range(4):                  # what is left of the runs ends by itself
        launch.run(folder, *launch.METAMORI, "log", "--store", f"store{rank}")


def lose(folder: Path, nodes: list[int], files: bool) -> None:
    for node in nodes:
        shutil.rmtree(folder / "Local" / f"node{node}")
        shutil.rmtree(folder / f"store{node}")
        for path in folder.glob(f"[tr][re]*.{node}") if files else ():
            path.unlink()


@pytest.mark.in_turn("level", 2)
@pytest.mark.parametrize("level, lost, files", [
    (2, [0, 2], False), pytest.param(2, [1, 3], True, marks=pytest.mark.slow),
    (3, [1, 2], True), pytest.param(3, [0, 3], False, marks=pytest.mark.slow),
    (4, [0, 1, 2, 3], True), pytest.param(4, [0, 1, 2, 3], False, marks=pytest.mark.slow)])
def test_nodes_are_lost_with_their_stores(level, lost, files, built, reference, tmp_path):  # noqa: F811
    """files: the job's own files lie on those nodes too; else they are there, as they were when the job was killed."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path, node_stores=1)
    killed(tmp_path, program, level)
    lose(tmp_path, lost, files)
    done = launch.run(tmp_path, *words(program, STEPS, level))
    assert "resumed at step" in done.stderr
    assert {"out": done.stdout.encode(), **content(tmp_path)} == reference


@pytest.mark.slow
def test_again_and_again(built, reference, tmp_path):  # noqa: F811
    """Every resumed job is killed too, and loses other nodes: some stores have the index, some are new."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path, node_stores=1)
    for lost in ([0], [1, 2], [], [2, 3], [0, 3]):
        killed(tmp_path, program, 3, 2)
        lose(tmp_path, lost, len(lost) > 1)
    done = launch.run(tmp_path, *words(program, STEPS, 3))
    assert "resumed at step" in done.stderr
    assert {"out": done.stdout.encode(), **content(tmp_path)} == reference


def test_a_lost_store_that_no_level_carries_is_said(built, tmp_path):  # noqa: F811
    """Memory without its files would be a job that never was."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path)
    killed(tmp_path, program, 2, 2)
    shutil.rmtree(tmp_path / "store1")
    done = launch.run(tmp_path, *words(program, STEPS, 2), well=False)
    assert "FTI_Init gave -2" in done.stderr and "no checkpoint is left" in done.stderr


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that a restore answers for."""
    found: dict[str, tuple[object, ...]] = {}
    inodes: dict[int, str] = {}
    for path in sorted(folder.rglob("*")):
        name, state = str(path.relative_to(folder)), path.lstat()
        kind = stat.S_IFMT(state.st_mode)
        if kind == stat.S_IFREG:
            first = inodes.setdefault(state.st_ino, name)
            found[name] = kind, state.st_mode, state.st_mtime_ns, first, path.read_bytes()
        elif kind == stat.S_IFLNK:
            found[name] = kind, os.readlink(path)
        else:
            found[name] = kind, state.st_mode
    return found


MAKES = """
mkdir -p a/b && echo one > a/one && echo two > a/b/two && ln a/one a/b/again && ln -s ../one a/b/link && mkfifo a/fifo
dd if=/dev/urandom of=big bs=64k count=40 2>/dev/null && truncate -s 9M sparse && printf x >> sparse && : > empty
chmod 640 a/one && chmod 2750 a/b && touch -d 2001-02-03 big && echo new >> old && rm gone
"""
WRECKS = {
    "nothing": "true", "all": "rm -rf a big sparse empty old",
    "later": "echo more >> big; rm a/one; echo other > a/one; mv empty full; echo x >> full; : > old; echo back > gone",
    "kinds": "rm -r a/b; echo file > a/b; rm big; mkdir big; rm a/fifo; ln -s nowhere a/fifo; chmod 777 sparse",
}


@pytest.mark.parametrize("wreck", WRECKS)
def test_names_bytes_and_attributes_come_back(wreck, tmp_path):
    pytest.importorskip("xxhash")
    pytest.importorskip("numpy")
    from metamori.levels.formats import file_payload
    from metamori.levels.formats.posix_format import Plain
    from metamori.store.read.store import Store

    work = tmp_path / "work"
    work.mkdir()
    (work / "old").write_text("old\n")
    (work / "gone").write_text("gone\n")
    subprocess.run([*launch.METAMORI, "run", "--store", str(tmp_path / "store"), "--", "sh", "-ec", MAKES], cwd=work,
                   check=True, env={**os.environ, "PYTHONPATH": str(launch.ROOT)}, capture_output=True)
    store = Store.open(str(tmp_path / "store"))
    form, path = Plain(), str(tmp_path / "part")
    written = form.prepare(file_payload.take(store, store.head.index, str(tmp_path / "local")), None, 1, 16384)
    form.write(written, path)
    saved = form.load(1, lambda _: (path, 0, None))
    expected = tree(work)
    assert {"a/one", "a/b/again", "a/b/link", "a/fifo", "big", "sparse", "empty", "old"} <= set(expected)
    subprocess.run(["sh", "-ec", WRECKS[wreck]], cwd=work, check=True)
    file_payload.put_back(saved)
    found = tree(work)
    if wreck == "later":                   # a name that no index knew is nobody's to take away
        assert found.pop("full")
    assert found == expected and (work / "sparse").stat().st_blocks < 9000
