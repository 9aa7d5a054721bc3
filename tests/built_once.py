"""What tests compile: once in a session, whichever worker wants it first. Others get copies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = (".c", ".cc", ".f90")
folder = Path()                            # of the session's workers together (conftest.py); without it all is compiled


def build(command: Sequence[object], target: Path) -> None:
    """`COMMAND -o TARGET`, of sources that are told apart by what they hold. CalledProcessError."""
    words = [str(word) for word in command]
    if folder == Path():
        _compile(words, target)
        return
    known = [Path(word).read_bytes() if word.endswith(SOURCES) else word for word in words]
    kept = folder / hashlib.sha256(repr(known).encode()).hexdigest()
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=folder) as where:
                _compile(words, Path(where, "new"))
                os.rename(Path(where, "new"), kept)
    shutil.copy(kept, target)


def _compile(words: list[str], target: Path) -> None:
    subprocess.run([*words, "-o", target], check=True)
