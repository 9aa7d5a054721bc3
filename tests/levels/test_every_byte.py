"""Every byte of every kind of level file, changed: the file counts as lost, a record as not there or as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("xxhash")

from metamori.levels.formats import posix_format  # noqa: E402
from metamori.levels.formats.checksummed_file import Broken  # noqa: E402
from metamori.levels.formats.fti_ff import FtiFF  # noqa: E402
from metamori.levels.protect import parity, record  # noqa: E402
from metamori.levels.setup.paths import Paths  # noqa: E402
from metamori.levels.setup.settings import Settings  # noqa: E402
from metamori.levels.setup.variables import BUILT_IN, Variables, view  # noqa: E402


def changed(path: Path, look: Callable[[], object]) -> int:
    """`look` after each change of one byte; how many there were. The file is as it was afterwards."""
    whole, rng = path.read_bytes(), random.Random(5)
    with open(path, "r+b", buffering=0) as file:
        for at, byte in enumerate(whole):
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
            look()
            file.seek(at)
            file.write(bytes([byte]))
    assert path.read_bytes() == whole
    return len(whole)


def form(kind: str):
    if kind == "HDF5":
        pytest.importorskip("h5py")
        from metamori.levels.formats.hdf5_file import Hdf5

        return Hdf5()
    return posix_format.Plain() if kind == "POSIX" else FtiFF(int(kind[-1]))


@pytest.mark.parametrize("kind", ["POSIX", "FTI-FF 1", "FTI-FF 2", "HDF5"])
def test_a_checkpoint_s_file(kind, tmp_path):
    variables, form_ = Variables(), form(kind)
    memory = [bytearray(numpy.random.default_rng(size).bytes(size)) for size in (1000, 0, 37, 700)]
    for number, content in enumerate(memory):
        variables.protect(number, view(content), BUILT_IN[0])
    written = form_.prepare(variables if kind != "HDF5" else list(variables), None, 1, 512)
    path = tmp_path / "file"
    form_.write(written, str(path))
    form_.check(str(path), written.checksum)

    def look():
        with pytest.raises(Broken):
            form_.check(str(path), written.checksum)

    assert changed(path, look) > 1737
    form_.check(str(path), written.checksum)


@pytest.mark.parametrize("kind", ["POSIX", "FTI-FF 1", "FTI-FF 2", "HDF5"])
def test_a_file_of_another_checkpoint(kind, tmp_path):
    """The same variables with other values: whole, as long, and not the one that was written down."""
    form_, made = form(kind), []
    for number in range(2):
        variables = Variables()
        for which, size in enumerate((1000, 37)):
            content = bytearray(numpy.random.default_rng(10 * number + which).bytes(size))
            variables.protect(which, view(content), BUILT_IN[0])
        written = form_.prepare(variables if kind != "HDF5" else list(variables), None, 1, 512)
        form_.write(written, str(tmp_path / f"file{number}"))
        made.append(written.checksum)
    for number in range(2):
        form_.check(str(tmp_path / f"file{number}"), made[number])
        with pytest.raises(Broken):
            form_.check(str(tmp_path / f"file{number}"), made[1 - number])


def test_parity(tmp_path):
    path = tmp_path / "parity"
    writer = parity._Writer(str(path), [1500, 1200])
    for row in range(3):
        room = writer.room(512)
        room[:] = numpy.random.default_rng(row).bytes(512)
        writer.filled(room)
    writer.finish()
    assert parity.check(str(path)) == [1500, 1200]

    def look():
        with pytest.raises(Broken):
            parity.check(str(path))

    assert changed(path, look) > 1536


def test_the_record_of_a_checkpoint(tmp_path):
    """It says which index of the files belongs to the memory: nothing of it may be believed that was not written."""
    paths = Paths(Settings(meta_dir=str(tmp_path)), "now", "node0")
    made = record.Record(3, 7, 2, 2, 1, "2026-11-21T18:00:00Z", 4, (2, 3), {"/somewhere/.metamori": 5})
    record.write_record(paths, made)
    found = []
    assert changed(Path(paths.record(3)), lambda: found.append(record.read_records(paths))) == len(found) > 100
    assert all(each in ({}, {3: made}) for each in found)
    assert found.count({}) > len(found) // 2
    assert record.read_records(paths) == {3: made}


def test_the_list_of_a_group_s_files(tmp_path):
    """What it says differently is a checksum that no file has, another size or name, or nothing at all."""
    path = tmp_path / "sector0-group0.fti"
    members = [record.Member(f"Ckpt7-Rank{rank}.fti", 1000 + rank, f"{rank:032x}") for rank in range(2)]
    record.write_members(str(path), members)
    assert record.read_members(str(path)) == members

    def look():
        try:
            found = record.read_members(str(path))
        except Broken:
            return
        assert all(isinstance(each.size, int) for each in found)

    assert changed(path, look) > 100
