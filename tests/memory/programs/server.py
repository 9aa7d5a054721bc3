"""A server with sockets of every kind, all in one epoll set. A request is a line, the answer one of JSON.

count: one more; look: everything that it knows of its sockets. It ends when the file "go" is there.
"""
import contextlib
import json
import os
import selectors
import socket
import sys

S = socket.SOL_SOCKET
OPTIONS = [(S, socket.SO_REUSEADDR), (S, socket.SO_REUSEPORT), (S, socket.SO_KEEPALIVE), (S, socket.SO_RCVBUF),
           (S, socket.SO_BROADCAST), (S, 36), (S, 40), (S, 42), (S, 60), (socket.IPPROTO_TCP, socket.TCP_NODELAY),
           (socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT), (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)]


def made():
    tcp = socket.socket()
    tcp.setsockopt(S, socket.SO_REUSEADDR, 1)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tcp.bind(("127.0.0.1", 0))
    tcp.listen(17)
    tcp.setblocking(False)
    os.set_inheritable(tcp.fileno(), True)
    shared = socket.socket()
    shared.setsockopt(S, socket.SO_REUSEPORT, 1)
    shared.setsockopt(S, socket.SO_RCVBUF, 65536)
    shared.bind(("127.0.0.1", 0))
    shared.listen(5)
    unix = socket.socket(socket.AF_UNIX)
    unix.bind("name")
    os.chmod("name", 0o640)
    unix.listen(3)
    hidden = socket.socket(socket.AF_UNIX)
    hidden.bind(b"\0metamori-%d" % os.getpid())
    hidden.listen(3)
    udp = socket.socket(type=socket.SOCK_DGRAM)
    for each in (socket.SO_BROADCAST, 36, 40, 60):      # SO_MARK, SO_RXQ_OVFL, SO_ZEROCOPY
        with contextlib.suppress(OSError): # which the user may not
            udp.setsockopt(S, each, 1)
    udp.bind(("127.0.0.1", 0))
    found = {"tcp": tcp, "shared": shared, "unix": unix, "hidden": hidden, "udp": udp, "unused": socket.socket()}
    if os.path.exists("/proc/net/if_inet6"):
        six = socket.socket(socket.AF_INET6)
        six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        six.bind(("::", 0))
        six.listen(1)
        found["six"] = six
    return found


def pairs():
    stream, messages, closed = (socket.socketpair(type=kind) for kind in (
        socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM))
    stream[0].send(b"half ")
    stream[0].send(b"a line")
    stream[1].shutdown(socket.SHUT_WR)
    messages[1].send(b"one")
    messages[1].send(b"two")
    closed[0].send(b"the last words")
    closed[0].close()
    return {"stream0": stream[0], "stream1": stream[1], "messages0": messages[0], "messages1": messages[1],
            "closed": closed[1]}


def option(each, level, name):
    try:
        return each.getsockopt(level, name)
    except OSError as error:
        return error.errno


def backlog(each):
    if each.family == socket.AF_UNIX or each.type != socket.SOCK_STREAM:
        return 0
    return int.from_bytes(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[28:32], "little")


def look():
    known = {name: [each.fileno(), str(each.getsockname()), os.get_blocking(each.fileno()),
                    os.get_inheritable(each.fileno()), backlog(each), [option(each, *which) for which in OPTIONS]]
             for name, each in sockets.items()}
    known["name"] = oct(os.stat("name").st_mode)
    waiting = {name: each.recv(100, socket.MSG_PEEK).decode() for name, each in ends.items()
               if name in ("stream1", "messages0", "closed")}
    return {"count": count, "known": known, "waiting": waiting, "ended": ended, "here": len(connections)}


def answer(each):
    global count
    try:
        line = each.recv(100)
    except OSError as error:
        ended.append(error.errno)
        line = b""
    if not line:
        connections.discard(each)
        epoll.unregister(each)
        each.close()
        return
    count += line == b"count\n"
    each.send(json.dumps(look()).encode() + b"\n")


count, ended, connections = 0, [], set()
sockets, ends, epoll = made(), pairs(), selectors.DefaultSelector()
sockets["shared"].setblocking(True)
for name in ("tcp", "unix", "hidden", "udp"):
    epoll.register(sockets[name], selectors.EVENT_READ, name)
print(json.dumps({name: each.getsockname()[1] for name, each in sockets.items() if each.family == socket.AF_INET}),
      flush=True)
while not os.path.exists("go"):
    for key, _ in epoll.select(0.05):
        if key.data == "udp":
            data, sender = key.fileobj.recvfrom(100)
            key.fileobj.sendto(data, sender)
        elif key.data:
            connection, _ = key.fileobj.accept()
            connections.add(connection)
            epoll.register(connection, selectors.EVENT_READ, "")
        else:
            answer(key.fileobj)
print([ends["messages0"].recv(100), ends["messages0"].recv(100), ends["stream1"].recv(100), ends["closed"].recv(100),
       ends["closed"].recv(100), ends["stream0"].recv(100)])
sys.exit(3)
