"""What cannot come back is refused with a message, before anything is harmed."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")

WAITS = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
"""
# its child `sleep`; a loop is no part of a line
SLEEPS = ("any(time.sleep(0.01) or 'nanosleep' in open(f'/proc/{child.pid}/wchan').read() for _ in iter(int, 1));")
KERNEL = "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"
# without a descriptor of its own, as Python's would have
# a system call by an instruction of the program's own
PAST_THE_LIBRARY = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("4889f8 4889f7 4889d6 0f05 c3"))      # mov rax, rdi; mov rdi, rsi; mov rsi, rdx; syscall; ret
call = ctypes.CFUNCTYPE(*[ctypes.c_long] * 4)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
"""
MAPPED = ("m = ctypes.CDLL(None).mmap; m.restype = ctypes.c_void_p;"
          "assert m(None, ctypes.c_size_t(8192), 3, 1, ring, ctypes.c_long(0)) != 2**64 - 1;")
MAPPED_FILE = ("import ctypes; ring = os.open('map', os.O_RDWR | os.O_CREAT); os.ftruncate(ring, 8192);"
               "os.link('map', 'other');" + MAPPED)
# a filter of system calls; below, one by which no page can be fetched (madvise)
FILTER = ("import ctypes, os, struct, sys; rules = b''.join(struct.pack('HBBI', *each) for each in {rules});"
          "kept = ctypes.create_string_buffer(rules); prctl = ctypes.CDLL(None).prctl; prctl(38, 1, 0, 0, 0);"
          "assert not prctl(22, 2, struct.pack('HxxxxxxQ', len(rules) // 8, ctypes.addressof(kept)))")
FETCHES_NOTHING = ("((32, 0, 0, 0), (21, 0, 3, 28), (32, 0, 0, 32), (21, 0, 1, 22), (6, 0, 0, 0x50001),"
                   "(6, 0, 0, 0x7FFF0000))")
SIGNALS = ("import fcntl, os, sys; r, w = os.pipe(); os.dup2(r, 9); fcntl.fcntl(9, fcntl.F_SETFL, os.O_ASYNC);"
           "os.execvp(sys.argv[1], sys.argv[1:])")
# a thread that waits (pause) for ever, with the stack of which the code is the first word
THREAD_APART = ("import ctypes, mmap, time; libc = ctypes.CDLL(None); room = mmap.mmap(-1, 1 << 20, prot=7);"
                "start = ctypes.addressof(ctypes.c_char.from_buffer(room)); code = ctypes.c_void_p(start);"
                "room[:9] = bytes.fromhex('b8220000000f05ebf7');"
                "room[-16:-8] = start.to_bytes(8, 'little'); stack = ctypes.c_void_p(start + len(room) - 16);"
                "assert {} > 0; time.sleep(0.1)")
CASES = {
    "a child in a debugger": ("import ctypes, subprocess, time;"
                              "child = subprocess.Popen(['sleep', '6000'], close_fds=False);"
                              + SLEEPS +           # while it begins it would stop in a call
                              "ptrace = ctypes.CDLL(None).ptrace; assert ptrace(0x4206, child.pid, None, None) == 0;"
                              "ptrace(0x4207, child.pid, None, None); os.waitpid(child.pid, 0x40000000)",
                              "child.kill(); child.wait()", ") is traced by "),
    "a child that is traced": ("import ctypes, subprocess, time;"
                               "child = subprocess.Popen(['sleep', '6000'], close_fds=False);" + SLEEPS +
                               "assert ctypes.CDLL(None).ptrace(0x4206, child.pid, None, None) == 0",
                               "child.kill(); child.wait()", ") is traced by "),
    "a child that stopped in a call": (
        "import ctypes; child = os.fork(); child or ctypes.CDLL(None).sigqueue(os.getpid(), 19, None);"
        "child or os._exit(0); os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)",
        "os.kill(child, 9); os.wait()", "it is stopped in the middle of a call"),
    "other groups": ("os.setgroups([5, 6])", "", "it belongs to other groups than the run, which cannot come back"),
    "files by another group": ("import ctypes; ctypes.CDLL(None).setfsgid(65534)", "",
                               "the program runs under a user that is not its own"),
    "a child of another group": (
        "r, w = os.pipe(); child = os.fork();"
        "child or (os.setgid(65534), os.write(w, b'x'), __import__('time').sleep(6000)); os.read(r, 1)",
        "os.kill(child, 9); os.wait()", "another user or group"),
    "a child that is not tracked": (
        "import subprocess; child = subprocess.Popen(['sleep', '6000'], env={'METAMORI_DISABLE': '1'})",
        "child.kill(); child.wait()", ") is becoming another program, or cannot be tracked"),
    "a connection": ("import socket; a = socket.create_server(('127.0.0.1', 0));"
                     "s = socket.create_connection(a.getsockname()); s.send(b'x')", "",
                     "which holds what was sent and was not accepted yet; with --outside close it comes back as reset"),
    "a connection by name": (
        "import socket; a, s = (socket.socket(socket.AF_UNIX) for _ in range(2)); a.bind('name'); a.listen();"
        "s.connect('name'); s.send(b'x')", "",
        "descriptor 4 is a connection to name, which holds what was sent and was not accepted yet;"),
    "a connection that was closed": (
        "import socket; a = socket.create_server(('127.0.0.1', 0)); b = socket.create_server(('127.0.0.1', 0));"
        "n = a.getsockname(); s = socket.create_connection(n); s.send(b'x'); s.close()", "",
        "which holds a connection that was closed and not accepted yet; with --outside close that is lost"),
    "a connection by name that was closed": (
        "import socket; a, s = (socket.socket(socket.AF_UNIX) for _ in range(2)); a.bind('name'); a.listen();"
        "s.connect('name'); s.close()", "",
        "descriptor 3 is a unix socket that listens at name, which holds a connection that was closed and not"),
    "urgent data of TCP": (
        "import socket; a = socket.create_server(('127.0.0.1', 0)); s = socket.create_connection(a.getsockname());"
        "t, _ = a.accept(); s.send(b'a'); s.send(b'!', socket.MSG_OOB); s.send(b'b')",
        "assert [t.recv(1, socket.MSG_OOB), t.recv(9), t.recv(9)] == [b'!', b'a', b'b']", ", which holds urgent data"),
    "urgent data that was received": (
        "import socket; a = socket.create_server(('127.0.0.1', 0)); s = socket.create_connection(a.getsockname());"
        "t, _ = a.accept(); s.send(b'a'); s.send(b'!', socket.MSG_OOB); s.send(b'b'); t.recv(1, socket.MSG_OOB)",
        "assert [t.recv(9), t.recv(9)] == [b'a', b'b']", ", which holds urgent data"),
    "urgent data of one that has ended": (
        "import socket; a = socket.create_server(('127.0.0.1', 0)); s = socket.create_connection(a.getsockname());"
        "t, _ = a.accept(); s.send(b'a'); s.send(b'!', socket.MSG_OOB); s.send(b'b'); s.close()",
        "assert [t.recv(1, socket.MSG_OOB), t.recv(9), t.recv(9)] == [b'!', b'a', b'b']", "holds urgent data"),
    "urgent data of a pair": (
        "import socket; s, t = socket.socketpair(); s.send(b'a'); s.send(b'!', socket.MSG_OOB); s.send(b'b')",
        "assert [t.recv(1, socket.MSG_OOB), t.recv(9), t.recv(9)][::2] == [b'!', b'b']", "holds urgent data"),
    "a kernel's socket": (f"import socket; s = {KERNEL}", "",
                          "is a socket of family 16, which cannot come back with the program"),
    "a socket that lost its name": ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('name'); s.listen();"
                                    "os.unlink('name')", "",
                                    "is a unix socket that was called name, which cannot come back: the name is gone"),
    "a process descriptor on its way": (
        "import socket; a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [os.pidfd_open(os.getpid())])", "",
        " and not received is 'anon_inode:[pidfd]', which cannot come back with the program"),
    "a deleted file on its way": (
        "import socket; a, b = socket.socketpair(); f = open('gone', 'w'); os.unlink('gone');"
        "socket.send_fds(a, [b'x'], [f.fileno()]); f.close()", "",
        "/gone (deleted)', which cannot come back with the program"),
    "a set on its way": (
        "import select, socket; a, b = socket.socketpair(); e = select.epoll();"
        "socket.send_fds(a, [b'x'], [e.fileno()]); e.close()", "",
        "a descriptor that was sent to descriptor 4 and not received is 'anon_inode:[eventpoll]', which cannot"),
    "a child's process descriptor in a set": (
        "import select, time; e = select.epoll(); r, w = os.pipe(); child = os.fork();"
        "child or (e.register(os.pidfd_open(os.getpid())), os.write(w, b'x'), time.sleep(6000)); os.read(r, 1)",
        "os.kill(child, 9); os.wait()",
        "is of epoll and watches what was added as descriptor 6, which is closed or another's by now"),
    "a socket where a folder was": (
        "import ctypes, socket; libc = ctypes.CDLL(None); libc.fdopendir.restype = ctypes.c_void_p;"
        "fd = os.open('.', 0); libc.closedir(ctypes.c_void_p(libc.fdopendir(fd))); " f"s = {KERNEL};"
        "assert s.fileno() == fd", "", "is a socket"),
    "a socket where an unseen close was": (
        "import ctypes, socket; fd = os.open('.', 0); ctypes.CDLL(None).mq_close(fd);"
        f"s = {KERNEL}; assert s.fileno() == fd", "", "is a socket"),
    "a mapped file that lost a name": (MAPPED_FILE + "os.close(ring); os.unlink('map')", "",
                                       "map, which lost that name and has another"),
    "an open file that lost a name": (MAPPED_FILE + "os.unlink('map')", "",
                                      "map, which lost that name and has another"),
    "a place that lost a name": (
        "os.mkfifo('one'); os.link('one', 'two'); place = os.open('one', os.O_PATH); os.unlink('one')", "",
        "/one (deleted)', which cannot come back with the program"),
    "a locked file without a name": ("import fcntl, mmap; f = open('map', 'w+b'); f.truncate(4096); os.unlink('map');"
                                     "m = mmap.mmap(f.fileno(), 4096); fcntl.flock(f, fcntl.LOCK_EX)", "",
                                     "is a deleted file, mapped and locked, which cannot come back"),
    "a process descriptor": ("fd = os.pidfd_open(os.getppid())", "", "is 'anon_inode:[pidfd]', which cannot come back"),
    "a file of a process": ("f = open('/proc/self/stat')", "",
                            ", of a process, which cannot come back with the program"),
    "io_uring": (PAST_THE_LIBRARY + "ring = call(425, 4, ctypes.addressof((ctypes.c_uint * 30)()))", "",
                 "is io_uring, which cannot come back with the program"),
    "a mapped ring": (PAST_THE_LIBRARY + "p = (ctypes.c_uint * 30)(); ring = call(425, 64, ctypes.addressof(p));"
                      + MAPPED + "os.close(ring)", "", "io_uring is in use"),
    "a namespace": ("fd = os.open('/proc/self/ns/net', os.O_RDONLY)", "", "is 'net:["),
    "segments of memory": (
        "import ctypes; ctypes.CDLL(None).syscall(154, 17, (ctypes.c_uint * 4)(0, 4096, 4096, 81), 16)", "",
        "it has segments of memory of its own (modify_ldt)"),
    "asynchronous I/O": ("import ctypes; ctypes.CDLL(None).syscall(206, 4, ctypes.byref(ctypes.c_ulong()))", "",
                         "asynchronous I/O of the kernel is in use"),
    "a private mapping of a memory file": (
        "import mmap; fd = os.memfd_create('m'); os.ftruncate(fd, 4096); m = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE);"
        "", "", "it maps a memory file privately that is open"),
    "an object of the kernel": (
        "import ctypes; ring = ctypes.CDLL(None).syscall(298, (ctypes.c_uint * 32)(1, 128), 0, -1, -1, 0);"
        + MAPPED + "os.close(ring)", "", "it maps an object of the kernel"),
    "secret memory": ("import ctypes; ring = ctypes.CDLL(None).syscall(447, 0); os.ftruncate(ring, 8192);"
                      + MAPPED + "os.close(ring)", "", "it maps memory that the kernel itself may not read"),
    "secret memory that is not mapped": ("import ctypes; assert ctypes.CDLL(None).syscall(447, 0) > 0",
                                         "", "is '/secretmem (deleted)', which cannot come back with the program"),
    "a filter that keeps pages from being fetched": (
        "import mmap; m = mmap.mmap(-1, 8192); m[:] = b'x' * 8192", "", "Operation not permitted"),
    "a filter of its own": (FILTER.format(rules="((6, 0, 0, 0x7FFF0000),)"), "",
                            "it has a filter of system calls (seccomp), which cannot come back with the program"),
    "fewer capabilities": ("import ctypes; assert ctypes.CDLL(None).prctl(24, 21, 0, 0, 0) == 0", "",
                           "it has other capabilities than the run, which cannot come back with the program"),
    "another root folder": ("import ctypes; libc = ctypes.CDLL(None); assert not libc.unshare(0x20000);"
                            "assert not libc.mount(b'none', b'/', None, 0x44000, None); os.makedirs('jail/proc');"
                            "assert not libc.mount(b'/proc', b'jail/proc', None, 0x1000, None); os.chroot('jail')", "",
                            "it has another root folder, which cannot come back with the program"),
    "users of its own": ("import ctypes; assert not ctypes.CDLL(None).unshare(0x10000000)", "",
                         "it has users of its own, which cannot come back with the program"),
    "a network of its own": ("import ctypes; assert not ctypes.CDLL(None).unshare(0x40000000)", "",
                             "it has a network of its own, which cannot come back with the program"),
    "objects of its own": ("import ctypes; assert not ctypes.CDLL(None).unshare(0x8000000)", "",
                           "it has System V objects of its own, which cannot come back with the program"),
    "mounts of its own": ("import ctypes; assert not ctypes.CDLL(None).unshare(0x20000)", "",
                          "it has mounts of its own, which cannot come back with the program"),
    "a thread with a folder of its own": (
        "import ctypes, threading; ready, end = threading.Event(), threading.Event();"
        "threading.Thread(target=lambda: (ctypes.CDLL(None).unshare(0x200), ready.set(), end.wait())).start();"
        "ready.wait()", "end.set()", "a thread has a working folder of its own (unshare)"),
    "a thread that began with a folder of its own": (THREAD_APART.format("libc.clone(code, stack, 0x50900, None)"), "",
                                                     "a thread has a working folder of its own (unshare)"),
    "the same by number": (THREAD_APART.format("libc.syscall(56, 0x50900, stack, None, None, None)"), "",
                           "a thread has a working folder of its own (unshare)"),
    "a descriptor that signals somebody else": (
        "import fcntl; r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())", "",
        "it has a descriptor that signals a process which is not of the run (F_SETOWN)"),
    "many descriptors that signal": (
        "import fcntl; n = [fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getpid()) for _ in range(257)]", "",
        "it has more than 256 descriptors that signal"),
    "a descriptor that signals on its way": (
        "import fcntl, socket; (a, b), (c, d) = socket.socketpair(), socket.socketpair();"
        "fcntl.fcntl(c, fcntl.F_SETFL, os.O_ASYNC); socket.send_fds(a, [b'x'], [c.fileno()]); c.close()", "",
        " signals when it can be used (O_ASYNC), which cannot come back with the program"),
    "a descriptor that signals as it was given": (
        "", "", " signals when it can be used (O_ASYNC), which cannot come back with the program"),
    "a descriptor that signals a thread without it": (
        "import fcntl, struct, time; r, w = os.pipe(); p, q = os.pipe(); child = os.fork();"
        "child or (os.close(r), os.write(q, b'x'), time.sleep(6000)); os.read(p, 1);"
        "fcntl.fcntl(r, 15, struct.pack('ii', 0, child))", "os.kill(child, 9); os.wait()",
        "it has a descriptor that signals a thread of a process which does not have it (F_SETOWN_EX)"),
    "changes in a folder": ("import fcntl, signal; signal.signal(signal.SIGIO, lambda *_: None);"
                            "folder = os.open('.', 0); fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE)", "",
                            "it is told of changes in folders (F_NOTIFY)"),
    "a part of a message": (
        "import socket; u, v = (socket.socket(type=2) for _ in 'ab'); u.bind(('127.0.0.1', 0));"
        "v.connect(u.getsockname()); v.send(b'a', socket.MSG_MORE)", "v.send(b'b'); assert u.recv(9) == b'ab'",
        "was given a part of a message (UDP_CORK, MSG_MORE), and cannot come back with the program"),
    "a lease": ("import fcntl; f = open('leased', 'w'); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)", "",
                "leased, has a lease, which cannot come back with the program"),
    "no room for a copy": (
        "import mmap, resource; m = mmap.mmap(-1, 264 << 20); m[:] = b'x' * len(m);"
        "now = int(open('/proc/self/statm').read().split()[0]) << 12;"
        "resource.setrlimit(resource.RLIMIT_AS, (now + (200 << 20), -1))", "",
        "there is no room for a copy of the memory that it shares"),
    "connections beside what cannot come back": (
        f"import socket; a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen(); k = {KERNEL};"
        "s = socket.create_connection(a.getsockname()); t, _ = a.accept(); os.dup2(k.fileno(), 99); k.close()",
        "assert not any(each.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) for each in (a, s, t))",
        "is a socket of family 16, which cannot come back with the program"),
    "no room for a signal": (
        "import resource; resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 9))", "",
        "there is no room for a signal to it (ulimit -i)"),
    "a mapped file with an end of line in its name": (
        "import mmap; f = open('two\\nlines', 'w+b'); f.truncate(4096);"
        "m = mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE); f.close()", "",
        "it maps a file with an end of line in its name"),
    "a mapped device": ("import mmap; fd = os.open('/dev/full', os.O_RDWR);"
                        "m = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE); os.close(fd)", "", "it maps a device"),
    "large pages": ("import mmap; m = mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)", "",
                    "it maps large pages"),
    "too many timers": (
        "import ctypes; how = (ctypes.c_uint64 * 8)(0, 1 << 32); make = ctypes.CDLL(None).timer_create;"
        "assert not any(make(1, how, ctypes.byref(ctypes.c_void_p())) for _ in range(1025))", "",
        "it has more than 1024 timers, or one of another process's time"),
    "too many timers that start threads": (
        "import ctypes; starts = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda value: None);"
        "how = (ctypes.c_uint64 * 8)(0, 2 << 32, ctypes.cast(starts, ctypes.c_void_p).value);"
        "make = ctypes.CDLL(None).timer_create;"
        "assert not any(make(1, how, ctypes.byref(ctypes.c_void_p())) for _ in range(1025))", "",
        "it has a timer that starts threads"),
}


PERF = (ctypes.c_uint * 32)(1, 128)        # a counter in software: perf_event_open
DEVICES = ("/dev/kvm", "/dev/dri/renderD128", "/dev/fuse", "/dev/loop-control", "/dev/vfio/vfio", "/dev/net/tun")
DEVICE = next((each for each in DEVICES if os.access(each, os.R_OK | os.W_OK)), "")
if DEVICE:                                 # as one of a GPU would be: what it knows of the program does not come back
    CASES["a device"] = (f"device = os.open({DEVICE!r}, os.O_RDWR)", "", f"is a device, '{DEVICE}'")


@pytest.mark.parametrize("what", CASES)
def test_a_checkpoint_is_refused_and_the_program_goes_on(tmp_path: Path, what: str) -> None:
    before, after, words = CASES[what]
    if what in ("io_uring", "a mapped ring") and ctypes.CDLL(None).syscall(425, 4, (ctypes.c_uint * 30)()) < 0:
        pytest.skip("this kernel or container forbids io_uring")
    if "secret" in what and ctypes.CDLL(None).syscall(447, 0) < 0:
        pytest.skip("this kernel keeps none")
    if what == "large pages" and Path("/proc/sys/vm/nr_hugepages").read_text() == "0\n":
        pytest.skip("this machine has none")
    if what == "an object of the kernel" and ctypes.CDLL(None).syscall(298, PERF, 0, -1, -1, 0) < 0:
        pytest.skip("this kernel or container forbids performance counters")
    own = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/zero /dev/full && exec "$@"', "sh"] \
        if what == "a mapped device" else []   # a device that anybody can map, and is not called /dev/zero
    if own and subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    if what == "a filter that keeps pages from being fetched":
        filters = FILTER.format(rules=FETCHES_NOTHING) + ";os.execvp(sys.argv[1], sys.argv[1:])"
        own = ["/usr/bin/python3", "-c", filters]
    if what == "a descriptor that signals as it was given":
        own = ["/usr/bin/python3", "-c", SIGNALS]
    if os.geteuid() and what in ("fewer capabilities", "a child of another group", "other groups",
                                 "files by another group"):
        pytest.skip("only root can")
    if what in ("another root folder", "users of its own", "mounts of its own", "a network of its own",
                "objects of its own") and (os.geteuid() or subprocess.run(
                    ["unshare", "-m", "true"], capture_output=True, check=False).returncode):
        pytest.skip("only root can, and not in every container")
    script = tmp_path / "program.py"
    script.write_text(f"import os\n{before}\n{WAITS}\n{after}\nprint('done')\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "go").touch()
    shutil.rmtree(tmp_path / "work")
    case = Memory(tmp_path, ["/usr/bin/python3", script], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start(within=own)
    try:
        wait_until(lambda: b"ready" in (tmp_path / "out").read_bytes(), "the program is ready")
        done = case.verb("checkpoint")
        assert done.returncode == 1, done
        assert words in done.stderr.decode(), done.stderr
        (case.work / "go").touch()
        assert run.wait(300) == 0, case.errors()
        assert (tmp_path / "out").read_bytes().endswith(b"done\n")
    finally:
        run.kill()
    assert case.images() == []


RINGS = """
import ctypes, errno, os, time
libc, none = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint * 30)
assert libc.syscall(425, 4, none()) >= 0 or ctypes.get_errno() == errno.EPERM
try:
    assert ctypes.CDLL("liburing.so.2").io_uring_queue_init(4, (ctypes.c_ulong * 100)(), 0) in (0, -errno.EPERM)
