"""A member that cannot read or keep its file says so at the end: the others of its group are not left waiting."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.source import FileSource, Steady
from metamori.levels.protect import erasure, parity, partner

MEMBERS, PATIENCE_S = 3, 60.0
BLOCK = 1000


class Boxes:
    """Messages between threads as comm.Job sends them between processes."""

    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int, int], queue.Queue[Any]] = defaultdict(queue.Queue)
        self.lock = threading.Lock()

    def box(self, *key: int) -> queue.Queue[Any]:
        with self.lock:
            return self.boxes[key]  # type: ignore[index]


class Member:
    size = MEMBERS

    def __init__(self, boxes: Boxes, rank: int) -> None:
        self.boxes, self.rank = boxes, rank

    def send(self, thing: Any, to: int, tag: int) -> None:
        self.boxes.box(self.rank, to, tag).put(thing)

    def receive(self, source: int, tag: int) -> Any:
        return self.boxes.box(source, self.rank, tag).get(timeout=PATIENCE_S)

    def allgather(self, thing: Any) -> list[Any]:
        for other in range(MEMBERS):
            self.send(thing, other, 1)
        return [self.receive(other, 1) for other in range(MEMBERS)]

    def exchange(self, out: Any, to: int, into: memoryview, source: int) -> None:
        if len(out):
            self.send(bytes(out), to, 711)
        if len(into):
            into[:] = self.receive(source, 711)

    def transpose(self, out: Any, into: Any, to: list[int], sources: list[int], step: int) -> None:
        for i, rank in enumerate(to):
            self.send(bytes(out[i * step:(i + 1) * step]), rank, 713)
        for i, rank in enumerate(sources):
            into[i * step:(i + 1) * step] = self.receive(rank, 713)


def all_of(work: Callable[[Member], None]) -> list[str]:
    """What each member said in the end, "" for nothing; an AssertionError when one waits for ever."""
    boxes, said = Boxes(), ["waits"] * MEMBERS

    def one(rank: int) -> None:
        try:
            work(Member(boxes, rank))
            said[rank] = ""
        except (Broken, OSError) as error:
            said[rank] = str(error)
    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(MEMBERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S / 4)
    return said


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"own{rank}" for rank in range(MEMBERS)]
    for rank, path in enumerate(found):
        path.write_bytes(bytes([65 + rank]) * (5000 + rank))
    return found


def spoilt(path: Path, how: str) -> FileSource:
    """It cannot be opened, or ends in the middle of it."""
    if how == "missing":
        path.unlink()
    source = FileSource(str(path))
    path.write_bytes(path.read_bytes()[:2500])
    return source


@pytest.mark.parametrize("how", ["missing", "shorter"])
@pytest.mark.parametrize("code", ["partner", "parity"])
def test_protecting(files: list[Path], tmp_path: Path, code: str, how: str) -> None:
    def work(me: Member) -> None:
        path = files[me.rank]
        source = Steady(lambda: spoilt(path, how) if me.rank == 1 else FileSource(str(path)))
        if code == "partner":
            partner.copy_around(me, source, str(tmp_path / f"copy{me.rank}"), BLOCK)
        else:
            parity.encode(me, source, str(tmp_path / f"parity{me.rank}"))
    if code == "parity":
        try:
            erasure.library()
        except erasure.NoErasureCode as error:
            pytest.skip(str(error))
    said = all_of(work)
    assert said[0] == said[2] == "" and "own1" in said[1], said


@pytest.mark.parametrize("how", ["missing", "unwritable"])
def test_bringing_back(files: list[Path], tmp_path: Path, how: str) -> None:
    """Two files are brought back, one after the other; the first fails at one of its ends."""
    copies = [tmp_path / f"copy{rank}" for rank in range(MEMBERS)]
    for rank in range(MEMBERS):
        copies[(rank + 1) % MEMBERS].write_bytes(files[rank].read_bytes())
    whole = files[2].read_bytes()
    own_well = [False, True, True]
    copy_well = [False, True, True]           # 0 has lost everything
    files[0].unlink()
    copies[0].unlink()
    if how == "missing":
        copies[1].unlink()
    else:
        files[0].mkdir()

    def work(me: Member) -> None:
        partner.bring_back(me, str(files[me.rank]), str(copies[me.rank]), own_well, copy_well, BLOCK)
    said = all_of(work)
    failing = 1 if how == "missing" else 0
    assert [bool(each) for each in said] == [rank == failing for rank in range(MEMBERS)], said
    assert copies[0].read_bytes() == whole
