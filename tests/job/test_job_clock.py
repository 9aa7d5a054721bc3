"""The job's time against machines whose clocks are wrong, run apart, stand still and come back: a doubt is never too
small, and two stamps of one machine never change places."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("zmq")

from metamori.runtime.job import clock
from metamori.runtime.job.clock import Clock, Timeline
from metamori.runtime.job.member import Member
from metamori.runtime.job.relays import TOLD
from metamori.store.format.records import NO_LIMIT
from metamori.store.io.os_io import Door

S = 10**9


class Machine:
    """Its clock at a true time."""

    def __init__(self, random_: random.Random) -> None:
        self.ahead, self.rate = random_.randrange(10**15), 1 + random_.uniform(-1e-4, 1e-4)
        self.gaps: list[tuple[int, int]] = []      # it stood still: from when, and how long

    def at(self, true: int) -> int:
        return self.ahead + int((true - sum(min(long, max(0, true - begun)) for begun, long in self.gaps)) * self.rate)


def asked(random_: random.Random, one: Machine, counts: Machine, base: tuple[int, int], told: Clock, true: int) -> int:
    """A question and its answer, each on its way for some time."""
    there, back = (random_.choice([50_000, 100_000, 5_000_000]) + random_.randrange(20_000) for _ in "tb")
    told.heard(one.at(true), one.at(true + there + back), {"clock": (counts.at(true + there), *base)}, one is counts)
    return true + there + back


def test_what_is_said_again_for_a_late_relay_is_no_answer() -> None:
    heard = Clock()
    answers = [*({"what": what, "round": 3} for what in TOLD), {"what": "alive", "sent": 1, "clock": (5, 0, 0)}]
    client = SimpleNamespace(send=lambda message: None, receive=lambda wait_s: answers.pop(0), is_same_machine=True)
    Member._ask_time(SimpleNamespace(_client=client, _hear_time=lambda answer: Member._hear_time(
        SimpleNamespace(_client=client, _clock=heard), answer)), 1)
    assert heard.points and not answers


@pytest.mark.parametrize("seed", range(20))
def test_a_doubt_is_never_too_small(seed: int) -> None:
    random_ = random.Random(seed)
    machines = [Machine(random_) for _ in range(4)]
    if seed % 2:
        machines[3].gaps = [(400 * S, 100 * S)]
    told = [Clock() for _ in machines]
    counts, base, true = 0, (0, 0), 0
    stamps: list[tuple[int, int, int]] = []        # true time, machine, its own
    for _ in range(900):
        if random_.random() < 0.005:               # the one that counts dies, and another goes on
            counts = random_.randrange(3)
            moment, doubt = Timeline(told[counts].points).at(machines[counts].at(true))
            base = moment - machines[counts].at(true), doubt
        for number, one in enumerate(machines):
            if not any(begun <= true <= begun + long for begun, long in one.gaps):
                asked(random_, one, machines[counts], base, told[number], true)
                at = true + random_.randrange(S)
                stamps.append((at, number, one.at(at)))
        true += S
    lines = [Timeline(each.points) for each in told]
    stamps.sort()
    moments = [(at, number, *lines[number].at(own)) for at, number, own in stamps]
    near = clear = 0
    for here, (_, one, moment, doubt) in enumerate(moments):
        for at, other, later, another in moments[here + 1:here + 60]:
            if one != other:
                assert later > moment or moment - later < doubt + another, (at, one, other)
                near += 1
                clear += later - moment >= doubt + another
    assert clear > 0.8 * near
    for number, line in enumerate(lines):
        of_one = [line.at(own)[0] for _, each, own in stamps if each == number]
        assert of_one == sorted(of_one)


def test_what_was_asked_within_a_second_is_known_best(tmp_path: Path) -> None:
    told = Clock()
    for took in (4_000_000, 200_000, 3_000_000):
        told.heard(S, S + took, {"clock": (7 * S + took // 2, 0, 0)}, False)
    assert [each[2] for each in told.points] == [100_001]
    assert told.base[0] == 6 * S
    path = bytes(tmp_path / "clock")
    told.write(Door(), path)
    assert clock.read(Door(), path) == told.points
    told.points = [(at * S, 5, 1) for at in range(clock.MOST + 2)]
    told.heard((clock.MOST + 2) * S, (clock.MOST + 2) * S, {"clock": (0, 5, 1)}, True)
    told.write(Door(), path)
    points = clock.read(Door(), path)
    assert len(points) == clock.MOST // 2 + 2 and points[-1][0] == (clock.MOST + 2) * S


def test_a_machine_that_was_told_nothing_is_in_doubt_unless_it_is_alone(tmp_path: Path) -> None:
    assert clock.read(Door(), bytes(tmp_path / "none")) == []
    assert Timeline([]).at(5) == (5, NO_LIMIT)
    assert clock.timelines([("a", []), ("a", [(1, 2, 3)])]) == {"a": None}
    times = clock.timelines([("a", []), ("b", [(1, 2, 3)])])
    assert times["b"] and times["b"].at(1) == (3, 3) and times["a"] and times["a"].at(1)[1] == NO_LIMIT
