"""The same on real file systems: ext4 and XFS on a loop device, the image copied in the middle of a run and mounted.

What the filesystem had not given to the device is not in the copy: that is a power cut, and mounting replays the
journal. Needs root, as mounting does. CUTS sets how many of a run's calls are cuts, SEED where they lie.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Compile
from rewind import another_boot
from synced import facts
from test_power_in_run import WAYS, check
from tracing import Call
from trial import Trial

MEGABYTES = {"ext4": 48, "xfs": 320}
CUTS, SEED = int(os.environ.get("CUTS", "40")), int(os.environ.get("SEED", "1"))


def do(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


class Disk:
    """An image, mounted by one loop device all the time: a store knows files by their device's number."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.image, self.at = folder / "image", folder / "disk"
        self.at.mkdir()
        with self.image.open("wb") as file:
            file.truncate(MEGABYTES[kind] << 20)
        do(f"mkfs.{kind}", "-q", "-F" if kind == "ext4" else "-f", self.image)
        self.device = do("losetup", "-f", "--show", self.image)
        do("mount", self.device, self.at)

    def copy(self, to: Path) -> None:
        subprocess.run(["cp", "--sparse=always", str(self.image), str(to)], check=True)

    @contextmanager
    def instead(self, image: Path) -> Iterator[None]:
        """Another image, as it comes up after a power cut."""
        self.close()
        do("losetup", self.device, image)
        do("mount", self.device, self.at)
        yield

    def close(self) -> None:
        subprocess.run(["umount", str(self.at)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", self.device], check=False, capture_output=True)


@pytest.fixture(params=MEGABYTES)
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    if not shutil.which(f"mkfs.{request.param}"):
        pytest.skip(f"mkfs.{request.param} is missing")
    found = Disk(tmp_path, request.param)
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", "isolate", "synced", "synced-isolate", "many"])
def test_power_cut_on_a_disk(  # type: ignore[no-untyped-def]
        disk: Disk, tmp_path: Path, compiled: Compile, installed: None, request, name: str) -> None:
    way = WAYS[name]
    trial = Trial(disk.at, compiled("driver"), compiled("tracer"), way.options.split(), way.script)
    total = len(trial.run().calls)
    chosen = set(random.Random(SEED).sample(range(5, total), min(CUTS, total - 5)))
    copies: list[tuple[Path, int]] = []

    def decide(call: Call) -> str:
        if call.number == 1:               # what is there before the run is old
            os.sync()
        if call.number in chosen:
            copies.append((tmp_path / f"copy-{call.number}", (disk.at / "lab-out").stat().st_size))
            disk.copy(copies[-1][0])
        return "g"

    done = trial.run(decide)
    for image, answered in copies:
        with disk.instead(image):
            another_boot(trial.folder)
            try:
                # what was asked and not answered may have been done: a line more of the script
                check(trial, way, trial.expected(done.stdout[:answered]), facts(trial, done.stdout[:answered]))
            except BaseException:
                print(f"power cut at {image.name} of {total}, seed {SEED}")
                raise
        image.unlink()
    print(f"{len(copies)} power cuts ({request.node.name}), seed {SEED}: 0 failures")
