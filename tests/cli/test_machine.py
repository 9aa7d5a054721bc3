"""Verbs that need no store: help, doctor, config."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Compile

from metamori.cli import doctor
from metamori.cli.run import too_old
from metamori.runtime.lifecycle import elf

ROOT = Path(__file__).resolve().parents[2]


def metamori(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "metamori", *words], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == code, done.stderr
    return done


def test_help_is_quick_and_names_every_verb() -> None:
    text = metamori("--help").stdout
    assert all(verb in text for verb in ("run", "checkpoint", "restore", "verify", "doctor"))
    code = "import sys, metamori.cli.main as m; m.VERBS; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                            env=os.environ | {"PYTHONPATH": str(ROOT)}).stdout
    for heavy in ("sortedcontainers", "cffi", "json", "metamori.store", "ctypes"):
        assert f"'{heavy}'" not in loaded, heavy


def test_unknown_verb_is_a_usage_error() -> None:
    assert metamori("no-such-verb", code=2).stderr.count("\n") == 1
    assert metamori(code=2).stderr.count("\n") == 1


def test_config_gives_the_header() -> None:
    flags = json.loads(metamori("config", "--json").stdout)
    assert (Path(flags["cflags"][2:]) / "metamori.h").exists()
    assert metamori("config", "--cflags").stdout.strip() == flags["cflags"]
    assert flags["libs"] == "-ldl"         # dlsym, before glibc 2.34


GO_NOTE = r"""
__asm__(".section .note.go.buildid,\"a\",@note\n.long 4, 4, 4\n.asciz \"Go\"\n.byte 0\n.long 7\n.text");
int main(void) { return 0; }
"""
GLIBC_LOADER = b"/lib64/ld-linux-x86-64.so.2"


def make_elf(path: Path, machine: int = 62, bits: int = 2, interpreter: bytes = GLIBC_LOADER) -> str:
    """The smallest header that says what a program is; without an interpreter it is static."""
    name = interpreter + b"\0"
    head = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", bits, 1, 1, 0, 2, machine, 1, 0, 64, 0, 0, 64,
                       56, 1, 0, 0, 0)
    kind = 3 if interpreter else 1
    path.write_bytes(head + struct.pack("<IIQQQQQQ", kind, 4, 120, 0, 0, len(name), len(name), 1) + name)
    return str(path)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the headers are those of x86-64 programs")
def test_programs_that_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "program"
    assert elf.look(make_elf(path)).why == ""
    static = elf.look(make_elf(path, interpreter=b""))
    assert static.why == "it is static: there is no dynamic loader to preload anything"
    assert "processor" in elf.look(make_elf(path, machine=183)).why
    assert "32-bit" in elf.look(make_elf(path, bits=1)).why
    assert "GNU" in elf.look(make_elf(path, interpreter=b"/lib/ld-musl-x86_64.so.1")).why
    path.write_text("not a program")
    assert "not a program" in elf.look(str(path)).why
    path.write_text("#!/no/such/interpreter\n")
    assert "interpreter" in elf.look(str(path)).why
    path.write_text(f"#!{sys.executable}\n")
    assert elf.look(str(path)).why == ""


def test_set_user_id_is_named(tmp_path: Path) -> None:
    path = Path(make_elf(tmp_path / "program"))
    path.chmod(0o755 | stat.S_ISUID)
    assert elf.look(str(path)).why == "", "one's own adds no rights"
    others = next((each for each in ("/usr/bin/su", "/usr/bin/passwd") if os.path.exists(each)
                   and os.stat(each).st_mode & stat.S_ISUID and os.stat(each).st_uid != os.geteuid()), "")
    assert not others or "set-user-ID" in elf.look(others).why


@pytest.mark.parametrize(("version", "good"), [("2.36", True), ("2.31", True), ("2.37", None), ("3.0", None)])
def test_doctor_on_a_newer_c_library(monkeypatch: pytest.MonkeyPatch, version: str, good: bool | None) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", version))
    found = doctor._libc()
    assert found.good is good and ("not known" in found.text) == (good is None)


def test_doctor_says_static(tmp_path: Path) -> None:
    path = make_elf(tmp_path / "program", interpreter=b"")
    done = metamori("doctor", "--json", path)
    findings = {each["what"]: each for each in json.loads(done.stdout)["findings"]}
    assert "can be tracked by its system calls: it is static" in findings["program"]["text"]
    assert findings["program"]["good"] is True
    assert findings["static programs"]["text"] == "tracked by their system calls"
    assert "needs the library in the program" in findings["program, memory"]["text"]
    assert "filesystem" in findings and findings["C library"]["good"]


def test_doctor_where_calls_are_not_shown(tmp_path: Path, compiled: Compile) -> None:
    """In a container whose profile forbids filters, and where the user wants none."""
    path = make_elf(tmp_path / "program", interpreter=b"")
    doctor = [sys.executable, "-m", "metamori", "doctor", "--json", path]
    untracked = os.environ | {"METAMORI_STATIC": "untracked"}
    for command, environ, why in (([compiled("refused"), *doctor], None, "seccomp filters are refused here"),
                                  (doctor, untracked, "METAMORI_STATIC=untracked is set")):
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        findings = {each["what"]: each for each in json.loads(done.stdout)["findings"]}
        assert (done.returncode, findings["program"]["good"], findings["static programs"]["good"]) == (1, False, None)
        assert "it is static" in findings["program"]["text"] and f"Nor can its system calls be tracked: {why}" in \
            findings["program"]["text"]
        assert f"not tracked: {why}" in findings["static programs"]["text"]


@pytest.mark.parametrize(("refused", "others", "hard", "why"), [
    (errno.ENOSYS, 1, 4096, "the kernel has no seccomp filters"),
    (errno.EINVAL, 1, 4096, "the kernel has no seccomp user notification; Linux 5.19 or newer has it"),
    (errno.EBUSY, 1, 4096, "this container or sandbox has a seccomp listener of its own, and there can be only one"),
    (errno.EPERM, 1, 4096, "seccomp filters are refused here, as in some containers (Operation not permitted)"),
    (0, 0, 4096, "kernel.yama.ptrace_scope must be 0, or 1 or 2 for root"),
    (0, 1, 1024, "the hard limit of descriptors (ulimit -Hn) is 1024; 4096 are needed"),
    (0, 1, 4096, ""),
    (0, 1, resource.RLIM_INFINITY, ""),
])
def test_why_calls_are_hidden(
    refused: int, others: int, hard: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = SimpleNamespace(mm_listener_refused=lambda: -refused, mm_may_read_others=lambda: others,
                              MM_PROXY_FILES=4096)
    monkeypatch.setattr(elf, "lib", answers)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (hard, hard))
    monkeypatch.delenv("METAMORI_STATIC", raising=False)
    assert elf.calls_are_hidden() == why


def test_doctor_on_a_go_program(tmp_path: Path) -> None:
    """Dynamic, and tracked all the same by its calls; where these are hidden, in part."""
    source, program = tmp_path / "go.c", tmp_path / "program"
    source.write_text(GO_NOTE)
    subprocess.run(["gcc", source, "-o", program], check=True)
    found = {each["what"]: each for each in json.loads(metamori("doctor", "--json", str(program)).stdout)["findings"]}
    assert found["program"]["good"]
    assert "by its system calls: it is a Go program, which calls the kernel by itself" in found["program"]["text"]
    done = subprocess.run([sys.executable, "-m", "metamori", "doctor", program], capture_output=True, text=True,
                          env=os.environ | {"METAMORI_STATIC": "untracked", "COLUMNS": "1000"}, check=False)
    assert "What it writes that way is not tracked: METAMORI_STATIC=untracked is set" in " ".join(done.stdout.split())


def test_a_c_library_that_is_too_old_is_refused() -> None:
    """The preload library is linked for glibc 2.17: tests/packaging asserts it."""
    assert too_old("glibc 2.12") and too_old("glibc 2.9")
    assert not too_old("glibc 2.17") and not too_old("glibc 2.100")
    assert not too_old(os.confstr("CS_GNU_LIBC_VERSION") or "")
