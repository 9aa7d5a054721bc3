"""posix_spawn with file actions that open a file for writing, which the library carries out itself: as natively."""

from __future__ import annotations

import os
import sys

import pytest
from lab import Lab

BEGIN = """
import errno, os, signal, sys, time
writes = [(os.POSIX_SPAWN_OPEN, 1, "out", os.O_WRONLY | os.O_CREAT, 0o644)]

def spawned(call, *words, **options):
    try:
        return os.waitpid(call(*words, os.environ, **options), 0)[1]
    except OSError as error:
        return errno.errorcode[error.errno]
"""
CASES = {
    "signals come": """
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
print({spawned(os.posix_spawn, "./none", ["none"], file_actions=writes) for _ in range(50)})
print({spawned(os.posix_spawn, "/bin/true", ["true"], file_actions=writes) for _ in range(20)})
signal.setitimer(signal.ITIMER_REAL, 0)
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none is left")
""",
    "no program": """
for folder in ("bin", "bin2", "bin3"):
    os.mkdir(folder)
for name, text in {"bin/words": "echo words", "bin/shut": "#!/bin/sh", "bin/lost": "#!/none",
                   "bin2/lost": "#!/bin/true", "bin2/plain": "#!/bin/true", "here": "#!/bin/true",
                   "bin/later": "#!/none", "bin2/later": "echo later"}.items():
    with open(name, "w") as file:
        file.write(text + "\\n")
    os.chmod(name, 0o644 if "shut" in name else 0o755)
os.environ["PATH"] = "bin:bin3:bin2"
for name in ("words", "shut", "lost", "here", "plain", "later", "./bin/words", "./here", "bin", ""):
    for call in (os.posix_spawnp, os.posix_spawn):
        print(name, spawned(call, name, ["words"], file_actions=writes))
""",
    "ended while it opens": """
os.mkfifo("pipe")
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
parent = os.getpid()
helper = os.fork()
if not helper:
    child = 0
    while not child:
        others = [int(each) for each in open(f"/proc/{parent}/task/{parent}/children").read().split()]
        child = next((each for each in others if each != os.getpid()), 0)
    os.kill(child, signal.SIGHUP)
    os.kill(child, signal.SIGTERM)
    os.open("pipe", os.O_RDONLY)
    time.sleep(2)
    os._exit(0)
waits = [(os.POSIX_SPAWN_OPEN, 1, "pipe", os.O_WRONLY, 0)]
print(spawned(os.posix_spawn, "/bin/true", ["true"], file_actions=waits))
""",
    "closes all from a number on": """
import ctypes, shutil
libc = ctypes.CDLL(None)
def closing(program, opens):
    actions, pid, words = ctypes.create_string_buffer(200), ctypes.c_int(), (ctypes.c_char_p * 3)(b"busybox", b"true")
    libc.posix_spawn_file_actions_init(actions)
    if opens:
        libc.posix_spawn_file_actions_addopen(actions, 1, b"out", os.O_WRONLY | os.O_CREAT, 0o644)
    libc.posix_spawn_file_actions_addclosefrom_np(actions, 3)
    e = libc.posix_spawn(ctypes.byref(pid), program, actions, None, words, ctypes.c_void_p.in_dll(libc, "environ"))
    return errno.errorcode[e] if e else os.waitpid(pid.value, 0)[1]
busybox = shutil.which("busybox") or "/bin/true"
shutil.copy(busybox, "shut")
os.chmod("shut", 0o644)
for program in (b"shut", b"/none", busybox.encode()):
    print([closing(program, opens) for opens in (True, False)])
""",
}


@pytest.mark.parametrize("case", CASES)
def test_spawned(lab: Lab, native_lab: Lab, case: str) -> None:
    if "closefrom" in CASES[case] and os.confstr("CS_GNU_LIBC_VERSION") < "glibc 2.34":
        pytest.skip("no such action in this C library")
    said = []
    for each in (native_lab, lab):
        done = each.run([sys.executable, "-c", BEGIN + CASES[case]], native=each is native_lab)
        assert (done.returncode, done.stderr) == (0, b"")
        said.append(done.stdout.decode())
    assert said[1] == said[0]
    if case == "closes all from a number on":
        assert said[0].splitlines() == ["['EACCES', 'EACCES']", "['ENOENT', 'ENOENT']", "[0, 0]"]
    if case == "signals come":
        assert said[0].splitlines() == ["{'ENOENT'}", "{0}", "none is left"]
    assert os.path.exists(lab.work / "out") == (case != "ended while it opens")
