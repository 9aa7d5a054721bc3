"""LAMMPS and an MPI stencil on three machines of a Slurm, below one `metamori run --job` in the batch script: a
trajectory or log of each rank, and a file of all; queued again twice, a machine fails. They end with the files of a job
to which nothing happened, and each index has what was there at an instant of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import machines
import pytest
from cluster import Cluster, missing, wait_for
from ring import COUNT
from test_slurm import finished, restarts, runs_again
from test_slurm_job import METAMORI, ROOT, ROOT_MPI, indexes

pytest.importorskip("zmq")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    shutil.which("mpirun.openmpi") is None or shutil.which("mpicc.openmpi") is None,
    reason="openmpi is not installed (tools/prepare installs it as root)")]
MPIRUN = f"env {ROOT_MPI} OMPI_MCA_mpi_yield_when_idle=1 mpirun.openmpi --oversubscribe -n {COUNT}"
LAST = 1000

CREATE = """
units        lj
lattice      fcc 0.8442
region       box block 0 6 0 6 0 6
create_box   1 box
create_atoms 1 box
mass         1 1.0
velocity     all create 3.0 87287 loop geom
pair_style   lj/cut 2.5
pair_coeff   1 1 1.0 1.0 2.5
run          0
write_restart melt.restart.0
"""
SEGMENT = """
read_restart melt.restart.${from}
pair_style   lj/cut 2.5
pair_coeff   1 1 1.0 1.0 2.5
neighbor     0.3 bin
neigh_modify every 20 delay 0 check no
fix          1 all nve
dump         each all atom 20 each.%
dump_modify  each append yes
dump         one all atom 20 one
dump_modify  one append yes
restart      200 melt.restart.*
run          200
"""
LAMMPS = f"""#!/bin/sh -e
[ -e melt.restart.0 ] || {MPIRUN} lmp -log none -in create.in > screen
while from=$(ls melt.restart.* | sed 's/.*[.]//' | sort -n | tail -n 1) && [ $from -lt {LAST} ]; do
    {MPIRUN} lmp -log none -in segment.in -var from $from > screen
    [ -z "$SLURM_JOB_ID" ] || {METAMORI} checkpoint -m restart > /dev/null
done
rm screen
"""
# Each rank writes every third row of the grid, and its step into a log, at its own time.
STENCIL = r"""
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { ROWS = 21, WIDTH = 500, STEPS = 150 };
static double u[ROWS][WIDTH], next[ROWS][WIDTH];
int main(int argc, char **argv)
{
    int rank, size, done = 0, least;
    char name[20], line[20] = "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(name, sizeof name, "log.%d", rank);
    int log = open(name, O_RDWR | O_CREAT, 0644), grid = open("grid", O_RDWR | O_CREAT, 0644);
    while (read(log, line, 10) == 10)
        done = atoi(line);
    MPI_Allreduce(&done, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    lseek(log, 10 * least, SEEK_SET);
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < WIDTH; i++)
            u[row][i] = row * 7 + i % 13;
    for (int step = 1; step <= STEPS; step++) {
        for (int row = rank; row < ROWS; row += size)
            for (int i = 0; i < WIDTH; i++)
                next[row][i] = (u[(row + 1) % ROWS][i] + u[(row + ROWS - 1) % ROWS][i]
                                + u[row][(i + 1) % WIDTH]) / 3 + 1;
        for (int row = 0; row < ROWS; row++)
            MPI_Bcast(next[row], WIDTH, MPI_DOUBLE, row % size, MPI_COMM_WORLD);
        for (int row = 0; row < ROWS; row++)
            for (int i = 0; i < WIDTH; i++)
                u[row][i] = next[row][i];
        if (step <= least)             /* again, up to where the files are */
            continue;
        for (int row = rank; row < ROWS; row += size)
            if (pwrite(grid, u[row], sizeof u[row], sizeof u[row] * row) != sizeof u[row])
                MPI_Abort(MPI_COMM_WORLD, 3);
        snprintf(line, sizeof line, "%09d\n", step);
        if (write(log, line, 10) != 10)
            MPI_Abort(MPI_COMM_WORLD, 3);
        usleep(30000);
    }
    MPI_Finalize();
    return 0;
}
"""
ROWS, WIDTH, STEPS = 21, 500, 150


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := machines.missing() or missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("s")
    with ExitStack() as stack:
        names = [f"n{each + 1}" for each in range(COUNT)]
        made = Cluster(folder / "slurm", COUNT, 8, stack.enter_context(machines.machines(folder / "m", names)))
        stack.callback(made.down)
        yield made


def submit(cluster: Cluster, work: Path, program: str, options: str = "") -> str:
    script = work / "job.sbatch"
    script.write_text(f"""#!/bin/bash
