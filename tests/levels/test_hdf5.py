"""HDF5 checkpoints: what the program described is what h5dump shows, and what comes back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import launch
import pytest


@pytest.mark.parametrize("today", [False, True])
def test_structures_groups_and_names(today, tmp_path):
    launch.need("openmpi")
    pytest.importorskip("h5py")
    program = launch.compiled("datasets", "openmpi", tmp_path, *(["-DTODAY"] if today else []))
    launch.configure(tmp_path, group_size=1, ckpt_io=5)
    launch.run(tmp_path, *launch.command("openmpi", 1, program), well=False)
    if shutil.which("h5dump") is None:
        pytest.skip("h5dump is not installed (hdf5-tools; tools/prepare installs it as root)")
    file = next(tmp_path.glob("Local/node0/*/l1/i1/Ckpt7-Rank0.fti"))
    shown = subprocess.run(["h5dump", str(file)], capture_output=True, text=True, check=True).stdout
    words = " ".join(shown.split())
    assert 'GROUP "core" { DATASET "cells" { DATATYPE "/cell"' in words and 'GROUP "lattice" { DATATYPE "atom"' in words
    assert 'DATATYPE "atom" H5T_COMPOUND { H5T_STD_I32LE "species"; H5T_ARRAY { [3] H5T_IEEE_F64LE }' in words
    assert 'DATASPACE SIMPLE { ( 5, 4 ) / ( 5, 4 ) }' in words and 'H5T_ARRAY { [2][3] H5T_IEEE_F32LE } "grid"' in words
    assert 'DATASET "temperature" { DATATYPE H5T_IEEE_F64LE DATASPACE SIMPLE { ( 6 ) / ( 6 ) } DATA { (0): 0, 1.5, 3,' \
        in words
    assert 'DATATYPE H5T_OPAQUE' in words and 'DATASET "Dataset_2"' in words
    done = launch.run(tmp_path, *launch.command("openmpi", 1, program))
    assert done.stdout == "19 19.25 Fe 1019 19 7.5 3.25 not described 0\n"


def test_a_program_with_its_own_hdf5_is_told(tmp_path):
    launch.need("openmpi")
    pytest.importorskip("h5py")
    libraries = list(Path("/usr/lib").glob("*/libhdf5_serial.so"))
    if not libraries or not (Path(h5py_folder()).parent / "h5py.libs").is_dir():
        pytest.skip("libhdf5-dev is not installed, or h5py was built for it")
    program = launch.compiled("datasets", "openmpi", tmp_path, "-Wl,--no-as-needed", str(libraries[0]))
    launch.configure(tmp_path, group_size=1, ckpt_io=5)
    done = launch.run(tmp_path, *launch.command("openmpi", 1, program), well=False)
    assert "this program has an HDF5 library of its own" in done.stderr and done.returncode == 4


def h5py_folder() -> str:
    import h5py

    return str(Path(h5py.__file__).parent)
