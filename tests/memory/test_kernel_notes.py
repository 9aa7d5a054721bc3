"""What the kernel notes of threads and descriptors, and says by the way: as it was when the program is back."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from comeback import METAMORI, TAKEN, Memory, built, came_back, is_as_it_was, run_of
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")

# shut for reading by themselves: empty, with something unread, and for writing, too; one whose other end was shut
SHUT = """
server = socket.create_server(("127.0.0.1", 0))
def pair():
    client = socket.create_connection(server.getsockname())
    return client, server.accept()[0]
ends = [pair() for _ in range(4)]
ends[0][0].shutdown(socket.SHUT_RD)
ends[1][1].send(b"unread"), ends[1][0].shutdown(socket.SHUT_RD)
ends[2][1].shutdown(socket.SHUT_RDWR)
ends[3][1].send(b"the last"), ends[3][1].shutdown(socket.SHUT_WR)
taken()
for each in ends:
    for end in each:
        end.settimeout(0.3)
        try:
            print(end.recv(99), end.recv(99))
        except TimeoutError:
            print("waits")
print(ends[0][0].send(b"to the other"), ends[0][1].recv(99))
"""
# fired once: with a reason that is still there, and with one that is gone; beside them others that have fired or not
FIRED = """
watches = select.epoll()
r, w = os.pipe()
one, other = socket.socketpair()
third, fourth = socket.socketpair()
counter = os.eventfd(0, os.EFD_NONBLOCK)
watches.register(one, select.EPOLLIN | select.EPOLLONESHOT), other.send(b"x")
watches.register(third, select.EPOLLIN | select.EPOLLONESHOT), fourth.send(b"x")
watches.register(counter, select.EPOLLIN | select.EPOLLONESHOT), os.eventfd_write(counter, 1)
assert len(watches.poll(0)) == 3
third.recv(1), os.eventfd_read(counter)
watches.register(w, select.EPOLLOUT), watches.register(r, select.EPOLLIN | select.EPOLLONESHOT)
def names(events):
    return sorted(({one.fileno(): "one", third.fileno(): "third", counter: "counter", r: "r", w: "w"}[fd], what)
                  for fd, what in events)
taken()
print(names(watches.poll(0)))
other.close(), fourth.close(), os.eventfd_write(counter, 1), os.write(w, b"x")
print(names(watches.poll(0)), names(watches.poll(0)))
watches.modify(one, select.EPOLLIN | select.EPOLLONESHOT)
print(names(watches.poll(0)), names(watches.poll(0)))
"""
# one that runs out once and was not asked yet; one that goes on, asked for its time when it had run out
TICKS = """
def made(first, interval, flags=0):
    fd = libc.timerfd_create(1, os.O_NONBLOCK)
    assert libc.timerfd_settime(fd, flags, struct.pack("=qqqq", interval, 0, 0, first), None) == 0
    return fd
once, goes_on, asked, waits = made(1000, 0), made(1000, 1000), made(1000, 1000), made(0, 0)
time.sleep(0.05)
assert libc.timerfd_gettime(asked, ctypes.create_string_buffer(32)) == 0
taken()
for fd in (once, goes_on, asked, waits):
    for _ in range(2):
        try:
            print(struct.unpack("=Q", os.read(fd, 8)))
        except BlockingIOError:
            print("nothing")
"""
# not asked for longer than its interval: it counts all that time
MANY_TICKS = """
fd = libc.timerfd_create(1, os.O_NONBLOCK)
assert libc.timerfd_settime(fd, 0, struct.pack("=qqqq", 0, 50_000_000, 0, 50_000_000), None) == 0
time.sleep(1)
taken()
print(struct.unpack("=Q", os.read(fd, 8))[0] >= 20)
"""
# as many as there may be, some of them where whoever brings it back puts what is not in place yet
NUMBERS = """
import fcntl, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
def opened(name, number=0):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(fd, name.encode())
    if number:
        os.set_inheritable(fd, False), os.dup2(fd, number), os.close(fd)
    return number or fd
