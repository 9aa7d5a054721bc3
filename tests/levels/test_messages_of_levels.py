"""What the levels say of files that are not what they should be, and of calls that cannot be done."""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("xxhash")

from metamori.errors import MetamoriError, Usage  # noqa: E402
from metamori.levels.api import capi, capi_more, staging  # noqa: E402
from metamori.levels.api.levels import Levels  # noqa: E402
from metamori.levels.formats import checksummed_file, ff_bytes, hdf5_file, posix_format  # noqa: E402
from metamori.levels.formats.checksummed_file import Broken  # noqa: E402
from metamori.levels.formats.fti_ff import FtiFF  # noqa: E402
from metamori.levels.formats.source import FileSource  # noqa: E402
from metamori.levels.protect import comm, erasure, job, parity, recover  # noqa: E402
from metamori.levels.setup.settings import Settings  # noqa: E402
from metamori.levels.setup.variables import BUILT_IN, Variables, view  # noqa: E402

FORMS: dict[str, Callable[[], Any]] = {
    "POSIX": posix_format.Plain, "FTI-FF 1": lambda: FtiFF(1), "FTI-FF 2": lambda: FtiFF(2),
}


def variables(*sizes: int, fill: int = 1) -> Variables:
    made = Variables()
    for number, size in enumerate(sizes):
        made.protect(number, view(bytearray([fill]) * size), BUILT_IN[0])
    return made


def written(form: Any, path: Path, fill: int = 1) -> str:
    """A checkpoint's file with variable 0 of 100 bytes; its checksum."""
    made = form.prepare(variables(100, fill=fill), None, 1, 512)
    form.write(made, str(path))
    return str(made.checksum)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", FORMS)
def test_variables_that_a_file_does_not_have(kind: str, tmp_path: Path) -> None:
    form = FORMS[kind]()
    written(form, tmp_path / "file")
    saved = form.load(1, lambda index: (str(tmp_path / "file"), 0, None))
    with pytest.raises(Broken, match="checkpoint 1 has no variable 7"):
        saved.read(7, memoryview(bytearray(100)))
    with pytest.raises(Broken, match="variable 0 has room for 10 bytes, and its checkpoint 100"):
        saved.read(0, memoryview(bytearray(10)))
    (tmp_path / "file").write_bytes((tmp_path / "file").read_bytes()[:50])
    with pytest.raises(Broken, match="file ends too soon"):
        saved.read(0, memoryview(bytearray(100)))


