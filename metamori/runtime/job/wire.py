"""Messages between the runs of a job: ZeroMQ, encrypted and signed with keys that lie in the job's store (mode 0600).

Who can read the store may take part, nobody else: the one that counts lets in a single key, which is new each time that
somebody begins to count.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from metamori.errors import MetamoriError
from metamori.runtime.job.folder import boot

Message = dict[str, Any]
_SIOCGIFADDR = 0x8915
_REACH_S = 0.7


class NoAnswer(MetamoriError):
    """Nobody counts, or nobody can be reached."""


def network() -> str:
    return os.readlink("/proc/self/ns/net")


def addresses() -> list[str]:
    """By which others may reach this machine."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue                   # it has none
            found.append(socket.inet_ntoa(answer[20:24]))
    return [each for each in found if not each.startswith("127.")]


class _OneKey:
    """For the authenticator: nobody but who has this key."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return bytes(z85.encode(key) if len(key) == 32 else key) == self._public


class Server:
    """The socket of the one that counts."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        public, secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        self._guard = ThreadAuthenticator(self._context)
        try:
            self._guard.start()
            self._guard.configure_curve_callback(domain="*", credentials_provider=_OneKey(client_public))
            port = self._bind(public, secret)
        except BaseException:              # it is tried again, as long as the run lives
            if self._guard.is_alive():
                self._guard.stop()
            self._context.destroy(linger=0)
            raise
        self.reached: Message = {
            "boot": boot(), "network": network(), "addresses": addresses(), "port": port, "host": socket.gethostname(),
            "server": public.decode(), "public": client_public.decode(), "secret": client_secret.decode()}

    def _bind(self, public: bytes, secret: bytes) -> int:
        self.socket: Any = self._context.socket(zmq.ROUTER)
        self.socket.linger = 500
        self.socket.router_mandatory = 0
        self.socket.sndhwm = self.socket.rcvhwm = 0
        self.socket.curve_secretkey, self.socket.curve_publickey = secret, public
        self.socket.curve_server = True
        port: int = self.socket.bind_to_random_port("tcp://*")
        return port

    def receive(self, wait_s: float) -> tuple[bytes, Message] | None:
        if (parts := _received(self.socket, wait_s)) is None:
            return None
        try:
            found = json.loads(parts[1])
        except (ValueError, IndexError):
            return None
        return (parts[0], found) if isinstance(found, dict) else None

    def send(self, who: bytes, message: Message) -> None:
        self._send(who, json.dumps(message).encode())

    def send_all(self, all_: Iterable[bytes], message: Message) -> None:
        data = json.dumps(message).encode()
        for who in all_:
            self._send(who, data)

    def _send(self, who: bytes, data: bytes) -> None:
        self.socket.send(who, zmq.SNDMORE)
        self.socket.send(data)

    def close(self) -> None:
        self.socket.close()
        self._guard.stop()
        self._context.term()


class Client:
    """A run's, or a verb's, line to the one that counts, or to a relay. NoAnswer."""

    def __init__(self, reached: Message, beside: Client | None = None, address: str = "", **more: str) -> None:
        """beside: a line of the same thread. address: only there, and who answers may do so later. more: for who is
        reached."""
        self._owns = beside is None
        self.context: zmq.Context[Any] = beside.context if beside else zmq.Context()
        self.server: str = reached["server"]
        self.is_same_machine = reached["boot"] == boot()
        for each in [address] if address else candidates(reached):
            self.socket: Any = self._connect(reached, each)
            self.send({"what": "hello?", **more})
            if address:
                return
            answer = self.receive(_REACH_S)
            if answer is not None:
                self.job: str = answer["job"]
                return
            self.socket.close()
        self._end()
        raise NoAnswer(f"no answer from the run that counts, on {reached['host']}")

    def _connect(self, reached: Message, address: str) -> Any:
        line: Any = self.context.socket(zmq.DEALER)
        line.linger = 500
        line.curve_serverkey = reached["server"].encode()
        line.curve_publickey = reached["public"].encode()
        line.curve_secretkey = reached["secret"].encode()
        line.connect(f"tcp://{address}:{reached['port']}")
        return line

    def send(self, message: Message) -> None:
        self.socket.send(json.dumps(message).encode(), flags=zmq.NOBLOCK)

    def receive(self, wait_s: float) -> Message | None:
        if (parts := _received(self.socket, wait_s)) is None:
            return None
        found: Message = json.loads(parts[0])
        return found

    def close(self) -> None:
        self.socket.close()
        self._end()

    def _end(self) -> None:
        if self._owns:
            self.context.term()


def job_of(reached: Message) -> str:
    """Whose run answers; "" where none does."""
    try:
        client = Client(reached)
    except NoAnswer:
        return ""
    client.close()
    return client.job


def is_reached(reached: Message) -> bool:
    """Whether somebody listens there, who may have no time to answer."""
    for each in candidates(reached):
        with suppress(OSError):
            socket.create_connection((each, reached["port"]), _REACH_S).close()
            return True
    return False


def wait(ends: Iterable[Server | Client], wait_s: float) -> None:
    """Until one of them has something to receive."""
    poller = zmq.Poller()
    for each in ends:
        poller.register(each.socket, zmq.POLLIN)
    poller.poll(max(0, int(wait_s * 1000)))


def _received(line: Any, wait_s: float) -> list[bytes] | None:
    """What has come is taken at once: asking first costs as much again."""
    try:
        parts: list[bytes] = line.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        if wait_s <= 0 or not line.poll(int(wait_s * 1000)):
            return None
        parts = line.recv_multipart()
    return parts


def candidates(reached: Message) -> list[str]:
    here = reached["boot"] == boot() and reached["network"] == network()
    return ["127.0.0.1"] if here else [*reached["addresses"], *_looked_up(reached["host"])]


def _looked_up(host: str) -> list[str]:
    try:
        return [each for each in socket.gethostbyname_ex(host)[2] if not each.startswith("127.")]
    except OSError:
        return []
