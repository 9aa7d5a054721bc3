"""The process that makes the calls of programs without the preload library, seen from `metamori run`.

Its other side is shim_c/src/start/proxy.c.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from metamori._area import lib
from metamori.errors import sentence
from metamori.runtime.area.run_area import Area

_PATIENCE_S = 5.0
_STARTS = 50                           # in that time
_DROPPED, _KEPT = 0x10000, 0x20000     # as in proxy.c
_KEEPER, _LISTENERS, _FILES = lib.MM_PROXY_KEEPER, lib.MM_PROXY_LISTENERS, lib.MM_PROXY_FILES


class Keeper:
    """What the proxy and its standby have, for the third time: when both were killed, another begins with it.

    Without it the kernel would answer the programs' calls with ENOSYS.
    """

    def __init__(self) -> None:
        self._line: socket.socket | None = None    # its other end is open in the proxy and in its standby
        self._kept: dict[int, int] = {}            # a descriptor's number there, and here
        self._starts: list[float] = []             # of other proxies, not long ago

    def look(self, area: Area, environ: Mapping[str, str]) -> str:
        """Hear what is new. environ: our part of the command's environment. What a person must know, or ""."""
        try:
            if area.head.proxy_wanted:     # by a program whose orphans are another's of the run
                area.head.proxy_wanted = 0
                _start_apart({}, environ, "0")
            if self._line is None and area.head.untracked and _is_there(area):
                self._line = _line(area.path, b"k")
                self._line.setblocking(False)
            if self._line is None or self._hear(self._line):
                return ""
            self._line = None
            if not (area.head.proxy_places & lib.MM_PROXY_OPEN and self._kept):
                self._forget()         # they ended because there was nothing more to do
            elif self._is_vain():
                self._forget()
                return "the processes that track static programs were killed, and no other stays alive"
            else:
                self._line = self._start(environ)
        except OSError as error:
            if self._line is None and self._kept:
                self._forget()
                return f"the processes that track static programs were killed, and no other starts: {sentence(error)}"
        return ""

    def has_programs(self) -> bool:
        """Whether some are left to a proxy that will be there."""
        return any(number >= _LISTENERS for number in self._kept)

    def await_end(self, area: Area) -> None:
        """It leaves the run when the last of its programs has ended: where they have, until it has heard of that."""
        if not (self.has_programs() or _is_there(area)):
            return
        with suppress(OSError):
            lives = _lives(area.path)
            deadline = time.monotonic() + _PATIENCE_S
            while not lives and _is_there(area) and time.monotonic() < deadline:
                time.sleep(0.001)

    def _is_vain(self) -> bool:
        self._starts = [at for at in self._starts if time.monotonic() - at < _PATIENCE_S] + [time.monotonic()]
        return len(self._starts) > _STARTS

    def _hear(self, line: socket.socket) -> bool:
        """False: there is nobody any more."""
        while True:
            try:
                word, fds, _, _ = socket.recv_fds(line, 4, 1, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return True
            except ConnectionError:
                word = b""
            if not word:
                line.close()
                return False
            what = int.from_bytes(word, sys.byteorder)
            number = what & 0xffff if what & _KEPT else _LISTENERS + (what & 0xffff)
            if number in self._kept:
                os.close(self._kept.pop(number))
            if fds and not what & _DROPPED:
                self._kept[number] = fds[0]

    def _forget(self) -> None:
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()

    def _start(self, environ: Mapping[str, str]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            _start_apart({**self._kept, _KEEPER: theirs.fileno()}, environ, "1")
        ours.setblocking(False)
        return ours


def _start_apart(descriptors: Mapping[int, int], environ: Mapping[str, str], how: str) -> None:
    """how: "0", it is the first; "1", it goes on with what another had."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _become_proxy(descriptors, environ, how)
        finally:
            os._exit(127)
    os.waitpid(pid, 0)


def _become_proxy(descriptors: Mapping[int, int], environ: Mapping[str, str], how: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, hard))
    high = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FILES * 3 // 4) for number, fd in descriptors.items()}
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(4):            # nobody waits for what the first says (MM_PROXY_READY)
        os.dup2(null, number)
        os.set_inheritable(number, True)   # one that is there already stays as it is
    os.closerange(4, _LISTENERS)
    for number, fd in high.items():
        os.dup2(fd, number)
    os.chdir("/")
    theirs = {name: value for name, value in os.environ.items() if name != "LD_AUDIT"}
    os.execve(sys.executable, ["metamori-proxy", environ["METAMORI_STORE"]],
              {**theirs, **environ, "LD_PRELOAD": environ["LD_PRELOAD"].split(":")[0], "METAMORI_PROXY": how})


def _is_there(area: Area) -> bool:
    return any(area.process(slot).outside == lib.MM_OUTSIDE_PROXY for slot in area.processes())


def _lives(folder: str) -> bool:
    """Whether one of its programs does. It looks at those before it answers. OSError."""
    with _line(folder, b"p") as line:
        line.settimeout(_PATIENCE_S)
        return line.recv(4) != bytes(4)


def _line(folder: str, letter: bytes) -> socket.socket:
    """One end of a line of which the proxy gets the other. OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box:
            box.settimeout(_PATIENCE_S)
            box.connect(f"/proc/self/fd/{fd}/proxy")
            socket.send_fds(box, [letter], [theirs.fileno()])
    except OSError:
        ours.close()
        raise
    finally:
        os.close(fd)
    return ours
