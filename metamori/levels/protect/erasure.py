"""Reed-Solomon over a group of n nodes: n files in, n parity files out, any n of the 2n bring all back (L3).

A file is cut into rows of n slices. Slice c of every member's row comes to member c, which codes the n slices into n
parity slices (ISA-L, its Cauchy matrix in GF(2^8)) and gives slice i of the parity to member i. Every member
codes 1/n of the bytes, and nothing is sent twice. Shorter files count as filled up with zeros.

Piece i < n of a column is member i's data, piece n + i its parity. Coding and bringing back are one thing: pieces that
are wanted, out of n that are there.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from metamori.errors import MetamoriError
from metamori.levels.setup import aligned_buffers as room

ROW = room.BYTES                           # of a row at most: fewer messages, each worth waiting for
LARGEST_GROUP = 128                        # 2 * 128 pieces are the elements of GF(2^8)


class NoErasureCode(MetamoriError):
    """ISA-L is missing, or the group is too large."""


def library() -> ctypes.CDLL:
    """ISA-L: the system's, or the one that a wheel of pyeclib brings."""
    names = ["libisal.so.2"]
    found = importlib.util.find_spec("pyeclib")
    if found is not None and found.origin:
        names += sorted(map(str, (Path(found.origin).parents[1] / "pyeclib.libs").glob("libisal*")))
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NoErasureCode("L3 needs ISA-L: apt-get install libisal2, or pip install 'metamori[levels]' (pyeclib has it)")


class Code:
    """Makes the `wanted` pieces out of the n pieces `have`."""

    def __init__(self, n: int, have: Sequence[int], wanted: Sequence[int]) -> None:
        if n > LARGEST_GROUP:
            raise NoErasureCode(f"L3 codes groups of at most {LARGEST_GROUP} nodes, and group_size is {n}")
        self.library, self.n, self.wanted = library(), n, len(wanted)
        whole = ctypes.create_string_buffer(2 * n * n)
        self.library.gf_gen_cauchy1_matrix(whole, 2 * n, n)
        row = [whole.raw[i * n:(i + 1) * n] for i in range(2 * n)]
        present = ctypes.create_string_buffer(b"".join(row[i] for i in have), n * n)
        inverse = ctypes.create_string_buffer(n * n)
        if self.library.gf_invert_matrix(present, inverse, n):
            raise NoErasureCode(f"{n} pieces do not determine the others")   # a Cauchy matrix has no such
        out = ctypes.create_string_buffer(max(1, self.wanted) * n)
        self.tables = self._tables(b"".join(row[i] for i in wanted))
        self._apply(n, ctypes.addressof(inverse), n, ctypes.addressof(out), n)
        self.tables = self._tables(out.raw[:self.wanted * n])

    def _tables(self, matrix: bytes) -> Any:
        tables = ctypes.create_string_buffer(max(1, 32 * self.n * self.wanted))
        self.library.ec_init_tables(self.n, self.wanted, matrix, tables)
        return tables

    def _apply(self, length: int, source: int, step: int, target: int, target_step: int) -> None:
        pointers = ctypes.c_void_p * self.n
        into = ctypes.c_void_p * max(1, self.wanted)
        self.library.ec_encode_data(length, self.n, self.wanted, self.tables,
                                    pointers(*range(source, source + self.n * step, step)),
                                    into(*range(target, target + self.wanted * target_step, target_step)))

    def apply(self, pieces: bytearray | memoryview, into: bytearray | memoryview, length: int) -> None:
        """pieces: n of `length` bytes one after another; into: room for the wanted ones."""
        if self.wanted:
            self._apply(length, ctypes.addressof(ctypes.c_char.from_buffer(pieces)), length,
                        ctypes.addressof(ctypes.c_char.from_buffer(into)), length)


def slice_bytes(longest: int, members: int) -> int:
    """Bytes of a slice: small files do not fill up large rows."""
    return max(64, min(ROW // (64 * members), -(-longest // (64 * members))) * 64)


Reader = Callable[[int, int], memoryview]  # bytes at this place of the file, zeros past its end


class Into(Protocol):
    """A file that grows (Sink)."""

    def room(self, length: int) -> memoryview: ...

    def filled(self, part: memoryview) -> None: ...


def encode(comm: Any, read: Reader, longest: int, sink: Into) -> None:
    """Code the group's files; `sink` takes this member's parity, row by row. Everybody calls it."""
    n = comm.size
    step = slice_bytes(longest, n)
    code = Code(n, range(n), range(n, 2 * n))
    column, parity = room.lend(), room.lend()
    everybody = list(range(n))
    for at in range(0, longest, n * step):
        comm.transpose(read(at, n * step), column, everybody, everybody, step)
        code.apply(column, parity, step)
        into = sink.room(n * step)
        comm.transpose(parity, into, everybody, everybody, step)
        sink.filled(into)
    room.give_back(column)
    room.give_back(parity)


def decode(comm: Any, read: Reader, read_parity: Reader, lost: list[bool], parity_lost: list[bool], longest: int,
           sink: Into | None, parity_sink: Into | None) -> None:
    """Bring lost files and parities back. lost[i], parity_lost[i]: member i's is gone; its `read` is not called.

    `sink` and `parity_sink` take what this member lost, row by row (the last row longer than the file). At most n of
    the 2n may be gone. Only what is needed is sent.
    """
    n, rank = comm.size, comm.rank
    step = slice_bytes(longest, n)
    data = [i for i in range(n) if not lost[i]]
    parity = [i for i in range(n) if not parity_lost[i]][:n - len(data)]
    gone, parity_gone = [i for i in range(n) if lost[i]], [i for i in range(n) if parity_lost[i]]
    code = Code(n, data + [n + i for i in parity], gone + [n + i for i in parity_gone])
    have, made = room.lend(), room.lend()
    all_of = list(range(n))
    empty = memoryview(b"")
    for at in range(0, longest, n * step):
        mine = read(at, n * step) if rank in data else empty
        comm.transpose(mine, have, all_of if rank in data else [], data, step)
        mine = read_parity(at, n * step) if rank in parity else empty
        comm.transpose(mine, have[len(data) * step:], all_of if rank in parity else [], parity, step)
        code.apply(have, made, step)
        for lost_there, start, into in ((gone, 0, sink), (parity_gone, len(gone) * step, parity_sink)):
            row = into.room(n * step) if into is not None else empty
            comm.transpose(made[start:], row, lost_there, all_of if into is not None else [], step)
            if into is not None:
                into.filled(row)
    room.give_back(have)
    room.give_back(made)
