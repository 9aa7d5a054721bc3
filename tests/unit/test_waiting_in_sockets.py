"""What has been sent over a unix socket and not been read: it is looked at, and stays."""

from __future__ import annotations

import os
import socket

import pytest

from metamori.runtime.memory import sockets


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_an_empty_message_is_refused_as_long_as_it_is_there(kind: socket.SocketKind) -> None:
    """The kernel shows it once; then it passes over it, and over nothing else."""
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one, other:
        one.send(b"first")
        assert sockets._waiting(other) == [b"first"]
        one.send(b"")
        one.send(b"last")
        for _ in range(3):
            assert sockets._waiting(other) == "an empty message"
        assert other.recv(9) == b"first"
        assert sockets._waiting(other) == "an empty message"
        assert (other.recv(9), other.recv(9)) == (b"", b"last")
        assert sockets._waiting(other) == []
        one.send(b"more")
        assert sockets._waiting(other) == sockets._waiting(other) == [b"more"]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_the_end_is_no_empty_message(kind: socket.SocketKind) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with other:
        one.send(b"last")
        one.close()
        assert sockets._waiting(other) == sockets._waiting(other) == [b"last"]


def test_descriptors_are_not_taken() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        socket.send_fds(one, [b"x"], [0])
        before = os.listdir("/proc/self/fd")
        assert sockets._waiting(other) == "descriptors that were sent and not received"
        assert os.listdir("/proc/self/fd") == before
