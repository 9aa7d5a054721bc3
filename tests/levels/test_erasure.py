"""The erasure code, against the plainest of models: what went in comes out, whatever half is lost."""

from __future__ import annotations

import itertools
import queue
import random
import threading
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")
from metamori.levels.protect import erasure


class Group:
    """Messages between threads, as comm.Job sends them between processes."""

    def __init__(self, size: int) -> None:
        self.size = size
        # all of them before the threads begin: two that looked for the same one at once would make one each
        self.boxes: dict[tuple[int, int], queue.Queue[bytes]] = {
            each: queue.Queue() for each in itertools.product(range(size), repeat=2)}

    def run(self, work) -> None:  # type: ignore[no-untyped-def]
        wrong: list[BaseException] = []

        def one(rank: int) -> None:
            try:
                work(Member(self, rank))
            except BaseException as error:
                wrong.append(error)
        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
            assert not thread.is_alive() or wrong, "a member waits for ever"
        assert not wrong, wrong


class Member:
    def __init__(self, group: Group, rank: int) -> None:
        self.group, self.rank, self.size = group, rank, group.size

    def transpose(self, out, into, to, sources, step) -> None:  # type: ignore[no-untyped-def]
        for i, rank in enumerate(to):
            self.group.boxes[self.rank, rank].put(bytes(memoryview(out)[i * step:(i + 1) * step]))
        for i, rank in enumerate(sources):
            memoryview(into)[i * step:(i + 1) * step] = self.group.boxes[rank, self.rank].get(timeout=240)


class Grows:
    """What Sink is to erasure: its room is lent, and lent again."""

    def __init__(self) -> None:
        self.content, self.lent = bytearray(), bytearray()

    def room(self, length: int) -> memoryview:
        if len(self.lent) != length:
            self.lent = bytearray(length)
        return memoryview(self.lent)

    def filled(self, room: memoryview) -> None:
        self.content += room


def padded(content: bytes):  # type: ignore[no-untyped-def]
    return lambda at, length: memoryview(content[at:at + length].ljust(length, b"\0"))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_half_comes_back(data):
    n = data.draw(st.integers(2, 9))
    seed = data.draw(st.integers(0, 1 << 30))
    sizes = data.draw(st.lists(st.integers(0, 3000), min_size=n, max_size=n))
    gone = data.draw(st.lists(st.integers(0, 2 * n - 1), max_size=n, unique=True))
    files = [random.Random(seed + i).randbytes(size) for i, size in enumerate(sizes)]
    longest = max(sizes)
    parities = [Grows() for _ in range(n)]

    def write(member):  # type: ignore[no-untyped-def]
        erasure.encode(member, padded(files[member.rank]), longest, parities[member.rank])
    Group(n).run(write)
    parity = [each.content for each in parities]
    lost, parity_lost = [i in gone for i in range(n)], [n + i in gone for i in range(n)]
    back: dict[tuple[str, int], Grows] = defaultdict(Grows)

    def never(at, length):  # type: ignore[no-untyped-def]
        raise AssertionError("what is lost is not read")

    def read(member):  # type: ignore[no-untyped-def]
        rank = member.rank
        erasure.decode(member, never if lost[rank] else padded(files[rank]),
                       never if parity_lost[rank] else padded(bytes(parity[rank])), lost, parity_lost, longest,
                       back["data", rank] if lost[rank] else None, back["parity", rank] if parity_lost[rank] else None)
    Group(n).run(read)
    for i in range(n):
        assert bytes(back["data", i].content[:sizes[i]]) == (files[i] if lost[i] else b"")
        assert bytes(back["parity", i].content) == (bytes(parity[i]) if parity_lost[i] else b"")


@pytest.mark.parametrize("n", [16, 17, 64, 128])
def test_large_groups(n):
    pick, step = random.Random(n), 64
    pieces = bytearray(pick.randbytes(n * step))
    parity = bytearray(n * step)
    erasure.Code(n, range(n), range(n, 2 * n)).apply(pieces, parity, step)
    whole = bytes(pieces + parity)
    have = sorted(pick.sample(range(2 * n), n))
    gone = [i for i in range(2 * n) if i not in have]
    made = bytearray(n * step)
    erasure.Code(n, have, gone).apply(bytearray(b"".join(whole[i * step:(i + 1) * step] for i in have)), made, step)
    assert bytes(made) == b"".join(whole[i * step:(i + 1) * step] for i in gone)


def test_a_group_that_is_too_large_is_said():
    with pytest.raises(erasure.NoErasureCode, match="at most 128"):
        erasure.Code(129, range(129), [129])
