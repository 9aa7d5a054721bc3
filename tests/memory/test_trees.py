"""Processes that a command started: all saved at one instant, all killed, all back as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from comeback import PROGRAMS, Memory, Printing, built, comes_back
from lab import picture

pytestmark = pytest.mark.usefixtures("installed")

# the last waits longer than the others take: all four are held up by a full pipe
PIPELINE = ("seq 1 150000 | awk '{print $1 * 3}' | sort -n -S 1M | "
            "(while read a; do case $a in *99) echo $a;; esac; done)")
JOBS = """
trap 'echo asked' USR1
trap 'echo bye' EXIT
work() { s=0; for ((i = 0; i < $1; i++)); do s=$(((s * 31 + i) % 1000003)); done; echo "job $1 $s" >> jobs.$1; }
for n in 1 2 3 4; do
  work $((n * 5000)) & a=$!
  work $((n * 6001)) & b=$!
  wait $a; wait $b
  echo "round $n $(cat jobs.* | md5sum | cut -c1-8)"
  kill -USR1 $$
  x=$(echo $n | sed 's/^/n=/')
  (exit $n); echo "status $? $x"
done
"""
POOL = """
import hashlib, multiprocessing
def work(n):
    state = bytes([n])
    for i in range(15000):
        state = hashlib.sha256(state * 5).digest()
    return n, state.hex()[:8]
if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        for found in pool.imap(work, range(90)):
            print(*found, flush=True)
"""
SHARED = """
import hashlib, multiprocessing
from multiprocessing import shared_memory
def work(todo, done, name, lock):
    memory = shared_memory.SharedMemory(name)
    while (n := todo.get()) is not None:
        state = bytes([n])
        for i in range(9000):
            state = hashlib.sha256(state * 5).digest()
        with lock:
            memory.buf[n] = state[0]
        done.put((n, state.hex()[:8]))
if __name__ == "__main__":
    memory = shared_memory.SharedMemory(create=True, size=20000)
    todo, done, lock = multiprocessing.Queue(), multiprocessing.Queue(), multiprocessing.Lock()
    workers = [multiprocessing.Process(target=work, args=(todo, done, memory.name, lock)) for _ in range(3)]
    for each in workers:
        each.start()
    for n in [*range(120), None, None, None]:
        todo.put(n)
    for found in sorted(done.get() for _ in range(120)):
        print(*found)
    for each in workers:
        each.join()
    print(hashlib.sha256(bytes(memory.buf)).hexdigest(), [each.exitcode for each in workers])
    memory.close()
    memory.unlink()
"""
PERL = r"""
use strict; $| = 1;
my (@pipes, %left);
for my $k (1 .. 3) {
  pipe(my $r, my $w) or die;
  my $pid = fork();
  if (!$pid) {
    close $r;
    for my $n (1 .. 8) {
      my $s = $k;
      for my $i (1 .. 120000) { $s = ($s * 33 + $i) % 1000003 }
      syswrite $w, "$k $n $s\n";
    }
    exit $k;
  }
  close $w; push @pipes, $r; $left{$pid} = $k;
}
for my $r (@pipes) { while (<$r>) { print } }
while (%left) {
  my $p = waitpid(-1, 0);
  die "who is $p" unless $left{$p};
  die "status" unless $? >> 8 == delete $left{$p};
}
print `awk 'BEGIN { for (i = 0; i < 2000000; i++) s += i % 7; print s }'`, "done $?\n";
"""
TCP = """
import hashlib, os, socket
server = socket.create_server(("127.0.0.1", 0))
child = os.fork()
state = b"x"
if child == 0:
    address = server.getsockname()
    server.close()
    this = socket.create_connection(address)
    for n in range(1, 300):
        for i in range(3000):
            state = hashlib.sha256(state * 3).digest()
        this.sendall(state.hex().encode() + b"\\n")
        assert n % 10 or this.recv(1) == b"k"
    this.shutdown(socket.SHUT_WR)
    assert this.recv(10) == b"bye"
    os._exit(3)
