"""Where each byte of a file is at an index, and how two indexes differ (incremental read of thesis 4.3.3).

Byte b of a file of `size` bytes is, in this order of precedence:
  BUFFER  the cumulative map knows it;
  ZERO    b >= home_limit: nothing in place counts there;
  BUFFER  or LOST, when the byte in place was saved (or lost) after the index: the oldest undo record that
          covers it says which;
  HOME    the byte of the live file itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from metamori.tables.aml import AML, AddressMap, EmptyMap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NamedTuple

    Kind = Literal["buffer", "zero", "home", "lost"]
else:
    from metamori.tables.record import NamedTuple

BUFFER: Kind = "buffer"
ZERO: Kind = "zero"
HOME: Kind = "home"
LOST: Kind = "lost"
NOTHING = EmptyMap()


class Piece(NamedTuple):
    """File bytes [start, end), not empty. run and offset say where in a buffer; 0 when kind is not BUFFER."""

    start: int
    end: int
    kind: Kind
    run: int = 0
    offset: int = 0

    def clip(self, start: int, end: int) -> Piece:
        """The part of this piece inside [start, end), which must meet it."""
        low = max(self.start, start)
        offset = self.offset + low - self.start if self.kind == BUFFER else 0
        return Piece(low, min(self.end, end), self.kind, self.run, offset)


def resolve(size: int, home_limit: int, cumulative: AddressMap, undos: Iterable[AddressMap],
            start: int = 0) -> list[Piece]:
    """The pieces of a file at an index, merged, covering [start, size) exactly. Of one map saved it costs what lies
    in that range.

    `undos` are the maps of the undo records with after_index >= the index, oldest first; run 0 in them means
    LOST. Costs a sum over their AMLs when there is more than one: combine them once for many calls.
    """
    saved = _first_wins(undos)
    pieces: list[Piece] = []
    for first, end, aml in _known_and_not(cumulative, start, size):
        if aml is not None:
            _append(pieces, Piece(first, end, BUFFER, aml.run, aml.offset))
            continue
        limit = min(end, max(first, home_limit))
        for low, high, undo in _known_and_not(saved, first, limit):
            if undo is None:
                _append(pieces, Piece(low, high, HOME))
            elif undo.run == 0:
                _append(pieces, Piece(low, high, LOST))
            else:
                _append(pieces, Piece(low, high, BUFFER, undo.run, undo.offset))
        if limit < end:
            _append(pieces, Piece(limit, end, ZERO))
    return pieces


Difference = tuple[int, int, Piece | None, Piece | None]


def differences(have: Sequence[Piece], want: Sequence[Piece]) -> list[Difference]:
    """The ranges whose bytes are at different places: (start, end, piece of have, piece of want).

    Pieces are clipped to the range; None is past that side's end. Both sides are as `resolve` gives them.
    """
    different: list[Difference] = []
    left, right = iter(have), iter(want)
    a, b = next(left, None), next(right, None)
    while a is not None or b is not None:  # those that are there begin at the same byte
        end = min([piece.end for piece in (a, b) if piece is not None])
        here, a = _split(a, end) if a is not None and a.end != end else (a, None)
        there, b = _split(b, end) if b is not None and b.end != end else (b, None)
        if here is None or there is None or here[2:] != there[2:]:
            start = here.start if here is not None else there.start  # type: ignore[union-attr]
            different.append((start, end, here, there))
        a, b = a or next(left, None), b or next(right, None)
    return different


def _split(piece: Piece, at: int) -> tuple[Piece, Piece]:
    start, end, kind, run, offset = piece
    return Piece(start, at, kind, run, offset), Piece(at, end, kind, run, offset + at - start if kind == BUFFER else 0)


def _first_wins(undos: Iterable[AddressMap]) -> AddressMap:
    """One map of several, oldest first: of a byte that two know, the older record holds."""
    maps = [each for each in undos if len(each)]
    if len(maps) <= 1:
        return maps[0] if maps else NOTHING
    combined = maps[-1].copy()
    for older in reversed(maps[:-1]):
        combined.overlay(older)
    return combined


def _known_and_not(table: AddressMap, start: int, end: int) -> Iterator[tuple[int, int, AML | None]]:
    """[start, end) in file order, as the AMLs of `table` (clipped) and the gaps between them (None)."""
    for aml in table.find(start, end):
        if start < aml.start:
            yield start, aml.start, None
        yield aml.start, aml.end, aml
        start = aml.end
    if start < end:
        yield start, end, None


def _append(pieces: list[Piece], piece: Piece) -> None:
    """Add the next piece in file order, merged with the last when it goes on at the same place."""
    if pieces and pieces[-1].kind == piece.kind:
        last = pieces[-1]
        if piece.kind != BUFFER or AML(last.start, last.end, last.run, last.offset).joins(
                AML(piece.start, piece.end, piece.run, piece.offset)):
            pieces[-1] = Piece(last.start, piece.end, last.kind, last.run, last.offset)
            return
    pieces.append(piece)
