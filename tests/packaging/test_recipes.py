"""What others build Metamori with says what pyproject.toml says, and each file's own checker has nothing against it."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING, WORKFLOW = ROOT / "packaging", ROOT / ".github" / "workflows" / "wheel.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
EVERYTHING_NEEDS = set(PROJECT["project"]["dependencies"])
BUILD_NEEDS = set(PROJECT["build-system"]["requires"])


def program(name: str) -> str:
    """A checker that pip installs beside this Python (make test-packages does)."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def accepts(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_has_no_steps_of_its_own() -> None:
    """They are in tools/wheel, which runs here too; every one that there is, is called."""
    runs = re.findall(r"^ +- run: (.*)$", WORKFLOW.read_text(), re.MULTILINE)
    assert {tuple(line.split()[:2]) for line in runs} == {
        ("tools/wheel", verb) for verb in ("build", "python", "test", "release")}
    assert "run: |" not in WORKFLOW.read_text()


def test_the_workflow_is_one() -> None:
    accepts(program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", WORKFLOW)


def test_the_workflow_builds_for_every_python_that_it_tests() -> None:
    text = WORKFLOW.read_text()
    built = set(re.findall(r'"([\d.]+)"', re.search(r"python: \[(.*)\]", text)[1]))       # type: ignore[index]
    tested = re.findall(r'image: (\S+)\n +python: "([\d.]+)"', text)
    assert len({image.partition(":")[0] for image, _ in tested}) >= 2
    assert {python for _, python in tested} == built
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert min(built, key=lambda version: int(version.split(".")[1])) == oldest


def test_the_script_says_what_it_does() -> None:
    done = subprocess.run([ROOT / "tools" / "wheel"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.findall(r"^ *tools/wheel (\w+)", done.stderr, re.MULTILINE) == ["build", "python", "test", "release"]


@pytest.mark.parametrize("script", ["tools/wheel", "tools/prepare", "tools/install-requirements", ".ci/run"])
def test_scripts_are_shell(script: str) -> None:
    accepts("bash", "-n", script)
    accepts(program("shellcheck"), "--severity=warning", script)


def test_conda() -> None:
    text = (PACKAGING / "conda" / "recipe.yaml").read_text()
    assert f'version: "{VERSION}"' in text
    host, run = (set(re.findall(r"- (\w+ >=[\d.]+)", part)) for part in
                 (text.split("host:")[1].split("run:")[0], text.split("  run:")[1].split("run_constraints:")[0]))
    assert host == {line.replace(">=", " >=") for line in BUILD_NEEDS}
    assert run == {line.replace(">=", " >=") for line in EVERYTHING_NEEDS}


def test_conda_reads_its_recipe() -> None:
    rattler = pytest.importorskip("rattler_build")
    recipe = rattler.Stage0Recipe.from_file(str(PACKAGING / "conda" / "recipe.yaml"))
    variants = {"python": ["3.11", "3.13"], "c_compiler": ["gcc"], "c_stdlib": ["sysroot"],
                "c_stdlib_version": ["2.17"]}
    rendered = recipe.render(rattler.VariantConfig(variants))
    assert len(rendered) == 2


def spack_package() -> dict[str, list[tuple[Any, ...]]]:
    """package.py, carried out with directives that only note what they are told."""
    told: dict[str, list[tuple[Any, ...]]] = {}

    class When:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def directive(name: str) -> Callable[..., None]:
        return lambda *words, **more: told.setdefault(name, []).append((*words, more))

    package, python = types.ModuleType("spack.package"), types.ModuleType("spack_repo.builtin.build_systems.python")
    for name in ("license", "version", "variant", "requires", "depends_on"):
        setattr(package, name, directive(name))
    package.when = lambda _: When()                          # type: ignore[attr-defined]
    python.PythonPackage = type("PythonPackage", (), {})     # type: ignore[attr-defined]
    parents = {name: types.ModuleType(name) for name in
               ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems")}
    known = {**parents, "spack.package": package, "spack_repo.builtin.build_systems.python": python}
    before = {name: sys.modules.get(name) for name in known}
    sys.modules.update(known)
    try:
        source = (PACKAGING / "spack" / "package.py").read_text()
        exec(compile(source, "package.py", "exec"), {})
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return told


def test_spack() -> None:
    told = spack_package()
    assert told["version"] == [(VERSION, {})]
    needs = {word[0] for word in told["depends_on"]}
    for line in EVERYTHING_NEEDS | BUILD_NEEDS | set(PROJECT["project"]["optional-dependencies"]["levels"]):
        name, oldest = line.split(">=")
        if name != "pyeclib":              # brings ISA-L as a wheel; here it is a package of its own
            assert f"py-{name}@{oldest}:" in needs
    assert "isa-l" in needs and "python@3.11:+shared" in needs


def test_docker() -> None:
    path = PACKAGING / "Dockerfile"
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", path.read_text(), re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split()), line
    accepts(program("hadolint"), path)


def test_apptainer() -> None:
    text = (PACKAGING / "metamori.def").read_text()
    files = re.search(r"^%files\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert files and all((ROOT / line.split()[0]).exists() for line in files[1].splitlines())
    assert f"org.opencontainers.image.version {VERSION}" in text
    for section in re.findall(r"^%(?:post|test|runscript|environment)\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL):
        subprocess.run(["sh", "-n"], input=section, text=True, check=True)


def test_all_of_them_take_what_a_build_needs() -> None:
    """Docker and Apptainer copy parts of the tree; setup.py reads no others."""
    wanted = {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "shim_c", "tools", "metamori"}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (PACKAGING / "Dockerfile").read_text(), re.MULTILINE)
    docker = {name for line in copied for name in line.split()}
    apptainer = set(re.findall(r"^    (\S+) /opt/source", (PACKAGING / "metamori.def").read_text(), re.MULTILINE))
    assert docker == apptainer == wanted
