"""Calls beyond the core, numbers of ranks and of variables, and the manual's configurations."""

from __future__ import annotations

import launch
import pytest
from test_resume import built, content  # noqa: F401  a fixture

slow = pytest.mark.slow


@pytest.mark.in_turn("what", 2)
@pytest.mark.parametrize("what, level, mpi, form", [
    ("thousand", 3, "openmpi", 1), ("realloc", 2, "openmpi", 1), ("single", 1, "mpich", 1), ("parts", 4, "openmpi", 1),
    ("names", 1, "openmpi", 5), pytest.param("thousand", 1, "mpich", 3, marks=slow),
    pytest.param("thousand", 2, "openmpi", 5, marks=slow), pytest.param("realloc", 4, "openmpi", 2, marks=slow),
    pytest.param("realloc", 3, "mpich", 1, marks=slow), pytest.param("single", 3, "openmpi", 3, marks=slow),
    pytest.param("realloc", 3, "openmpi", 3, marks=slow), pytest.param("realloc", 1, "openmpi", 5, marks=slow),
    pytest.param("parts", 2, "mpich", 3, marks=slow), pytest.param("parts", 3, "openmpi", 5, marks=slow),
])
def test_dies_and_compares_every_byte(what, level, mpi, form, built, tmp_path):  # noqa: F811
    launch.need(mpi)
    program = launch.compiled("many", mpi, built)
    launch.configure(tmp_path, group_size=2, ckpt_io=form)
    words = launch.command(mpi, 2, program, what, level)
    launch.run(tmp_path, *words, well=False)
    assert launch.setting(tmp_path, "failure") == "1"
    done = launch.run(tmp_path, *words)
    assert launch.setting(tmp_path, "failure") == "0", done.stderr


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=slow)])
def test_a_head_ends_by_the_token(mpi, built, tmp_path):  # noqa: F811
    """The checkpoint that it was asked for before is completed, and is there for the next start."""
    launch.need(mpi)
    program = launch.compiled("many", mpi, built)
    launch.configure(tmp_path, node_size=2, group_size=2, head=1, inline_L2=0, inline_L3=0, inline_L4=0)
    words = launch.command(mpi, 4, program, "token", 3)
    launch.run(tmp_path, *words)
    assert launch.setting(tmp_path, "failure") == "1" and launch.taken(tmp_path) == 1
    launch.run(tmp_path, *words)
    assert launch.setting(tmp_path, "failure") == "0"


def test_get_config(built, tmp_path):  # noqa: F811
    launch.need("openmpi")
    program = launch.compiled("many", "openmpi", built)
    launch.configure(tmp_path, group_size=2, ckpt_L2=9, inline_L3=0, block_size=512)
    done = launch.run(tmp_path, *launch.command("openmpi", 2, program, "config"))
    assert done.stdout == f"{512 << 10} 1 2 2 9 ./Local 0\n"


@pytest.mark.parametrize("ranks, node_size, group_size, lost", [
    (6, 2, 3, [1]), pytest.param(2, 1, 2, [1], marks=slow), pytest.param(3, 1, 3, [0], marks=slow),
    pytest.param(5, 1, 5, [1, 4], marks=slow), pytest.param(8, 2, 4, [0, 2], marks=slow),
    pytest.param(12, 1, 4, [0, 2, 5, 7], marks=slow), pytest.param(16, 1, 16, [1, 3, 8], marks=slow),
    pytest.param(16, 4, 4, [1, 3], marks=slow), pytest.param(16, 2, 2, [0, 3, 5, 6], marks=slow),
])
def test_numbers_of_ranks(ranks, node_size, group_size, lost, built, tmp_path):  # noqa: F811
    """All levels in turn; what is lost then, every level but the first survives."""
    import shutil

    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
        launch.configure(folder, node_size=node_size, group_size=group_size)
    first = launch.run(whole, *launch.command("openmpi", ranks, program, 24, 0))
    launch.killed(broken, launch.command("openmpi", ranks, program, 1_000_000, 0, tracked=True), program.name,
                  lambda: launch.taken(broken) >= 3, stops=6)
    for node in lost:
        shutil.rmtree(broken / "Local" / f"node{node}")
    done = launch.run(broken, *launch.command("openmpi", ranks, program, 24, 0, tracked=True))
    assert "resumed at step" in done.stderr
    assert done.stdout == first.stdout and content(broken) == content(whole)