this, _ = server.accept()
peer = this.getpeername()
for n, line in enumerate(this.makefile("rb"), 1):
    for i in range(1500):
        state = hashlib.sha256(state + line).digest()
    n % 10 or this.sendall(b"k")
this.sendall(b"bye")
assert this.getpeername() == peer
print(n, state.hex(), os.waitpid(child, 0)[1] >> 8)
"""
DAEMON = """
import hashlib, os
def works(who):
    state = b"x"
    for n in range(20):
        for i in range(9000):
            state = hashlib.sha256(state * 3).digest()
        led = os.getsid(0) == session and os.getpgrp() == (leader if who == "follower" else session)
        os.write(w, b"%s %d %s %d\\n" % (who.encode(), n, state.hex()[:9].encode(), led))
r, w = os.pipe()
session = os.fork()
if session == 0:
    session = os.getpid()
    os.setsid()
    if os.fork():
        os._exit(0)
    leader = os.fork()
    if leader == 0:
        os.read(r, 1)
    os.setpgid(leader, leader)
    follower = os.fork()
    if follower == 0:
        os.setpgid(0, leader)
        works("follower")
        os._exit(7)
    os.setpgid(follower, leader)
    os.kill(leader, 9)
    os.waitpid(leader, 0)
    works("daemon")
    pid, status = os.waitpid(-leader, 0)
    os.write(w, b"waited %d %d\\n" % (pid == follower, status))
    os._exit(0)
os.waitpid(session, 0)
os.close(w)
with open(r) as found:
    print(*sorted(found))
"""
ENDED = """
import hashlib, os
r, w = os.pipe()
leader = os.fork()
if leader == 0:
    os.read(r, 1)
os.setpgid(leader, leader)
followers = []
for status in (7, 8):
    followers.append(os.fork())
    if followers[-1] == 0:
        os.read(r, 1)
    os.setpgid(followers[-1], leader)
    os.kill(followers[-1], status)
os.kill(leader, 9)
os.waitpid(leader, 0)
state = b"x"
for n in range(20):
    for i in range(15000):
        state = hashlib.sha256(state * 3).digest()
    print(n, state.hex(), flush=True)
ended = dict(os.waitpid(-leader, 0) for _ in followers)
print([ended[each] for each in followers])
"""
PASSED = """
import hashlib, os, socket
one, two = socket.socketpair()
child = os.fork()
if child == 0:
    fd, own = socket.recv_fds(two, 1, 2)[1]
    state = b"x"
    for n in range(60):
        for i in range(9000):
            state = hashlib.sha256(state * 3).digest()
        os.write(fd, state[:n])
    os._exit(os.pread(own, 9, 0)[3])
memory, other = os.memfd_create("memory"), os.memfd_create("other")
os.write(other, b"other")
socket.send_fds(one, [b"x"], [memory, other])
os.close(other)
server = socket.create_server(("127.0.0.1", 0))
this = socket.create_connection(server.getsockname())
other, _ = server.accept()
server.close()
this.sendall(b"left")
this.shutdown(socket.SHUT_WR)
other.shutdown(socket.SHUT_WR)
status = os.wait()[1]
print(hashlib.sha256(os.pread(memory, 9999, 0)).hexdigest(), os.lseek(memory, 0, os.SEEK_CUR), status)
print(other.recv(9), other.recv(9), this.recv(9))
"""
PIDFDS = """
import hashlib, os, select, signal
def child(status):
    pid = os.fork()
    if pid:
        return pid
    state = b"x"
    for n in range(60):
        for i in range(9000):
            state = hashlib.sha256(state * 3).digest()
    os._exit(status)
