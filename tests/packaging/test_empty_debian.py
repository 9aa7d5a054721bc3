"""README's first screen typed on an empty Debian, and the workflow's steps in containers of two releases of it.

A container here is what mmdebstrap makes, with mounts of its own: as much as is in the images that the workflow names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typed
from typed import ROOT

NEEDS = "needs root, and mmdebstrap: apt-get install mmdebstrap"
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason=NEEDS)]
CERTIFICATES = "etc/certificates-of-the-host.crt"        # where a registry is reached through a proxy


class Debian:
    """A folder with a Debian in which nothing is installed but what every one has."""

    def __init__(self, release: str, packed: Path, folder: Path) -> None:
        image = packed / f"{release}.tar"
        if not image.exists():
            done = subprocess.run(["mmdebstrap", "--variant=minbase", release, image], capture_output=True, text=True,
                                  check=False)
            assert done.returncode == 0, done.stderr[-2000:]
        self.root = folder / release
        self.root.mkdir()
        subprocess.run(["tar", "-xf", image, "-C", self.root], check=True)
        shutil.copy("/etc/resolv.conf", self.root / "etc")
        (self.root / "etc/apt/apt.conf.d/99yes").write_text('APT::Get::Assume-Yes "true";\n')
        if host := os.environ.get("PIP_CERT"):
            shutil.copy(host, self.root / CERTIFICATES)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.root / "root/metamori")], check=True)

    def shell(self, folder: str = "/root/metamori") -> list[str]:
        """The words that start bash there; its mounts are gone with it."""
        env = ["HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
               "DEBIAN_FRONTEND=noninteractive", f"FOLDER={folder}"]
        env += [f"PIP_CERT=/{CERTIFICATES}"] if os.environ.get("PIP_CERT") else []
        mounts = ('mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t sysfs none "$0/sys" && '
                  'exec chroot "$0" env -i "$@"')
        return ["unshare", "--mount", "sh", "-c", mounts, str(self.root), *env, "bash", "-c",
                'cd "$FOLDER" && exec bash']

    def type(self, script: str) -> str:
        done = subprocess.run(self.shell(), input=f"set -e\n{script}\n", capture_output=True, text=True, timeout=1500,
                              check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


def test_the_first_screen(packed: Path, tmp_path: Path) -> None:
    """Its lines for an empty Debian as they stand, what it shows, and what it says to try."""
    page = (ROOT / "README.md").read_text()
    install = re.search(r"^```\n(apt update.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert install
    debian = Debian("bookworm", packed, tmp_path)
    debian.type(install[1])
    (debian.root / "root/job").mkdir()
    todo = typed.steps(page)
    entered = typed.Step([". ~/venv/bin/activate"])
    typed.compare(typed.typed([entered, *todo], tmp_path, shell=debian.shell("/root/job")))
    assert (debian.root / "root/job/result.log").read_text().endswith("step 3\n")
    assert "make demo" in page
    debian.type("make demo")


def interpreter(version: str) -> str:
    """One of this machine, of this version."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    found = sys.executable if version == mine else shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin")
    if not found and not pyenv:
        pytest.skip(f"there is no Python {version} here to build its wheel with")
    return found or str(pyenv[-1])


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_the_wheel(packed: Path, tmp_path: Path, release: str) -> None:
    """Built here for the Python of that release; installed there, where nothing was, and used."""
    debian = Debian(release, packed, tmp_path)
    debian.type("tools/wheel python")
    version = debian.type("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()
    subprocess.run([ROOT / "tools/wheel", "build", interpreter(version), debian.root / "root/dist"], check=True,
                   env={name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"})
    assert "works here" in debian.type("tools/wheel test python3 ~/dist")
