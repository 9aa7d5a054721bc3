"""Reed-Solomon over a group of n nodes: n files in, n parity files out, any n of the 2n bring all back (L3).

A file is cut into rows of n slices. Slice c of every member's row comes to member c, which codes the n slices into n
parity slices (pyeclib, ISA-L's Cauchy matrix in GF(2^8)) and gives slice i of the parity to member i. Every member
codes 1/n of the bytes, and nothing is sent twice. Shorter files count as filled up with zeros.

A row of parity is n fragments as pyeclib makes them: a header of 80 bytes and the slice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metamori.errors import MetamoriError

SLICE = 64 << 10
HEADER = 80
LARGEST_GROUP = 16                         # liberasurecode codes at most 32 fragments


class NoErasureCode(MetamoriError):
    """pyeclib is missing, or cannot code groups of this size."""


def coder(members: int) -> Any:
    """The code of a group."""
    if members > LARGEST_GROUP:
        raise NoErasureCode(f"L3 codes groups of at most {LARGEST_GROUP} nodes (liberasurecode has 32 fragments), "
                            f"and group_size is {members}")
    try:
        from pyeclib.ec_iface import ECDriver
    except ImportError as error:
        raise NoErasureCode(f"L3 needs pyeclib ({error}); pip install 'metamori[levels]'") from None
    return ECDriver(k=members, m=members, ec_type="isa_l_rs_cauchy")


def rows(longest: int, members: int) -> int:
    return -(-longest // (SLICE * members))


Reader = Callable[[int, memoryview], None]  # fill the view from this place of the file, zeros past its end


def encode(comm: Any, read: Reader, longest: int, put: Callable[[memoryview], None]) -> None:
    """Code the group's files; `put` takes this member's parity, row by row. Everybody of the group calls it."""
    n = comm.size
    code = coder(n)
    mine, column = bytearray(n * SLICE), bytearray(n * SLICE)
    out, parity = bytearray(n * (SLICE + HEADER)), bytearray(n * (SLICE + HEADER))
    view, step = memoryview(mine), SLICE + HEADER
    for row in range(rows(longest, n)):
        read(row * n * SLICE, view)
        comm.transpose(mine, column)
        fragments = code.encode(bytes(column))
        for i in range(n):
            out[i * step:(i + 1) * step] = fragments[n + i]
        comm.transpose(out, parity)
        put(memoryview(parity))


def decode(comm: Any, read: Reader, read_parity: Reader, lost: list[bool], parity_lost: list[bool], longest: int,
           put: Callable[[memoryview], None] | None, put_parity: Callable[[memoryview], None] | None) -> None:
    """Bring lost files and parities back. lost[i], parity_lost[i]: member i's is gone; its `read` is not called.

    `put` and `put_parity` take what this member lost, row by row (the last row longer than the file). At most n of the
    2n may be gone.
    """
    n = comm.size
    code = coder(n)
    step = SLICE + HEADER
    heads = [fragment[:HEADER] for fragment in code.encode(bytes(n * SLICE))[:n]]
    mine, column = bytearray(n * SLICE), bytearray(n * SLICE)
    parity, parities = bytearray(n * step), bytearray(n * step)
    for row in range(rows(longest, n)):
        if not lost[comm.rank]:
            read(row * n * SLICE, memoryview(mine))
        if not parity_lost[comm.rank]:
            read_parity(row * n * step, memoryview(parity))
        comm.transpose(mine, column)
        comm.transpose(parity, parities)
        have = [heads[i] + column[i * SLICE:(i + 1) * SLICE] for i in range(n) if not lost[i]]
        have += [bytes(parities[i * step:(i + 1) * step]) for i in range(n) if not parity_lost[i]]
        data = code.decode(have[:n]) if any(lost) else bytes(column)
        comm.transpose(data, mine)
        if put is not None:
            put(memoryview(mine))
        if any(parity_lost):
            fragments = code.encode(data)
            for i in range(n):
                parities[i * step:(i + 1) * step] = fragments[n + i]
            comm.transpose(parities, parity)
            if put_parity is not None:
                put_parity(memoryview(parity))
