"""Without a package that pip installs only when asked: one sentence names it and the command, and nothing is raised."""
from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lab import ROOT

from metamori import errors

INIT = """
import sys, types
for name in sys.argv[1].split():
    sys.modules[name] = None
from metamori.levels.api import capi, capi_table
ffi = types.SimpleNamespace(NULL=None, string=lambda text: text)
capi_table.bound.ffi = ffi
print(capi_table._guarded(capi.fti_init_, capi_table.NSCS)(None, 0, b"Open MPI", [0]))
"""


def python(script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "RANK" not in name}
    return subprocess.run([sys.executable, "-c", script, *words], cwd=ROOT, env={**environment, **variables}, text=True,
                          capture_output=True, check=False)


@pytest.mark.parametrize("name", ["numpy", "mpi4py", "xxhash"])
def test_fti_init_names_the_extra(name: str) -> None:
    for module in ("numpy", "mpi4py", "xxhash"):           # those that come before it must be there
        pytest.importorskip(module)
    done = python(INIT, name)
    sentence = f"metamori: FTI: {name} is not installed; the levels need it: pip install 'metamori[levels]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "-1\n", sentence)


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"])
def test_one_process_of_a_job_says_it(variable: str) -> None:
    assert python(INIT, "numpy", **{variable: "0"}).stderr.count("\n") == 1
    other = python(INIT, "numpy", **{variable: "3"})
    assert (other.stdout, other.stderr) == ("-1\n", "")


def test_a_package_that_does_not_fit_is_named_in_one_line(tmp_path: Path) -> None:
    """numpy's compiled half for another Python: its error has many lines, and names no module."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise ImportError('\\n\\nIMPORTANT: this fails\\nlong advice')\n")
    done = python(INIT, "", PYTHONPATH=str(tmp_path))
    assert done.stderr == ("metamori: FTI: numpy cannot be loaded (IMPORTANT: this fails); the levels need it: "
                           "pip install 'metamori[levels]'\n")


def test_hdf5_files_without_h5py() -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("xxhash")
    done = python("import sys\nsys.modules['h5py'] = None\nfrom metamori.levels.formats import hdf5_file\n"
                  "try: hdf5_file._h5py()\nexcept hdf5_file.NoHdf5 as error: print(error)")
    sentence = "ckpt_io = 5: h5py is not installed; the levels need it: pip install 'metamori[levels]'\n"
    assert (done.stdout, done.stderr) == (sentence, "")


def test_python_programs_hear_it_as_an_error_of_ours() -> None:
    done = python("import sys\nsys.modules['numpy'] = None\nfrom metamori.errors import MetamoriError\n"
                  "try: from metamori.levels import Levels\nexcept MetamoriError as error: print(error)")
    assert done.stdout == "numpy is not installed; the levels need it: pip install 'metamori[levels]'\n", done.stderr


@pytest.mark.parametrize(("module", "words", "status"), [
    ("_cffi_backend", "run -- true", 125), ("_cffi_backend", "log", 1), ("_cffi_backend", "doctor", 1)])
def test_a_verb_without_what_everything_needs(module: str, words: str, status: int, tmp_path: Path) -> None:
    script = ("import sys\nsys.modules[sys.argv[1]] = None\nfrom metamori.cli import main\n"
              "raise SystemExit(main.main(sys.argv[2:]))")
    done = python(script, module, *words.split(), METAMORI_STORE=str(tmp_path / "store"))
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == "metamori: cffi is not installed; install it with: pip install cffi\n"


def test_an_unknown_module_is_not_explained_away() -> None:
    assert errors.missing(ModuleNotFoundError("No module named 'else'", name="else")) == ""


def test_each_package_of_the_project_has_its_sentence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {kind: {line.split(">")[0] for line in lines} for kind, lines in
             {"always": project["dependencies"], **project["optional-dependencies"]}.items()}
    assert names["levels"] == set(errors._LEVELS)
    assert names["always"] == set(errors._ALWAYS.values())
