"""Zeros that are not read have the checksum of zeros that are."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from metamori.tables.crc import crc32_zeros


@given(st.binary(max_size=50), st.one_of(st.integers(0, 100), st.integers(65000, 300_000)), st.binary(max_size=50))
def test_as_if_they_were_read(before: bytes, count: int, after: bytes) -> None:
    crc = crc32_zeros(count, zlib.crc32(before))
    assert crc == zlib.crc32(before + bytes(count))
    assert zlib.crc32(after, crc) == zlib.crc32(before + bytes(count) + after)


@given(st.integers(0, 1 << 45), st.integers(0, 1 << 45))
def test_in_two_parts(one: int, other: int) -> None:
    assert crc32_zeros(other, crc32_zeros(one)) == crc32_zeros(one + other)
