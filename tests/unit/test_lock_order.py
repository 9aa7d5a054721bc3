"""Contracts of locks are assertions of the checked build: each broken one ends the program and says which. Nobody waits
for ever."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import built_once
import pytest
from lab import ROOT

SOURCES = ROOT / "shim_c" / "src"
BROKEN = ["it takes FILE_NAMES and holds FILE", "it takes FILE and holds FILE", "it takes FILE and holds FILE",
          "mm_locked_by_me(lock)", "mm_locked_by_me(&p->lock)", "!mm_locks_held(", "mm_depth > 0", "!mm_depth",
          "mm_handlers_wait()"]


def built(folder: Path, name: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    sources = [ROOT / "tests" / "programs" / f"{name}.c", *SOURCES.glob("area/*.c"), *SOURCES.glob("base/*.c")]
    built_once.build(["gcc", "-DMM_CHECKED", "-I", SOURCES, *sources], folder / name)
    return folder / name


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("contracts"), "contracts")


def test_locks_in_their_order_pass(contracts: Path) -> None:
    done = subprocess.run([contracts, "0"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "kept\n", "")


@pytest.mark.parametrize(("number", "says"), list(enumerate(BROKEN, 1)))
def test_a_broken_contract_ends_the_program(contracts: Path, number: int, says: str) -> None:
    done = subprocess.run([contracts, str(number)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "")
    assert done.stderr.startswith("metamori: assertion failed: ") and says in done.stderr


@pytest.mark.parametrize("what", ["5", "killed"])
def test_who_waits_gets_the_lock_from_one_who_takes_it_again_at_once(tmp_path: Path, what: str) -> None:
    """The one that waits always came too late, for as long as the other went on."""
    done = subprocess.run([built(tmp_path, "starved"), what], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 10_000       # half a millisecond each
