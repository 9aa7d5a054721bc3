"""The Debian package: built from the tree, installed, used, taken away again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(map(shutil.which, ("dpkg-buildpackage", "dh", "dh_python3"))):
        pytest.skip("apt-get install dpkg-dev debhelper dh-python")
    source = tmp_path_factory.mktemp("deb") / "metamori"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(
        ".git", ".venv", "*.so", "build", "share", "__pycache__", ".hypothesis", ".*_cache"))
    done = subprocess.run(["dpkg-buildpackage", "-b", "-us", "-uc", "-d"], cwd=source, env=SYSTEM, capture_output=True,
                          text=True, timeout=1800, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return next(source.parent.glob("metamori_*.deb"))


def test_it_holds_what_belongs_where(package: Path) -> None:
    names = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    for name in ("usr/bin/metamori", "dist-packages/metamori/libmetamori.so", "man/man1/metamori-run.1.gz",
                 "man/man3/metamori_checkpoint.3.gz", "pkgconfig/metamori.pc", "bash-completion/completions/metamori"):
        assert name in names, name
    assert "cpython-3" not in names and "/tests/" not in names


def test_installed_it_works_and_leaves_nothing(package: Path, tmp_path: Path) -> None:
    if os.geteuid() or Path("/usr/bin/metamori").exists():
        pytest.skip("only root can install a package, and only where there is none")
    needed = ["python3-cffi-backend", "python3-sortedcontainers"]
    known = subprocess.run(["dpkg-query", "-W", *needed], capture_output=True, check=False)
    if known.returncode:
        pytest.skip(f"apt-get install {' '.join(needed)}")
    subprocess.run(["dpkg", "-i", package], check=True, capture_output=True, env=SYSTEM)
    try:
        script = "echo one > f; metamori checkpoint -m first; echo two >> f; rm -f g"
        done = subprocess.run(["metamori", "run", "--", "sh", "-c", script], cwd=tmp_path, env=SYSTEM, text=True,
                              capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
        subprocess.run(["metamori", "restore", "1"], cwd=tmp_path, env=SYSTEM, check=True, capture_output=True)
        assert (tmp_path / "f").read_text() == "one\n"
        (tmp_path / "p.c").write_text("#include <metamori.h>\nint main(void) { return metamori_active(); }\n")
        subprocess.run("cc $(pkg-config --cflags metamori) p.c -o p && ./p", shell=True, cwd=tmp_path, env=SYSTEM,
                       check=True)
    finally:
        subprocess.run(["dpkg", "--purge", "metamori"], check=True, capture_output=True, env=SYSTEM)
    assert not Path("/usr/lib/python3/dist-packages/metamori").exists()
