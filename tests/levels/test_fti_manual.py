"""The manual's examples, compiled as printed, with real ranks, killed and resumed."""

from __future__ import annotations

from pathlib import Path

import launch
import pytest

MPIS = ["openmpi", "mpich"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.mark.in_turn("name")
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("name", ["manual_checkpoint", "manual_snapshot"])
def test_c(name, mpi, built, tmp_path):
    launch.need(mpi)
    program = launch.compiled(name, mpi, built)
    launch.configure(tmp_path)
    done = launch.run(tmp_path, *launch.command(mpi, 4, program))
    assert done.stderr == "" and launch.setting(tmp_path, "failure") == "0"
    assert launch.setting(tmp_path, "exec_id") != "NULL"


@pytest.mark.in_turn("name")
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("name", ["manual_realloc", "manual_realloc_derived"])
def test_fortran_grows_an_array_dies_and_is_resumed(name, mpi, built, tmp_path):
    launch.need(mpi)
    if not (launch.ROOT / "metamori" / "libmetamori_fti_f90.so").exists():
        pytest.skip("the Fortran module is not built: gfortran is missing")
    program = launch.compiled(name, mpi, built)
    launch.configure(tmp_path, group_size=2)
    launch.run(tmp_path, *launch.command(mpi, 2, program), well=False)
    assert launch.setting(tmp_path, "failure") == "1" and launch.taken(tmp_path) == 2
    done = launch.run(tmp_path, *launch.command(mpi, 2, program))
    assert "metamori: FTI" not in done.stderr and launch.setting(tmp_path, "failure") == "0"


def test_staging(built, tmp_path):
    launch.need("openmpi")
    program = launch.compiled("manual_sendfile", "openmpi", built)
    launch.configure(tmp_path, group_size=2, enable_staging=1)
    done = launch.run(tmp_path, *launch.command("openmpi", 2, program))
    assert done.stdout.count("succeed") == 2 and "FAILED" not in done.stdout
    assert [(tmp_path / f"testfile-{rank}").stat().st_size for rank in range(2)] == [1 << 20] * 2
