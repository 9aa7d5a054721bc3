"""What a program has mapped, seldom seen: as it was when it comes back, or refused by its name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from comeback import Memory, built, came_back, run_of

pytestmark = pytest.mark.usefixtures("installed")
OLD = b"".join(bytes([letter]) * 4096 for letter in b"abcd")
FILES = {"shared": OLD, "private": OLD, "closed": OLD}


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """To an ordinary user, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("how", [[], ["shut"]], ids=["open", "shut"])
def test_mappings_that_only_read_show_what_is_written_later(open_to_all: Path, how: list[str]) -> None:
    """Where the modes allow nothing any more, too, to an ordinary user."""
    case = Memory(open_to_all, [built(open_to_all, "mapped.c"), *how], setup=FILES,
                  user="nobody" if os.geteuid() == 0 else None)
    assert case.native.status == 0, case.native
    run_of(case)
    for _ in range(2):
        case.goes_on(1)


def test_shut_files_that_many_processes_map(open_to_all: Path) -> None:
    """Each opens them up for a moment: nobody fails by another's shutting them, and nobody leaves them open."""
    case = Memory(open_to_all, [built(open_to_all, "shut_by_many.c")], setup=FILES,
                  user="nobody" if os.geteuid() == 0 else None)
    run_of(case)
    for _ in range(6):
        came_back(case, 1)
        assert [(case.work / name).stat().st_mode & 0o777 for name in ("private", "shared")] == [0, 0]


def test_guarded_pages(tmp_path: Path) -> None:
    """No checkpoint touches them; they are guarded again, and what was there is not."""
    case = Memory(tmp_path, [built(tmp_path, "guards.c")])
    run_of(case)
    assert case.errors().count("taken") == 4
    came_back(case, 4, 3, 2, 1)


@pytest.mark.parametrize("how", ["wiped", "absent"])
def test_memory_that_children_are_not_to_have(tmp_path: Path, how: str) -> None:
    """A copy of the process that writes the image has it all the same."""
    case = Memory(tmp_path, [built(tmp_path, "kept.c"), how])
    run_of(case)
    assert case.errors().count("taken") == 1
    came_back(case, 1)


@pytest.mark.parametrize("name", ["stack.c"])
def test_protections(tmp_path: Path, name: str) -> None:
    case = Memory(tmp_path, [built(tmp_path, name)])
    run_of(case)
    came_back(case, 1)


def test_more_address_space_than_memory(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"f")
        file.truncate(1 << 39)
    case = Memory(tmp_path, [built(tmp_path, "sparse.c"), tmp_path / "sparse"])
    run_of(case)
    came_back(case, 1)


def test_tiles_of_the_processor(tmp_path: Path) -> None:
    """Whoever has asked for them may use them when it is back; the state of a thread that has is refused."""
    case = Memory(tmp_path, [built(tmp_path, "tiles.c")])
    run_of(case)
    assert case.errors().count("taken") == 1 and "tiles of the processor (AMX)" in case.errors()
    came_back(case, 1)


@pytest.mark.parametrize("how", ["used", "unused", "the second", "by number", "of the kernel"])
def test_protection_keys(tmp_path: Path, how: str) -> None:
    """The signal's handler may not read what is under one: refused, and the program goes on; from before it is back."""
    case = Memory(tmp_path, [built(tmp_path, "keys.c"), how])
    run_of(case)
    is_refused = how not in ("unused", "of the kernel")    # node asks for a key that it does not use
    assert case.errors().count("taken") == 2 - is_refused
    assert ("it has protection keys" in case.errors()) == is_refused
    came_back(case, 1)
