"""The same on real file systems: ext4 and XFS on a loop device, the image copied in the middle of a run and mounted.

What the filesystem had not given to the device is not in the copy: that is a power cut, and mounting replays the
journal. Needs root, as mounting does. CUTS sets how many of a run's calls are cuts, SEED where they lie.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from conftest import Compile
from rewind import Times, another_boot
from synced import facts
from test_power_cut_in_run import WAYS, check
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
    """An image, mounted by one loop device all the time."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.image, self.at = folder / "image", folder / "disk"
        self.at.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(MEGABYTES[kind] << 20)
        do(f"mkfs.{kind}", "-q", "-F" if kind == "ext4" else "-f", self.image)
        self.device = do("losetup", "-f", "--show", self.image)
        do("mount", self.device, self.at)

    def copy(self, to: Path) -> None:
        """Again until nothing was written meanwhile: a copy of several instants is no power cut."""
        for _ in range(100):
            subprocess.run(["cp", "--sparse=always", str(self.image), str(to)], check=True)
            if subprocess.run(["cmp", "-s", str(self.image), str(to)], check=False).returncode == 0:
                return
        pytest.skip("the disk is written to all the time")

    @contextmanager
    def instead(self, image: Path) -> Iterator[None]:
        """Another image, as it comes up after a power cut."""
        self.close()
        for _ in range(100):               # a device is let go of a little later
            if subprocess.run(["losetup", self.device, image], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(.1)
        else:
            do("losetup", self.device, image)
        do("mount", self.device, self.at)
        yield

    def close(self) -> None:
        subprocess.run(["umount", str(self.at)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", self.device], check=False, capture_output=True)


@pytest.fixture(params=["ext4", "xfs", "ext4:xfs", "ext4:ext4"])
def disks(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Disk]]:
    """The data's, and where the store has another one, that."""
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    with ExitStack() as stack:
        found = []
        for nth, kind in enumerate(request.param.split(":")):
            if not shutil.which(f"mkfs.{kind}"):
                pytest.skip(f"mkfs.{kind} is missing")
            found.append(Disk(tmp_path / str(nth), kind))
            stack.callback(found[-1].close)
        if found[1:]:
            monkeypatch.setenv("METAMORI_TEST_STORES", str(found[-1].at))
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", "isolate", "synced", "synced-isolate", "many"])
def test_power_cut_on_a_disk(  # type: ignore[no-untyped-def]
        disks: list[Disk], tmp_path: Path, compiled: Compile, installed: None, request, name: str) -> None:
    way = WAYS[name]
    disk, copies = disks[0], list[tuple[str, int]]()
    trial = Trial(disk.at, compiled("driver"), compiled("tracer"), way.options.split(), way.script)
    total = len(trial.run().calls)
    chosen = set(random.Random(SEED).sample(range(5, total), min(CUTS, total - 5)))

    def decide(call: Call) -> str:
        if call.number == 1:               # what is there before the run is old
            os.sync()
        if call.number in chosen:
            copies.append((f"copy-{call.number}", (disk.at / "lab-out").stat().st_size))
            for each in reversed(disks):   # the store first: what is in place may be later, never earlier
                each.copy(each.image.with_name(copies[-1][0]))
        return "g"

    done = trial.run(decide)
    for image, answered in copies:
        with ExitStack() as stack:
            for each in disks:
                stack.enter_context(each.instead(each.image.with_name(image)))
            another_boot(trial.folders[-1])
            try:
                # what was asked and not answered may have been done: a line more of the script
                check(trial, way, trial.expected(done.stdout[:answered]), facts(trial, done.stdout[:answered]),
                      Times())
            except BaseException:
                print(f"power cut at {image} of {total}, seed {SEED}")
                raise
        for each in disks:
            each.image.with_name(image).unlink()
    print(f"{len(copies)} power cuts ({request.node.name}), seed {SEED}: 0 failures")