gone, ended, works = os.fork() or os._exit(1), os.fork() or os._exit(2), child(3)
of_gone, of_ended, of_works, own = map(os.pidfd_open, (gone, ended, works, os.getpid()))
os.waitpid(gone, 0)
os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
poll = select.epoll()
poll.register(of_works, select.EPOLLIN)
print([fd == of_works for fd, _ in poll.poll()], os.waitid(os.P_PIDFD, of_works, os.WEXITED).si_status)
print(os.waitid(os.P_PIDFD, of_ended, os.WEXITED).si_status)
try:
    signal.pidfd_send_signal(of_gone, 0)
except ProcessLookupError:
    print("gone")
signal.signal(signal.SIGUSR1, lambda *_: print("came"))
signal.pidfd_send_signal(own, signal.SIGUSR1)
"""
IN_PROC = """
import ctypes, hashlib, os, subprocess
def statx(root, path, room=ctypes.create_string_buffer(256)):
    return ctypes.CDLL(None).statx(root, path, 0, 0x7ff, room)
root = os.open("/proc", os.O_PATH)
r, w = os.pipe()
child = os.fork()
if child == 0:
    os.close(w)
    os._exit(len(os.read(r, 1)))
state = b"x"
for n in range(60):
    for i in range(9000):
        state = hashlib.sha256(state * 3).digest()
    for pid in (os.getpid(), child):
        with open(f"/proc/{pid}/stat") as of_all, open(f"/proc/{pid}/task/{pid}/stat") as of_one:
            assert of_all.read().split()[1] == of_one.read().split()[1] == "(python3)"
        assert os.stat(f"/proc/{pid}/exe").st_size == os.stat("/proc/self/exe").st_size
        assert os.lstat(f"/proc/{pid}").st_uid == os.geteuid()
        assert os.stat(f"/proc/{pid}/fd", dir_fd=root).st_mode == os.stat("/proc/self/fd").st_mode
        assert os.readlink(f"/proc/{pid}/exe") == os.readlink("/proc/self/exe") == os.readlink("self/exe", dir_fd=root)
        assert os.access(f"/proc/{pid}/maps", os.R_OK) and os.access(f"/proc/{pid}", os.X_OK, effective_ids=True)
        assert {"0", "1", "2"} <= set(os.listdir(f"/proc/{pid}/fd")) and statx(root, f"/proc/{pid}".encode()) == 0
        assert subprocess.run(["test", "-d", f"/proc/{pid}"]).returncode == 0
    assert os.readlink("/proc/self") == str(os.getpid()) and not os.access("/proc/0123", os.F_OK)
    print(n, state.hex()[:9], os.path.exists("/proc/0123"), os.path.exists(f"/proc/{2 ** 40}"), flush=True)
os.kill(child, 9)
print(os.waitpid(child, 0)[1], os.path.exists(f"/proc/{child}"))
"""
NAMED = """
import hashlib, os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("name")
server.listen()
child = os.fork()
if child == 0:
    server.close()
    this = socket.socket(socket.AF_UNIX)
    this.connect("name")
    state = b"x"
    for n in range(60):
        for i in range(9000):
            state = hashlib.sha256(state * 3).digest()
        this.sendall(state)
    os._exit(3)
this, _ = server.accept()
server.close()
os.unlink("name")
print(hashlib.sha256(b"".join(iter(lambda: this.recv(999), b""))).hexdigest(), this.getsockname(), os.wait()[1])
"""
TERMINAL = """
import hashlib, os, tty
master, slave = os.openpty()
tty.setraw(slave)
child = os.fork()
if child == 0:
    os.close(master)
    state = b"a"
    for n in range(60):
        for i in range(12000):
            state = hashlib.sha256(state * 3).digest()
        os.write(slave, b"%d %s\\n" % (n, state.hex()[:9].encode()))
    os._exit(4)
os.close(slave)
try:
    while data := os.read(master, 100):
        os.write(1, data)
except OSError:
    pass
