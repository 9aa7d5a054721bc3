"""Which files a run tracks: the folder in which it starts, what it is told, and what the store remembers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lab import Lab, difference, picture

TOLD = "written outside of the scope, and not tracked: "


@pytest.fixture
def scoped(lab: Lab) -> Lab:
    """A laboratory in which nobody asks for more than the default; `out` is a folder beside the work."""
    del lab.env["METAMORI_TRACK"]
    (lab.folder / "out").mkdir()
    lab.env["HOME"] = str(lab.folder / "home")
    Path(lab.env["HOME"]).mkdir()
    return lab


def recorded(store: Path) -> str:
    """Without the checksum."""
    return (store / "scope").read_text().rpartition("crc\t")[0]


def sh(lab: Lab, script: str, *options: object, cwd: Path | None = None, shell: str = "sh") -> str:
    done = lab.run([shell, "-c", script], *options, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def tracked(lab: Lab, index: int | str = "last") -> set[str]:
    """Names of the files that an index knows, from the laboratory's folder on."""
    there = lab.folder / "there"
    shutil.rmtree(there, ignore_errors=True)
    lab.verb("restore", index, "--to", there)
    return {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}


def test_the_folder_in_which_it_starts(scoped: Lab) -> None:
    said = sh(scoped, "echo a > a; mkdir d; echo b > d/b; echo c > ../out/c; ln -s ../../out d/to; echo e > d/to/e")
    assert tracked(scoped) == {"work/a", "work/d/b"}
    assert TOLD + "2 files (2 in " in said
    scoped.restore(0)
    assert not any(scoped.work.iterdir())
    assert {path.name for path in (scoped.folder / "out").iterdir()} == {"c", "e"}


def test_nothing_is_said_of_a_run_that_stays_inside(scoped: Lab) -> None:
    script = "echo a > a; mkdir d; mv a d; cat d/a > /dev/null; echo x > /dev/null; ls ../out > /dev/null"
    assert sh(scoped, script) == ""


def test_more_folders(scoped: Lab) -> None:
    (scoped.folder / "third").mkdir()
    assert TOLD not in sh(scoped, "echo c > ../out/c; echo d > ../third/d", "--track", "../out", "--track",
                          scoped.folder / "third")
    assert tracked(scoped) == {"out/c", "third/d"}


def test_the_store_remembers(scoped: Lab) -> None:
    sh(scoped, "echo 1 > ../out/c; echo o > o.o", "--track", "../out", "--exclude", "*.o")
    sh(scoped, "echo 2 > ../out/c; echo o > p.o; echo a > a")
    assert tracked(scoped) == {"out/c", "work/a"}
    (scoped.folder / "other").mkdir()
    sh(scoped, "echo b > b; echo 3 > ../out/c; echo 3 > ../work/a", cwd=scoped.folder / "other")
    assert tracked(scoped) == {"out/c", "work/a", "other/b"}
    scoped.restore(1)
    assert (scoped.folder / "out" / "c").read_text() == "1\n"
    assert not (scoped.folder / "other" / "b").exists()


def test_a_store_without_a_record_tracks_everything(scoped: Lab) -> None:
    sh(scoped, "echo 1 > ../out/c", "--track", "../out")
    (scoped.store / "scope").unlink()
    assert TOLD not in sh(scoped, "echo 2 > ../out/d")
    assert "out/d" in tracked(scoped)


def test_everything(scoped: Lab) -> None:
    assert TOLD not in sh(scoped, "echo 1 > ../out/c", "--track", "/")
    assert tracked(scoped) == {"out/c"}


def test_with_memory_everything_is_tracked(scoped: Lab) -> None:
    done = scoped.run(["sh", "-c", "echo 1 > ../out/c"], "--memory")
    if "could be restarted here" in done.stderr.decode():
        pytest.skip("no memory here")
    assert tracked(scoped) == {"out/c"}
    assert recorded(scoped.store) == "metamori scope 1\ntrack\t/\n"


def test_what_is_left_out(scoped: Lab) -> None:
    (scoped.work / ".metamoriignore").write_text("# not these\n*.o\n!keep.o\n/build\n")
    script = "mkdir -p build sub/build; for f in a a.o keep.o build/x sub/build/x sub/a.o; do echo $f > $f; done"
    assert TOLD not in sh(scoped, script, "--exclude", "sub/build/x")
    assert tracked(scoped) == {"work/a", "work/keep.o"}
    scoped.restore(0)
    there = {str(path.relative_to(scoped.work)) for path in scoped.work.rglob("*") if path.is_file()}
    assert there == {".metamoriignore", "a.o", "build/x", "sub/a.o", "sub/build/x"}


def test_a_folder_in_an_excluded_one(scoped: Lab) -> None:
    script = "mkdir -p build/keep; echo x > build/x; echo k > build/keep/k"
    sh(scoped, script, "--exclude", "build", "--track", "build/keep")
    assert tracked(scoped) == {"work/build/keep/k"}


def test_status_says_it(scoped: Lab) -> None:
    status = " ".join(scoped.argv("status"))
    env = "env -u LD_PRELOAD "
    sh(scoped, f"echo c > ../out/c; {env}{status} > ../out/text; {env}{status} --json > ../out/json")
    text, found = (scoped.folder / "out/text").read_text(), json.loads((scoped.folder / "out/json").read_text())
    assert "outside of the scope: 2 files (2 in " in text
    assert found["files_outside"] == 3 and sum(each["files"] for each in found["folders_outside"]) == 3


