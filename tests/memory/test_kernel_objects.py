"""What the kernel keeps for processes, seldom used: as it was after SIGKILL of all, at every index."""

from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built, comes_back
from hang import descendants
from lab import PATIENCE, wait_until
from stops import Stops

from metamori._area import ffi

pytestmark = pytest.mark.usefixtures("installed")
FUTEX = 202 if platform.machine() == "x86_64" else 98

WORKS = """
import fcntl, hashlib, os, resource, signal, socket, struct, sys
def works(rounds=60, state=b"x"):
    for n in range(rounds):
        for i in range(9000):
            state = hashlib.sha256(state * 3).digest()
"""
COUNTERS = """
semaphore, large = os.eventfd(3, os.EFD_SEMAPHORE | os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
os.eventfd_write(large, 2 ** 64 - 2)
child = os.fork()
works()
if child == 0:
    os._exit(os.eventfd_read(semaphore))
print(os.waitpid(child, 0)[1] >> 8, os.eventfd_read(semaphore), os.eventfd_read(semaphore), os.eventfd_read(large))
"""
FOLDERS = """
os.mkdir("held"), os.mkdir("other"), os.mkdir("within")
held, other = os.open("held", os.O_RDONLY), os.open("other", os.O_RDONLY | os.O_DIRECTORY)
fcntl.flock(other, fcntl.LOCK_EX)
one, two = socket.socketpair()
os.rmdir("held")
os.chdir("within")
os.rmdir("../within")
child = os.fork()
works()
os.write(1, b"%r %r %r\\n" % (os.listdir(held), os.fstat(held).st_nlink < 2, os.path.exists("x")))   # both at a time
if child == 0:
    os._exit(7)
try:
    open("x", "w")
except FileNotFoundError:
    print("nothing is made there", os.waitpid(child, 0)[1] >> 8)
os.fchdir(other)
try:
    fcntl.flock(os.open(".", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("is locked")
"""
# of those that queue, to the process: each as it was sent; of others, that they wait
SIGNALS = """
import ctypes
def sends(to, number, value):
    assert ctypes.CDLL(None).sigqueue(to, number, ctypes.c_void_p(value)) == 0
queued, one, other = signal.SIGRTMIN + 3, signal.SIGRTMAX, signal.SIGRTMIN + 5
signal.pthread_sigmask(signal.SIG_BLOCK, [queued, one, other, signal.SIGUSR1])
for value in (7, 8, 9):
    sends(os.getpid(), queued, value)
os.kill(os.getpid(), other)
signal.pthread_kill(__import__("threading").get_ident(), one)
os.kill(os.getpid(), signal.SIGUSR1), signal.pthread_kill(__import__("threading").get_ident(), signal.SIGUSR1)
child = os.fork()
if child == 0:
    assert not signal.sigpending()
    sends(os.getppid(), queued, 10)
    works(80)
    sends(os.getppid(), queued, 11)
    os._exit(4)
works()
assert os.waitpid(child, 0)[1] >> 8 == 4 and signal.sigpending() == {queued, one, other, signal.SIGUSR1}
libc, info = ctypes.CDLL(None), (ctypes.c_int * 32)()
def taken(number):
    mask = ctypes.c_uint64(1 << (number - 1))
    while libc.sigtimedwait(ctypes.byref(mask), info, bytes(16)) == number:
        yield info[2], {os.getpid(): "self", child: "child"}.get(info[4]), info[6] if info[2] == -1 else 0
for number in (queued, other):
    print(*taken(number))
print(len([*taken(one)]), len([*taken(signal.SIGUSR1)]))
"""
# to one name from two that have names, one that is connected and one without a name; both ways between two ports
DATAGRAMS = """
def made(family, name, to=None):
    this = socket.socket(family, socket.SOCK_DGRAM)
    if name:
        this.bind(name)
    if to:
        this.connect(to)
    this.settimeout(9)
    return this
unix, inet = socket.AF_UNIX, socket.AF_INET
at, one = made(unix, "at"), made(unix, "\\0h4" + str(os.getppid()))
two, nameless = made(unix, "two", "at"), made(unix, None)
left, right, any = made(inet, ("127.0.0.1", 0)), made(inet, ("127.0.0.1", 0)), made(inet, ("0.0.0.0", 0))
port = any.getsockname()[1]
r, w = os.pipe()
child = os.fork()
if child == 0:
    one.sendto(b"one", "at"), two.send(b"two"), nameless.sendto(b"nameless", "at"), one.sendto(b"one again" * 99, "at")
    right.sendto(b"before", left.getsockname()), right.sendto(b"to any", ("127.0.0.1", port))
    any.sendto(b"from any", left.getsockname())
    os.write(w, b"x")
else:
    os.read(r, 1)
    left.connect(right.getsockname()), right.connect(left.getsockname())
    left.send(b"to right")
if child == 0:
    works()
    two.send(b"two later"), right.send(b"later")
    print(right.recv(99), flush=True)
    os._exit(6)
works(80)
assert os.waitpid(child, 0)[1] >> 8 == 6
names = {left.getsockname(): "left", right.getsockname(): "right", ("127.0.0.1", port): "any", one.getsockname(): "one"}
for this, count in (at, 5), (left, 3), (any, 1):
    for _ in range(count):
        data, sender = this.recvfrom(9999)
        print(data[:20], len(data), names.get(sender, sender))
"""
# from a port that somebody listens at, too
TWO_KINDS = """
left, right = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
left.bind(("127.0.0.1", 0)), right.bind(("127.0.0.1", 0))
listens = socket.create_server(right.getsockname())
child = os.fork()
if child == 0:
    works()
    os._exit(3)
right.sendto(b"from right", left.getsockname())
works()
left.settimeout(9)
data, sender = left.recvfrom(99)
print(data, sender == right.getsockname() == listens.getsockname(), os.waitpid(child, 0)[1] >> 8)
"""
TOO_MANY = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
for _ in range(65):
    os.kill(os.getpid(), signal.SIGRTMIN)
