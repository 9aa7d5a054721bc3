"""restore --to: paths of two places that would meet in the copy."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from lab import Lab


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_two_paths_that_would_meet(lab: Lab, kind: str) -> None:
    """One below the store's folder, the other's whole path is the same: FOLDER/tmp/x and /tmp/x."""
    elsewhere = lab.folder / "elsewhere" / "x"
    elsewhere.parent.mkdir()
    store = lab.folder / "deep" / "store"
    store.parent.mkdir()
    here = Path(f"{store.parent}{lab.folder}/elsewhere/x" + ("/inside" if kind == "folder" else ""))
    here.parent.mkdir(parents=True)
    done = lab.run(["sh", "-c", f"echo here > '{here}'; echo elsewhere > '{elsewhere}'"], "--store", str(store))
    assert done.returncode == 0, done.stderr
    said = lab.verb("restore", 1, "--to", lab.folder / "copy", store=store).stderr
    assert "copy/outside" in said
    copies = {path.read_text(): path for path in (lab.folder / "copy").rglob("*") if path.is_file()}
    assert copies == {"here\n": lab.folder / "copy" / here.relative_to(store.parent),
                      "elsewhere\n": lab.folder / "copy" / "outside" / str(elsewhere).lstrip("/")}


def test_paths_that_do_not_meet_stay_where_they_were(lab: Lab) -> None:
    (lab.folder / "elsewhere").mkdir()
    store = lab.work / "store"
    lab.run(["sh", "-c", f"echo 1 > a; echo 2 > '{lab.folder}/elsewhere/b'"], "--store", str(store))
    assert lab.verb("restore", 1, "--to", lab.folder / "copy", store=store).stderr == ""
    whole = str(lab.folder / "elsewhere" / "b").lstrip("/")
    assert (lab.folder / "copy" / "a").read_text() == "1\n" and (lab.folder / "copy" / whole).read_text() == "2\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="devices are root's")
def test_devices_are_copied(lab: Lab) -> None:
    """They were left out, and nothing was said."""
    lab.run(["sh", "-c", "mknod null c 1 3; mkdir in; mknod -m 600 in/loop b 7 9; chown 5:6 in/loop"])
    lab.verb("restore", 1, "--to", lab.folder / "copy")
    null, loop = (next((lab.folder / "copy").rglob(name)).lstat() for name in ("null", "loop"))
    assert stat.S_ISCHR(null.st_mode) and null.st_rdev == os.makedev(1, 3)
    assert stat.S_ISBLK(loop.st_mode) and loop.st_rdev == os.makedev(7, 9)
    assert (loop.st_mode & 0o777, loop.st_uid, loop.st_gid) == (0o600, 5, 6)