@pytest.mark.parametrize("given", ["*.c", "../work/file"])
def test_no_folder(scoped: Lab, given: str) -> None:
    (scoped.work / "file").touch()
    done = scoped.run(["true"], "--track", given)
    assert done.returncode != 0 and f"--track {given}: not a folder" in done.stderr.decode()


def test_a_moved_project(scoped: Lab) -> None:
    project, store = scoped.folder / "project", scoped.folder / "project/.metamori"
    project.mkdir()
    for name in ("one", "two"):
        words = [*scoped.argv("run", "--exclude", "/none", store=store), "--", "sh", "-c", f"echo {name} > {name}"]
        assert scoped.run(words, native=True, cwd=project).returncode == 0
        if name == "one":
            project = project.rename(scoped.folder / "moved")
            store = project / ".metamori"
    assert recorded(store) == "metamori scope 1\ntrack\t.\nexclude\t\t/none\n"


# -- real programs -----------------------------------------------------------------------------------------------------

def test_a_shells_history_stays(scoped: Lab) -> None:
    script = ("HISTFILE=~/.bash_history; set -o history; echo hello > a; history -s 'echo hello > a'; history -w; "
              "test -s ~/.bash_history")
    sh(scoped, script, shell="bash")
    scoped.restore(0)
    assert "echo hello" in (scoped.folder / "home/.bash_history").read_text()
    assert not (scoped.work / "a").exists()


def test_pytest_and_its_temporary_folder(scoped: Lab) -> None:
    scoped.env["TMPDIR"] = str(scoped.folder / "out")
    (scoped.work / "test_it.py").write_text(
        "def test_it(tmp_path):\n    (tmp_path / 'x').write_text('x')\n    open('made', 'w').write('y')\n")
    done = scoped.run([sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"])
    assert done.returncode == 0, done.stdout.decode()
    assert tracked(scoped) == {"work/made"}


def test_caches_in_home(scoped: Lab) -> None:
    """Also where the run starts in $HOME itself."""
    home = Path(scoped.env["HOME"])
    sh(scoped, "mkdir -p .npm .cache/pip; echo 1 > .npm/a; echo 1 > .cache/pip/b; echo 1 > c", cwd=home)
    assert tracked(scoped) == {"home/c"}


def wheel(folder: Path, version: str, *more: str) -> Path:
    """A package with a module, and a command that prints its version."""
    files = {"it.py": f"def main(): print({version!r})\n", **dict.fromkeys(more, "")}
    about = {"METADATA": f"Metadata-Version: 2.1\nName: it\nVersion: {version}\n",
             "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             "entry_points.txt": "[console_scripts]\nit = it:main\n"}
    info = f"it-{version}.dist-info"
    files |= {f"{info}/{name}": text for name, text in about.items()}
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"it-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_pip_and_what_it_writes_elsewhere(scoped: Lab) -> None:
    """A package is installed into an environment in the folder, replaced by a newer one, and removed."""
    scoped.env |= {"TMPDIR": str(scoped.folder / "out"), "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "v"], cwd=scoped.work, check=True)
    old, new = wheel(scoped.folder, "1.0", "gone.py"), wheel(scoped.folder, "2.0", "added.py")
    pip, cache = f"{sys.executable} -m pip -q --python v/bin/python", "mkdir -p ~/.cache/pip; echo x > ~/.cache/pip/x"
    states = [picture(scoped.work)]
    for script in (f"{pip} install {old}; {cache}", f"{pip} install {new}; v/bin/it", f"{pip} uninstall -y it"):
        said = sh(scoped, f"set -e; {script}")
        assert TOLD in said and len(said.splitlines()) == 1, said
        states.append(picture(scoped.work))
    assert not (scoped.work / "v/bin/it").exists()
    for index, version in ((1, "1.0\n"), (2, "2.0\n"), (0, ""), (3, ""), (2, "2.0\n"), (1, "1.0\n")):
        scoped.restore(index)
        assert not difference(picture(scoped.work), states[index])
        if version:
            ran = subprocess.run(["v/bin/it"], cwd=scoped.work, capture_output=True, text=True, check=True,
                                 env=scoped.env | {"PYTHONDONTWRITEBYTECODE": "1"})
            assert ran.stdout == version
    assert (scoped.folder / "home/.cache/pip/x").exists()


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
def test_npm_and_its_cache(scoped: Lab) -> None:
    (scoped.work / "package.json").write_text('{"name": "it", "version": "1.0.0"}')
    (scoped.folder / "out" / "package.json").write_text('{"name": "other", "version": "1.0.0"}')
    sh(scoped, "npm install --offline --no-audit --no-fund ../out")
    scoped.restore(0)
    assert not (scoped.work / "node_modules").exists() and (scoped.folder / "home/.npm").exists()


@pytest.mark.skipif(not shutil.which("Rscript"), reason="R is not installed")
def test_r_and_its_temporary_folder(scoped: Lab) -> None:
    scoped.env["TMPDIR"] = str(scoped.folder / "out")
    sh(scoped, "Rscript -e 'f <- tempfile(); saveRDS(1, f); saveRDS(2, \"made\")'")
    assert tracked(scoped) == {"work/made"}
