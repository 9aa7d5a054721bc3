"""Checkpoint files in pieces, past the page cache where there is a device: the same bytes as any file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from metamori.levels.formats import checksummed_file
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.sink import Sink
from metamori.levels.formats.source import LONG, FileSource
from metamori.levels.setup import aligned_buffers

SIZE = LONG + 5_000_123
places = some.integers(0, SIZE + 100_000)
lengths = some.one_of(some.integers(0, 70_000), some.integers(0, 6 << 20))


@pytest.fixture(scope="module")
def content() -> bytes:
    return os.urandom(SIZE)


@pytest.fixture(scope="module")
def path(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "file"
    sink = Sink(str(path))
    sink.put(content[:1000], content[1000:5 << 20])
    part = sink.room(1 << 20)
    part[:] = content[5 << 20:6 << 20]
    sink.filled(part)
    sink.put(content[6 << 20:])
    sink.finish()
    return path


def test_what_was_put_is_in_the_file(content, path):
    assert path.read_bytes() == content


@settings(max_examples=60, deadline=None)
@given(start=some.integers(0, 10_000), cached=some.booleans(),
       asked=some.lists(some.tuples(some.booleans(), places, lengths), max_size=6))
def test_any_pieces_are_those_of_the_file(content, path, start, cached, asked):
    fd = os.open(path, os.O_RDONLY)
    if cached:
        os.pread(fd, 1 << 20, start)
    else:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    source = FileSource(str(path), start)
    for whole, place, length in asked:
        expected = content[start + place:start + place + length].ljust(length, b"\0")
        if whole:
            assert source.chunk(place, length) == expected
        else:
            into = memoryview(bytearray(b"x" * length))
            source.read(place, into)
            assert into == expected
    source.close()


@pytest.mark.parametrize("how", [lambda source: source.read(LONG, memoryview(bytearray(5000))),
                                 lambda source: source.chunk(LONG, 5000)])
def test_a_file_that_became_shorter_is_broken(how, tmp_path):
    path = tmp_path / "file"
    sink = Sink(str(path))
    sink.put(bytes(LONG + 10_000))
    sink.finish()
    source = FileSource(str(path))
    os.truncate(path, LONG + 100)
    with pytest.raises(Broken):
        how(source)
    source.close()


def test_a_device_that_wants_another_alignment_is_served_by_the_page_cache(content, tmp_path, monkeypatch):
    unaligned = [memoryview(bytearray(aligned_buffers.BYTES + 1))[1:] for _ in range(2)]
    monkeypatch.setattr(aligned_buffers, "_spare", unaligned)
    path = tmp_path / "file"
    sink = Sink(str(path))
    sink.put(content)
    sink.finish()
    source = FileSource(str(path), 7)
    assert source.chunk(LONG, 100_000) == content[LONG + 7:LONG + 100_007]
    assert source.chunk(5000, 1 << 20) == content[5007:5007 + (1 << 20)]
    source.close()
    assert path.read_bytes() == content


def test_rooms_are_lent_again_and_a_forked_child_has_its_own():
    mine = aligned_buffers.lend()
    mine[:4] = b"mine"
    aligned_buffers.give_back(mine)
    child = os.fork()
    if child == 0:
        theirs = aligned_buffers.lend()
        theirs[:4] = b"ours"
        os._exit(0 if bytes(theirs[:4]) == b"ours" else 1)
    assert os.waitpid(child, 0)[1] == 0
    again = aligned_buffers.lend()
    assert again is mine and again[:4] == b"mine"
    aligned_buffers.give_back(again)


def test_folders_that_are_new_are_durable_too(tmp_path, monkeypatch):
    """Of a record as of a checkpoint: a power cut took it, with the folder that was made for it."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    checksummed_file.put(str(tmp_path / "new" / "below" / "record"), b"x")
    os.close(checksummed_file.create(str(tmp_path / "other" / "file")))
    assert synced == [str(tmp_path / each) for each in ("new/below", "new", "", "other", "")]
