"""Every page's commands are run by a test: most of them here, as they stand; the others by the test that is named."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typed
from typed import ROOT

TYPED = ("docs/tutorial.md", "docs/how-to/adaptive.md", "docs/how-to/hdf5.md", "docs/how-to/disk-space.md",
         "docs/how-to/scope.md", "docs/reference/json.md", "examples/adaptive/README.md")
EACH_SECTION = ("docs/how-to/recipes.md",)
ELSEWHERE = {
    "README.md": "tests/packaging/test_readme.py",
    "docs/how-to/fti.md": "tests/levels/test_how_to.py",
    "docs/how-to/lammps.md": "tests/cookbook/test_lammps.py",
    "docs/how-to/gromacs.md": "tests/cookbook/test_gromacs.py",
    "docs/how-to/slurm.md": "tests/slurm/test_slurm.py",
    "docs/how-to/job.md": "tests/job/test_job.py",
    "docs/how-to/snakemake.md": "tests/cookbook/test_snakemake.py",
    "examples/engines/README.md": "tests/memory/test_other_engines.py",
    "docs/reference/fortran.md": "tests/levels/test_how_to.py",
    "docs/reference/cli.md": "tests/packaging/test_pages.py",
}
NEEDED = {"sqlite3": "sqlite3", "h5py": "h5ls", "h5ls": "h5ls"}
pytestmark = pytest.mark.usefixtures("installed")


def ready(text: str) -> None:
    for word, program in NEEDED.items():
        if word in text and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if "h5py" in text and subprocess.run(["/usr/bin/python3", "-c", "import h5py"], capture_output=True).returncode:
        pytest.skip("h5py is not installed: apt-get install python3-h5py")


@pytest.mark.parametrize("name", TYPED)
def test_page(name: str, tmp_path: Path) -> None:
    """In folders of the test's own instead of those that the page names."""
    text = (ROOT / name).read_text().replace("/tmp/try", f"{tmp_path}/try")
    ready(text)
    if name.startswith("examples/"):
        shutil.copytree((ROOT / name).parent, tmp_path, dirs_exist_ok=True)
    todo = typed.steps(text)
    assert len(todo) > 2
    typed.compare(typed.typed(todo, tmp_path, EXAMPLES=str(ROOT / "examples")))


RECIPES = {head: body for page in EACH_SECTION for head, body in typed.sections((ROOT / page).read_text()).items()}


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name: str, tmp_path: Path) -> None:
    ready(RECIPES[name])
    typed.compare(typed.typed(typed.steps(RECIPES[name]), tmp_path))


