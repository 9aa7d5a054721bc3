"""Filesystems that say no: read-only, without hard links, modes and attributes (exFAT), an overlay. As natively."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from beside import ENVIRONMENT, HERE, PATHS, need
from lab import Lab, picture

SCRIPT = HERE / "odd_files.sh"


def mounted(folder: Path, *commands: list[str]) -> None:
    for command in commands:
        done = subprocess.run(command, env=os.environ | {"PATH": PATHS}, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{folder.name}: {done.stderr.strip()}")


@pytest.fixture(params=["readonly", "exfat", "overlay"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on such a filesystem, with two folders alike in it."""
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    folder, image, device = tmp_path / request.param, tmp_path / "image", ""
    folder.mkdir()
    if request.param == "exfat":
        need("mkfs.exfat", "mount.exfat-fuse", "losetup")
        image.touch()
        os.truncate(image, 64 << 20)
        mounted(folder, ["mkfs.exfat", str(image)])
        device = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True).stdout.strip()
        mounted(folder, ["mount.exfat-fuse", device, str(folder)])
    else:
        mounted(folder, ["mount", "-t", "tmpfs", "none", str(folder)])
    try:
        make_two(folder)
        if request.param == "readonly":
            mounted(folder, ["mount", "-o", "remount,ro", str(folder)])
        if request.param == "overlay":
            (folder / "up").mkdir()
            (folder / "work").mkdir()
            (folder / "merged").mkdir()
            where = f"lowerdir={folder},upperdir={folder}/up,workdir={folder}/work"
            where = where.replace(f"lowerdir={folder},", f"lowerdir={folder}/lower,")
            mounted(folder, ["mount", "-t", "overlay", "-o", where, "none", str(folder / "merged")])
            yield folder / "merged"
            subprocess.run(["umount", "-l", folder / "merged"], check=False)
        else:
            yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
        if device:
            subprocess.run(["losetup", "-d", device], check=False)


def make_two(folder: Path) -> None:
    """native/ and under/, each with a file and a folder; lower/ for the overlay."""
    for base in (folder, folder / "lower"):
        for name in ("native", "under"):
            (base / name / "d").mkdir(parents=True)
            (base / name / "f").write_text("old\n")


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_as_natively(lab: Lab, odd: Path, options: list[str]) -> None:
    commands = lab.folder / "commands"
    commands.mkdir()
    mark = commands / "mark"
    mark.write_text("#!/bin/sh\n")
    mark.chmod(0o755)
    env = ENVIRONMENT | {"PATH": f"{commands}:{PATHS}"}
    want = lab.run(["bash", SCRIPT], native=True, cwd=odd / "native", env=env)
    checkpoint = " ".join(lab.argv("checkpoint", "-m", "mark"))
    mark.write_text(f"#!/bin/sh\nPYTHONPATH={lab.env['PYTHONPATH']} exec {checkpoint} > /dev/null\n")
    before = picture(odd / "under")
    have = lab.run(["bash", SCRIPT], *options, cwd=odd / "under", env=env | {"PYTHONPATH": lab.env["PYTHONPATH"]})
    assert (have.returncode, have.stdout, have.stderr) == (want.returncode, want.stdout, want.stderr)
    end = picture(odd / "under")
    assert end == picture(odd / "native")
    lab.restore(0)
    assert picture(odd / "under") == before
    lab.restore(max(lab.messages()))
    assert picture(odd / "under") == end
    lab.verb("verify")
