"""Files that the kernel runs with a program by its table of further formats (binfmt_misc)."""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Lab
from test_static_programs import BUSYBOX, is_static, prepare

TABLE = "/proc/sys/fs/binfmt_misc"
OWN = ["unshare", "--user", "--map-root-user", "--mount"]      # Linux 6.7: a table of its own
FOREIGN = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HH", 2, 243) + bytes(44)      # RISC-V
ENTRIES = {"magic": ":zg:M:2:\\x01\\xf0::{0}:", "mask": ":zg:M::X.\\x00\\x0f:\\xff\\x00\\x00\\x0f:{0}:",
           "extension": ":zg:E::strange::{0}:", "foreign": ":zg:M:18:\\xf3\\x00::{0}:",
           "end": ":zg:M::ab\\x00\\x00Q:\\xff\\xff\\xff\\xff\\x00:{0}:", "last": ":zg:M:255:Z::{0}:"}
FILES = {"magic": b"ab\x01\xf0", "mask": b"X+\x05\x7f", "extension": b"\x02\x02", "foreign": FOREIGN,
         "end": b"ab", "last": b"\x03" * 255 + b"Z"}

pytestmark = pytest.mark.skipif(
    not is_static(BUSYBOX) or subprocess.run([*OWN, "mount", "-t", "binfmt_misc", "none", TABLE], check=False,
                                             capture_output=True).returncode != 0,
    reason="no static busybox, or no table of formats for everybody")

AUTOMOUNT = f"""
import ctypes, os, select, subprocess, sys
libc = ctypes.CDLL(None)
os.setpgid(0, 0)
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None):
    sys.exit(77)
asked, says = os.pipe()
how = f"fd={{says}},pgrp={{os.getpgrp()}},minproto=5,maxproto=5,direct".encode()
if libc.mount(b"none", b"{TABLE}", b"autofs", 0, how):
    sys.exit(77)
program = subprocess.Popen(sys.argv[1:], process_group=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
program.stdin.close()
ends = os.pidfd_open(program.pid)
waits = asked in select.select([asked, ends], [], [], 60)[0]
os.close(asked), os.close(says), libc.umount2(b"{TABLE}", 2)
program.kill()
sys.exit(waits)
"""


def registered(kind: str, program: Path, flags: str = "") -> list[str]:
    """Before a command: such files are run by the program."""
    entry = ENTRIES[kind].format(program) + flags
    script = f"mount -t binfmt_misc none {TABLE} && printf %s {shlex.quote(entry)} > {TABLE}/register && exec \"$@\""
    return [*OWN, "sh", "-c", script, "sh"]


def made(lab: Lab, kind: str) -> tuple[Path, Path]:
    """Such a file, and the program: busybox, which is `tee` by this name."""
    prepare(lab)
    file, program = lab.folder / "file.strange", lab.folder / "tee"
    file.write_bytes(FILES[kind])
    file.chmod(0o755)
    shutil.copy(os.path.realpath(BUSYBOX), program)
    return file, program


@pytest.mark.parametrize("kind", ENTRIES)
def test_run_by_a_static_program(lab: Lab, kind: str) -> None:
    """It is tracked by its calls."""
    file, program = made(lab, kind)
    before = lab.state()
    command = [*lab.argv("run"), "--", "sh", "-c", f"echo second | {file} log > /dev/null"]
    done = lab.run([*registered(kind, program), *command], native=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "log").read_text() == "second\n"
    lab.restore(0)
    lab.assert_state(before, "before it")


@pytest.mark.parametrize("kind", ENTRIES)
def test_doctor_says_so(lab: Lab, kind: str) -> None:
    file, program = made(lab, kind)
    done = lab.run([*registered(kind, program), *lab.argv("doctor"), file], native=True)
    said = " ".join(done.stdout.decode().split())
    why = "it is for another kind of processor" if kind == "foreign" else f"its interpreter {program}: it is static"
    assert f"{file} can be tracked by its system calls: {why}" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="it gives a file away")
@pytest.mark.parametrize("kind", ["magic", "foreign"])
@pytest.mark.parametrize("flags", ["C", ""])
def test_rights_that_the_file_gives(lab: Lab, kind: str, flags: str) -> None:
    """Not the program that runs it: where our filter would take them, it is not tracked."""
    file, program = made(lab, kind)
    os.chown(file, 1234, 1234)
    file.chmod(0o4755)
    done = lab.run([*registered(kind, program, flags), *lab.argv("doctor"), file], native=True)
    assert (b"can be tracked by its system calls" in done.stdout) == (not flags), done.stdout


def test_a_table_that_is_not_mounted_yet(lab: Lab) -> None:
    """systemd mounts it for whoever goes into it: natively that is nobody who executes a file."""
    file, _ = made(lab, "magic")
    tried = [lab.run([sys.executable, "-c", AUTOMOUNT, *command], native=True).returncode
             for command in (["ls", f"{TABLE}/"], [*lab.argv("doctor"), file])]
    if 77 in tried:
        pytest.skip("no autofs here, or not for everybody")
    assert tried == [1, 0]