def test_no_page_is_left_out() -> None:
    """Whoever writes commands on a page names the test that runs them."""
    pages = [ROOT / "README.md", *(page for folder in ("docs", "examples") for page in (ROOT / folder).rglob("*.md"))]
    with_commands = {str(page.relative_to(ROOT)) for page in pages
                     if re.search(r"^```(console|sh|bash)\b", page.read_text(), re.MULTILINE)}
    assert with_commands == {*TYPED, *EACH_SECTION, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        text = (ROOT / test).read_text()
        assert Path(page).name in text or test in (ROOT / page).read_text(), (page, test)


def test_the_loop_of_the_page_on_jobs(tmp_path: Path) -> None:
    """docs/how-to/slurm.md: a program that is killed twice ends with every line once."""
    page = (ROOT / "docs" / "how-to" / "slurm.md").read_text()
    loop = re.search(r"^```bash\n(until .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert loop
    (tmp_path / "simulate.c").write_text("""
        #include <metamori.h>
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(void) {
            for (int step = 1; step <= 6; step++) {
                printf("step %d\\n", step);
                fflush(stdout);
                if (step % 2 == 0 && metamori_checkpoint() > 0)     /* and no second time when it comes back */
                    kill(getpid(), SIGKILL * (step < 6));
            }
            return 0;
        }
    """)
    script = loop[1].replace("sleep 10", "[ $((n += 1)) -lt 5 ] || exit 99")
    done = subprocess.run(["bash", "-c", f"cc simulate.c $(metamori config --cflags) -o simulate || exit 98\n{script}"],
                          cwd=tmp_path, env=typed.environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.log").read_text().splitlines() == [f"step {n}" for n in range(1, 7)]


def test_the_unit_of_the_page_on_jobs(tmp_path: Path) -> None:
    """systemd itself reads it, where it is installed; a service cannot be started everywhere."""
    page = (ROOT / "docs" / "how-to" / "slurm.md").read_text()
    unit = re.search(r"^```ini\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert unit and "[Service]" in unit[1]
    command = re.search(r"^ExecStart=\S+ (.*)$", unit[1], re.MULTILINE)
    assert command, "it starts metamori"
    (tmp_path / "simulate").write_text("#!/bin/sh\necho ran > result\n")
    (tmp_path / "simulate").chmod(0o755)
    done = subprocess.run(["metamori", *command[1].split()], cwd=tmp_path, env=typed.environment(), capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0 and (tmp_path / "result").exists(), done.stderr
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: only the command was run")
    here = Path(sys.executable).with_name("metamori")
    (tmp_path / "simulation.service").write_text(unit[1].replace("/usr/bin/metamori", str(here))
                                                 .replace("/srv/simulation", str(tmp_path)))
    seen = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "simulation.service"],
                          capture_output=True, text=True, timeout=120, check=False)
    ours = [line for line in seen.stderr.splitlines() if "simulation.service" in line]
    assert not ours, ours


def test_by_hand_without_run(tmp_path: Path) -> None:
    """docs/reference/cli.md, its last section: the library put into LD_PRELOAD."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    block = re.search(r"^```console\n\$ (METAMORI_STORE=.*)\n```", page, re.MULTILINE)
    assert block
    (tmp_path / "program").write_text("#!/bin/sh\necho one > f\nmetamori checkpoint\necho two > f\n")
    (tmp_path / "program").chmod(0o755)
    command = block[1].replace("/path/to/metamori", str(ROOT / "metamori"))
    done = subprocess.run(["bash", "-c", f"{command}; metamori restore --store ckpt 1; cat f"], cwd=tmp_path,
                          env=typed.environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[::2] == ["1", "one"], (done.stdout, done.stderr)


def test_the_figures_for_a_monitor(tmp_path: Path) -> None:
    """docs/how-to/recipes.md: what a collector of text files takes."""
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    page = (ROOT / "docs/how-to/recipes.md").read_text()
    line = re.search(r"^```sh\n(metamori log --json .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert line
    script = f"metamori run -- sh -c 'head -c 9999 /dev/zero > a; metamori checkpoint; seq 3 > a'\n{line[1]}"
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=typed.environment(), check=True, timeout=240)
    figures = dict(each.split() for each in (tmp_path / "metrics.prom").read_text().splitlines())
    assert figures.keys() == {"metamori_checkpoints", "metamori_store_bytes"}
    assert figures["metamori_checkpoints"] == "3" and int(figures["metamori_store_bytes"]) >= 9999


def test_the_python_page(tmp_path: Path) -> None:
    """docs/reference/python-api.md: its first two pieces as one program of a run, its third by somebody outside."""
    page = (ROOT / "docs" / "reference" / "python-api.md").read_text()
    first, trial, outside = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "inside.py").write_text(
        "import pathlib\nhere = pathlib.Path('results.dat')\nhere.write_text('right')\n"
        "def tried(): here.write_text('wrong')\n"
        "def solve(step): here.write_text(f'step {step}')\ndef converged(): return False\n"
        f"{first}assert here.read_text() == 'right'\n"
        f"{trial}assert here.read_text() == 'right'\nhere.write_text('end')\n")
    (tmp_path / "outside.py").write_text(f"import metamori\n{outside}assert header == b'right', header\n")
    script = f"metamori run -- {sys.executable} inside.py && {sys.executable} outside.py"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=typed.environment(PYTHONPATH=str(ROOT)),
                          capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "before the risky part" in done.stdout and "results.dat" in done.stdout
