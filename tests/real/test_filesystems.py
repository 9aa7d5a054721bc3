"""A small part of the tests on other filesystems, and with the store on another one than the data.

`make test-filesystems` runs far more; this is its sample for `make test`. It needs root, for loop devices.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from lab import ROOT

TOOL = ROOT / "tools" / "on-filesystems"
STORIES = "tests/real/test_tools_at_work.py"
SAMPLE = [f"{STORIES}::test_story[{name}-default]" for name in ("sync", "files")]
SAMPLE += ["tests/model/test_random_programs.py::test_random_programs[1000-default]"]
# a mapped file without a name; an ACL by its two names on XFS; one of several names gone in single mode; a file that
# is only read loses its name
ELSEWHERE = ["tests/model/test_random_programs.py::test_random_programs[1006-isolate]",
             "tests/model/test_random_calls.py::test_same_as_natively_in_isolation[13-270]",
             "tests/scenarios/test_calls.py::test_same_as_natively[sharing-plain---mode single]",
             "tests/model/test_regressions.py::test_a_file_opened_for_reading_then_unlinked"]


@pytest.mark.parametrize("where", ["tmpfs", "btrfs", "xfs:tmpfs"])
def test_sample(where: str) -> None:
    if os.getuid() != 0:
        pytest.skip("loop devices need root")
    if subprocess.run([TOOL, where, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{where} cannot be made here")
    sample = SAMPLE + (ELSEWHERE if ":" in where else [])
    command = [TOOL, where, sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider", *sample]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
