"""The adaptive example: rolled back by itself, it ends well and leaves only good steps behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from comeback import Memory

from metamori.store.read.store import Store

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("installed")
def test_the_solver_goes_back_until_it_converges(tmp_path: Path) -> None:
    solver = tmp_path / "solver"
    source = ROOT / "examples" / "adaptive" / "solver.c"
    include = f"-I{ROOT / 'shim_c' / 'include'}"
    subprocess.run(["gcc", "-O1", "-Wall", include, str(source), "-lm", "-o", str(solver)], check=True)
    case = Memory(tmp_path, [solver])
    assert case.native.status == 1, "without Metamori it diverges"
    done = case.verb("run", "--memory", "--", str(solver))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(b"diverged") == 3, done.stderr
    rows = [line.split() for line in (case.work / "history").read_text().splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1)), "steps follow each other"
    assert all(float(row[2]) <= 1.1 for row in rows), "no failed step is left"
    words = [entry["message"] for entry in case.log()["checkpoints"]]
    assert sum(word.startswith("rolled back to") for word in words) == 3
    assert case.verb("verify").returncode == 0


MANY_TIMES = """
#include <metamori.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int n = 1; n < 6; n++) {
        if (metamori_checkpoint() == 0) {               /* one longer than what was written when it was taken */
            FILE *f = fopen("words", "a");
            fprintf(f, "%d %s %s %s\\n", n, argv[0], argv[1], argv[2]);
            fclose(f);
            n++;
        }
        int good = metamori_checkpoint();               /* of a program that has come back n times */
        if (good > 0 && metamori_restore(good) < 0)
            return 1;
    }
    return argc - 3;
}
"""


@pytest.mark.usefixtures("installed")
def test_rolled_back_again_and_again_it_is_started_as_the_first_time(tmp_path: Path) -> None:
    """/proc has neither words nor environment of a program that came back: every index has those of the first start."""
    program = tmp_path / "program with a rather long name"
    (tmp_path / "p.c").write_text(MANY_TIMES)
    subprocess.run(["gcc", f"-I{ROOT / 'shim_c' / 'include'}", str(tmp_path / "p.c"), "-o", str(program)], check=True)
    name = f"../{program.name}"            # the kernel keeps the name that was executed above the words
    case = Memory(tmp_path, [name, "one", "two words"])
    done = case.verb("run", "--memory", "--", name, "one", "two words")
    assert done.returncode == 0, done.stderr
    with Store.open(str(case.store)) as store:
        entries = [each for index in store.history.indexes if index for each in store.meta(index).memory]
        assert len(entries) > 4
        assert {entry.argv for entry in entries} == {(name.encode(), b"one", b"two words")}
        assert {entry.env for entry in entries} == {entries[0].env} and len(entries[0].env) > 3


@pytest.mark.usefixtures("installed")
def test_a_program_that_is_gone_ends_the_run_in_words(tmp_path: Path) -> None:
    """It asks for a rollback and has removed its own file before: nobody is left to be told by an errno."""
    program = tmp_path / "program"
    (tmp_path / "p.c").write_text("""
        #include <metamori.h>
        #include <sys/stat.h>
        int main(int argc, char **argv) {
            int good = metamori_checkpoint();
            if (good > 0) chmod(argv[0], 0644), metamori_restore(good);
            return argc;
        }
    """)
    subprocess.run(["gcc", f"-I{ROOT / 'shim_c' / 'include'}", str(tmp_path / "p.c"), "-o", str(program)], check=True)
    case = Memory(tmp_path, ["true"])
    done = case.verb("run", "--memory", "--exclude", str(program), "--", str(program))
    assert done.returncode == 125, done.stderr
    assert b"the run has ended" in done.stderr and b"Traceback" not in done.stderr
    assert case.verb("verify").returncode == 0
