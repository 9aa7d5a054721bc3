"""Every input that was worth keeping, through its target: without a fuzzer, in every test run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from targets import TARGETS  # noqa: E402

IN_C = ("exec", "area")
INPUTS = sorted(path for path in (HERE / "corpus").rglob("*") if path.is_file() and path.parent.name not in IN_C)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_kept_inputs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    TARGETS[path.parent.name](path.read_bytes())


def test_there_are_inputs_for_every_target() -> None:
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


def can_build() -> bool:
    """Whether there is a clang, and libFuzzer, which Debian has in a package of its own."""
    if not shutil.which("clang"):
        return False
    said = subprocess.run(["clang", "-print-runtime-dir"], capture_output=True, text=True)
    return any(Path(said.stdout.strip()).glob("libclang_rt.fuzzer*"))


@pytest.mark.skipif(not can_build(), reason="clang is not installed, or not its libFuzzer")
@pytest.mark.parametrize("name", IN_C)
def test_kept_inputs_in_c(name: str) -> None:
    """Built, each input once, and a second of others."""
    done = subprocess.run(["sh", HERE / "exec_fuzz.sh", "1", name], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
