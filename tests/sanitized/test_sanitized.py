"""The preload library built with AddressSanitizer, UBSan and ThreadSanitizer, under the small programs.

The tree is copied, so that the library in place stays as it is. A finding ends the program (address, undefined)
or is printed and counted (thread), and either fails the test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import ROOT, wait_until

# The sanitizers call functions that the library wraps before they have set themselves up: not with these options.
EARLY = "disable_coredump=0"
# Faults are the programs' own business: some cause them on purpose. Programs and libc are not instrumented here.
ADDRESS = f"{EARLY}:verify_asan_link_order=0:detect_leaks=0:handle_segv=0:handle_sigbus=0"
THREAD = f"{EARLY}:symbolize=0:die_after_fork=0:exitcode=0"


OTHER_PARTS = "".join(f"        self.{each}()\n"
                      for each in ("build_area", "build_runtime", "build_levels", "make_share"))


def instrumented(kinds: str, folder: Path) -> Path:
    """A copy of the tree with the library built for some of gcc's -fsanitize= `kinds`; the other parts as they are."""
    for name in ("metamori", "shim_c", "tests", "examples", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("libmetamori.so", "*-checked.so",
                                                                                  "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    recipe = (ROOT / "setup.py").read_text()
    assert OTHER_PARTS in recipe
    (folder / "setup.py").write_text(recipe.replace(OTHER_PARTS, "") if (folder / "metamori" / "_area.abi3.so").exists()
                                     else recipe)
    flags = "-fno-omit-frame-pointer -fno-sanitize-recover=all"
    env = {**os.environ, "METAMORI_SANITIZE": kinds, "METAMORI_CFLAGS": flags}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder, env=env, capture_output=True, text=True,
    )
    if "cannot find lib" in done.stderr:
        pytest.skip(f"gcc has no library for -fsanitize={kinds} here")
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def under_address(folder: Path, *selection: str) -> None:
    """Run tests of the copied tree; anything that AddressSanitizer or UBSan says ends a program, which fails one."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(folder / "tmp"), *selection],
        cwd=folder, env={**os.environ, "ASAN_OPTIONS": ADDRESS}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_calls_under_address_and_undefined(tmp_path: Path) -> None:
    # not execs and held: a program with a cleared environment does not load the sanitizer first, which insists on that
    under_address(instrumented("address,undefined", tmp_path / "tree"), "tests/scenarios/test_calls.py",
                  "-k", "plain and not execs and not held and not single and not size")


# What the sanitizer itself does not bear: programs that start without what loads it first; a limit on the address
# space, of which it takes terabytes, and an image of them; gcc, whose order of libraries hides the dynamic loader
# from it; umount, which dies in it.
NOT_FOR_ADDRESS = ("execs", "held", "cleared_environment", "go_linker and spawn", "address-space", "with_its_memory",
                   "shared_library_just_built", "test_loop_mounts")


@pytest.mark.slow
def test_all_scenarios_under_address_and_undefined(tmp_path: Path) -> None:
    under_address(instrumented("address,undefined", tmp_path / "tree"), "tests/scenarios", "tests/model", "-n", "2",
                  "-k", " and ".join(f"not ({each})" for each in NOT_FOR_ADDRESS))


@pytest.fixture(scope="module")
def thread_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return instrumented("thread", tmp_path_factory.mktemp("thread") / "tree")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("setarch") is None, reason="ThreadSanitizer needs setarch -R (util-linux)")
@pytest.mark.parametrize("options", ["--cache-size 4G", "--isolate --cache-size 4G", "--cache-size 0"])
@pytest.mark.parametrize("name", ["instant", "busy"])
def test_threads_under_thread(thread_tree: Path, tmp_path: Path, name: str, options: str) -> None:
    """Threads are at work in many files while checkpoints are taken from outside: no data race.

    Nothing here may start the runtime, whose thread is not one of ThreadSanitizer's: ld.so there calls the sanitizer's
    malloc. So no checkpoint from inside, and nothing to swap out of the cache."""
    program, work, said = tmp_path / name, tmp_path / "work", tmp_path / "said"
    subprocess.run(
        ["gcc", "-g", "-fsanitize=thread", "-pthread", f"-I{thread_tree}/shim_c/include",
         f"{thread_tree}/tests/programs/{name}.c", "-o", program], check=True,
    )  # fmt: skip
    work.mkdir()
    for n in range(3):
        (work / f"c{n}").write_bytes(b"0000000\n" + b"." * 5000)
    env = {**os.environ, "PYTHONPATH": str(thread_tree), "TSAN_OPTIONS": THREAD,
           "METAMORI_STATIC": "untracked"}         # the library is in it: it has the sanitizer itself
    metamori = ["setarch", "-R", sys.executable, "-m", "metamori"]
    words = [str(program), *(["0", "0"] if name == "busy" else [])]
    with open(said, "w") as both, subprocess.Popen(
        [*metamori, "run", *options.split(), "--", *words], cwd=work, env=env,
        stdin=subprocess.PIPE, stdout=both, stderr=both,
    ) as run:  # fmt: skip
        first = work / {"instant": "a0", "busy": "log"}[name]
        wait_until(lambda: first.exists(), "the program is at work")
        for _ in range(4):  # one that finds a thread too slow to stop, as they are here, is refused
            time.sleep(0.1)
            subprocess.run([*metamori, "checkpoint"], cwd=work, env=env, capture_output=True)
        assert run.stdin is not None
        run.stdin.close()
    assert run.returncode == 0, (run.returncode, said.read_text()[-5000:])
    assert not of_the_library(said.read_text()), said.read_text()[-5000:]


def of_the_library(text: str) -> list[str]:
    """The reports in which an access of the library takes part; the program has races of its own (`stop`)."""
    reports = text.split("WARNING: ThreadSanitizer: ")[1:]
    return [each for each in reports if re.search(r"#0 .*libmetamori\.so", each)]
