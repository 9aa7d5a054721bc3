"""A server that takes one client after the other, while others have connected and sent; and clients that wait for an
answer, or for none. What is printed depends on nothing but the program.
"""

import hashlib
import os
import socket
import sys

family = socket.AF_UNIX if sys.argv[1] == "unix" else socket.AF_INET
WORK, CLIENTS, EACH = map(int, sys.argv[2:5])
LEAVES = sys.argv[5:] == ["leaves"]        # without an answer


def connected() -> socket.socket:
    this = socket.socket(family)
    this.connect(at)
    return this


server = socket.socket(family)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind("name" if family == socket.AF_UNIX else ("127.0.0.1", 0))
server.listen(512)
at = server.getsockname()
clients = []
for client in range(CLIENTS):
    clients.append(os.fork())
    if clients[-1] == 0:
        if LEAVES:                         # else it has the server's socket, too
            server.close()
        state = bytes([client])
        for n in range(EACH):
            with connected() as this:
                this.sendall(b"%d %d %s\n" % (client, n, state))
                state = state if LEAVES else this.makefile("rb").read()
        os._exit(0)
found = bytes(32)
for _ in range(CLIENTS * EACH):
    accepted, _ = server.accept()
    with accepted:
        state = hashlib.sha256(accepted.makefile("rb").readline()).digest()
        for _ in range(WORK):
            state = hashlib.sha256(state).digest()
        found = bytes(x ^ y for x, y in zip(found, state))
        if not LEAVES:
            accepted.sendall(state.hex().encode())
print(found.hex(), [os.waitpid(each, 0)[1] for each in clients])