print(os.isatty(master), os.waitpid(child, 0)[1] >> 8)
"""
# one shell in the foreground of a terminal that it controls, jobs behind it; lines typed ahead, and one half typed
SESSION = """
import fcntl, hashlib, os, signal, struct, termios
master, slave = os.openpty()
name = os.ttyname(slave)
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
set_to = termios.tcgetattr(slave)
set_to[3] &= ~termios.ECHO
termios.tcsetattr(slave, termios.TCSANOW, set_to)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    job = os.fork()
    os.setpgid(job, job)
    if job == 0:
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(slave, os.getpid())
    state = b"a"
    for n in range(60 if job == 0 else 64):
        for i in range(9000):
            state = hashlib.sha256(state * 3).digest()
    if job:
        assert os.tcgetpgrp(slave) == job, (os.tcgetpgrp(slave), job)
        print(os.waitpid(job, 0)[1], flush=True)
        os._exit(3)
    with open("/dev/tty", "rb", buffering=0) as terminal:
        assert os.tcgetpgrp(terminal.fileno()) == os.getpgrp() and terminal.isatty()
        assert os.ttyname(slave) == name
        print([terminal.read(100) for _ in range(3)], os.get_terminal_size(slave), state.hex()[:9], flush=True)
        rest = b""
        while not rest.endswith(b"z"):
            rest += terminal.read(1)
        print(rest, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
os.close(slave)
os.write(master, b"first\\n\\x16\\x04 odd\\n\\x04ha")
state = b"b"
for n in range(70):
    for i in range(9000):
        state = hashlib.sha256(state * 3).digest()
os.write(master, b"lf\\nz\\n")
print(os.waitpid(child, 0)[1] >> 8, state.hex()[:9])
"""
MAKE = """
for i in 1 2 3 4 5 6 7 8 9 10; do
  { echo '#include <stdio.h>'
    for k in $(seq 1 120); do
      echo "int f${i}_$k(int a) { int s = 0; for (int i = 0; i < a; i++) s += i * $k % ($i + 3); return s; }"
    done
  } > f$i.c
done
echo 'int main(void) { return 0; }' > main.c
printf 'prog: $(patsubst %%.c,%%.o,$(sort $(wildcard *.c)))\\n\\tgcc -o $@ $^\\n' > Makefile
printf '%%.o: %%.c\\n\\tgcc -O2 -c $< -o $@\\n' >> Makefile
make -s -j2 && md5sum prog
"""
REDIS = """
redis-server --port $1 --save '' --appendonly yes --loglevel warning > /dev/null 2>&1 & server=$!
until redis-cli -p $1 ping > /dev/null 2>&1; do sleep 0.1; done
for i in $(seq 1 10); do
  for k in $(seq 1 2000); do echo "incrby c$((k % 17)) $((k * i))"; done | redis-cli -p $1 | tail -1
done
redis-cli -p $1 get c5
redis-cli -p $1 shutdown nosave
wait $server; echo "status $?"
"""


@pytest.mark.parametrize("what", ["kin", "memory", "files"])
def test_what_processes_share_and_wait_for(tmp_path: Path, what: str) -> None:
    comes_back(Memory(tmp_path, [built(tmp_path, "tree.c"), what]))


@pytest.mark.in_turn("what", 2)
@pytest.mark.parametrize("what", ["timerfd", "signalfd", "epoll", "nested"])
def test_what_several_wait_at(tmp_path: Path, what: str) -> None:
    comes_back(Memory(tmp_path, [built(tmp_path, "watch.c"), what]))


def test_a_pipeline_that_is_held_up(tmp_path: Path) -> None:
    comes_back(Memory(tmp_path, ["/bin/bash", "-c", PIPELINE]))


def test_a_script_with_jobs_and_traps(tmp_path: Path) -> None:
    comes_back(Memory(tmp_path, ["/bin/bash", "-c", JOBS]))


def script(folder: Path, text: str) -> list[str | Path]:
    (folder / "script").write_text(text)
    return ["/usr/bin/python3", folder / "script"]


def test_leaders_of_a_session_and_a_group_that_have_gone(tmp_path: Path) -> None:
    comes_back(Memory(tmp_path, script(tmp_path, DAEMON)), "150ms")


def test_a_group_of_which_all_have_ended_and_nobody_was_waited_for(tmp_path: Path) -> None:
    comes_back(Memory(tmp_path, script(tmp_path, ENDED)), "150ms")


def test_memory_that_was_passed_on_and_a_connection_that_has_ended(tmp_path: Path) -> None:
    """The first is no tracked file; the second has what was not read before both of its ends were shut."""
    comes_back(Memory(tmp_path, script(tmp_path, PASSED)), "150ms")


def test_descriptors_of_processes(tmp_path: Path) -> None:
    """Of one that works, one that nobody has waited for, one that is gone, and of itself."""
    comes_back(Memory(tmp_path, script(tmp_path, PIDFDS)), "150ms")


def test_names_in_proc(tmp_path: Path) -> None:
    """Of itself and a child, by the numbers that it knows."""
    comes_back(Memory(tmp_path, script(tmp_path, IN_PROC)), "150ms")


def test_somebody_has_the_name_of_a_connection(tmp_path: Path) -> None:
    """Which is taken for a moment; found out before anything is touched."""
    case = Memory(tmp_path, script(tmp_path, NAMED))
    index = case.run_and_kill("150ms", 3)[-1]
    (case.work / "name").write_text("mine")
    before = picture(case.work)
    done = case.verb("restart", "--force", str(index))
    assert done.returncode != 0
    assert b"name is in use, where the program had the socket of descriptor " in done.stderr
    assert picture(case.work) == before
    (case.work / "name").unlink()
    case.goes_on(index, "--force")


def test_a_rollback_from_inside_takes_all_of_them(tmp_path: Path) -> None:
    case = Memory(tmp_path, [built(tmp_path, "tree.c"), "back"])
    done = case.verb("run", "--memory", "--", *case.command)
    assert done.returncode == 0, done
    assert case.native.output.startswith(b"tried 0, ")
    assert done.stdout == case.native.output.replace(b"tried 0", b"tried 1")
    assert picture(case.work) == case.native.files
    assert case.verb("verify").returncode == 0


SCRIPTS = {"a pool": POOL, "queues and shared memory": SHARED, "perl's workers": PERL, "a connection": TCP,
           "a terminal": TERMINAL, "a session at a terminal": SESSION, "make -j2": MAKE}


@pytest.mark.slow
@pytest.mark.parametrize("what", SCRIPTS)
def test_programs_that_start_others(tmp_path: Path, what: str) -> None:
    program = {"perl's workers": shutil.which("perl"), "make -j2": "/bin/bash"}.get(what, "/usr/bin/python3")
    if not program or (what == "make -j2" and not (shutil.which("make") and shutil.which("gcc"))):
        pytest.skip(f"what {what} needs is not installed")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[what])
    comes_back(Memory(tmp_path, [program, script]), "300ms")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("redis-server"), reason="redis is not installed")
def test_a_server_and_its_clients(tmp_path: Path) -> None:
    port = 20000 + os.getpid() % 10000
    comes_back(Printing(tmp_path, ["/bin/bash", "-c", REDIS, "bash", str(port)]), "300ms")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mpicc") or b"Open MPI" not in subprocess.run(
    ["mpirun", "--version"], capture_output=True, check=False).stdout, reason="Open MPI is not installed")
def test_mpirun_and_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session folder lies with the files of the run; what is on its way to its terminals must have been read."""
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    subprocess.run(["mpicc", "-O1", PROGRAMS / "ring.c", "-o", tmp_path / "ring"], check=True)
    command = f"OMPI_MCA_orte_tmpdir_base=$PWD exec mpirun --oversubscribe -n 2 {tmp_path}/ring 20000"
    case = Memory(tmp_path, ["/bin/sh", "-c", command])
    case.may_refuse = lambda line: "holds unread bytes" in line
    comes_back(case, "400ms")
