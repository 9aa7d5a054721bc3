"""What a run under Slurm has to know: that its job was started again, and how to have it queued again."""

from __future__ import annotations

import os
from collections.abc import Mapping

from metamori.errors import MetamoriError, Usage

PATIENCE_S = 120


def job(environ: Mapping[str, str] = os.environ) -> str:
    """The job's number. Usage outside of a job, or where there is no scontrol."""
    import shutil

    number = environ.get("SLURM_JOB_ID", "")
    if not number:
        raise Usage("--requeue is for a job of Slurm, and SLURM_JOB_ID is not set; in a loop of your own use --resume")
    if shutil.which("scontrol") is None:
        raise Usage("--requeue needs the command scontrol, which is not in PATH here")
    return number


def was_restarted() -> bool:
    """SLURM_RESTART_COUNT is not there in a job's first run."""
    return os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")


def is_running(number: str) -> bool:
    """Not being cancelled, nor at its time limit; in the grace time of a preemption a job still counts as running.
    MetamoriError when the controller does not say."""
    return "JobState=RUNNING" in _asked(number, "show", "job", "-o", number).split()


def requeue(number: str) -> None:
    """Ask the controller; it ends the job then. MetamoriError when it refuses."""
    _asked(number, "requeue", number)


def _asked(number: str, *words: str) -> str:
    import subprocess  # not for every run

    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=PATIENCE_S,
                              stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MetamoriError(f"job {number} was not requeued: {error}") from error
    if done.returncode:
        raise MetamoriError(f"job {number} was not requeued: {done.stderr.strip() or done.returncode}")
    return done.stdout
