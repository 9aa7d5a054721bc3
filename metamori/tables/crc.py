"""CRC-32 (as zlib.crc32 has it) of what need not be read: a run of zeros of any length.

A byte of zeros multiplies the register by x^8 modulo the CRC's polynomial, so n of them by x^(8n), which takes
about log2(n) multiplications (Mark Adler, zlib's crc32_combine).
"""

from __future__ import annotations

import zlib

_POLYNOMIAL = 0xEDB88320           # bit 31 is the coefficient of x^0
_ONE = 1 << 31
_X8 = _ONE >> 8
_SHORT = 1 << 16                   # bytes; below, going through them is as quick


def crc32_zeros(count: int, crc: int = 0) -> int:
    """The CRC-32 of bytes whose CRC-32 is `crc`, followed by `count` zeros."""
    if count < _SHORT:
        return zlib.crc32(bytes(count), crc)
    factor, power = _ONE, _X8
    while count:
        if count & 1:
            factor = _multiply(factor, power)
        power = _multiply(power, power)
        count >>= 1
    return _multiply(factor, crc ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def _multiply(a: int, b: int) -> int:
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
