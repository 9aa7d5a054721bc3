"""FTI-FF: the manual's worked example number for number, files of both layouts read back, damage found."""

from __future__ import annotations

import hashlib
import struct

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("xxhash")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from metamori.errors import Usage  # noqa: E402
from metamori.levels import Levels  # noqa: E402
from metamori.levels.formats import ff_bytes, posix_format  # noqa: E402
from metamori.levels.formats.checksummed_file import Broken  # noqa: E402
from metamori.levels.formats.ff_layout import next_layout  # noqa: E402
from metamori.levels.formats.fti_ff import FtiFF  # noqa: E402
from metamori.levels.formats.source import FileSource  # noqa: E402
from metamori.levels.setup.variables import BUILT_IN, Variables, view  # noqa: E402

M = 1_000_000
# The manual's example: millions of integers of each variable at each of the seven checkpoints ...
STEPS = [[1, 2, 3], [1, 2, 3, 4], [1, 6, 7, 4], [1, 6, 7, 4, 5], [1, 5, 6, 4, 5], [1, 8, 9, 4, 5], [1, 1, 2, 4, 5]]
# ... and what it prints: dbsize of each block, then its containers (id, idx, containerid, dptr, fptr, containersize)
BLOCKS = [
    (24000204, [(1, 0, 0, 0, 300, 4000000), (2, 1, 0, 0, 4000300, 8000000), (3, 2, 0, 0, 12000300, 12000000)]),
    (16000076, [(4, 3, 0, 0, 24000376, 16000000)]),
    (32000140, [(2, 1, 1, 8000000, 40000516, 16000000), (3, 2, 1, 12000000, 56000516, 16000000)]),
    (20000076, [(5, 4, 0, 0, 72000592, 20000000)]),
    (16000140, [(2, 1, 2, 24000000, 92000732, 8000000), (3, 2, 2, 28000000, 100000732, 8000000)])]
COUNT = [1, 2, 3, 4, 4, 5, 5]              # blocks at each checkpoint
CHUNKS = [[4, 8, 12], [4, 8, 12, 16], [4, 8, 12, 16, 16, 16], [4, 8, 12, 16, 16, 16, 20],
          [4, 8, 12, 16, 12, 12, 20], [4, 8, 12, 16, 16, 16, 20, 8, 8], [4, 4, 8, 16, 0, 0, 20, 0, 0]]   # in millions
TODAY = [0, 4, 12, 24, 40, 56, 72, 92, 100]                                      # fptr in millions, metadata at the end
SIZES = {1: [24000300, 40000376, 72000516, 92000592, 92000592, 108000732, 108000732],
         2: [24000292, 40000362, 72000490, 92000560, 92000560, 108000688, 108000688]}   # of files of FTI 1.1 and today


@pytest.mark.parametrize("version", [1, 2])
def test_the_manuals_example(version):
    layout = None
    for step, integers in enumerate(STEPS):
        layout = next_layout(layout, [(i + 1, 4 * M * size) for i, size in enumerate(integers)], version)
        expected = [(*entry, chunk * M, chunk > 0) for entry, chunk in
                    zip([entry for _, block in BLOCKS[:COUNT[step]] for entry in block], CHUNKS[step], strict=True)]
        sizes = [dbsize for dbsize, _ in BLOCKS[:COUNT[step]]]
        if version == 2:
            expected = [(*old[:4], place * M, *old[5:]) for old, place in zip(expected, TODAY, strict=False)]
            sizes = [size - 12 - 64 * len(block) for size, (_, block) in zip(sizes, BLOCKS, strict=False)]
        assert [(each.id, each.index, each.number, each.dptr, each.fptr, each.size, each.chunk, each.content)
                for each in layout.containers()] == expected
        assert [layout.dbsize(block) for block in range(len(layout.blocks))] == sizes
        assert layout.end + layout.tail == SIZES[version][step]


class World:
    """Variables, their files, and copies of what they were."""

    def __init__(self, folder, version, detect=None, block=512):
        self.folder, self.detect, self.block, self.form = folder, detect, block, FtiFF(version)
        self.memory, self.copies, self.sums, self.before = {}, [], [], None

    def checkpoint(self):
        variables = Variables()
        for number, content in self.memory.items():
            variables.protect(number, view(content), BUILT_IN[0])
        written = self.form.prepare(variables, self.before, len(self.copies), self.block, detect=self.detect)
        self.form.write(written, self.path(len(self.copies)))
        written.source.close()
        self.form.check(self.path(len(self.copies)), written.checksum)
        self.before = written.image
        self.copies.append({number: bytes(content) for number, content in self.memory.items()})
        self.sums.append(written.checksum)
        return written

    def path(self, index):
        return f"{self.folder}/{index}"

    def read(self, index):
        saved, found = self.form.load(index, lambda each: (self.path(each), 0, None)), {}
        for number, size in saved.sizes.items():
            into = bytearray(size)
            saved.read(number, view(into))
            found[number] = bytes(into)
        return found


def manual(data):
    """A file of the manual's layout, read with nothing but its structures: the variables, every hash looked at."""
    checked, _, size, fs, largest, partner, _ = struct.unpack_from("<33s16s7x5q", data)
    assert checked == hashlib.md5(data[96:]).hexdigest().encode() + b"\0"
    assert fs == len(data) == largest == partner
    at, found = 96, {}
    while at < fs:
        count, dbsize = struct.unpack_from("<iq", data, at)
        for i in range(count):
            number, _, _, content, dptr, fptr, chunk, room, digest = struct.unpack_from("<iii?3x4q16s", data,
                                                                                       at + 12 + 64 * i)
            part = data[fptr:fptr + chunk]
            assert content == (chunk > 0) and chunk <= room
            assert not content or (digest == hashlib.md5(part).digest() and dptr == len(found.get(number, b"")))
            found[number] = found.get(number, b"") + part
        at += dbsize
    assert sum(map(len, found.values())) == size
    return found


