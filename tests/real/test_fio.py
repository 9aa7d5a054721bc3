"""fio, unmodified, by all its ways to reach a file: it verifies what it reads, and every checkpoint comes back."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys

import pytest
from lab import Lab

pytestmark = pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
ENGINES = ["psync", "vsync", "mmap", "libaio", "posixaio", "io_uring"]
SIZE = 2 << 20


def fio(engine: str, direct: int, seed: int) -> list[str]:
    return ["fio", "--name=job", "--filename=data", "--rw=randrw", "--bs=4k", f"--size={SIZE}", "--io_size=1m",
            "--fallocate=none", f"--ioengine={engine}", f"--direct={direct}", "--iodepth=8", "--verify=crc32c",
            "--verify_fatal=1", f"--randseed={seed}", "--output=../fio.said"]


@pytest.mark.in_turn("engine")
@pytest.mark.parametrize("direct", [0, 1], ids=["cached", "direct"])
@pytest.mark.parametrize("engine", ENGINES)
def test_engine(lab: Lab, installed: None, engine: str, direct: int) -> None:
    if engine == "mmap" and direct:
        pytest.skip("a mapping is never direct")
    old = os.urandom(SIZE)
    (lab.folder / "data").write_bytes(old)
    probe = subprocess.run(fio(engine, direct, 1), cwd=lab.folder, capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"fio cannot use {engine} here: {probe.stdout.decode()[-200:]}")
    (lab.work / "data").write_bytes(old)
    checkpoint = shlex.join([sys.executable, "-m", "metamori", "checkpoint", "--store", str(lab.store)])
    script = f"{checkpoint} >&2 && md5sum data"
    for seed in (1, 2, 3):
        script += f" && {shlex.join(fio(engine, direct, seed))} && {checkpoint} >&2 && md5sum data"
    done = lab.run(["sh", "-c", script])
    assert done.returncode == 0, done.stderr.decode()
    sums = done.stdout.decode().split()[::2]
    assert len({*sums}) == 4
    for index in (4, 2, 3, 1):
        lab.restore(index)
        assert hashlib.md5((lab.work / "data").read_bytes()).hexdigest() == sums[index - 1], f"checkpoint {index}"
    lab.restore(0)
    assert (lab.work / "data").read_bytes() == old
