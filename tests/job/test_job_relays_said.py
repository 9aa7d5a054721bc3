"""What runs say through relays, and what the one that counts tells them: without sockets and clocks."""

from __future__ import annotations

import pytest

pytest.importorskip("zmq")

from metamori.runtime.job.counter import Round
from metamori.runtime.job.relays import COUNTER, OTHERS, RELAY, Message, Share

CUT, LOOK, GO = ({"what": what, "round": 3} for what in ("cut", "look", "go"))
FROZEN, LOOKED = ({"what": what, "round": 3} for what in ("frozen", "looked"))
ALONE = {"alone": True}


# -- a run's share

def relay() -> Share:
    return Share({"what": "prepare", "round": 3, "below": ["aa", "bb"]})


def test_a_relay_passes_on_and_says_that_all_are_frozen_when_they_are() -> None:
    share = relay()
    assert share.ready() == [(COUNTER, {"what": "ready", "round": 3})]
    assert share.hear(COUNTER, CUT) == [(OTHERS, CUT)]
    assert share.hear(OTHERS, FROZEN, "aa") == share.hear(OTHERS, FROZEN, "aa") == []
    assert share.hear(OTHERS, FROZEN, "cc") == []
    assert share.hear(OTHERS, GO, "aa") == []          # nobody below says so
    assert share.frozen() == []
    assert share.hear(OTHERS, FROZEN, "bb") == [(COUNTER, FROZEN | {"all": True})]
    assert not share.may_look
    assert share.hear(COUNTER, LOOK | {"place": 9}) == [(OTHERS, LOOK | {"place": 9})]
    assert share.may_look and share.place == 9
    assert share.hear(OTHERS, FROZEN, "aa") == share.hear(OTHERS, LOOKED, "aa") == []
    assert share.looked() == []
    assert share.hear(OTHERS, LOOKED, "bb") == [(COUNTER, LOOKED | {"all": True})]
    assert not share.goes_on
    assert share.hear(COUNTER, GO) == [(OTHERS, GO)]
    assert share.goes_on


def test_a_relay_is_not_frozen_before_it_is() -> None:
    share = relay()
    share.hear(COUNTER, CUT)
    for below in ("aa", "bb"):
        assert share.hear(OTHERS, FROZEN, below) == []
    assert share.frozen() == [(COUNTER, FROZEN | {"all": True})]


def test_one_answers_where_it_was_told() -> None:
    for line in (COUNTER, RELAY):
        share = Share({"what": "prepare", "round": 3})
        assert share.hear(line, CUT) == []
        assert share.frozen() == [(line, FROZEN)]
        assert share.hear(line, LOOK) == []
        assert share.looked() == [(line, LOOKED)]
        assert share.hear(line, GO) == []
        assert share.goes_on


def test_when_a_relay_is_late_each_answers_for_itself() -> None:
    below = Share({"what": "prepare", "round": 3})
    below.hear(RELAY, CUT)
    below.frozen()
    assert below.hear(COUNTER, CUT | ALONE) == [(COUNTER, FROZEN)]
    assert below.hear(RELAY, CUT) == []
    assert below.hear(COUNTER, LOOK | ALONE) == below.hear(RELAY, LOOK) == []
    assert below.looked() == [(COUNTER, LOOKED)]
    share = relay()
    share.hear(COUNTER, CUT)
    share.hear(OTHERS, FROZEN, "aa")
    share.frozen()
    assert share.hear(COUNTER, CUT | ALONE) == [(COUNTER, FROZEN)]             # and not for "bb"
    assert share.hear(OTHERS, FROZEN, "bb") == []
    assert share.hear(COUNTER, LOOK | ALONE) == []
    assert share.looked() == [(COUNTER, LOOKED)]
    assert share.hear(COUNTER, GO | ALONE) == []
    assert share.goes_on


def test_a_relay_is_late_when_all_have_been_frozen() -> None:
    below, share = Share({"what": "prepare", "round": 3}), relay()
    below.hear(RELAY, CUT)
    below.frozen()
    for message in (CUT, FROZEN):
        for each in ("aa", "bb"):
            share.hear(*((COUNTER, CUT) if message is CUT else (OTHERS, FROZEN, each)))
    assert share.frozen() == [(COUNTER, FROZEN | {"all": True})]
    share.hear(COUNTER, LOOK)
    assert share.looked() == []
    assert share.hear(COUNTER, LOOK | ALONE) == [(COUNTER, LOOKED)]
    assert below.hear(COUNTER, LOOK | ALONE) == []     # it has never come by the relay
    assert below.looked() == [(COUNTER, LOOKED)]
    assert below.hear(RELAY, LOOK) == below.hear(COUNTER, LOOK | ALONE | {"round": 2}) == []