print("sent", flush=True)
while not os.path.exists("go"):
    works(1)
for n in range(66):
    print(n, signal.sigtimedwait([signal.SIGRTMIN], 0) and "came")
"""
IN_ORDER = """
import metamori
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
os.kill(os.getpid(), signal.SIGRTMIN)
child = os.fork()
if child == 0:
    metamori.checkpoint()
    os.kill(os.getppid(), signal.SIGRTMIN)
    open("sent", "w").close()
    os._exit(0)
os.waitpid(child, 0)
print([signal.sigwaitinfo([signal.SIGRTMIN]).si_pid == each for each in (os.getpid(), child)])
"""
FEW = """
import metamori, resource
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
resource.setrlimit(resource.RLIMIT_SIGPENDING, (int(sys.argv[1]),) * 2)
for _ in range(int(sys.argv[2])):
    os.kill(os.getpid(), signal.SIGRTMIN)
if sys.argv[3:]:
    print("full", flush=True)
    sys.stdin.read()
metamori.checkpoint()
print(signal.sigwaitinfo([signal.SIGRTMIN]).si_pid == os.getpid())
"""
WITHOUT_ROOM = """
import metamori, resource
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
_, most = resource.getrlimit(resource.RLIMIT_SIGPENDING)
resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, most))
os.kill(os.getpid(), signal.SIGRTMIN)
resource.setrlimit(resource.RLIMIT_SIGPENDING, (most, most))
metamori.checkpoint()
one = signal.sigtimedwait([signal.SIGRTMIN], 0)
print(one and (one.si_code, one.si_pid), signal.sigtimedwait([signal.SIGRTMIN], 0))
"""
SCRIPTS = {"counters": COUNTERS, "queued signals": SIGNALS, "removed folders": FOLDERS, "datagrams": DATAGRAMS,
           "ports of two kinds": TWO_KINDS}


@pytest.mark.parametrize("what", SCRIPTS)
def test_they_come_back(tmp_path: Path, what: str) -> None:
    (tmp_path / "script").write_text(WORKS + SCRIPTS[what])
    comes_back(Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"]), "150ms")


def test_signals_of_timers(tmp_path: Path) -> None:
    """Come with what each of several sends along, whether they queue or not."""
    case = Memory(tmp_path, [built(tmp_path, "ticks.c")])
    assert case.start().wait(PATIENCE) == 0, case.errors()
    for index in range(3, 0, -1):
        done = case.verb("restart", str(index))
        assert (done.returncode, done.stdout) == (0, case.native.output), done


def test_timers_that_start_threads(tmp_path: Path) -> None:
    """Each has its thread once, wherever it ran out: while its process stood, too."""
    case = Memory(tmp_path, [built(tmp_path, "starts.c")])
    assert case.start().wait(PATIENCE) == 0, case.errors()
    assert (tmp_path / "out").read_bytes() == case.native.output
    indexes = case.images()
    assert len(indexes) >= 8, case.errors()
    for index in indexes[::-1]:
        done = case.verb("restart", str(index))
        assert (done.returncode, done.stdout) == (0, case.native.output.partition(b"\n")[2]), (index, done)


def test_timers_that_start_threads_are_killed(tmp_path: Path) -> None:
    comes_back(Memory(tmp_path, [built(tmp_path, "starts.c"), "120"]), "100ms")


@pytest.mark.slow
def test_descriptors_that_signal(tmp_path: Path) -> None:
    """A process, a thread, a group, a child, by the numbers that the program knows; signals that wait say of which."""
    comes_back(Memory(tmp_path, [built(tmp_path, "signals.c")]), "150ms")


@pytest.mark.slow
def test_a_signal_says_of_which_whoever_makes_the_image(tmp_path: Path) -> None:
    """Also where the first thread is busy, and another one took it from the queue and sent it again."""
    case = Memory(tmp_path, [built(tmp_path, "signals.c"), "2", "disturbed"])
    assert case.start("--every", "60ms").wait(PATIENCE) == 0, (case.errors(), (tmp_path / "out").read_bytes())
    assert len(case.images()) > 2, case.errors()


def waits_for(pid: int, word: int) -> bool:
    """In a page, by a futex."""
    with suppress(OSError):
        called = Path(f"/proc/{pid}/syscall").read_text().split()
        return called[0] == str(FUTEX) and (int(called[1], 16) - word) % 4096 == 0
    return False


def test_signals_are_there_before_others_come(tmp_path: Path) -> None:
    """Nobody runs, and sends more, before all have those that waited for them."""
    stops, sent = Stops(tmp_path / "stops"), tmp_path / "work" / "sent"
    (tmp_path / "script").write_text(WORKS + IN_ORDER)
    case = Memory(tmp_path, [sys.executable, tmp_path / "script"], ends=False)
    case.added = stops.env
    assert case.start().wait(PATIENCE) == 0, case.errors()
    expected = (tmp_path / "out").read_bytes()
    stops.arm("restore.queued")
    word = ffi.offsetof("struct mm_header", "tree", "ready")
    with subprocess.Popen([*METAMORI, "restart", "1"], cwd=case.work, env=case.environment(),
                          stdout=subprocess.PIPE) as run:
        stops.wait("restore.queued")
        wait_until(lambda: sent.exists() or any(waits_for(each, word) for each in descendants(run.pid)), "the child")
        stops.go("restore.queued")
        assert (run.communicate()[0], expected) == (b"[True, True]\n", b"[True, True]\n")


def test_no_room_for_queued_signals(tmp_path: Path) -> None:
    """All of the user's signals count: it says so, and comes back when others have fewer."""
    (tmp_path / "script").write_text(WORKS + FEW)
    command = [sys.executable, tmp_path / "script"]
    case = Memory(tmp_path, [*command, "3000", "9"], ends=False)     # far more than other tests' beside it
    assert case.start().wait(PATIENCE) == 0, case.errors()
    with subprocess.Popen([*command, "5000", "3000", "holds"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=case.environment()) as other:
        try:
            assert other.stdout and other.stdout.readline() == b"full\n"
            done = case.verb("restart", "1")
            assert done.returncode == 125 and b"no room for signals that waited for it" in done.stderr, done
        finally:
            other.kill()
    done = case.verb("restart", "1")
    assert (done.returncode, done.stdout) == (0, b"True\n"), done


def test_a_signal_that_had_no_room(tmp_path: Path) -> None:
    """The kernel has kept only that it waits: it still does after a checkpoint, and after a restart."""
    (tmp_path / "script").write_text(WORKS + WITHOUT_ROOM)
    case = Memory(tmp_path, [sys.executable, tmp_path / "script"], ends=False)
    assert case.start().wait(PATIENCE) == 0, case.errors()
    expected = b"(0, 0) None\n"
    assert (tmp_path / "out").read_bytes() == expected
    done = case.verb("restart", "1")
    assert (done.returncode, done.stdout) == (0, expected), done


def test_more_signals_than_can_come_back(tmp_path: Path) -> None:
    """Is said; all of them wait as before."""
    (tmp_path / "script").write_text(WORKS + TOO_MANY)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start()
    try:
        wait_until(lambda: b"sent" in (tmp_path / "out").read_bytes(), f"they are sent: {case.errors()}")
        done = case.verb("checkpoint")
        assert done.returncode == 1 and b"more queued signals wait for it than can come back" in done.stderr, done
        (case.work / "go").touch()
        assert run.wait(PATIENCE) == 0, case.errors()
    finally:
        if run.poll() is None:
            case.kill_with(run)
    assert (tmp_path / "out").read_bytes() == case.native.output


HIGH = """
import fcntl, os, resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (9500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
r, w = os.pipe()
high = fcntl.fcntl(w, fcntl.F_DUPFD, 9000)
os.close(w)
child = os.fork()
if child == 0:
    os.close(high)
    while os.read(r, 16384):
        time.sleep(0.01)
    os._exit(0)
print([os.write(high, b"x" * (1 << 20)) for _ in range(3)], flush=True)
os.close(high)
os.waitpid(child, 0)
"""


def test_a_write_by_a_number_above_ours_goes_on_after_a_stop(tmp_path: Path) -> None:
    """Of a program with so many descriptors, too, a blocking write writes all."""
    script = tmp_path / "high.py"
    script.write_text(HIGH)
    comes_back(Memory(tmp_path, ["/usr/bin/python3", script]), "150ms")
