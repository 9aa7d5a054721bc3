"""Jobs of a real Slurm that are queued again end with the files of a job that was not. Their scripts are examples,
told of in docs/how-to/slurm.md, whose loop and unit tests/packaging/test_pages.py runs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import launch
import pytest
from cluster import Cluster, missing, wait_for

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "slurm"
pytestmark = pytest.mark.slow
STEPS = 40

# Knows its step by heart only; appends to a log, overwrites a grid, prints.
BY_HEART = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    FILE *log = fopen("log", "a"), *grid = fopen("grid", "w+");
    for (int step = 1; step <= STEPS; step++) {
        fprintf(log, "step %d\\n", step);
        fflush(log);
        fseek(grid, step % 7 * 4096L, SEEK_SET);
        fprintf(grid, "step %d here\\n", step);
        fflush(grid);
        printf("step %d printed\\n", step);
        fflush(stdout);
        usleep(150000);
    }
    fprintf(log, "done\\n");
    return 0;
}
"""

# Starts again from a file of its own; says when it has written it.
BY_FILE = f"""#!/bin/sh
n=$(cat state 2>/dev/null || echo 0)
while [ "$n" -lt 16 ]; do
    n=$((n + 1))
    echo "step $n" >> log
    echo "step $n printed"
    sleep 0.2
    [ $((n % 4)) -ne 0 ] || {{ echo $n > state; {sys.executable} -m metamori checkpoint -m restart > /dev/null; }}
done
echo done >> log
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if missing():
        pytest.skip(f"not installed: {missing()} (apt-get install slurmctld slurmd slurm-client munge)")
    # its own short folder: the path of a socket has at most 107 characters
    made = Cluster(tmp_path_factory.mktemp("s"))
    yield made
    made.down()


@pytest.fixture
def heart(tmp_path: Path) -> Path:
    source = tmp_path / "heart.c"
    source.write_text(BY_HEART)
    subprocess.run(["gcc", "-O1", f"-DSTEPS={STEPS}", str(source), "-o", str(tmp_path / "heart")], check=True)
    return tmp_path / "heart"


def submit(cluster: Cluster, script: str, folder: Path, program: Path | str, *options: str, **variables: str) -> str:
    return cluster.ask("sbatch", "--parsable", "--output=out.%j", *options, str(EXAMPLES / script), cwd=folder,
                       PROGRAM=str(program), **variables).strip()


def requeue_when(cluster: Cluster, job: str, ready) -> None:  # type: ignore[no-untyped-def]
    """The signal that --signal=B:USR1 would bring, as soon as the job has got somewhere; until it runs again."""
    wait_for(lambda: cluster.is_running(job) and ready(), f"job {job} to get somewhere")
    count = restarts(cluster, job)
    cluster.ask("scancel", "--batch", "--signal=USR1", job)
    runs_again(cluster, job, count + 1)


def runs_again(cluster: Cluster, job: str, count: int) -> None:
    wait_for(lambda: restarts(cluster, job) == count, f"job {job} to be queued again")
    wait_for(lambda: cluster.is_over(job) or cluster.is_running(job), f"job {job} to run again")


def restarts(cluster: Cluster, job: str) -> int:
    return int((cluster.field(job, "Restarts") or ["0"])[0])


def finished(cluster: Cluster, job: str) -> None:
    wait_for(lambda: cluster.is_over(job), f"job {job} to end", 240)


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def printed(path: Path) -> list[str]:
    """The program's own lines: Slurm and Metamori write to the job's output too."""
    return [line for line in path.read_text().splitlines() if line.endswith("printed")]


def test_a_program_that_knows_nothing_is_requeued_twice(cluster: Cluster, tmp_path: Path, heart: Path) -> None:
    native, work = tmp_path / "native", tmp_path / "work"
    native.mkdir()
    work.mkdir()
    job = submit(cluster, "serial.sbatch", work, heart)
    requeue_when(cluster, job, lambda: lines(work / "log") >= 5)
    requeue_when(cluster, job, lambda: lines(work / "log") >= 15)
    said = subprocess.run([heart], cwd=native, capture_output=True, text=True, check=True)
    finished(cluster, job)
    out = work / f"out.{job}"
    for name in ("log", "grid"):
        assert (work / name).read_bytes() == (native / name).read_bytes(), out.read_text()
    assert printed(out) == said.stdout.splitlines(), out.read_text()
    assert out.read_text().count("continuing from checkpoint") == 2


def test_a_program_that_is_preempted_goes_on_in_its_memory(cluster: Cluster, tmp_path: Path, heart: Path) -> None:
    """By a job of another partition, with a grace time: SIGTERM waits for the checkpoint; the job is queued again."""
    native, work = tmp_path / "native", tmp_path / "work"
    native.mkdir()
    work.mkdir()
    job = submit(cluster, "preempted.sbatch", work, heart, "--partition=scavenge", "--exclusive")
    wait_for(lambda: cluster.is_running(job) and lines(work / "log") >= 5, f"job {job} to get somewhere")
    other = cluster.ask("sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap=sleep 1", cwd=work).strip()
    finished(cluster, other)
    runs_again(cluster, job, 1)
    said = subprocess.run([heart], cwd=native, capture_output=True, text=True, check=True)
    finished(cluster, job)
    out = work / f"step.{job}.0"
    for name in ("log", "grid"):
        assert (work / name).read_bytes() == (native / name).read_bytes(), out.read_text()
    assert printed(out) == said.stdout.splitlines(), out.read_text()
    command = [sys.executable, "-m", "metamori", "log", "--json", "--store", str(work / f"checkpoints.{job}")]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["checkpoints"]
    parent = next(each for each in found if each["index"] == found[-1]["parent"])
    assert parent["memory"] > 0 and parent["message"] == "checkpoint", found      # what the second start began with


def test_one_that_is_cancelled_is_not_queued_again(cluster: Cluster, tmp_path: Path, heart: Path) -> None:
    """SIGTERM comes then, too. It can be continued by hand."""
    job = submit(cluster, "preempted.sbatch", tmp_path, heart)
    wait_for(lambda: cluster.is_running(job) and lines(tmp_path / "log") >= 5, f"job {job} to get somewhere")
    cluster.ask("scancel", job)
    finished(cluster, job)
    assert cluster.field(job, "JobState") == ["CANCELLED"] and restarts(cluster, job) == 0
    store = tmp_path / f"checkpoints.{job}"
    again = [sys.executable, "-m", "metamori", "restart", "--store", str(store)]
    done = subprocess.run(again, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and (tmp_path / "log").read_text().endswith(f"step {STEPS}\ndone\n"), done


def test_a_program_with_restart_files_goes_back_to_where_it_said(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(BY_FILE)
    program.chmod(0o755)
    job = submit(cluster, "restart-files.sbatch", tmp_path, program)
    requeue_when(cluster, job, lambda: lines(tmp_path / "log") >= 6)
    requeue_when(cluster, job, lambda: lines(tmp_path / "log") >= 10)
    finished(cluster, job)
    out = tmp_path / f"out.{job}"
    said = (tmp_path / "log").read_text().split("\n")
    assert said == [*(f"step {n}" for n in range(1, 17)), "done", ""], out.read_text()
    assert printed(out) == [f"step {n} printed" for n in range(1, 17)]


def test_an_array(cluster: Cluster, tmp_path: Path, heart: Path) -> None:
    job = submit(cluster, "array.sbatch", tmp_path, heart)
    logs = [tmp_path / f"task.{task}" / "log" for task in (0, 1)]
    wait_for(lambda: all(lines(log) >= 5 for log in logs), "both tasks to get somewhere")
    for task in (0, 1):
        cluster.ask("scancel", "--batch", "--signal=USR1", f"{job}_{task}")
    wait_for(lambda: all((log.parent / ".metamori").exists() and restarts(cluster, f"{job}_{task}") == 1
                         for task, log in enumerate(logs)), "both tasks to be queued again")
    for task in (0, 1):
        cluster.soon(f"{job}_{task}")
    finished(cluster, job)
    for log in logs:
        assert log.read_text().split("\n") == [*(f"step {n}" for n in range(1, STEPS + 1)), "done", ""]


def test_preemption_by_term(cluster: Cluster, tmp_path: Path, heart: Path) -> None:
    """Slurm sends SIGTERM to all processes of the job at once: the program is gone, the timer's checkpoints count."""
    script = tmp_path / "preempted.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --requeue\n#SBATCH --open-mode=append\n"
                      f"exec metamori run --memory --resume --stdio --every 500ms -- {heart}\n")
    job = cluster.ask("sbatch", "--parsable", f"--output={tmp_path}/out", str(script), cwd=tmp_path).strip()
    wait_for(lambda: lines(tmp_path / "log") >= 5 and len(list((tmp_path / ".metamori" / "checkpoints").iterdir())) > 4,
             "the job to get somewhere")
    cluster.ask("scontrol", "requeue", job)      # TERM, then KILL after KillWait, as a preemption does
    runs_again(cluster, job, 1)
    finished(cluster, job)
    assert (tmp_path / "log").read_text().split("\n") == [*(f"step {n}" for n in range(1, STEPS + 1)), "done", ""], \
        (tmp_path / "out").read_text()
    assert "continuing from checkpoint" in (tmp_path / "out").read_text()


def test_an_mpi_program_with_levels(cluster: Cluster, tmp_path: Path) -> None:
    """Its levels bring it back; the trajectory of each rank has every step once."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", tmp_path)
    native, work = tmp_path / "native", tmp_path / "work"
    for folder in (native, work):
        folder.mkdir()
        launch.configure(folder, group_size=2)
    arguments = (120, 1, 200000, 3)
    launch.run(native, *launch.command("openmpi", 2, program, *arguments))
    variables = {name: value for name, value in launch.ENVIRONMENT.items() if name.startswith("OMPI_")}
    job = submit(cluster, "mpi-levels.sbatch", work, shlex.join([str(program), *map(str, arguments)]),
                 MPIRUN="mpirun.openmpi", PYTHONPATH=str(ROOT), **variables)
    requeue_when(cluster, job, lambda: launch.taken(work) >= 3)
    finished(cluster, job)
    out = (work / f"out.{job}").read_text()
    assert "resumed at step" in out, out
    for rank in (0, 1):
        for name in (f"trajectory.{rank}", f"restart.{rank}"):
            assert (work / name).read_bytes() == (native / name).read_bytes(), (name, out)
