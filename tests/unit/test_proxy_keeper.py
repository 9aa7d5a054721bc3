"""What `metamori run` does when the processes that track static programs were killed and cannot be started again."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from metamori._area import lib
from metamori.runtime.lifecycle import proxy


def keeper_whose_proxy_ended() -> proxy.Keeper:
    """It has one program's listener."""
    keeper, (ours, theirs) = proxy.Keeper(), socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keeper._line = ours
    with open(os.devnull, "rb") as listener:
        socket.send_fds(theirs, [(3).to_bytes(4, "little")], [listener.fileno()])
    theirs.close()
    return keeper


def area_of_one() -> SimpleNamespace:
    head = SimpleNamespace(untracked=0, proxy_wanted=0, proxy_places=lib.MM_PROXY_OPEN | 1)
    return SimpleNamespace(head=head)


def test_no_process_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    keeper, area = keeper_whose_proxy_ended(), area_of_one()
    said = keeper.look(area, {})    # type: ignore[arg-type]
    assert said.startswith("the processes that track static programs were killed, and no other starts: ")
    assert not keeper.has_programs()
    assert keeper.look(area, {}) == ""    # type: ignore[arg-type]


def test_none_stays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once, and the run does not start one after another for ever."""
    started: list[Any] = []

    def dies_at_once(keeper: proxy.Keeper, environ: object) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.close()
        started.append(ours)
        return ours

    monkeypatch.setattr(proxy.Keeper, "_start", dies_at_once)
    keeper, area = keeper_whose_proxy_ended(), area_of_one()
    said = [keeper.look(area, {}) for _ in range(100)]    # type: ignore[arg-type]
    assert [each for each in said if each] == [
        "the processes that track static programs were killed, and no other stays alive"]
    assert len(started) == proxy._STARTS