def test_a_variable_of_hdf5_that_is_too_long(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    form = hdf5_file.Hdf5()
    made = form.prepare(list(variables(100)), None, 1, 512)
    form.write(made, str(tmp_path / "file"))
    saved = form.load(1, lambda index: (str(tmp_path / "file"), 0, None))
    with pytest.raises(Broken, match="variable 0 has room for 10 bytes, and its checkpoint 100"):
        saved.read(0, memoryview(bytearray(10)))
    with pytest.raises(Broken, match="file does not have its checksum"):
        form.check(str(tmp_path / "file"), "another")


def test_another_checkpoint_s_file(tmp_path: Path) -> None:
    for kind, said in (("POSIX", "two is another checkpoint's file"), ("FTI-FF 2", "two is damaged, or another check")):
        form = FORMS[kind]()
        checksum = written(form, tmp_path / "one")
        written(form, tmp_path / "two", fill=2)
        with pytest.raises(Broken, match=said):
            form.check(str(tmp_path / "two"), checksum)


def test_a_seal_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    checksum = written(posix_format.Plain(), path)
    whole = path.read_bytes()
    flip(path, len(whole) - 48)
    with pytest.raises(Broken, match="file has no seal"):
        checksummed_file.read(str(path))
    path.write_bytes(whole)
    flip(path, len(whole) - 1)
    with pytest.raises(Broken, match="file: checksum mismatch in the trailer"):
        posix_format.Plain().check(str(path), checksum)


def parsed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    source = FileSource(str(tmp_path / "file"))
    try:
        ff_bytes._parse_v1(source)
    finally:
        source.close()


def test_fti_ff_that_is_none(tmp_path: Path) -> None:
    written(FtiFF(1), tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    with pytest.raises(Broken, match="file is no FTI-FF file"):
        parsed(tmp_path, b"short")
    with pytest.raises(Broken, match="file is no FTI-FF file"):
        parsed(tmp_path, bytes([good[0] ^ 1]) + good[1:])
    with pytest.raises(Broken, match=f"file has {len(good) + 1} bytes, and says {len(good)}"):
        parsed(tmp_path, good + b"x")
    at = ff_bytes.FB.size
    text, values = b"0" * 32 + b"\0", (0, at + 3, 0, 0, 0)
    own = hashlib.md5(text + struct.pack("<5q", *values), usedforsecurity=False).digest()
    with pytest.raises(Broken, match="file ends too soon"):
        parsed(tmp_path, ff_bytes.FB.pack(text, own, *values) + b"end")
    with pytest.raises(Broken, match="file: a block's metadata is wrong"):
        parsed(tmp_path, good[:at] + struct.pack("<i", -1) + good[at + 4:])


def test_fti_ff_2_that_is_none(tmp_path: Path) -> None:
    written(FtiFF(2), tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    for data, said in ((b"short", "too short for FTI-FF"), (b"x" * len(good), "no FTI-FF metadata at the end"),
                       (b"x" + good, f"file has {len(good) + 1} bytes, and says {len(good)}")):
        (tmp_path / "file").write_bytes(data)
        source = FileSource(str(tmp_path / "file"))
        with pytest.raises(Broken, match=said):
            ff_bytes._parse_v2(source)
        source.close()


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10)
    source = FileSource(str(tmp_path / "file"), size=100)
    with pytest.raises(Broken, match="file ends too soon"):
        source.chunk(0, 100)
    source.close()


def test_parity_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "parity"

    def made() -> None:
        writer = parity._Writer(str(path), [512])
        room = writer.room(512)
        room[:] = b"x" * 512
        writer.filled(room)
        writer.finish()

    made()
    flip(path, 0)
    with pytest.raises(Broken, match="parity: row 0 does not have its checksum"):
        parity.check(str(path))
    monkeypatch.setattr(parity, "_CODE", "another")
    made()
    monkeypatch.undo()
    with pytest.raises(Broken, match="parity is parity of another code"):
        parity.check(str(path))


def test_calls_that_cannot_be_done(tmp_path: Path) -> None:
    nothing: Any = SimpleNamespace(saved=None, records={}, parent=0, _collect=lambda: None)
    with pytest.raises(Usage, match="there is no level 9"):
        Levels.checkpoint(nothing, 9)
    with pytest.raises(recover.NothingLeft, match="there is nothing to recover from"):
        Levels.recover_begin(nothing)
    with pytest.raises(recover.NothingLeft, match="there is nothing to recover from"):
        Levels.recover_one(nothing, 1)
    stage = staging.Stage(Settings(enable_staging=0), None)  # type: ignore[arg-type]
    with pytest.raises(Usage, match=r"staging is not enabled \(enable_staging = 1\)"):
        stage.folder()
    stage = staging.Stage(Settings(enable_staging=1), SimpleNamespace(stage=str(tmp_path)))  # type: ignore[arg-type]
    with pytest.raises(Usage, match="there is no file /nowhere/x to be sent"):
        stage.send("/nowhere/x", "y")
    with pytest.raises(Usage, match="failure is not 0, so exec_id must name the execution to be resumed"):
        job._exec_id(replace(Settings(), failure=1, exec_id="NULL"))


def test_a_checkpoint_of_fti_without_an_id() -> None:
    with pytest.raises(MetamoriError, match="the id of a checkpoint must not be 0"):
        capi.FTI_Checkpoint(0, 1)


def test_a_name_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = SimpleNamespace(folder=lambda: "/stage/0")
    monkeypatch.setattr(capi_more.bound, "levels", SimpleNamespace(stage=stage))
    with pytest.raises(MetamoriError, match="the name of the stage folder has 9 bytes, and there is room for 8"):
        capi_more.FTI_GetStageDir(None, 8)


def test_variables_that_are_none() -> None:
    made = variables(8)
    with pytest.raises(Usage, match="no variable with id 3 is protected"):
        made[3]
    with pytest.raises(Usage, match="variable 4: 7 bytes are no whole number of 4"):
        made.protect(4, view(bytearray(7)), next(each for each in BUILT_IN if each.size == 4))


@pytest.mark.parametrize(("module", "call", "said"), [
    ("mpi4py", comm._mpi, r"mpi4py cannot be loaded \(mpi4py: libmpi.so.12: cannot open shared object file\)"),
    ("h5py", hdf5_file._h5py, r"h5py: libmpi.so.12: cannot open shared object file"),
])
def test_packages_that_do_not_load(module: str, call: Callable[[], object], said: str,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """They are there, and what they are linked with is not."""
    for name in list(sys.modules):
        if name.split(".")[0] == module:
            monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == module:
            raise ImportError(f"{module}: libmpi.so.12: cannot open shared object file", name=module)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MetamoriError, match=said):
        call()


def test_without_isa_l(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none)
    with pytest.raises(MetamoriError, match=r"L3 needs ISA-L: apt-get install libisal2, or pip install "
                                            r"'metamori\[levels\]' \(pyeclib has it\)"):
        erasure.library()


def test_pieces_that_say_the_same_twice() -> None:
    pytest.importorskip("pyeclib")
    with pytest.raises(MetamoriError, match="2 pieces do not determine the others"):
        erasure.Code(2, [0, 0], [1])
