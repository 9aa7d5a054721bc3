"""A store of each format version is kept in tests/data, and is readable for ever; one of a later version is refused."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab

from metamori.store.read.store import Store

DATA = Path(__file__).resolve().parent.parent / "data"
sys.path.insert(0, str(DATA))

from make_store import PLACE, picture  # noqa: E402

KEPT = sorted(DATA.glob("store-*.tar.gz"))


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the paths in the kept stores lead."""
    try:
        PLACE.mkdir(mode=0o700)
    except FileExistsError:
        pytest.skip(f"{PLACE} is there already")
    yield PLACE
    shutil.rmtree(PLACE)


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_a_kept_store_gives_back_every_index(lab: Lab, place: Path, archive: Path) -> None:
    with tarfile.open(archive) as found:
        expected = json.loads(found.extractfile("expected.json").read())  # type: ignore[union-attr]
        for member in found.getmembers():
            if member.name.startswith("place/"):
                member.name = member.name.removeprefix("place/")
                member.uid = member.gid = -1       # whoever runs the tests
                found.extract(member, place)
    store = Store.open(str(place / ".metamori"), write=True)
    here = store.head.index                # this unpacks with other times too
    store.set_head(here, store.head.kept, touched=store.state(here).names)
    store.close()
    lab.verb("verify", store=place / ".metamori")
    assert sorted(expected) == ["0", "1", "2", "3", "4"]
    for index in (0, 3, 1, 4, 2):
        lab.verb("restore", index, store=place / ".metamori")
        assert picture(place) == expected[str(index)], index
        copy = lab.folder / f"copy{index}"
        lab.verb("restore", index, "--to", copy, store=place / ".metamori")
        assert picture(copy) == expected[str(index)], index


def test_every_version_up_to_the_present_is_kept() -> None:
    from metamori.store.format.codec import VERSION

    assert {path.name for path in KEPT} >= {f"store-{version}.tar.gz" for version in range(1, VERSION + 1)}


def test_a_store_of_a_later_version_is_refused(lab: Lab) -> None:
    lab.run("true")
    (lab.store / "format").write_bytes(b"metamori store 3\n")
    for verb in (["log"], ["verify"], ["restore", 0]):
        done = lab.verb(*verb, code=1)
        assert "version 3" in done.stderr and "knows 2" in done.stderr
    assert lab.run("true").returncode == 125
    (lab.store / "format").write_bytes(b"something else\n")
    lab.verb("log", code=12)