files = {name: opened(name, number) for name, number in (("one", 34), ("two", 41), ("three", 55))}
files |= {str(each): opened(str(each)) for each in range(FILES)}
taken()
print([name for name, fd in files.items() if os.pread(fd, 9, 0) != name.encode()], len(files), max(files.values()))
"""
LAST = """
os.dup2(os.open("file", os.O_RDWR | os.O_CREAT), 255), os.write(255, b"x")
taken()
print(os.pread(255, 9, 0))
"""
# descriptors of places (O_PATH): they are no ends of what is there
PLACES = """
import errno, fcntl
os.mkfifo("fifo")
this = socket.socket(socket.AF_UNIX)
this.bind("name")
os.mkfifo("called (deleted)")
places = [os.open(each, os.O_PATH) for each in ("fifo", "name", ".", "called (deleted)")]
places += [os.dup2(places[0], 0)]
taken()
print([fcntl.fcntl(each, fcntl.F_GETFL) & os.O_PATH for each in places], os.readlink("/proc/self/fd/0")[-5:])
try:
    os.open("fifo", os.O_WRONLY | os.O_NONBLOCK)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
# looked at in part, and on from there (SO_PEEK_OFF: of TCP since Linux 6.9): both ends open; both shut
PEEKED = """
server = socket.create_server(("127.0.0.1", 0))
ends = []
for _ in range(2):
    client = socket.create_connection(server.getsockname())
    ends.append((client, server.accept()[0]))
    ends[-1][1].settimeout(9)
    client.send(b"abcdef")
    try:
        ends[-1][1].setsockopt(socket.SOL_SOCKET, 42, 0)
    except OSError:
        sys.exit(77)
    print(ends[-1][1].recv(2, socket.MSG_PEEK))
ends[1][1].shutdown(socket.SHUT_WR), ends[1][0].recv(1), ends[1][0].close()
time.sleep(0.1)
taken()
for _, end in ends:
    print(end.getsockopt(socket.SOL_SOCKET, 42), end.recv(2, socket.MSG_PEEK), end.recv(99))
"""
# of processor time: stopped by a time of 0, with an interval all the same
STOPPED_TIMERS = """
for which in (1, 2):
    assert libc.setitimer(which, struct.pack("=qqqq", 0, 50000, 0, 0), None) == 0
taken()
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("goes on")
"""
# what the kernel told it when it began: debuggers find by that where the program lies
TOLD = """
def told():
    with open("/proc/self/auxv", "rb") as file:
        return file.read()
before = told()
taken()
print(told() == before)
"""
# of shared memory: of an open description, and of the process
LOCKED = """
import fcntl
name = f"/dev/shm/{os.path.basename(os.path.dirname(os.getcwd()))}"
one, other = (os.open(name, os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
fcntl.flock(one, fcntl.LOCK_EX)
fcntl.lockf(other, fcntl.LOCK_EX, 5, 10)
taken()
child = os.fork()
if child == 0:
    new = os.open(name, os.O_RDWR)
    found = fcntl.fcntl(new, fcntl.F_GETLK, struct.pack("=hhxxxxqqixxxx", 1, 0, 0, 0, 0))
    print(struct.unpack("=hhxxxxqq", found[:24]))
    try:
        fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("is locked", flush=True)
    os._exit(0)
os.waitpid(child, 0)
os.unlink(name)
"""
# a terminal of which nobody has the master any more, one that is in use, and one whose slave nobody has opened yet
TERMINALS = """
import errno, fcntl, termios
def look(fd):
    found = []
    for what in lambda: os.write(fd, b"x"), lambda: os.read(fd, 9), lambda: os.isatty(fd):
        try:
            found.append(what())
        except OSError as error:
            found.append(errno.errorcode[error.errno])
    return found
master, gone = os.openpty()
os.close(master)
os.dup2(gone, 0)
master, slave = os.openpty()
alone = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
fcntl.ioctl(alone, 0x40045431, bytes(4))
taken()
poll = select.poll()
poll.register(alone, select.POLLIN)
print(look(gone), look(0), os.isatty(slave), poll.poll(0) == [])
os.close(fcntl.ioctl(alone, 0x5441, os.O_RDWR | os.O_NOCTTY))
print(poll.poll(0) == [(alone, select.POLLHUP)])
"""
# whose master is told what is done to the terminal, too (TIOCPKT), with something typed that was not read
PACKETS = """
import fcntl, termios
master, slave = os.openpty()
fcntl.ioctl(master, 0x5420, struct.pack("i", 1))
os.write(master, b"typed\\n")
time.sleep(0.1)
print(os.read(master, 99))
taken()
print(os.read(slave, 99), os.write(slave, b"said\\n"), os.read(master, 99))
termios.tcflush(slave, termios.TCIFLUSH)
print(os.read(master, 99))
"""
# an orphan that came to this process, from a session whose leader has gone
ORPHAN = """
libc.prctl(36, 1, 0, 0, 0)
(ready, tells), (waits, goes), me = os.pipe(), os.pipe(), os.getpid()
first = os.fork()
if first == 0:
    os.setsid()
    leader = os.getpid()
    if os.fork() == 0:
        while os.getppid() != me:
            time.sleep(0.001)
        os.write(tells, b"x"), os.read(waits, 1)
        os._exit(os.getsid(0) == leader and os.getppid() == me)
    os._exit(0)
os.waitpid(first, 0), os.read(ready, 1)
taken()
os.write(goes, b"x")
print(os.wait()[1])
"""
# more in it than whoever sent that has room for by now: by TCP, and between a pair
FULL = """
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
end = server.accept()[0]
one, other = socket.socketpair()
client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
client.settimeout(5)
for n in range(60):
    client.send(bytes([n]) * 1000)
one.send(bytes(100000))
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
time.sleep(0.2)
taken()
print(end.recv(60000, socket.MSG_WAITALL)[::1000] == bytes(range(60)), len(other.recv(100000, socket.MSG_WAITALL)),
      [each.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for each in (client, one)])
"""
# of a connection whose other end has ended; this one would end by a reset
LINGERS = """
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other = server.accept()[0]
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
other.send(b"last words"), other.close()
time.sleep(0.1)
taken()
print(client.recv(99), client.recv(99))
"""
# one end of IPv6, the other of IPv4: both there, and either one closed
MAPPED = """
if not os.path.exists("/proc/net/if_inet6"):
    sys.exit(77)
six = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
four = socket.create_server(("127.0.0.1", 0))
def pair(server):
    client = socket.socket(socket.AF_INET if server is six else socket.AF_INET6)
    client.connect(("127.0.0.1" if server is six else "::ffff:127.0.0.1", server.getsockname()[1]))
    return client, server.accept()[0]
ends = [[pair(each) for _ in range(3)] for each in (six, four)]
def names():
    return [(end.getsockname(), end.getpeername()) for all in ends for end in all[0]]
for (client, end), (closed, _), (_, gone) in ends:
    client.send(b"to the server"), end.send(b"to the client")
    closed.send(b"the last"), closed.close(), gone.send(b"the end"), gone.close()
before = names()
time.sleep(0.1)
taken()
print(names() == before)
for (client, end), (_, left), (alive, _) in ends:
    print(end.recv(99), client.recv(99), [each.recv(99) for each in (left, left, alive, alive)])
"""
# it has used more of its stack than it may by now
STACK = """
import resource
compares = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
sys.setrecursionlimit(99999)
def deep(n):
    if n:
        libc.qsort((ctypes.c_int * 2)(), 2, 4, compares(lambda one, other: deep(n - 1) or 0))
deep(1000)
resource.setrlimit(resource.RLIMIT_STACK, (1 << 19, 1 << 19))
taken()
print(resource.getrlimit(resource.RLIMIT_STACK))
"""
# its command line is gone
WIPED = """
word = ctypes.c_void_p.in_dll(libc, "program_invocation_name").value
ctypes.memset(word, 0, len(ctypes.string_at(word)))
taken()
print("goes on")
"""
# modes that shut out its own user: shared memory, and the folder that it is in
MODES = """
name = f"/dev/shm/{os.path.basename(os.path.dirname(os.getcwd()))}"
memory = os.open(name, os.O_RDWR | os.O_CREAT, 0o400)
os.mkdir("shut"), os.chdir("shut"), os.chmod(".", 0)
taken()
print(os.pwrite(memory, b"x", 0), os.fstat(memory).st_mode, os.getcwd()[-4:], os.stat(os.getcwd()).st_mode)
os.unlink(name)
"""
# a unix socket that was renamed since it got its name, connected to, and asked
RENAMED = """
server, client, late = (socket.socket(socket.AF_UNIX) for _ in range(3))
server.bind("new"), server.listen(5), os.chmod("new", 0o640), os.rename("new", "name")
client.connect("name")
end = server.accept()[0]
late.connect("name")
taken()
print([server.getsockname(), client.getpeername(), late.getpeername(), os.stat("name").st_mode, os.path.exists("new")])
other = server.accept()[0]
late.send(b"late"), client.send(b"client")
print(other.recv(9), end.recv(9))
server.close(), os.unlink("name")
"""
SCRIPTS = {"a few descriptors": NUMBERS.replace("FILES", "20"), "many descriptors": NUMBERS.replace("FILES", "44"),
           "places": PLACES, "what was looked at in part": PEEKED,
           "shut connections": SHUT, "what has fired once": FIRED, "timers that ran out": TICKS,
           "timers that were stopped": STOPPED_TIMERS,
           "what the kernel told it": TOLD,
           "locked shared memory": LOCKED,
           "terminals": TERMINALS,
           "a terminal with packets": PACKETS,
           "an orphan": ORPHAN,
           "full sockets": FULL,
           "a connection that ends by a reset": LINGERS,
           "connections of two families": MAPPED,
           "a large stack": STACK,
           "no command line": WIPED,
           "a socket that was renamed": RENAMED,
           "a timer that nobody asked": MANY_TICKS}


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that any user can enter."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.mark.in_turn("what", 2)
@pytest.mark.parametrize("what", SCRIPTS)
def test_they_are_as_they_were(tmp_path: Path, what: str) -> None:
    is_as_it_was(tmp_path, SCRIPTS[what])