MANUAL = """head                = {head}
node_size           = 2
ckpt_dir            = ./Local
{glbl}            = ./Global
meta_dir            = ./Meta
ckpt_L1             = {intervals[0]}
ckpt_L2             = {intervals[1]}
ckpt_L3             = {intervals[2]}
ckpt_L4             = {intervals[3]}
inline_L2           = {inline[0]}
inline_L3           = {inline[1]}
inline_L4           = {inline[2]}
keep_last_ckpt     = {keep}
group_size          = 2
max_sync_intv       = 0
ckpt_io             = {io}
verbosity           = 2
failure             = 0
exec_id             = NULL
block_size          = 1024
transfer_size       = 16
mpi_tag             = 2612
lustre_stripping_unit = 4194304
lustre_stripping_factor = -1
lustre_stripping_offset = -1
local_test          = 1
"""


@pytest.mark.in_turn("intervals", 2)
@pytest.mark.parametrize("head, inline, intervals, keep, io, glbl", [
    (0, "111", (3, 5, 7, 11), 0, 1, "glbl_dir"), (1, "000", (3, 5, 7, 11), 0, 1, "glbl_dir"),
    (1, "100", (3, 5, 7, 11), 0, 1, "glbl_dir"), pytest.param(1, "111", (3, 5, 7, 11), 0, 1, "glbl_dir", marks=slow),
    (0, "111", (0, 5, 0, 0), 0, 1, "glbl_dir"), (0, "111", (3, 5, 7, 11), 1, 1, "gbl_dir"),
    (0, "111", (3, 5, 7, 11), 0, 2, "gbl_dir"),
])
def test_the_manuals_configurations(head, inline, intervals, keep, io, glbl, built, tmp_path):  # noqa: F811
    """As printed, without sections, in folders of the test and in groups of two; all levels in turn. With a head, some
    levels may still be the processes' own work, as the manual says."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    text = MANUAL.format(head=head, intervals=intervals, inline=inline, keep=keep, io=io, glbl=glbl)
    (tmp_path / "config.fti").write_text(text)
    launch.run(tmp_path, *launch.command("openmpi", 4, program, 12, 4 if keep else 0))
    assert launch.setting(tmp_path, "failure") == ("2" if keep else "0")
    if keep:                               # the job continues from the checkpoint that was kept
        done = launch.run(tmp_path, *launch.command("openmpi", 4, program, 24, 4))
        assert "resumed at step 12" in done.stderr
    assert launch.setting(tmp_path, "exec_id") != "NULL"


def test_the_archive_of_level_4(built, tmp_path):  # noqa: F811
    """keep_l4_ckpt: when a program has ended well, its last checkpoint of level 4 lies in the archive."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path, node_size=1, group_size=2, keep_l4_ckpt=1)
    launch.run(tmp_path, *launch.command("openmpi", 2, program, 12, 4))
    assert launch.setting(tmp_path, "failure") == "0"
    kept = sorted(path.name for path in (tmp_path / "Global").glob("*/l4_archive/*/*"))
    assert "Ckpt12-Rank0.fti" in kept and "Ckpt12-Rank1.fti" in kept
    assert not (tmp_path / "Local" / "node0").exists()


@slow
@pytest.mark.timeout(3000)
def test_more_than_four_gibibytes_in_one_variable(tmp_path):
    """One process, 4 GiB and a little: offsets and counts beyond 32 bits, at level 4, whole and as an increment."""
    numpy = pytest.importorskip("numpy")
    from metamori.levels import Levels

    def counted(array, but=()):
        """Whether every number is its own place, but for some."""
        wrong = []
        for start in range(0, len(array), 1 << 24):
            part = array[start:start + (1 << 24)]
            wrong += (numpy.flatnonzero(part != numpy.arange(start, start + len(part))) + start).tolist()
        return wrong == sorted(but)

    folders = {f"{each}_dir": tmp_path for each in ("ckpt", "glbl", "meta")}
    launch.configure(tmp_path, group_size=1, **folders)
    data = numpy.arange((4 << 27) + 12345, dtype=numpy.int64)
    levels = Levels(str(tmp_path / "config.fti"))
    levels.protect("data", data)
    levels.checkpoint(4)
    data[-1], data[3 << 27] = 7, 8
    assert levels.checkpoint(4) == 2
    data[:] = 0
    assert levels.recover(1) == 1
    assert counted(data)
    assert levels.recover(2) == 2
    assert counted(data, [3 << 27, len(data) - 1]) and data[-1] == 7 and data[3 << 27] == 8
    levels.finish()
