"""restore --to: paths of two places that would meet in the copy."""

from __future__ import annotations

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