def test_modes_that_shut_its_user_out(open_to_all: Path) -> None:
    (open_to_all / "script").write_text(TAKEN + MODES)
    case = Memory(open_to_all, ["/usr/bin/python3", open_to_all / "script"], user=None if os.geteuid() else "nobody")
    assert case.start().wait(300) == 0, case.errors()
    came_back(case, 1)


def test_the_last_number_of_all_comes_back(tmp_path: Path) -> None:
    """As a shell has its script, under a hard limit."""
    (tmp_path / "script").write_text(TAKEN + LAST)
    limited = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh"]
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"])
    case.within = limited
    run_of(case)
    done = subprocess.run([*limited, *METAMORI, "restart", "1"], cwd=case.work, env=case.environment(),
                          capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, case.native.output), done


def test_sequences_of_threads(tmp_path: Path) -> None:
    """Where the C library registers none, a program can."""
    program = built(tmp_path, "sequences.c")
    case = Memory(tmp_path, ["/usr/bin/env", "GLIBC_TUNABLES=glibc.pthread.rseq=0", program])
    run_of(case)
    assert case.errors().count("taken") == 2
    came_back(case, 1, 2)


def test_threads_are_scheduled_as_they_were(tmp_path: Path) -> None:
    case = Memory(tmp_path, [built(tmp_path, "scheduled.c")])
    run_of(case)
    came_back(case, 1)