#SBATCH --nodes={COUNT}
#SBATCH --ntasks={COUNT}
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=out
exec {METAMORI} run --job --requeue {options} --store .metamori -- {program}
""")
    return cluster.ask("sbatch", "--parsable", str(script), cwd=work, PYTHONPATH=str(ROOT)).strip()


def trouble(cluster: Cluster, job: str, work: Path, has_got_to) -> None:  # type: ignore[no-untyped-def]
    """Queued again at two points, and at a third a machine fails."""
    for number in range(3):
        wait_for(lambda number=number: cluster.is_running(job) and restarts(cluster, job) == number and
                 has_got_to(number), f"job {job} to get somewhere", 300)
        if number < 2:
            cluster.ask("scancel", "--batch", "--signal=USR1", job)
        else:
            cluster.kill_node("n3")
            wait_for(lambda: restarts(cluster, job) == 3 or cluster.is_over(job), "the job to be queued again")
            cluster.start_node("n3")
            wait_for(lambda: cluster.states() == ["idle"] * COUNT or restarts(cluster, job) == 3, "idle nodes")
            if restarts(cluster, job) < 3:     # mpirun gave up before Slurm had missed the node
                cluster.ask("scontrol", "requeue", job)
        runs_again(cluster, job, number + 1)
    finished(cluster, job)
    out = (work / "out").read_text()
    assert out.count("continuing from checkpoint") == 3 and "is not tracked" not in out and "are lost" not in out, out


def restored(work: Path, index: int) -> Path:
    there = work.parent / str(index)
    subprocess.run([*METAMORI.split(), "restore", "--store", work / ".metamori", str(index), "--to", there], check=True)
    return there / "work"


@pytest.mark.skipif(shutil.which("lmp") is None, reason="lmp is not installed: apt-get install lammps")
def test_lammps(cluster: Cluster, tmp_path: Path) -> None:
    native, work = tmp_path / "native", tmp_path / "work"
    for folder in (native, work):
        folder.mkdir()
        for name, text in (("create.in", CREATE), ("segment.in", SEGMENT), ("all.sh", LAMMPS)):
            (folder / name).write_text(text)
    subprocess.run(["sh", "all.sh"], cwd=native, check=True)
    job = submit(cluster, work, "sh all.sh", "--resume-at restart")
    trouble(cluster, job, work, lambda number: (work / f"melt.restart.{200 * number + 200}").exists() and indexes(work))
    names = ["one", *(f"each.{rank}" for rank in range(COUNT)), *(path.name for path in native.glob("melt.restart.*"))]
    whole = {name: (native / name).read_bytes() for name in names}
    for name in names:
        assert (work / name).read_bytes() == whole[name], name
    there = indexes(work)
    assert len(there) > 4
    for index in there:
        copy = restored(work, index)
        for name in names:
            content = (copy / name).read_bytes() if (copy / name).exists() else b""
            assert whole[name].startswith(content), (index, name)
    subprocess.run([*METAMORI.split(), "verify", "--store", work / ".metamori"], check=True)


def expected() -> list[list[bytes]]:
    """Each row of the grid, after each step."""
    import numpy

    u = numpy.add.outer(7.0 * numpy.arange(ROWS), numpy.arange(WIDTH) % 13)
    found = [[b""] * ROWS]
    for _ in range(STEPS):
        u = (numpy.roll(u, -1, 0) + numpy.roll(u, 1, 0) + numpy.roll(u, -1, 1)) / 3 + 1
        found.append([row.tobytes() for row in u])
    return found


def test_a_stencil(cluster: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "stencil.c").write_text(STENCIL)
    subprocess.run(["mpicc.openmpi", "-O1", tmp_path / "stencil.c", "-o", tmp_path / "stencil"], check=True)
    job = submit(cluster, work, f"{MPIRUN} {tmp_path}/stencil", "--every 1s")

    def steps(folder: Path, rank: int = 0) -> int:
        log = folder / f"log.{rank}"
        return log.stat().st_size // 10 if log.exists() else 0

    trouble(cluster, job, work, lambda number: steps(work) >= 30 * number + 30 and indexes(work))
    at = expected()
    assert (work / "grid").read_bytes() == b"".join(at[STEPS])
    found = indexes(work)
    assert len(found) > 4
    for index in found:
        copy = restored(work, index)
        done = [steps(copy, rank) for rank in range(COUNT)]
        assert max(done) - min(done) <= 1, (index, done)
        grid = (copy / "grid").read_bytes() if (copy / "grid").exists() else b""
        for row in range(ROWS):
            step, content = done[row % COUNT], grid[8 * WIDTH * row:8 * WIDTH * (row + 1)]
            may_be = [each[row] for each in at[step:step + 2]]         # it may be in the midst of the next
            assert content in may_be or (not step and not content.strip(b"\0")), (index, row, step)
        for rank, step in enumerate(done):
            log = (copy / f"log.{rank}").read_bytes() if step else b""
            assert log == b"".join(b"%09d\n" % each for each in range(1, step + 1)), (index, rank)
    subprocess.run([*METAMORI.split(), "verify", "--store", work / ".metamori"], check=True)
