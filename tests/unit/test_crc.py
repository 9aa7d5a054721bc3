"""Zeros that are not read have the checksum of zeros that are."""

from __future__ import annotations

import os
import random
import tempfile
import zlib

from hypothesis import given
from hypothesis import strategies as st

from metamori._area import ffi, lib
from metamori.store.io.os_io import Door
from metamori.tables.crc import crc32_zeros


@given(st.binary(max_size=50), st.one_of(st.integers(0, 100), st.integers(65000, 300_000)), st.binary(max_size=50))
def test_as_if_they_were_read(before: bytes, count: int, after: bytes) -> None:
    crc = crc32_zeros(count, zlib.crc32(before))
    assert crc == zlib.crc32(before + bytes(count))
    assert zlib.crc32(after, crc) == zlib.crc32(before + bytes(count) + after)


@given(st.integers(0, 1 << 45), st.integers(0, 1 << 45))
def test_in_two_parts(one: int, other: int) -> None:
    assert crc32_zeros(other, crc32_zeros(one)) == crc32_zeros(one + other)


@given(st.integers(0, 3000), st.integers(0, 20), st.integers(0, 0xFFFFFFFF), st.randoms(use_true_random=False))
def test_folded_as_zlib_has_it(length: int, offset: int, before: int, rng: random.Random) -> None:
    """Any length, at any place in memory, after anything: the short tail and the folded part."""
    room = rng.randbytes(offset + length)
    data = memoryview(room)[offset:]
    assert lib.mm_crc32(before, ffi.from_buffer(data), length) == zlib.crc32(data, before)


@given(st.integers(0, 300_000), st.integers(0, 300_000), st.integers(0, 0xFFFFFFFF))
def test_of_a_file_as_zlib_has_it(start: int, length: int, before: int) -> None:
    """Also where the file ends before."""
    data = random.Random(start).randbytes(200_000)
    with tempfile.TemporaryFile() as file:
        os.pwrite(file.fileno(), data, 0)
        part = data[start:start + length]
        assert Door().checksum(file.fileno(), length, start, before) == (zlib.crc32(part, before), len(part))