def test_what_it_has_told_the_kernel(tmp_path: Path) -> None:
    case = Memory(tmp_path, [built(tmp_path, "settings.c")])
    run_of(case)
    came_back(case, 1)


# a time of day: two that are to come, one of them again and again from then on, and one that says when the clock is set
WALL = """
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None)
def made(until, interval=0, flags=1):
    fd = libc.timerfd_create(0, os.O_NONBLOCK)
    assert libc.timerfd_settime(fd, flags, struct.pack("=qqqq", interval, 0, until, 0), None) == 0
    return fd
comes, later = (int(time.time()) + int(word) for word in (sys.argv[1], 5000))
soon, repeats, far = made(comes), made(comes, 5000), made(later, flags=3)
with open("ready.new", "w") as file:
    file.write(str(comes))
os.rename("ready.new", "ready")
while time.time() < comes + 0.2 or not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
print([struct.unpack("=Q", os.read(fd, 8))[0] for fd in (soon, repeats)])
before, said, after = time.time(), open(f"/proc/self/fdinfo/{far}").read(), time.time()
left = int(said.partition("it_value: (")[2].split(",")[0])
print("settime flags: 03" in said, later - after - 1 <= left <= later - before)
"""


def test_a_time_of_day_comes_while_the_program_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(WALL)
    go = tmp_path / "go"
    for seconds in (3, 30, 300):           # a slow machine may have saved it no sooner
        go.touch()
        (folder := tmp_path / str(seconds)).mkdir()
        case = Memory(folder, ["/usr/bin/python3", tmp_path / "script", str(seconds), go])
        go.unlink()
        case.is_saved_and_killed()
        comes = int((case.work / "ready").read_text())
        if time.time() < comes:
            break
    go.touch()
    wait_until(lambda: time.time() > comes + 0.2, "it comes")
    done = case.verb("restart", "1")
    assert (done.returncode, done.stdout) == (0, case.native.output), done
    assert done.stdout == b"[1, 1]\nTrue True\n"