@pytest.mark.parametrize("message", [CUT | {"round": 2}, GO | {"round": 4}])
def test_what_is_of_another_round_is_not_heard(message: Message) -> None:
    share = Share({"what": "prepare", "round": 3})
    assert share.hear(RELAY, message) == [] and not share.is_cut and not share.is_off


def test_who_is_told_to_give_up_hears_nothing_more() -> None:
    for message in ({"what": "abort", "round": 3}, LOOK, GO):          # or to go on, and is not frozen
        share = relay()
        share.hear(COUNTER, CUT)
        share.hear(COUNTER, message)
        assert share.is_off and not share.goes_on
        assert share.hear(OTHERS, FROZEN, "aa") == share.hear(COUNTER, GO) == []


# -- a round of the one that counts

def frozen_round() -> Round:
    """a and b are spoken with; c and d through b."""
    round_ = Round(3, {b"a", b"b", b"c", b"d"}, {b"c": b"b", b"d": b"b", b"e": b"b", b"a": b"gone"})
    (most, first), (one, second) = round_.start()
    assert (set(most), first.get("below")) == ({b"a", b"c", b"d"}, None)
    assert (set(one), sorted(second["below"])) == ({b"b"}, [b"c".hex(), b"d".hex()])
    answers = [round_.take(who, {"what": "ready", "round": 3}) for who in (b"a", b"b", b"c", b"d")]
    assert answers == [None, None, None, CUT]
    return round_


def test_a_relay_speaks_for_those_below_it() -> None:
    round_ = frozen_round()
    assert round_.told(CUT) == round_.told(GO) == {b"a", b"b"}
    assert round_.told({"what": "abort"}) == {b"a", b"b", b"c", b"d"}
    assert round_.take(b"b", FROZEN | {"all": True}) is None
    assert round_.take(b"a", FROZEN) == LOOK | {"place": -1}
    assert round_.take(b"a", FROZEN) is None
    assert round_.told(LOOK) == {b"a", b"b"}
    assert round_.take(b"a", LOOKED) is None
    assert round_.take(b"b", LOOKED | {"all": True}) == GO
    assert round_.late() == ({b"c", b"d"}, GO | ALONE)
    assert round_.late() is None


def test_who_is_late_is_told_by_the_one_that_counts() -> None:
    round_ = frozen_round()
    round_.take(b"a", FROZEN)
    whom, message = round_.late() or (set(), {})
    assert (whom, message) == ({b"b", b"c", b"d"}, CUT | ALONE)
    assert [round_.take(who, FROZEN) for who in (b"b", b"c", b"d")] == [None, None, LOOK | ALONE | {"place": -1}]
    assert round_.told(LOOK) == {b"a", b"b", b"c", b"d"}
    assert [round_.take(who, LOOKED) for who in (b"a", b"b", b"c", b"d")] == [None, None, None, GO | ALONE]
    assert round_.told(GO) == {b"a", b"b", b"c", b"d"}, "a relay that hangs keeps nobody waiting"
    assert round_.late() is None


def test_who_is_late_when_all_are_frozen_is_told_where_that_is() -> None:
    round_ = frozen_round()
    round_._place = lambda: 72
    round_.take(b"b", FROZEN | {"all": True})
    assert round_.take(b"a", FROZEN) == LOOK | {"place": 72}
    round_._place = lambda: 96
    assert round_.late() == ({b"b", b"c", b"d"}, LOOK | ALONE | {"place": 72})
    assert [round_.take(who, LOOKED) for who in (b"b", b"a", b"c", b"d")] == [None, None, None, GO | ALONE]


def test_a_relay_that_answers_for_itself_answers_for_nobody_else() -> None:
    round_ = frozen_round()
    round_.take(b"a", FROZEN)
    assert round_.take(b"b", FROZEN) is None
    assert round_.frozen == {b"c", b"d"}


def test_nothing_is_late_without_relays_or_before_the_cut() -> None:
    assert Round(3, {b"a"}).late() is None
    assert Round(3, {b"a", b"b"}, {b"b": b"a"}).late() is None
