"""Random programs of several processes: killed whole, brought back at any index, what each sees is what the model says.

Checkpoints are taken at moments of the program's own and by the timer. All that a process sees goes into its log, at
once behind each checkpoint of the program's own and at the end, so one wrong byte, position, status or count shows.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from comeback import Memory, built, killed_again
from tree_programs import Program

pytestmark = pytest.mark.usefixtures("installed")

# bytes on their way through the loopback device
MAY_REFUSE = ("have not reached the other end",)


def random_tree(folder: Path, seed: int, steps: int, most: int) -> None:
    program = Program(seed, steps)
    (folder / "program").write_text("\n".join(program.lines) + "\n")
    case = Memory(folder, [built(folder, "family.c"), folder / "program"])
    native = {name: entry.content for name, entry in case.native.files.items() if name.startswith("log.")}
    assert case.native.status == 0
    assert native == program.logs()
    random_ = random.Random(seed)
    case.may_refuse = lambda line: any(why in line for why in MAY_REFUSE)
    found = case.run_and_kill("30ms", random_.randint(2, 8))
    case.everywhere(found, most)
    killed_again(case, random_, random_.choice(found))
    known = [entry["index"] for entry in case.log()["checkpoints"] if entry["memory"]]
    case.goes_on(known[-1])
    case.goes_on(random_.choice(known))


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(4))
def test_a_few_trees(tmp_path: Path, seed: int) -> None:
    random_tree(tmp_path, seed, 80, 2)


def test_in_a_container_entered_from_outside(tmp_path: Path) -> None:
    """The leaders of its session and group have no number there."""
    inside = ["unshare", "-pf", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("namespaces are not allowed here")
    one = f"{__file__}::{test_a_few_trees.__name__}[3]"
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "--basetemp", tmp_path / "inside", one]
    done = subprocess.run([*inside, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_trees(tmp_path: Path, seed: int) -> None:
    random_tree(tmp_path, seed, 150, 3)