# by the numbers that the program knows, which the kernel gives to nobody now
BY_NUMBER = """
import resource, signal, threading
os.setpgid(0, 0)
ends = threading.Event()
other = threading.Thread(target=ends.wait)
other.start()
child = os.fork()
if child == 0:
    while True:
        signal.pause()
known = (os.getpid(), other.native_id, child)
WHO, SET_PRIORITY, IO_SET, IO_GET, SIGNAL = 1, 141, 251, 252, 200
taken()
for each in known:
    os.setpriority(os.PRIO_PROCESS, each, 3), libc.syscall(IO_SET, WHO, each, 3 << 13)
    os.sched_setscheduler(each, os.SCHED_BATCH, os.sched_param(0))
    print(os.getpriority(os.PRIO_PROCESS, each), os.sched_getscheduler(each), os.sched_getparam(each).sched_priority,
          libc.syscall(IO_GET, WHO, each) >> 13, libc.syscall(SIGNAL, each, 0))
for each in known[::2]:
    resource.prlimit(each, resource.RLIMIT_CORE, (0, 77))
    print(resource.prlimit(each, resource.RLIMIT_CORE))
os.setpriority(os.PRIO_PGRP, os.getpgrp(), 4)
print([os.getpriority(os.PRIO_PROCESS, each) for each in (known[0], child)], libc.syscall(SET_PRIORITY, 0, child, 5))
signal.pidfd_send_signal(os.pidfd_open(child), signal.SIGKILL)
print(os.waitpid(child, 0)[1], os.getpriority(os.PRIO_PROCESS, 0))
ends.set()
"""


def test_those_that_calls_name_by_number(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(TAKEN + BY_NUMBER)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"])
    run_of(case)
    case.added = {"METAMORI_MEMORY_NUMBERS": "new"}
    came_back(case, 1)
