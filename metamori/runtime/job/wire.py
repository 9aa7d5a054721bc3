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
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from metamori.errors import MetamoriError
from metamori.runtime.job.folder import boot

Message = dict[str, Any]
_SIOCGIFADDR = 0x8915
_REACH_MS = 700


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
        self._guard.start()
        self._guard.configure_curve_callback(domain="*", credentials_provider=_OneKey(client_public))
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 500
        self._socket.router_mandatory = 0
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.curve_secretkey, self._socket.curve_publickey = secret, public
        self._socket.curve_server = True
        port = self._socket.bind_to_random_port("tcp://*")
        self.reached: Message = {
            "boot": boot(), "network": network(), "addresses": addresses(), "port": port, "host": socket.gethostname(),
            "server": public.decode(), "public": client_public.decode(), "secret": client_secret.decode()}

    def receive(self, wait_s: float) -> tuple[bytes, Message] | None:
        if not self._socket.poll(max(0, int(wait_s * 1000))):
            return None
        who, data = self._socket.recv_multipart()[:2]
        try:
            found = json.loads(data)
        except ValueError:
            return None
        return (who, found) if isinstance(found, dict) else None

    def send(self, who: bytes, message: Message) -> None:
        self._socket.send_multipart([who, json.dumps(message).encode()])

    def send_all(self, all_: Iterable[bytes], message: Message) -> None:
        data = json.dumps(message).encode()
        for who in all_:
            self._socket.send_multipart([who, data])

    def close(self) -> None:
        self._socket.close()
        self._guard.stop()
        self._context.term()


class Client:
    """A run's, or a verb's, line to the one that counts. NoAnswer."""

    def __init__(self, reached: Message) -> None:
        self._context = zmq.Context()
        self._socket: Any = None
        self.server: str = reached["server"]
        self.is_same_machine = reached["boot"] == boot()
        for address in _candidates(reached):
            self._connect(reached, address)
            self.send({"what": "hello?"})
            answer = self.receive(_REACH_MS / 1000)
            if answer is not None:
                self.job: str = answer["job"]
                return
            self._let_go()
        self._context.term()
        raise NoAnswer(f"no answer from the run that counts, on {reached['host']}")

    def _connect(self, reached: Message, address: str) -> None:
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 500
        self._socket.curve_serverkey = reached["server"].encode()
        self._socket.curve_publickey = reached["public"].encode()
        self._socket.curve_secretkey = reached["secret"].encode()
        self._socket.connect(f"tcp://{address}:{reached['port']}")

    def _let_go(self) -> None:
        self._socket.close()

    def send(self, message: Message) -> None:
        self._socket.send(json.dumps(message).encode(), flags=zmq.NOBLOCK)

    def receive(self, wait_s: float) -> Message | None:
        if not self._socket.poll(max(0, int(wait_s * 1000))):
            return None
        found: Message = json.loads(self._socket.recv())
        return found

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def _candidates(reached: Message) -> list[str]:
    here = reached["boot"] == boot() and reached["network"] == network()
    return ["127.0.0.1"] if here else [*reached["addresses"], *_looked_up(reached["host"])]


def _looked_up(host: str) -> list[str]:
    try:
        return [each for each in socket.gethostbyname_ex(host)[2] if not each.startswith("127.")]
    except OSError:
        return []
