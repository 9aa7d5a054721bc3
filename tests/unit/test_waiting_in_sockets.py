"""What has been sent to a socket and not been read: it is looked at, and stays."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from metamori.runtime.memory import sockets, unread
from metamori.runtime.memory.socket_connections import Inside
from metamori.runtime.memory.socket_names import bound_to, name_of, sockaddr

FIRST, LAST, MORE = ([(data, None, ())] for data in (b"first", b"last", b"more"))


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_an_empty_message_is_refused_as_long_as_it_is_there(kind: socket.SocketKind) -> None:
    """The kernel shows it once; then it passes over it, and over nothing else."""
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one, other:
        one.send(b"first")
        assert unread.waiting(other) == FIRST
        one.send(b"")
        one.send(b"last")
        for _ in range(3):
            assert unread.waiting(other) == "an empty message"
        assert other.recv(9) == b"first"
        assert unread.waiting(other) == "an empty message"
        assert (other.recv(9), other.recv(9)) == (b"", b"last")
        assert unread.waiting(other) == []
        one.send(b"more")
        assert unread.waiting(other) == unread.waiting(other) == MORE


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_the_end_is_no_empty_message(kind: socket.SocketKind) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with other:
        one.send(b"last")
        one.close()
        assert unread.waiting(other) == unread.waiting(other) == LAST


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_reset_stays_the_programs(kind: socket.SocketKind) -> None:
    """Of one whose other end was closed before it had read all."""
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with other:
        other.send(b"x")
        one.send(b"last")
        one.close()
        assert [unread.waiting(other, keeps) for keeps in (False, True)] == ["an error that was not read"] * 2
        found = []
        for _ in range(2):
            try:
                found.append(other.recv(9))
            except ConnectionResetError:
                found.append(b"reset")
        assert sorted(found) == [b"last", b"reset"]


def test_descriptors_are_not_taken() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        socket.send_fds(one, [b"x"], [0])
        before = os.listdir("/proc/self/fd")
        assert unread.waiting(other) == "descriptors that were sent and not received"
        assert os.listdir("/proc/self/fd") == before
        found = unread.waiting(other, keeps=True)
        assert not isinstance(found, str) and [os.fstat(fd).st_ino for fd in found[0].fds] == [os.fstat(0).st_ino]
        unread.close(found)
        assert os.listdir("/proc/self/fd") == before
        assert socket.recv_fds(other, 9, 9)[0] == b"x"


def test_bytes_of_a_stream_that_descriptors_came_with() -> None:
    """Where they begin, whatever was sent before and read of it, and where they follow each other."""
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        whole, places = b"", {}
        for data, count in ((b"a", 0), (b"bc", 0), (b"def", 2), (b"g", 1), (b"h" * 70000, 3), (b"i", 0), (b"j", 1)):
            socket.send_fds(one, [data], [0] * count) if count else one.send(data)
            places.update({len(whole): count} if count else {})
            whole += data
        assert found_in(other) == (whole, places) == (whole, {3: 2, 6: 1, 7: 3, 70008: 1})
        assert other.recv(2) == b"ab" and found_in(other) == (whole[2:], {1: 2, 4: 1, 5: 3, 70006: 1})
        data, fds, _, _ = socket.recv_fds(other, 2, 9)         # with one byte that they came with
        for fd in fds:
            os.close(fd)
        assert (data, len(fds)) == (b"cd", 2) and found_in(other) == (whole[4:], {2: 1, 3: 3, 70004: 1})


def found_in(this: socket.socket) -> tuple[bytes, dict[int, int]]:
    """Bytes, and at which of them how many descriptors come."""
    found = unread.waiting(this, keeps=True)
    assert not isinstance(found, str)
    unread.close(found)
    whole, places = b"", {}
    for data, _, fds in found:
        places.update({len(whole): len(fds)} if fds else {})
        whole += data
    return whole, places


def datagrams(this: socket.socket, inside: Inside) -> Sequence[str]:
    """Lines of them, or what is said of those that cannot come back."""
    try:
        return sockets._datagrams(sockets._seen(this, os.getpid(), inside))
    except sockets._Cannot as error:
        return error.found.why_not.removesuffix(", and cannot come back with the program")


@pytest.fixture
def ports() -> Iterator[tuple[socket.socket, socket.socket, Inside]]:
    """Two of UDP, in a run."""
    with ExitStack() as held:
        one, other = (held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
        names = []
        for this in (one, other):
            this.bind(("127.0.0.1", 0))
            names.append(name_of(this) or b"")
        yield one, other, Inside(frozenset(), datagrams=frozenset(names))


def test_an_empty_datagram_is_refused(ports: tuple[socket.socket, socket.socket, Inside]) -> None:
    """As long as it is there; nothing behind it is passed over."""
    one, other, inside = ports
    for data in (b"first", b"", b"last"):
        one.sendto(data, other.getsockname())
    for _ in range(3):
        assert datagrams(other, inside) == "holds an empty message"
    assert [other.recv(9, socket.MSG_DONTWAIT) for _ in range(3)] == [b"first", b"", b"last"]
    assert datagrams(other, inside) == []


def test_an_error_stays_the_programs(ports: tuple[socket.socket, socket.socket, Inside]) -> None:
    """That nobody received what it sent."""
    one, other, inside = ports
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        one.connect(nobody.getsockname())
    one.send(b"x")
    assert datagrams(one, inside) == []
    with pytest.raises(ConnectionRefusedError):
        one.recv(9, socket.MSG_DONTWAIT)
    one.connect(other.getsockname())
    other.sendto(b"first", one.getsockname())
    assert datagrams(one, inside) == [f"datagram: {b'first'.hex()} {(name_of(other) or b'').hex()}"]
    name = other.getsockname()
    other.close()
    one.sendto(b"x", name)
    assert datagrams(one, inside) == "holds messages, and an error that was not read"
    with pytest.raises(ConnectionRefusedError):
        one.recv(9, socket.MSG_DONTWAIT)
    assert one.recv(9, socket.MSG_DONTWAIT) == b"first"


def test_another_machine_is_not_this_one() -> None:
    """A socket of the run has the same port at every address of its own machine."""
    names = frozenset({sockaddr(socket.AF_INET, ("0.0.0.0", 7946))})
    here, there = (sockaddr(socket.AF_INET, (host, 7946)) for host in ("127.0.0.1", "192.0.2.1"))
    assert bound_to(here, names) in names
    assert bound_to(there, names) is None


class Encrypted:
    """A connection of which the kernel has been told to encrypt it: not every kernel can."""

    def getsockopt(self, level: int, name: int, length: int = 0) -> bytes:
        assert (level, name) == (socket.IPPROTO_TCP, 31)
        return b"tls\0"


def test_a_connection_that_the_kernel_encrypts_is_refused() -> None:
    name = sockaddr(socket.AF_INET, ("127.0.0.1", 7))
    seen = sockets._Seen(Encrypted(), 1, 1, "tcp", {}, name, name, Inside(frozenset()), None)  # type: ignore[arg-type]
    with pytest.raises(sockets._Cannot) as refused:
        sockets._connection(seen)
    assert "the kernel encrypts, or the like (TCP_ULP: tls), and cannot" in refused.value.found.why_not
