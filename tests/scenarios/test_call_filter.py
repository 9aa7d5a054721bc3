"""The filter of programs without the library, as the kernel has it: which calls it shows, after how many steps."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from lab import Lab, wait_until
from test_static_programs import BUSYBOX, is_static

SOURCE = Path(__file__).resolve().parents[2] / "shim_c/src/process/call_filter.c"
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_SECCOMP_GET_FILTER = 17, 0x4206, 0x4207, 0x420C
PR_SET_SECCOMP = 22
LOAD, EQUAL, NOT_LESS, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, SHOWN, WRITES = 0x7FFF0000, 0x7FC00000, os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[os.uname().machine]

Code = list[tuple[int, int, int, int]]


def filter_of(pid: int) -> Code:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(PTRACE_SEIZE, pid, 0, None) < 0:
        pytest.skip("no ptrace")
    try:
        libc.ptrace(PTRACE_INTERRUPT, pid, 0, None)        # no SIGSTOP, which might come after the end of an execve
        os.waitpid(pid, 0x40000000)
        length = libc.ptrace(PTRACE_SECCOMP_GET_FILTER, pid, 0, None)
        if length < 0:
            pytest.skip("the kernel shows filters to nobody, or to root only")
        text = ctypes.create_string_buffer(length * 8)
        libc.ptrace(PTRACE_SECCOMP_GET_FILTER, pid, 0, text)
    finally:
        libc.ptrace(PTRACE_DETACH, pid, 0, None)
    return [(int.from_bytes(one[:2], "little"), one[2], one[3], int.from_bytes(one[4:], "little"))
            for one in (text.raw[i * 8: i * 8 + 8] for i in range(length))]


def answer(code: Code, number: int, arguments: dict[int, int], arch: int = AUDIT_ARCH) -> tuple[int, int]:
    """What the filter says to a call, and how many instructions that took."""
    words = {0: number, 4: arch} | {16 + 8 * n: value for n, value in arguments.items()}
    at = steps = held = 0
    while True:
        what, yes, no, value = code[at]
        at, steps = at + 1, steps + 1
        if what == LOAD:
            held = words.get(value, 0)
        elif what == RETURN:
            return value, steps
        else:
            holds = {EQUAL: held == value, NOT_LESS: held >= value, ANY_BIT: bool(held & value)}[what]
            at += yes if holds else no


def rules() -> dict[int, str]:
    """Number of a call -> what becomes of it, by the source."""
    found = re.findall(r"\{ (\w+), (SHOWN|OPENS_\d|PROBES|EXECUTES) \}", SOURCE.read_text())
    own = re.findall(r"^#define MM_\w+ \d+$", SOURCE.with_suffix(".h").read_text(), re.MULTILINE)
    text = "\n".join(["#include <sys/syscall.h>", *own, ""]) + "".join(f"R {name} {kind}\n" for name, kind in found)
    lines = subprocess.run(["gcc", "-E", "-P", "-"], input=text, capture_output=True, text=True, check=True).stdout
    numbers = re.findall(r"^R (\d+) (\w+)$", lines, re.MULTILINE)
    return {int(number): kind for number, kind in numbers}


def test_what_is_shown(lab: Lab) -> None:
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    with subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", "echo > f; sleep 100 & echo $! > pid; wait"],
                          cwd=lab.work, env=lab.env) as run:
        wait_until(lambda: (lab.work / "pid").exists() and (lab.work / "pid").read_text().endswith("\n"), "the program")
        pid = int((lab.work / "pid").read_text())
        code = filter_of(pid)
        os.kill(pid, signal.SIGTERM)
        assert run.wait(30) == 0
    known, most = rules(), 0
    assert len(known) > 25
    for number in [*range(1000), 0x40000000 | 257, 2**32 - 1]:
        kind = known.get(number, "")
        for flags in (0, os.O_CLOEXEC | os.O_DIRECTORY, os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC):
            opens = kind.startswith("OPENS") and flags & WRITES
            expected = SHOWN if opens or kind in ("SHOWN", "EXECUTES") else ALLOW
            place = int(kind[-1]) if kind.startswith("OPENS") else 0
            said, steps = answer(code, number, {place: flags, 3 - place: ~flags & 0xFFFFFFFF} if place else {})
            assert said == expected, (number, kind, flags)
            most = max(most, steps)
        assert answer(code, number, {}, arch=0x40000003)[0] == ALLOW
    (execve,) = (number for number, kind in known.items() if kind == "EXECUTES")
    looked_at = int(re.findall(r"MM_LOOKED_AT (\w+)", SOURCE.with_suffix(".h").read_text())[0], 16)
    assert [answer(code, execve, {3: value})[0] for value in (looked_at, looked_at + 1)] == [ALLOW, SHOWN]
    (prctl,) = (number for number, kind in known.items() if kind == "PROBES")
    assert [answer(code, prctl, {0: option})[0] for option in (PR_SET_SECCOMP, PR_SET_SECCOMP + 1)] == [SHOWN, ALLOW]
    assert most <= 15, "it searches"
