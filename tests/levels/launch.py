"""Jobs of real MPI processes: how they are compiled, started, killed, and what their configuration is."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import built_once
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
METAMORI = [sys.executable, "-m", "metamori"]
LIMIT = 240
# Jobs that begin and end at once, in other tests, make and remove their common folder below the temporary one, and one
# that looks for it in between fails: each worker's jobs have a temporary folder of their own.
SESSIONS = tempfile.mkdtemp(prefix="mpi-")
# Ranks that are killed leave the memory that they shared; it lies where no run tracks files.
SHARED = tempfile.mkdtemp(prefix="mpi-", dir="/dev/shm")
for each in (SESSIONS, SHARED):
    atexit.register(shutil.rmtree, each, ignore_errors=True)
ENVIRONMENT = {**os.environ, "TMPDIR": SESSIONS, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
               "OMPI_MCA_btl_vader_backing_directory": SHARED, "PYTHONPATH": str(ROOT)}


def need(mpi: str) -> None:
    """Skip, with a message, without this MPI or the levels' packages."""
    if shutil.which(f"mpirun.{mpi}") is None or shutil.which(f"mpicc.{mpi}") is None:
        pytest.skip(f"{mpi} is not installed (tools/prepare installs it as root)")
    if not (ROOT / "metamori" / "libmetamori_fti.so").exists():
        pytest.skip("metamori/libmetamori_fti.so is not built: run `make build`")
    for package in ("numpy", "mpi4py", "xxhash", "pyeclib"):
        pytest.importorskip(package)


def flags(*words: str) -> list[str]:
    done = subprocess.run([*METAMORI, "config", "--fti", *words], capture_output=True, text=True, check=True,
                          env=ENVIRONMENT)
    return done.stdout.split()


def compiled(name: str, mpi: str, folder: Path, *more: str) -> Path:
    """A program of tests/levels/programs, built as its user would."""
    result = folder / f"{name}.{mpi}"
    if result.exists():
        return result
    source = next(PROGRAMS.glob(f"{name}.*"))
    if source.suffix == ".c":
        command = [f"mpicc.{mpi}", "-O1", "-Wall", *more, *flags("--cflags"), source, *flags("--libs"), "-lm"]
    else:
        command = [f"mpif90.{mpi}", "-O1", *flags("--cflags"), source, *flags("--fortran", "--libs")]
    built_once.build(command, result)
    return result


def configure(folder: Path, **keys: object) -> Path:
    """A config.fti; keys of other sections than [Basic] are found by name."""
    own = {"ftiff_version", "node_stores"}
    advanced = {"local_test", "block_size", "transfer_size", "fast_forward"}
    values = {"node_size": 1, "group_size": 4, "ckpt_dir": "./Local", "glbl_dir": "./Global", "meta_dir": "./Meta",
              "verbosity": 3, **keys}
    lines = ["[Basic]"] + [f"{key} = {value}" for key, value in values.items() if key not in advanced | own]
    lines += ["[Restart]", "failure = 0", "exec_id = NULL", "[Advanced]"]
    lines += [f"{key} = {value}" for key, value in values.items() if key in advanced]
    lines += ["[Metamori]"] + [f"{key} = {value}" for key, value in values.items() if key in own]
    path = folder / "config.fti"
    path.write_text("\n".join(lines) + "\n")
    return path


def setting(folder: Path, key: str) -> str:
    """What the configuration says now."""
    for line in (folder / "config.fti").read_text().splitlines():
        if line.partition("=")[0].strip() == key:
            return line.partition("=")[2].strip()
    raise KeyError(key)


def command(mpi: str, ranks: int, program: Path, *arguments: object, tracked: bool = False) -> list[str]:
    words = [f"mpirun.{mpi}", "-n", str(ranks), str(program), *map(str, arguments)]
    return [*METAMORI, "run", "--", *words] if tracked else words


def run(folder: Path, *words: str, well: bool = True) -> subprocess.CompletedProcess[str]:
    """A job, to its end."""
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT)
    if well:
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done


def processes(name: str, folder: Path) -> list[int]:
    """Pids of the job's own processes: those with this program, if one is asked for, and working folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder) \
                    and (not name or Path(os.readlink(entry / "exe")).name.startswith(name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _has_ended(pid: int) -> bool:
    """One that is about to end has no program and no folder any more, and still its files and their locks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def killed(folder: Path, words: list[str], name: str, ready, whole: bool = True,  # type: ignore[no-untyped-def]
           stops: int = 0) -> None:
    """Start a job and kill it when `ready()`: everything at once, or its ranks only.

    stops: checkpoints after which a stencil waits to be killed, so that it is never too far when that comes late."""
    environment = {**ENVIRONMENT, "STENCIL_STOPS": str(stops)}
    with open(folder / "out.killed", "w") as out:
        job = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True)
        limit = time.monotonic() + LIMIT
        try:
            while not ready() and job.poll() is None:
                assert time.monotonic() < limit, (folder / "out.killed").read_text()[-3000:]
                time.sleep(0.01)
            assert job.poll() is None, (folder / "out.killed").read_text()[-3000:]
            all_of_it, own = processes("", folder), processes(name, folder)
            for pid in ([job.pid] if whole else []) + (processes("mpirun", folder) + processes("mpiexec", folder)
                                                       + processes("orterun", folder) if whole else []) + own:
                _kill(pid)
            job.wait(LIMIT)
        finally:
            job.poll() is None and os.killpg(job.pid, signal.SIGKILL)
            for pid in processes(name, folder):
                _kill(pid)
    limit = time.monotonic() + LIMIT
    # helpers and supervisors too: until they have ended the run is alive
    while left := processes("", folder) + [pid for pid in all_of_it if not _has_ended(pid)]:
        assert time.monotonic() < limit, f"still there: {left}"
        time.sleep(0.02)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def taken(folder: Path) -> int:
    """How many checkpoints exist."""
    return len(list(folder.glob("Meta/*/ckpt*.json")))
