"""What sockets have been told, and what they hold of other families, comes back; or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from comeback import is_as_it_was

pytestmark = pytest.mark.usefixtures("installed")

# whatever can be set and asked for, but for buffers, filters, what belongs to one state, and what is no option
OPTIONS = """
HOST = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
NOT = {1: (7, 8, 13, 20, 21, 26, 27, 32, 33, 44, 49, 50, 51, 52, 66, 67), 0: (16, 17, *range(35, 49)), 41: (1, 6),
       6: (12, 14, 19, 20, 21, 23, 31, 35, 38, 39, 40), 17: (100,)}
def made(family):
    server, client, one, other, end = (socket.socket(family, kind) for kind in (1, 1, 1, 2, 2))
    server.bind((HOST[family], 0)), server.listen(), client.connect(server.getsockname())
    end.bind((HOST[family], 0))
    third = socket.socket(family, 2)
    third.connect(end.getsockname())
    return [server, client, server.accept()[0], one, other, end, third]
def value(this, level, name):
    try:
        return this.getsockopt(level, name, 1024)
    except OSError:
        return None
def told(this, level, name):
    before = value(this, level, name)
    for number in (1, 2, 7, 100, 1000, 40000, 0) if before is not None else ():
        try:
            this.setsockopt(level, name, number.to_bytes(len(before) or 8, "little"))
        except OSError:
            continue
        if value(this, level, name) != before:
            return True
    return False
families = [socket.AF_INET, *([socket.AF_INET6] if os.path.exists("/proc/net/if_inet6") else [])]
name = socket.socket(socket.AF_UNIX)
name.bind("name"), name.listen()
all = [*(each for family in families for each in made(family)), *socket.socketpair(), *socket.socketpair(type=2), name]
known = [(this, level, name) for this in all for level, but in NOT.items() for name in range(110)
         if name not in but and told(this, level, name)]
known = [(*each, value(*each)) for each in known if each[1:] != (6, 10) or each[0] in all[0::7] + all[3::7]]
taken()
print(len(known) > 100, [(all.index(this), *each) for this, *each in known if value(this, *each[:2]) != each[2]])
os.unlink("name")
"""
# messages that are not read yet: of one family at a socket of the other, and where both speak IPv4 by IPv6
FAMILIES = """
if not os.path.exists("/proc/net/if_inet6"):
    sys.exit(77)
def made(family, host):
    this = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        this.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    this.bind((host, 0))
    return this
all = [made(socket.AF_INET, host) for host in ("127.0.0.1", "0.0.0.0")]
all += [made(socket.AF_INET6, host) for host in ("::", "::ffff:127.0.0.1", "::1")]
for number, by in enumerate(all):
    for this in all:
        host, port = this.getsockname()[:2]
        if (by is all[4]) == (this is all[4] or (this is all[2] and by is all[4])):
            to = "::1" if by is all[4] else "127.0.0.1" if by.family == socket.AF_INET else "::ffff:127.0.0.1"
            by.sendto(b"%d" % number, (to, port))
all[4].sendto(b"six", ("::1", all[2].getsockname()[1]))
ports = [each.getsockname()[1] for each in all]
def read(this):
    found = []
    while True:
        try:
            data, (host, port, *_) = this.recvfrom(9, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return found
        found.append((data, host, ports.index(port)))
taken()
print([read(each) for each in all])
"""
# several messages that the kernel has not taken apart
SEGMENTS = """
this, by = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
this.bind(("127.0.0.1", 0)), by.connect(this.getsockname())
try:
    this.setsockopt(socket.IPPROTO_UDP, 104, 1), by.setsockopt(socket.IPPROTO_UDP, 103, 100)
except OSError:
    sys.exit(77)
by.send(bytes(range(256)))
taken()
found = []
while sum(map(len, found)) < 256:
    data, more, *_ = this.recvmsg(999, 99, socket.MSG_DONTWAIT)
    size = int.from_bytes(more[0][2], "little") if more else len(data)
    found += [data[at:at + size] for at in range(0, len(data), size)]
print(found)
"""
# held back, with what was on its way before
CORKED = """
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
end = server.accept()[0]
client.send(b"before"), client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
end.send(b"the other way"), end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
taken()
print(end.recv(99, socket.MSG_DONTWAIT), client.recv(99, socket.MSG_DONTWAIT))
print([each.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK) for each in (client, end)])
"""
SCRIPTS = {"options": OPTIONS, "messages of two families": FAMILIES, "several messages in one": SEGMENTS,
           "corked": CORKED}


@pytest.mark.parametrize("what", SCRIPTS)
def test_they_are_as_they_were(tmp_path: Path, what: str) -> None:
    is_as_it_was(tmp_path, SCRIPTS[what])
