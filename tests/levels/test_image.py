"""Increments of memory: any index comes back, against the naive model that keeps a copy of everything."""

from __future__ import annotations

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("xxhash")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from metamori.levels.formats import posix_format  # noqa: E402
from metamori.levels.formats.checksummed_file import Broken  # noqa: E402
from metamori.levels.setup.variables import BUILT_IN, Variables, view  # noqa: E402

BLOCK = 512
CHANGE = st.tuples(st.integers(0, 3), st.integers(0, 3000), st.binary(max_size=700), st.booleans())
CHANGES = st.lists(CHANGE, max_size=6)


class World:
    """Variables, the files of their checkpoints, and copies of what they were."""

    def __init__(self, folder, detect):
        self.folder, self.detect, self.form = folder, detect, posix_format.Plain()
        self.memory, self.copies, self.before, self.index = {}, {}, None, 0

    def checkpoint(self):
        variables = Variables()
        for number, content in self.memory.items():
            variables.protect(number, view(content), BUILT_IN[0])
        self.index += 1
        written = self.form.prepare(variables, self.before, self.index, BLOCK, detect=self.detect)
        self.form.write(written, self.path(self.index))
        self.form.check(self.path(self.index), written.checksum)
        self.before = written.image
        self.copies[self.index] = {number: bytes(content) for number, content in self.memory.items()}
        return written

    def path(self, index):
        return f"{self.folder}/{index}"

    def read(self, index):
        saved = self.form.load(index, lambda each: (self.path(each), 0, None))
        found = {}
        for number, size in saved.sizes.items():
            into = bytearray(size)
            saved.read(number, view(into))
            found[number] = bytes(into)
            assert b"".join(bytes(piece) for _, piece in saved.chunks(number)) == found[number]
        return found


@pytest.mark.parametrize("detect", [None, posix_format.md5, posix_format.crc32])
@given(steps=st.lists(CHANGES, min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_any_index_comes_back(tmp_path_factory, detect, steps):
    world = World(tmp_path_factory.mktemp("image"), detect)
    for step in steps:
        for number, at, data, cut in step:
            content = world.memory.setdefault(number, bytearray())
            if cut:
                del content[at:]
            if len(content) < at:
                content.extend(bytes(at - len(content)))
            content[at:at + len(data)] = data
        world.checkpoint()
    for index, expected in world.copies.items():
        assert world.read(index) == expected


def test_an_increment_holds_what_changed(tmp_path):
    world = World(tmp_path, None)
    world.memory[1] = bytearray(numpy.random.default_rng(1).bytes(100 * BLOCK))
    first = world.checkpoint()
    world.memory[1][7 * BLOCK + 3] ^= 1
    world.memory[1][8 * BLOCK] ^= 1
    second = world.checkpoint()
    third = world.checkpoint()
    grown = [sum(map(len, each.source.pieces[:-1])) for each in (first, second, third)]
    assert grown == [100 * BLOCK, 2 * BLOCK, 0]
    assert third.needs == [1, 2, 3]


@pytest.mark.parametrize("damage", ["flip data", "flip trailer", "truncate", "empty", "remove", "append"])
def test_damage_is_found(tmp_path, damage):
    world = World(tmp_path, None)
    world.memory[1] = bytearray(numpy.random.default_rng(2).bytes(10 * BLOCK + 5))
    checksum = world.checkpoint().checksum
    path = tmp_path / "1"
    data = bytearray(path.read_bytes())
    if damage == "flip data":
        data[5000] ^= 4
    elif damage == "flip trailer":
        data[-60] ^= 4
    elif damage == "truncate":
        del data[-1:]
    elif damage == "empty":
        data.clear()
    elif damage == "append":
        data += b"\0"
    path.unlink() if damage == "remove" else path.write_bytes(data)
    with pytest.raises(Broken):
        world.form.check(str(path), checksum)


def test_another_checkpoints_file_is_not_taken_for_this_one(tmp_path):
    world = World(tmp_path, None)
    world.memory[1] = bytearray(b"x" * 2000)
    old = world.checkpoint().checksum
    world.memory[1][0] = 1
    world.checkpoint()
    with pytest.raises(Broken, match="another"):
        world.form.check(world.path(2), old)