except OSError:
    pass                                   # it is not installed
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("done")
"""


def test_it_does_without_rings(tmp_path: Path) -> None:
    """What asks for one and goes on without, as libuv does, has checkpoints."""
    script = tmp_path / "program.py"
    script.write_text(RINGS)
    case = Memory(tmp_path, ["/usr/bin/python3", script], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start()
    try:
        wait_until(lambda: b"ready" in (tmp_path / "out").read_bytes() or run.poll() is not None, "it is ready")
        done = case.verb("checkpoint")
        assert done.returncode == 0, done
        case.kill(run)
    finally:
        run.kill()
    (case.work / "go").touch()
    case.goes_on(case.images()[0])


THREAD = """
import os, threading
def wait():
    open("thread", "w").write(str(threading.get_native_id()))
    while not os.path.exists("go"):
        event.wait(0.05)
event = threading.Event()
thread = threading.Thread(target=wait)
thread.start()
print("ready", flush=True)
thread.join()
print("done")
"""
SEIZE, INTERRUPT, DETACH, ALL = 0x4206, 0x4207, 17, 0x40000000


def test_a_thread_that_does_not_come_to_rest(tmp_path: Path) -> None:
    """A debugger holds it: no checkpoint, not half a one; as soon as it runs again there is one."""
    script = tmp_path / "program.py"
    script.write_text(THREAD)
    case = Memory(tmp_path, ["/usr/bin/python3", script], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start()
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    try:
        wait_until(lambda: b"ready" in (tmp_path / "out").read_bytes(), "the program is ready")
        wait_until(lambda: (case.work / "thread").exists() and (case.work / "thread").read_text(), "its thread too")
        tid = int((case.work / "thread").read_text())
        if ptrace(SEIZE, tid, None, None) < 0:
            pytest.skip(f"no debugger may be here: {os.strerror(ctypes.get_errno())}")
        assert ptrace(INTERRUPT, tid, None, None) == 0
        os.waitpid(tid, ALL)
        done = case.verb("checkpoint")
        assert done.returncode == 1 and b"does not stop" in done.stderr, done
        assert case.images() == []
        assert ptrace(DETACH, tid, None, None) == 0
        assert case.verb("checkpoint").returncode == 0
        (case.work / "go").touch()
        assert run.wait(300) == 0, case.errors()
        assert (tmp_path / "out").read_bytes() == case.native.output
    finally:
        run.kill()
    assert len(case.images()) == 1


def test_a_main_thread_that_has_ended(tmp_path: Path) -> None:
    """Others of its process go on, and write on."""
    case = Memory(tmp_path, [built(tmp_path, "mainless.c")], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start()
    try:
        wait_until(lambda: b"alone" in (tmp_path / "out").read_bytes(), f"it has ended: {case.errors()}")
        done = case.verb("checkpoint")
        assert done.returncode == 1, done
        assert b"the main thread of mainless (" in done.stderr and b"has ended, and others have not" in done.stderr
        (case.work / "go").touch()
        assert run.wait(300) == case.native.status == 3, case.errors()
        assert (tmp_path / "out").read_bytes() == case.native.output
    finally:
        run.kill()
    assert case.images() == []


def test_a_changed_library_is_noticed(tmp_path: Path) -> None:
    """The program file is replaced between checkpoint and restart; files stay where they are."""
    program = tmp_path / "program"
    shutil.copy(Path(shutil.which("awk") or "/usr/bin/awk").resolve(), program)
    command = [program, 'BEGIN { while (i < 40000000) { s += i++; if (i % 1000000 == 0) print i, s > "sums" } }']
    case = Memory(tmp_path, command)
    index = case.run_and_kill("200ms", 2)[-1]
    head = case.log()["head"]
    with program.open("ab") as file:
        file.write(b"\0")
    strip = subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", program], check=False)
    done = case.verb("restart", str(index))
    assert strip.returncode == 0 and done.returncode == 1, done
    assert f"the memory of checkpoint {index} cannot be continued: ".encode() in done.stderr
    assert b"is not what it was" in done.stderr
    assert case.log()["head"] == head


def test_the_folder_that_it_ran_in_is_gone(tmp_path: Path) -> None:
    """One that no run tracks: said before a file is touched."""
    other = tmp_path / "other"
    other.mkdir()
    script = "import os, pathlib, sys, metamori; file = pathlib.Path('f').absolute(); os.chdir(sys.argv[1]); " \
             "file.write_text('1'); metamori.checkpoint(); file.write_text('2')"
    case = Memory(tmp_path, [sys.executable, "-c", script, other], ends=False)
    assert case.start().wait(300) == 0, case.errors()
    other.rmdir()
    done = case.verb("restart", "1")
    assert done.returncode == 1 and f"the folder that it ran in is gone: {other}".encode() in done.stderr, done
    assert (case.work / "f").read_text() == "2"
    other.mkdir()
    assert case.verb("restart", "1").returncode == 0


@pytest.mark.parametrize("how", ["fcntl.lockf(f, fcntl.LOCK_EX)", "fcntl.flock(f, fcntl.LOCK_EX)"])
def test_a_lock_that_another_process_has_now(tmp_path: Path, how: str) -> None:
    """Refused while the files are as they were; when it is free again the program has it again."""
    script = tmp_path / "program.py"
    script.write_text(f"import fcntl, hashlib\nf = open('held', 'r+')\n{how}\nstate = b''\nfor i in range(2000000):\n"
                      "    state = hashlib.sha256(state * 10).digest()\n    i % 50000 or f.write(state.hex())\n"
                      "print(state.hex())\n")
    case = Memory(tmp_path, ["/usr/bin/python3", script], setup={"held": b"old\n" * 100})
    index = case.run_and_kill("100ms", 2)[-1]
    before, head = (case.work / "held").read_bytes(), case.log()["head"]
    with (case.work / "held").open("r+b") as file:
        (fcntl.lockf if "lockf" in how else fcntl.flock)(file, fcntl.LOCK_EX)
        done = case.verb("restart", str(index))
        assert done.returncode == 1 and b"another process has locked" in done.stderr, done
        assert ((case.work / "held").read_bytes(), case.log()["head"]) == (before, head)
    case.goes_on(index)


def test_without_memory_the_command_runs_again(tmp_path: Path) -> None:
    """On the files as they were, in its folder, with its environment and arguments."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "count").write_text("1\n")
    script = 'read n < count; echo "$1 $COLOUR $n $PWD"; echo $((n + 1)) > count; exit $n'
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("METAMORI")}, "COLOUR": "blue",
           "METAMORI_STORE": str(tmp_path / "store"), "PYTHONPATH": str(Path.cwd())}
    command = [*METAMORI, "run", "--", "sh", "-c", script, "sh", "an argument"]
    first = subprocess.run(command, cwd=tmp_path / "work", env=env, capture_output=True, check=False)
    second = subprocess.run(command, cwd=tmp_path / "work", env=env, capture_output=True, check=False)
    assert (first.returncode, second.returncode) == (1, 2)
    env.pop("COLOUR")
    for index, status in ((1, 2), (0, 1), (2, 3)):
        again = subprocess.run([*METAMORI, "restart", str(index)], cwd="/", env=env, capture_output=True, check=False)
        assert again.returncode == status, (index, again)
        assert again.stdout == f"an argument blue {status} {tmp_path / 'work'}\n".encode()
        assert (tmp_path / "work" / "count").read_text() == f"{status + 1}\n"
    assert sys.executable in METAMORI