def today(data):
    """The same of today's layout."""
    checked, _, _, size, meta, start, fs, *_ = struct.unpack_from("<33s16si6qIx", data, len(data) - 106)
    assert fs == len(data) == meta + start
    at, found, hashes = start, {}, b""
    while at < fs - 106:
        count, _ = struct.unpack_from("<iq", data, at)
        at += 12
        for _ in range(count):
            number, _, content, _, dptr, fptr, chunk, _, digest = struct.unpack_from("<ii??4Q16s", data, at)
            at += 58
            part = data[fptr:fptr + chunk]
            assert not content or (digest == hashlib.md5(part).digest() and dptr == len(found.get(number, b"")))
            hashes += digest if content else b""
            found[number] = found.get(number, b"") + part
    assert sum(map(len, found.values())) == size and checked[:32].decode() == hashlib.md5(hashes).hexdigest()
    return found


@pytest.mark.parametrize("detect", [None, posix_format.md5, posix_format.crc32])
@pytest.mark.parametrize("version, plainly", [(1, manual), (2, today)])
def test_the_manuals_example_as_files(tmp_path, version, plainly, detect):
    generator = numpy.random.default_rng(3)
    world = World(tmp_path, version, detect)
    for step in STEPS:
        for i, size in enumerate(step):
            before = world.memory.get(i + 1, bytearray())[:4000 * size]
            world.memory[i + 1] = before + bytearray(generator.bytes(4000 * size - len(before)))
            world.memory[i + 1][int(generator.integers(4000 * size))] ^= 1
        world.checkpoint()
    for index, expected in enumerate(world.copies):
        assert world.read(index) == expected
        with open(world.path(index), "rb") as file:
            assert plainly(file.read()) == expected


CHANGE = st.tuples(st.integers(0, 3), st.integers(0, 3000), st.binary(max_size=700),
                   st.sampled_from(["", "cut", "drop"]))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("detect", [None, posix_format.md5])
@given(steps=st.lists(st.lists(CHANGE, max_size=6), min_size=1, max_size=6), lost=st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_any_index_comes_back(tmp_path_factory, version, detect, steps, lost):
    """Variables that grow, shrink, go and come again; one file is lost before the next is written."""
    world = World(tmp_path_factory.mktemp("ff"), version, detect, 256)
    for step in steps:
        for number, at, data, what in step:
            content = world.memory.setdefault(number, bytearray())
            if what == "drop":
                del world.memory[number]
                continue
            if what == "cut":
                del content[at:]
            content.extend(bytes(max(0, at - len(content))))
            content[at:at + len(data)] = data
        if len(world.copies) == lost and lost:
            with open(world.path(lost - 1), "rb") as file:
                kept = file.read()
            (world.folder / str(lost - 1)).unlink()
            world.checkpoint()
            (world.folder / str(lost - 1)).write_bytes(kept)
        else:
            world.checkpoint()
    for index, expected in enumerate(world.copies):
        found = world.read(index)
        assert {number: found[number] for number in expected} == expected
        assert not any(found[number] for number in set(found) - set(expected))


@pytest.mark.parametrize("version", [1, 2])
def test_any_damaged_byte_is_found(tmp_path, version):
    world = World(tmp_path, version)
    world.memory = {1: bytearray(b"one" * 50), 2: bytearray(b"two" * 50)}
    world.checkpoint()
    world.memory = {1: bytearray(b"one" * 20), 2: bytearray(b"two" * 70)}
    world.checkpoint()
    whole = (tmp_path / "1").read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:] for at in range(len(whole))]
    for data in [*damaged, whole[:-1], whole + b"\0", b"", (tmp_path / "0").read_bytes()]:
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(Broken):
            world.form.check(str(tmp_path / "bad"), world.sums[1])
        try:
            source = FileSource(str(tmp_path / "bad"))
            ff_bytes.parse(source)
        except Broken:
            pass                           # any other error of a damaged file would end a program that resumes
        finally:
            source.close()
    (tmp_path / "bad").unlink()
    with pytest.raises(Broken):
        world.form.check(str(tmp_path / "bad"), world.sums[1])


@pytest.mark.parametrize("version", [1, 2])
def test_a_resumed_program_goes_on_from_its_containers(tmp_path, version):
    config = tmp_path / "config.fti"
    config.write_text(f"[Basic]\nnode_size = 1\nckpt_io = 3\nenable_dcp = 1\nckpt_dir = {tmp_path}/L\n"
                      f"glbl_dir = {tmp_path}/G\nmeta_dir = {tmp_path}/M\n[Metamori]\nftiff_version = {version}\n")
    levels = Levels(str(config))
    array = numpy.arange(5000)
    levels.protect(1, array)
    first = levels.checkpoint(1)
    array[7] = -1
    second = levels.checkpoint(5)
    kept, array[:] = array.copy(), 0
    assert levels.recover() == second and (array == kept).all()
    levels = Levels(str(config))           # as if the process had ended here
    assert levels.status == 1
    again = numpy.zeros(5000, array.dtype)
    levels.protect(1, again)
    assert levels.recover() == second and (again == kept).all()
    array = again
    array[4000] = 5
    third = levels.checkpoint(5)
    levels.recover(first)
    assert array.tolist() == list(range(5000))
    levels.recover(third)
    kept[4000] = 5
    assert (array == kept).all()
    with pytest.raises(Usage, match="no names"):
        levels.protect("field", array)
    levels.finish()
