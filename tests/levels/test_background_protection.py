"""What a checkpoint's second half is done by: the processes themselves, heads, threads; and the formats of one file."""

from __future__ import annotations

import launch
import pytest
from test_resume import built, reference, story  # noqa: F401  fixtures


@pytest.mark.parametrize("level, lost", [
    pytest.param(2, [0, 2], marks=pytest.mark.slow), (3, [1, 2]),
    pytest.param(4, [0, 1, 2, 3], marks=pytest.mark.slow)])
def test_heads(level, lost, built, reference, tmp_path):  # noqa: F811
    """Of eight processes four are heads; the other four find the same as without."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path, node_size=2, head=1, inline_L2=0, inline_L3=0, inline_L4=0)
    assert story(tmp_path, program, "openmpi", level, lost, 3, True, 20 + level, ranks=8) == reference


@pytest.mark.in_turn("level", 2)
@pytest.mark.parametrize("level, lost, threads", [
    (2, [1, 3], 3), pytest.param(3, [0, 1], 3, marks=pytest.mark.slow),
    pytest.param(4, [0, 1, 2, 3], 3, marks=pytest.mark.slow), (4, [0, 1, 2, 3], 0)])
def test_threads(level, lost, threads, built, reference, tmp_path, monkeypatch):  # noqa: F811
    """MPI_THREAD_MULTIPLE, and a program that calls MPI_Init: level 4 is a thread's work all the same."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    monkeypatch.setitem(launch.ENVIRONMENT, "OMPI_MPI_THREAD_LEVEL", str(threads))
    launch.configure(tmp_path, inline_L2=0, inline_L3=0, inline_L4=0)
    assert story(tmp_path, program, "openmpi", level, lost, 3, True, 30 + level) == reference


@pytest.mark.in_turn("form", 2)
@pytest.mark.parametrize("form, level, lost", [
    (2, 4, [0, 1, 2, 3]), (5, 3, [0, 1]), pytest.param(5, 4, [0, 1, 2, 3], marks=pytest.mark.slow)])
def test_formats(form, level, lost, built, reference, tmp_path):  # noqa: F811
    """MPI-IO: one file of all ranks at level 4. HDF5: one per rank, here seen by h5py."""
    launch.need("openmpi")
    pytest.importorskip("h5py")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path, ckpt_io=form)
    assert story(tmp_path, program, "openmpi", level, lost, 3, True, 40 + form + level) == reference


def test_a_copy_that_fails_later_is_said_and_leaves_the_checkpoint_before_it(tmp_path, capfd):
    numpy = pytest.importorskip("numpy")
    from metamori.levels import Levels

    folders = {f"{each}_dir": tmp_path for each in ("ckpt", "glbl", "meta")}
    launch.configure(tmp_path, group_size=1, inline_L4=0, **folders)
    levels, data = Levels(str(tmp_path / "config.fti")), numpy.arange(1000)
    levels.protect("data", data)
    first = levels.checkpoint(4)
    data += 1
    levels.checkpoint(1)                   # what waited is complete
    folder = tmp_path / levels.crew.exec_id / "l4"
    folder.rename(folder.with_name("aside"))
    folder.write_text("no folder")
    lost = levels.checkpoint(4)
    levels.checkpoint(1)
    data += 1
    folder.unlink()
    folder.with_name("aside").rename(folder)
    third = levels.checkpoint(4)
    levels.finish()
    assert "a checkpoint of level 4 was not completed" in capfd.readouterr().err
    assert lost not in levels.records and {first, third} <= set(levels.records)
    assert levels.records[third].needs == (third,)


def test_killed_before_the_first_checkpoint_it_begins_again(tmp_path, capfd):
    """The configuration says so before a checkpoint exists: none that exists is ever overlooked."""
    numpy = pytest.importorskip("numpy")
    from metamori.levels import Levels
    from metamori.levels.protect import checkpoint

    folders = {f"{each}_dir": tmp_path for each in ("ckpt", "glbl", "meta")}
    launch.configure(tmp_path, group_size=1, **folders)
    levels = Levels(str(tmp_path / "config.fti"))
    levels.protect("data", numpy.arange(1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint.record, "write_record", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            levels.checkpoint(1)
    assert launch.setting(tmp_path, "failure") == "1" and launch.taken(tmp_path) == 0
    again = Levels(str(tmp_path / "config.fti"))
    assert again.status == 0 and "there was no checkpoint yet" in capfd.readouterr().err
    again.protect("data", numpy.arange(1000))
    assert again.checkpoint(1) == 1
    assert Levels(str(tmp_path / "config.fti")).status == 1
