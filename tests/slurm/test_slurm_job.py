"""`run --job` under a real Slurm of three nodes: processes on this machine, or machines of their own, which messages
reach by a network, and whose clocks and host names differ (docs/how-to/job.md)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import machines
import pytest
from cluster import Cluster, missing, wait_for
from ring import COUNT, RING, assert_one_instant
from test_slurm import finished, restarts, runs_again

pytest.importorskip("zmq")

ROOT = Path(__file__).resolve().parents[2]
METAMORI = f"{sys.executable} -m metamori"
pytestmark = pytest.mark.slow
STEPS = 150

SCRIPTS = {
    "srun run": "srun {metamori} run --job --requeue --every 1s --store .metamori -- {ring}",
    "run srun": "exec {metamori} run --job --requeue --every 1s --store .metamori -- srun {ring}",
    "mpirun run": "exec env {mpi} mpirun.openmpi --oversubscribe -n 3 "
                  "{metamori} run --job --requeue --every 1s --store .metamori -- {ring}",
}
ROOT_MPI = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
# nodes that are one machine have no names of their own, and mpirun reaches others by name
ALONE_MPI = f"{ROOT_MPI} OMPI_MCA_plm=isolated OMPI_MCA_ras=^slurm"


@pytest.fixture(scope="module", params=["one machine", "machines"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if missing():
        pytest.skip(f"not installed: {missing()} (apt-get install slurmctld slurmd slurm-client munge)")
    folder = tmp_path_factory.mktemp("s")
    with ExitStack() as stack:
        of_their_own = []
        if request.param == "machines":
            if why := machines.missing():
                pytest.skip(why)
            names = [f"n{each + 1}" for each in range(COUNT)]
            of_their_own = stack.enter_context(machines.machines(folder / "m", names))
        made = Cluster(folder / "slurm", COUNT, 8, of_their_own)
        stack.callback(made.down)
        yield made


def submit(cluster: Cluster, folder: Path, how: str) -> str:
    (folder / "ring.py").write_text(RING)
    ring = (f"sh -c 'exec {sys.executable} ring.py ${{PMIX_RANK:-${{OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}}}} {COUNT} "
            f"{STEPS} 0.01'")
    script = folder / "job.sbatch"
    script.write_text(f"""#!/bin/bash
#SBATCH --nodes={COUNT}
#SBATCH --ntasks={COUNT}
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=out
{SCRIPTS[how].format(metamori=METAMORI, ring=ring, mpi=ROOT_MPI if cluster.machines else ALONE_MPI)}
""")
    return cluster.ask("sbatch", "--parsable", str(script), cwd=folder, PYTHONPATH=str(ROOT)).strip()


def steps(work: Path) -> int:
    """That the last rank has done."""
    try:
        return int((work / "turn").read_bytes()[10 * (COUNT - 1):10 * COUNT] or 0)
    except FileNotFoundError:
        return 0


def indexes(work: Path) -> list[int]:
    done = subprocess.run([*METAMORI.split(), "log", "--json", "--store", work / ".metamori"], capture_output=True,
                          text=True, check=True)
    return [entry["index"] for entry in json.loads(done.stdout)["checkpoints"] if entry["index"]]


def requeued(cluster: Cluster, job: str, work: Path, after: int, *options: str) -> None:
    """As --signal would bring it about."""
    wait_for(lambda: cluster.is_running(job) and steps(work) >= after, f"job {job} to get to step {after}")
    count = restarts(cluster, job)
    cluster.ask("scancel", "--signal=USR1", *options, job)
    runs_again(cluster, job, count + 1)


def assert_all_back(work: Path, copies: Path) -> None:
    assert assert_one_instant(work, "the end") == [STEPS] * COUNT
    found = indexes(work)
    assert len(found) > 4
    for index in found:
        there = copies / str(index)
        subprocess.run([*METAMORI.split(), "restore", "--store", work / ".metamori", str(index), "--to", there],
                       check=True)
        assert_one_instant(there / "work", f"index {index}")
        shutil.rmtree(there)
    subprocess.run([*METAMORI.split(), "verify", "--store", work / ".metamori"], check=True)


@pytest.mark.parametrize("how", SCRIPTS)
def test_a_job_is_requeued_twice(cluster: Cluster, tmp_path: Path, how: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    job = submit(cluster, work, how)
    if "mpirun" in how and not shutil.which("mpirun.openmpi"):
        pytest.skip("openmpi is not installed (tools/prepare installs it as root)")
    options = () if how == "srun run" else ("--batch",)
    requeued(cluster, job, work, 20, *options)
    requeued(cluster, job, work, 60, *options)
    finished(cluster, job)
    out = (work / "out").read_text()
    assert out.count("continuing from checkpoint") == 2 and "is not tracked" not in out, out
    assert_all_back(work, tmp_path)


def test_a_node_dies_and_the_job_is_queued_again(cluster: Cluster, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    job = submit(cluster, work, "srun run")
    wait_for(lambda: cluster.is_running(job) and steps(work) >= 40, f"job {job} to get somewhere")
    cluster.kill_node("n2")
    wait_for(lambda: restarts(cluster, job) == 1, "the job to be queued again")
    cluster.start_node("n2")
    runs_again(cluster, job, 1)
    finished(cluster, job)
    assert "continuing from checkpoint" in (work / "out").read_text()
    assert_all_back(work, tmp_path)
