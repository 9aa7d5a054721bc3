"""fio and stress-ng judge every byte and answer themselves (`--verify`): natively and under Metamori alike."""

from __future__ import annotations

import re
import subprocess

import pytest
from beside import Trial, need

FIO = """
[global]
filename=data
size={size}
bs=4k
verify=crc32c
verify_fatal=1
group_reporting
[write]
rw=write
[over]
stonewall
rw=randwrite
bsrange=512-16k
bs_unaligned
end_fsync=1
[again]
stonewall
rw=randrw
rwmixread=30
norandommap
verify=0
[last]
stonewall
rw=randwrite
verify_backlog=64
"""
# what the kernel here does not allow, or what ends on its clock alone, has no place in a comparison
FILES = [
    "access", "chdir", "chmod", "chown", "copy-file", "dentry", "dir", "dnotify", "dup", "fallocate", "fcntl",
    "fiemap", "file-ioctl", "filename", "flock", "fsize", "fstat", "getdent", "handle", "hdd", "inotify", "io",
    "iomix", "lease", "locka", "lockf", "lockofd", "mknod", "open", "rename", "revio", "seek", "symlink",
    "sync-file", "touch", "utime", "xattr", "readahead", "sendfile",
]  # fmt: skip
QUICK = ["copy-file", "dup", "fallocate", "flock", "rename", "seek", "open", "utime"]
EVERY = [[], ["--isolate"], ["--every", "200ms"]]


def fio(trial: Trial, engine: str, size: str, *options: str) -> None:
    need("fio")
    job = trial.lab.folder / "job.fio"
    job.write_text(FIO.format(size=size))
    again = '"$@" || exit; until [ -e "$TAKEN" ]; do "$@" || exit; done'   # never through before a checkpoint
    command = ["bash", "-c", again, "again", "fio", f"--ioengine={engine}", "--minimal", str(job)]
    trial.natively(command)
    have = trial.under(command, *options, checkpoints=4)
    assert have.status == 0, have.out + have.err
    for _ in trial.at_three(have.taken):
        trial.verb("verify")


@pytest.mark.parametrize("engine", ["psync", "vsync"])
def test_fio_verifies(trial: Trial, engine: str) -> None:
    fio(trial, engine, "12m", "--every", "300ms")


@pytest.mark.slow
@pytest.mark.parametrize("options", EVERY, ids=" ".join)
@pytest.mark.parametrize("engine", ["sync", "psync", "vsync", "pvsync", "pvsync2"])
def test_fio_verifies_more(trial: Trial, engine: str, options: list[str]) -> None:
    fio(trial, engine, "128m", *options)


def stress(trial: Trial, what: str, operations: int, *options: str) -> None:
    need("stress-ng")
    command = [
        "stress-ng", f"--{what}", "2", f"--{what}-ops", str(operations), "--verify", "--timeout", "250", "--oomable",
        "--temp-path", ".", "--hdd-bytes", "16M", "--iomix-bytes", "16M", "--seek-size", "8M", "--fallocate-bytes",
        "16M", "--copy-file-bytes", "128M", "--revio-bytes", "4M", "--readahead-bytes", "16M",
        "--sync-file-bytes", "4M",
    ]  # fmt: skip
    native = subprocess.run(
        command, cwd=trial.native.work, env=trial.native.env, capture_output=True, text=True, check=False
    )
    have = trial.lab.run(command, *options, timeout=600)
    said = have.stderr.decode(errors="replace") + have.stdout.decode(errors="replace")
    assert have.returncode == native.returncode, said
    complaints = re.findall(r"(?:fail|error): .*", said)
    assert len(complaints) == len(re.findall(r"(?:fail|error): .*", native.stdout + native.stderr)), said
    assert trial.lab.state() == trial.native.state(), "what it leaves behind"
    trial.lab.verb("verify")


@pytest.mark.parametrize("what", QUICK)
def test_stressed(trial: Trial, what: str) -> None:
    stress(trial, what, 20, "--every", "200ms")


@pytest.mark.slow
@pytest.mark.parametrize("options", EVERY, ids=" ".join)
@pytest.mark.parametrize("what", FILES)
def test_stressed_more(trial: Trial, what: str, options: list[str]) -> None:
    stress(trial, what, 200, *options)
