"""Programs that may be executed but not read, or by an O_PATH descriptor; calls into another world that are refused."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from lab import Lab
from test_errors import as_nobody
from test_static_programs import BUSYBOX, is_static, open_folder, prepare  # noqa: F401

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")
CHANGED = "printf X | dd of=old bs=1 seek=1000 conv=notrunc status=none"
BY_DESCRIPTOR = """
import os, sys
os.execve(os.open(sys.argv[1], os.O_PATH), sys.argv[1:], os.environ)
"""
REFUSED = """
import ctypes, os, signal, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
folders, numbers = 0x20000, 0x20000000
function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: 0)
stack = ctypes.create_string_buffer(1 << 20)
top = ctypes.c_void_p((ctypes.addressof(stack) + (1 << 20) - 64) & ~63)
here = os.open("/proc/self/ns/mnt", os.O_RDONLY)
SYS_clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
for refused in (lambda: libc.unshare(folders | numbers), lambda: libc.setns(here, 0),
                lambda: libc.clone(function, top, folders | numbers | signal.SIGCHLD, None),
                lambda: libc.clone(function, top, 0x100 | folders | numbers | signal.SIGCHLD, None),
                lambda: libc.syscall(SYS_clone, folders | numbers | signal.SIGCHLD, 0, 0, 0, 0)):
    print(refused(), ctypes.get_errno(), flush=True)
    subprocess.run([sys.argv[1], "touch", "made"], check=True)
    os.unlink("made")
"""


@pytest.fixture
def nobodys(open_folder: Path) -> tuple[Lab, list[str]]:  # noqa: F811
    lab = Lab(open_folder, Path(BUSYBOX))
    prepare(lab)
    return lab, as_nobody(lab)


def only_to_execute(program: str, lab: Lab) -> Path:
    copy = lab.folder / f"{Path(program).name}-unread"
    shutil.copy(os.path.realpath(program), copy)
    os.chown(copy, 0, 0)
    copy.chmod(0o111)
    return copy


@pytest.mark.skipif(os.geteuid() != 0, reason="a program of another user's")
def test_a_static_program_that_cannot_be_read(nobodys: tuple[Lab, list[str]]) -> None:
    """It sees what was written, and is named."""
    lab, begin = nobodys
    program = only_to_execute(BUSYBOX, lab)
    script = f"{CHANGED}; {program} head -c 1003 old | {program} tail -c 3; {program} head -c 3 log"
    done = lab.run([*begin, *lab.argv("run"), "--", "sh", "-c", script], native=True)
    assert (done.returncode, done.stdout) == (0, b"Xoofir")
    assert b"unread cannot be tracked: it cannot be read (a dynamic program is tracked all the same)" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="a program of another user's")
@pytest.mark.parametrize("how", ["", "env -i "])
def test_a_dynamic_program_that_cannot_be_read(nobodys: tuple[Lab, list[str]], how: str) -> None:
    lab, begin = nobodys
    program = only_to_execute("/usr/bin/touch", lab)
    done = lab.run([*begin, *lab.argv("run"), "--", "sh", "-c", f"{how}{program} made"], native=True)
    assert done.returncode == 0 and done.stderr.count(b"\n") == 1
    assert lab.run([*begin, *lab.argv("restore", 0)], native=True).returncode == 0
    assert set(lab.state()) == {"old", "log"}


def test_no_program_at_all(nobodys: tuple[Lab, list[str]]) -> None:
    """A folder may be searched, and is none."""
    lab, begin = nobodys
    (lab.work / "d").mkdir(mode=0o711)
    done = lab.run([*begin, *lab.argv("run"), "--", "sh", "-c", "./d; ./log"], native=True)
    assert done.returncode == 126 and b"metamori" not in done.stderr


@pytest.mark.parametrize("options", [[], ["--strict"]], ids=["default", "strict"])
@pytest.mark.parametrize("program", [BUSYBOX, "/usr/bin/env"], ids=["static", "dynamic"])
def test_a_descriptor_only_of_a_path_is_executed(lab: Lab, program: str, options: list[str]) -> None:
    prepare(lab)
    words = [program, "sh", "-c", "head -c 1003 old | tail -c 3; rm log"]
    command = [sys.executable, "-c", BY_DESCRIPTOR, *words]
    done = lab.run(["sh", "-c", f'{CHANGED}; exec "$@"', "-", *command], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Xoo", b"")
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"} and (lab.work / "old").read_bytes() == b"o" * 6000


def test_calls_into_another_world_that_are_refused(nobodys: tuple[Lab, list[str]]) -> None:
    """They change nothing: what comes next is tracked as before."""
    lab, begin = nobodys
    words = [*begin, *lab.argv("run"), "--", sys.executable, "-c", REFUSED, BUSYBOX]
    done = lab.run(words, native=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"-1 1\n" * 5, b"")
