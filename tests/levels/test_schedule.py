"""FTI_Snapshot's intervals, with a clock of our own."""

from __future__ import annotations

from metamori.levels.api.schedule import L4_DCP, Schedule
from metamori.levels.setup.settings import Settings


def levels(settings: Settings, seconds_per_call: float, minutes: int) -> list[tuple[int, int]]:
    """(minute, level) of each checkpoint."""
    now = [0.0]
    schedule = Schedule(settings, lambda value: value, lambda: now[0])
    found = []
    while now[0] < minutes * 60:
        now[0] += seconds_per_call
        level = schedule.due()
        if level:
            found.append((int(now[0] // 60), level))
    return found


def test_the_manuals_default_intervals():
    found = levels(Settings(), 0.25, 24)
    assert found == [(3, 1), (5, 2), (6, 1), (7, 3), (9, 1), (10, 2), (11, 4), (12, 1), (14, 3), (15, 2), (18, 1),
                     (20, 2), (21, 3), (22, 4)] + [(24, 1)] * (found[-1][0] == 24)


def test_only_one_level():
    assert levels(Settings(ckpt_l1=0, ckpt_l2=5, ckpt_l3=0, ckpt_l4=0), 1.0, 16) == [(5, 2), (10, 2), (15, 2)]


def test_iterations_longer_than_a_minute():
    assert [level for _, level in levels(Settings(ckpt_l1=1, ckpt_l2=0, ckpt_l3=0, ckpt_l4=0), 90, 10)] == [1] * 7


def test_differential_checkpoints_have_an_interval_too():
    found = levels(Settings(ckpt_l1=0, ckpt_l2=0, ckpt_l3=0, ckpt_l4=4, enable_dcp=1, ckpt_io=3, dcp_l4=2), 1, 9)
    assert found == [(2, L4_DCP), (4, 4), (6, L4_DCP), (8, 4)]


def test_calls_between_looks_cost_no_message():
    looks = []
    now = [0.0]
    schedule = Schedule(Settings(), lambda value: looks.append(1) or value, lambda: now[0])
    for _ in range(100_000):
        now[0] += 0.001
        schedule.due()
    assert len(looks) < 300
