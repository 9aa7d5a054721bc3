"""Coverage-guided fuzzing with atheris: `make fuzz`, or by hand `python tests/fuzz/fuzz.py TARGET SECONDS`.

Prints the number of executions; stops with the input, in the folder that it names, when a target does what it must not.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

with atheris.instrument_imports(include=["metamori"]):
    import targets


def main(target: str, seconds: str) -> None:
    corpus, found = HERE / "corpus" / target, Path(tempfile.mkdtemp(prefix="metamori-corpus-"))
    os.chdir(targets.ROOT)
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-max_len=16384", "-rss_limit_mb=2048", "-timeout=60",
         "-print_final_stats=1", f"-artifact_prefix={found}/", str(found), str(corpus)], targets.TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:3])
