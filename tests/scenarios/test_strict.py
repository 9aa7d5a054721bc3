"""`run --strict`: the library is in no program, and the kernel shows what each does, however it calls the kernel."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Compile
from lab import ROOT, Lab
from test_static_programs import COMPILED, OPTIONS, STEPS, every_index, prepare

IO_URING_SETUP = 425
RING = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall({IO_URING_SETUP}, 1, ctypes.create_string_buffer(120)) >= 0, ctypes.get_errno())
"""
INSIDE = """
#include <errno.h>
#include <metamori.h>
#include <stdio.h>
int main(void)
{
    int r = metamori_checkpoint();
    printf("%d %d %d\\n", metamori_active(), r, errno == ENOSYS);
}
"""


@pytest.fixture
def raw(lab: Lab) -> Path:
    """Dynamic, with system call instructions of its own."""
    source = lab.folder / "raw.c"
    source.write_text(COMPILED)
    subprocess.run(["gcc", "-DRAW", source, "-o", lab.folder / "raw"], check=True)
    return lab.folder / "raw"


@OPTIONS
def test_system_call_instructions(lab: Lab, native_lab: Lab, raw: Path, options: list[str]) -> None:
    """Beside those of the C library, in a dynamic program that dynamic programs start."""
    steps = [f"{raw}; cat log", f"mv older old; echo between >> old; {raw}"]
    every_index(lab, native_lab, ["sh"], steps, ["--strict", *options])


def test_without_the_option_they_are_not_seen(lab: Lab, raw: Path) -> None:
    prepare(lab)
    before = lab.state()
    assert lab.run([raw]).returncode == 0
    lab.verb("restore", "--force", 0, code=None)
    assert lab.state() != before


@OPTIONS
def test_ordinary_programs(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    python = f"{sys.executable} -c 'import os; open(\"p\", \"w\").write(\"py\"); os.rename(\"p\", \"q\")'"
    every_index(lab, native_lab, ["bash"], [*STEPS, f"{python}; cat q; env -i sh -c 'echo x > q'"],
                ["--strict", *options])


def test_a_script_without_an_interpreter_line(lab: Lab) -> None:
    (lab.work / "script").write_text("echo $1 > made\n")
    (lab.work / "script").chmod(0o755)
    done = lab.run(["./script", "word"], "--strict")
    assert (done.returncode, done.stderr, (lab.work / "made").read_text()) == (0, b"", "word\n")
    lab.restore(0)
    assert sorted(lab.state()) == ["script"]


def test_rings_are_refused(lab: Lab) -> None:
    """No filter sees what a ring opens or removes; as with kernel.io_uring_disabled programs do without."""
    command = [sys.executable, "-c", RING]
    assert lab.run(command, "--strict").stdout == f"False {errno.EPERM}\n".encode()
    if lab.run(command, native=True).stdout.startswith(b"True"):
        assert lab.run(command).stdout.startswith(b"True"), "without the option"


def test_checkpoints_from_inside(lab: Lab) -> None:
    """The library stays out of the way; the verb works."""
    (lab.folder / "inside.c").write_text(INSIDE)
    subprocess.run(["gcc", "-I", ROOT / "shim_c/include", "inside.c", "-o", "inside"], cwd=lab.folder, check=True)
    script = f"{lab.folder}/inside; {' '.join(lab.argv('checkpoint'))}; echo a > a"
    done = lab.run(["sh", "-c", script], "--strict")
    assert (done.stdout, done.stderr) == (b"0 -1 1\n1\n", b"")
    lab.restore(1)
    assert not lab.state()


@pytest.mark.parametrize(("options", "environ", "code", "why"), [
    (["--strict", "--memory"], {}, 125, "exclude each other"),
    (["--strict"], {"METAMORI_STATIC": "untracked"}, 125, "METAMORI_STATIC=untracked is set"),
])
def test_what_it_does_not_go_with(lab: Lab, options: list[str], environ: dict[str, str], code: int, why: str) -> None:
    done = lab.run(["true"], *options, env=environ)
    assert done.returncode == code and why in done.stderr.decode()


def test_a_machine_that_refuses(lab: Lab, compiled: Compile) -> None:
    """A container whose profile forbids filters: nothing is started, and `doctor` says it too."""
    refused = compiled("refused")
    done = lab.run([refused, *lab.argv("run", "--strict"), "--", "touch", "made"], native=True)
    assert done.returncode == 125
    assert "--strict is not possible here: seccomp filters are refused" in done.stderr.decode()
    assert not lab.state()


def test_a_machine_that_refuses_later(lab: Lab, compiled: Compile) -> None:
    begin = "from metamori.runtime.lifecycle import elf; elf.calls_are_hidden = str; " \
            "from metamori.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
    command = [compiled("refused"), sys.executable, "-c", begin, "run", "--strict", "--store", lab.store]
    done = lab.run([*command, "--", "touch", "made"], native=True)
    assert done.returncode == 0, done.stderr
    assert b"is tracked as without --strict: no filter can be set" in done.stderr and len(done.stderr.splitlines()) == 1
    lab.restore(0)
    assert not lab.state()


def test_the_trial_leaves_nothing() -> None:
    """Whether filters are refused is tried in another process: this one has none, nor lost rights."""
    from metamori.runtime.lifecycle import elf

    status = Path("/proc/self/status")
    before = [line for line in status.read_text().splitlines() if line.startswith(("NoNewPrivs", "Seccomp"))]
    elf.calls_are_hidden()
    assert before == [line for line in status.read_text().splitlines() if line.startswith(("NoNewPrivs", "Seccomp"))]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG | -0x80000000)   # __WCLONE: no child is left
