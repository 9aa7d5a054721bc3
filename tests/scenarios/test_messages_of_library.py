"""What the preload library says by itself: each message provoked by a program."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROOT, Lab

from metamori.runtime.area.run_area import Area


def by_hand(lab: Lab, library: Path, script: str, store: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Without metamori run."""
    env = lab.env | {"LD_PRELOAD": str(library), "METAMORI_STORE": str(store or lab.store)}
    return subprocess.run(["sh", "-c", script], cwd=lab.work, env=env, capture_output=True, text=True, check=False)


def copied(lab: Lab, *names: str) -> Path:
    """The library in a folder of its own, with what else is named beside it."""
    folder = lab.folder / "lib"
    folder.mkdir()
    for name in ("libmetamori.so", *names):
        shutil.copy(ROOT / "metamori" / name, folder)
    return folder / "libmetamori.so"


def test_a_store_that_cannot_be(lab: Lab) -> None:
    done = by_hand(lab, ROOT / "metamori" / "libmetamori.so", "echo one > f; cat f", Path("/proc/nowhere"))
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "metamori: files are not tracked: the store /proc/nowhere cannot be used (" in done.stderr


def test_a_runtime_that_is_not_there(lab: Lab) -> None:
    done = by_hand(lab, copied(lab), "echo one > f; cat f")
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "metamori: the runtime cannot start: " in done.stderr


def test_a_library_that_goes_while_it_is_used(lab: Lab) -> None:
    library = copied(lab, "libmetamori_rt.so")
    done = by_hand(lab, library, f"echo one > f; rm {library}; exec cat f")
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "the preload library cannot be reached from where it runs" in done.stderr


def test_a_static_program(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    build = ["gcc", "-static", "-o", lab.work / "static", tmp_path / "main.c"]
    if subprocess.run(build, check=False, capture_output=True).returncode:
        pytest.skip("gcc has no static C library here")
    said = lab.run(["sh", "-c", "./static; true"], env={"METAMORI_STATIC": "untracked"}).stderr.decode()
    assert "it is static: there is no dynamic loader to preload anything" in said


@pytest.mark.parametrize("survives", [True, False])
def test_on_the_standard_error_of_the_run(lab: Lab, survives: bool) -> None:
    """A program's own is another program's data, or goes nowhere. Without `metamori run` there is no other."""
    killed = "kill -9 $PPID; while [ -d /proc/$PPID ] && ! grep -q 'State:.*Z' /proc/$PPID/status; do :; done; "
    script = ("" if survives else killed) + "busybox true 2> said"
    env = lab.env | {"METAMORI_STATIC": "untracked"}
    argv = [*lab.argv("run"), "--", "sh", "-c", script]
    done = subprocess.run(argv, cwd=lab.work, env=env, capture_output=True, check=False)
    said, words = lab.work / "said", "cannot be tracked: it is static"
    assert (words in done.stderr.decode()) is survives
    assert (words in said.read_text()) is not survives


def test_a_c_library_with_other_tables(lab: Lab, tmp_path: Path) -> None:
    """The program brings tables under the names of glibc's."""
    (tmp_path / "main.c").write_text("#include <stdio.h>\nvoid *_IO_file_jumps[32];\n"
                                     "int main(void) { return puts(\"x\") < 0; }")
    subprocess.run(["gcc", "-rdynamic", "-o", lab.work / "main", tmp_path / "main.c"], check=True)
    done = lab.run(["./main"])
    assert (done.returncode, done.stdout) == (0, b"x\n")
    assert b"this libc's stdio tables are unknown: what goes through FILE streams is not tracked" in done.stderr


RETURN = """
#include "memory/freestanding.c"
#include "memory/fill.c"
#include "memory/together.c"
struct mm_header *mm_memory_head;
int mm_ended(const char *folder, uint32_t id) { return 0; }
int mm_state_letter(const char *folder, uint32_t id) { return 0; }
void mm_return_from_signal(void) {}
int main(int count, char **words)
{
    char to[64];
    uint64_t at = 0;
    int fd = mm_image_open(words[1]);
    mm_take(fd, to, sizeof to, &at);
    return count;
}
"""


@pytest.mark.parametrize(("image", "said"), [
    ("absent", "the program cannot come back: there is no image absent"),
    ("short", "the program cannot come back: its image is cut short or cannot be read"),
])
def test_a_return_without_its_image(image: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "return.c").write_text(RETURN)
    subprocess.run(["gcc", "-w", "-D_GNU_SOURCE", f"-I{ROOT}/shim_c/src", f"-I{ROOT}/shim_c/include",
                    "-Wl,--unresolved-symbols=ignore-all", "return.c", "-o", "return"], cwd=tmp_path, check=True)
    (tmp_path / "short").write_bytes(b"short")
    done = subprocess.run(["./return", image], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 125 and said in done.stderr


def test_descriptors_beyond_the_table(lab: Lab) -> None:
    hard = 1 << 21
    script = (f"import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({hard}, {hard}));"
              "fd = os.open('f', os.O_CREAT | os.O_WRONLY); os.dup2(fd, 1 << 20); os.write(1 << 20, b'one')")
    try:
        subprocess.run([sys.executable, "-c", script], cwd=lab.folder, check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip(f"this kernel allows {resource.getrlimit(resource.RLIMIT_NOFILE)[1]} descriptors")
    done = lab.run([sys.executable, "-c", script])
    assert (lab.work / "f").read_bytes() == b"one"
    assert b"metamori: descriptors from 1048576 on are not tracked" in done.stderr


@pytest.mark.parametrize(("checked", "said"), [
    (False, "metamori: please report: "), (True, "metamori: assertion failed: "),
])
def test_what_does_not_hold(checked: bool, said: str, lab: Lab) -> None:
    """A journal that ends in the middle of a word: told in the product, the end of the program in the checked build."""
    lab.env.pop("METAMORI_CHECKED", None)
    if checked:
        if not (ROOT / "metamori" / "libmetamori-checked.so").exists():
            pytest.skip("the checked build is not built")
        lab.env["METAMORI_CHECKED"] = "1"
    (lab.work / "f").touch()
    session = lab.start()
    session.must(["open g w,creat"])
    area = Area(str(lab.store))
    area.head.journal_tail += 1
    area.close()
    assert session.process.stdin
    session.process.stdin.write(b"unlink f\n")
    session.end()
    assert said in session.stderr()
    assert checked or ": it does not hold that " in session.stderr()


def test_a_program_that_is_another_s(lab: Lab) -> None:
    """In process numbers of its own, from the first instruction on."""
    if os.geteuid() or subprocess.run(["unshare", "-pf", "true"], check=False).returncode:
        pytest.skip("no PID namespaces here")
    done = lab.run(["sh", "-c", "unshare -pf sh -c 'echo one > f'; cat f"])
    assert done.stdout == b"one\n"
    print(done.stderr.decode())
    assert b"it has process numbers of its own (a PID namespace)" in done.stderr
