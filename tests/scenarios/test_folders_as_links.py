"""A folder that was replaced by a symbolic link to another one, which holds the same names, or by another folder: what
is found at a path now is not what was there then."""

from __future__ import annotations

import os
import sys

import pytest
from lab import Lab, Tree

# Each line is a run. Folders o and p with a file c each are there before.
CASES = {
    "a file": ["mkdir b d; echo b > b/c; echo d > d/c", "rm -r d; ln -s b d"],
    "a file that moves": ["mkdir b d; echo b > b/c; echo d > d/c", "mv d/c e; rmdir d; ln -s b d"],
    "a file as a link": ["mkdir b d; echo b > b/c; ln -s nowhere d/c", "rm -r d; ln -s b d"],
    "a fifo": ["mkdir b d; echo b > b/c; mkfifo d/c", "rm -r d; ln -s b d"],
    "the same file": ["mkdir b d; echo b > b/c; ln b/c d/c", "rm -r d; ln -s b d"],
    "the same file, further in": ["mkdir -p b/e d/e; echo b > b/e/c; ln b/e/c d/e/c", "rm -r d; ln -s b d"],
    "folders": ["mkdir -p b/e d/e", "chmod 700 d/e; rm -r d; ln -s b d"],
    "a folder of another mode": ["mkdir -p b/e d/e; chmod 700 d/e; echo d > d/e/f", "rm -r d; ln -s b d"],
    "a file of before": ["rm -r o; ln -s p o"],
    "the folder moves": ["mkdir d; echo d > d/c", "mv d b; ln -s b d"],
    "the folder moves, another one comes": ["mkdir -p d/e; echo d > d/c; chmod 700 d/e",
                                            "mv d b; ln -s p d; chmod 755 b/e"],
    "a link within it": ["mkdir b d; echo b > b/d; mkdir d/e; echo d > d/e/d", "rm -r d/e; ln -s . d/e; echo x > d/d"],
    "to itself": ["mkdir -p b/d; echo b > b/c; echo d > b/d/c", "rm -r b/d; ln -s ../b b/d"],
}


def played(lab: Lab, case: str) -> list[Tree]:
    """Files at each index."""
    for folder in ("o", "p"):
        (lab.work / folder).mkdir()
        (lab.work / folder / "c").write_text(folder * 3000)
    states = [lab.state()]
    for line in CASES[case]:
        lab.run(["sh", "-c", line])
        states.append(lab.state())
    return states


@pytest.mark.parametrize("case", CASES)
def test_there_and_back(lab: Lab, case: str) -> None:
    states = played(lab, case)
    for index in (*range(len(states)), *reversed(range(len(states))), 0, len(states) - 1):
        lab.restore(index)
        lab.assert_state(states[index], f"checkpoint {index}")
    lab.verb("verify")


def test_inside_the_program(lab: Lab) -> None:
    program = """if 1:
        import metamori, os, shutil
        for name in "bd":
            os.mkdir(name)
            with open(name + "/c", "w") as file:
                file.write(name)
        first = metamori.checkpoint()
        shutil.rmtree("d")
        os.symlink("b", "d")
        second = metamori.checkpoint()
        for index, what in ((first, "d"), (second, "b"), (first, "d")):
            metamori.restore(index)
            assert (open("b/c").read(), open("d/c").read()) == ("b", what), index
            assert os.path.islink("d") == (what == "b")
        """
    done = lab.run([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr.decode()


def attributes(lab: Lab) -> dict[str, tuple[str, list[str]]]:
    return {name: (oct((lab.work / name).stat().st_mode), os.listxattr(lab.work / name)) for name in ("b/e", "d/e")}


@pytest.mark.parametrize("line", ["mv d t; mv b d; mv t b", "rm -r b d; mkdir -p b/e d/e",
                                  "mv d/e e; mkdir d/e; rmdir e"])
def test_another_folder_at_the_path(lab: Lab, line: str) -> None:
    """What one looks like at the path where another is to be does not tell what that one looks like."""
    change = "import os; os.chmod('b/e', 0o755); os.chmod('d/e', 0o700); os.setxattr('d/e', 'user.a', b'1'); "
    for folder in ("b/e", "d/e"):
        (lab.work / folder).mkdir(parents=True)
    lab.run([sys.executable, "-c", change])
    before = attributes(lab)
    lab.run(["sh", "-c", line])
    middle = attributes(lab)
    lab.run([sys.executable, "-c", change + "'user.a' in os.listxattr('b/e') and os.removexattr('b/e', 'user.a')"])
    for index, want in ((1, before), (3, before), (2, middle), (1, before)):
        lab.restore(index)
        assert attributes(lab) == want, index
