"""What a run passes through arrives unchanged: status, signals, streams, arguments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from lab import PATIENCE, Lab, wait_until


@pytest.mark.parametrize("status", [0, 1, 3, 125, 126, 127, 255])
def test_exit_status(lab: Lab, status: int) -> None:
    done = lab.run(["sh", "-c", f"exit {status}"])
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGSEGV", "SIGKILL", "SIGABRT"])
def test_death_by_signal(lab: Lab, name: str) -> None:
    number = getattr(signal, name)
    done = lab.run(["sh", "-c", f"echo before > file; kill -{number} $$"])
    assert done.returncode == 128 + number
    assert list(lab.messages().values())[-1] == f"killed by {name}"
    assert (lab.work / "file").read_text() == "before\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_are_passed_on(lab: Lab, name: str) -> None:
    script = f"trap 'echo got > got; exit 9' {name[3:]}; echo ready > ready; while :; do sleep 0.05; done"
    heard = ["env", f"--default-signal={name[3:]}"]   # under nohup, or behind a script, some are ignored
    process = subprocess.Popen([*heard, *lab.argv("run"), "--", "sh", "-c", script], cwd=lab.work, env=lab.env)
    try:
        wait_until((lab.work / "ready").exists, "the script")
        process.send_signal(getattr(signal, name))
        assert process.wait(PATIENCE) == 9
    finally:
        process.kill()
    assert (lab.work / "got").exists()


def test_streams_pass_through(lab: Lab) -> None:
    data = os.urandom(300_000)
    done = lab.run(["sh", "-c", "cat; echo to stderr >&2"], stdin=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"to stderr\n")


def test_arguments_environment_and_folder_pass_through(lab: Lab) -> None:
    words = ["a b", "", "*", "--store", "ö", "-x"]
    script = 'import os,sys,json; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["MINE"]]))'
    done = lab.run(["/usr/bin/python3", "-c", script, *words], env={"MINE": "kept"})
    assert json.loads(done.stdout) == [words, str(lab.work), "kept"]


def test_store_is_private(lab: Lab) -> None:
    """0700 and 0600, whatever the umask."""
    subprocess.run([*lab.argv("run"), "--", "touch", "file"], cwd=lab.work, env=lab.env, check=True, umask=0)
    lab.verb("checkpoint", code=15)
    for where, _, names in os.walk(lab.store):
        assert Path(where).stat().st_mode & 0o77 == 0, where
        for name in names:
            assert Path(where, name).lstat().st_mode & 0o77 == 0, name


def test_default_store_and_environment(lab: Lab, tmp_path: Path) -> None:
    """`./.metamori` where `run` was called; METAMORI_STORE names another; --store wins."""
    base = [*lab.argv("run")[:4], "--"]
    base = [word for word in base if word not in ("--store", str(lab.store))]
    subprocess.run([*base, "sh", "-c", "cd / && true"], cwd=lab.work, env=lab.env, check=True)
    assert (lab.work / ".metamori").is_dir()
    other = tmp_path / "other"
    env = lab.env | {"METAMORI_STORE": str(other)}
    subprocess.run([*base, "touch", "x"], cwd=lab.work, env=env, check=True)
    assert other.is_dir()
