"""Fixtures of the black-box tests: compiled programs, laboratories."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # `import lab` in every folder of tests, whatever the import mode

import built_once  # noqa: E402
import own_mounts  # noqa: E402, F401
from lab import ROOT, Lab  # noqa: E402

signal.signal(signal.SIGINT, signal.default_int_handler)   # ignored in a shell's background: programs would inherit it
os.environ["METAMORI_TRACK"] = "/"        # wherever a test writes; those of the scope take this away

PROGRAMS = HERE / "programs"
DRIVER = ["driver", "driver_descriptors", "driver_maps", "driver_names", "driver_streams", "driver_run",
          "driver_twins", "driver_threads", "driver_crowd"]
PARTS = {"driver": DRIVER, "pairs": ["pairs", "pairs_oracle", "pairs_state", "pairs_names", "pairs_data"],
         "surface": ["surface", "surface_data", "surface_names"]}  # programs of several files
FLAVOURS = {
    "plain": ["-O1"],
    "large": ["-O1", "-D_FILE_OFFSET_BITS=64"],  # open64, lseek64, …
    "fortified": ["-O2", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"],  # __read_chk, __open64_2, …
    "static": ["-O1", "-static"],
}
QUIET = ["-Wno-unused-result", "-Wno-stringop-overflow", "-Wno-stringop-overread"]  # of deliberate misuse
Compile = Callable[..., Path]

# No test depends on the clock: a busy machine takes 300 ms for what takes one otherwise.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)              # before pytest takes the slow ones out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`in_turn("case")`: each case is daily in one of its variants, the next in the next; the others are slow.
    `in_turn("case", 2)`: so is every other case. A case may be made of several parameters."""
    plays: defaultdict[str, defaultdict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    steps: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("in_turn")
        if isinstance(item, pytest.Function) and mark and not item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            names = [word for word in mark.args if isinstance(word, str)]
            plays[test][repr([item.callspec.params[name] for name in names])].append(item)
            steps[test] = mark.args[-1] if len(names) < len(mark.args) else 1
    for test, cases in plays.items():
        for nth, variants in enumerate(cases.values()):
            turn, left_out = divmod(nth, steps[test])
            for place, item in enumerate(variants):
                if left_out or place != turn % len(variants):
                    item.add_marker("slow")


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A verb called in this process blocks signals for good (`run`), and the programs of later tests inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.fixture(scope="session", autouse=True)
def folder_of_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.getbasetemp()
    built_once.folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built"
    built_once.folder.mkdir(exist_ok=True)


@lru_cache
def links_statically() -> bool:
    command = ["gcc", "-static", "-x", "c", "-", "-o", "/dev/null"]
    return subprocess.run(command, input=b"int main(void) { return 0; }", stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """compiled(name, flavour): the program built from tests/programs, once a session."""
    folder = tmp_path_factory.mktemp("programs")

    def build(name: str, flavour: str = "plain") -> Path:
        if flavour == "static" and not links_statically():
            pytest.skip("no static C library to link with")
        result = folder / f"{name}.{flavour}"
        if not result.exists():
            sources = [PROGRAMS / f"{part}.c" for part in PARTS.get(name, [name])]
            command = ["gcc", "-Wall", "-Wextra", *QUIET, *FLAVOURS[flavour]]
            built_once.build([*command, "-I", ROOT / "shim_c" / "include", *sources, "-pthread"], result)
        return result

    return build


@pytest.fixture(scope="session")
def installed() -> None:
    """Skips, with a message, while the preload library has not been built."""
    if not (ROOT / "metamori" / "libmetamori.so").exists():
        pytest.skip("metamori/libmetamori.so is not built: run `make build`")


@pytest.fixture
def native_lab(tmp_path: Path, compiled: Compile) -> Iterator[Lab]:
    """A laboratory for what is done without Metamori."""
    folder = tmp_path / "native"
    folder.mkdir()
    lab = Lab(folder, compiled("driver"))
    yield lab
    lab.close()


@pytest.fixture
def lab(tmp_path: Path, compiled: Compile, installed: None) -> Iterator[Lab]:
    """A laboratory with the built Metamori."""
    lab = Lab(tmp_path, compiled("driver"))
    yield lab
    lab.close()


@pytest.fixture
def elsewhere(lab: Lab) -> Iterator[Lab]:
    """The store is on another filesystem than the files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == os.stat(lab.work).st_dev:
            pytest.skip("/dev/shm is no other filesystem")
        lab.store = Path(folder) / "store"
        yield lab


@pytest.fixture
def somewhere(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The store beside the folders, in one of them, or on another filesystem, by the test's seed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        stores = [lab.store, lab.work / ".metamori", Path(folder, "store")]
        lab.store = stores[request.node.callspec.params["seed"] % 3]
        yield lab
