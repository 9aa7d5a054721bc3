"""Buffer bytes that a restore inside the program copies into the run's own new blocks, where the next checkpoint signs
them: compared with what signed them so far, before anything moves. Blocks that are pointed at keep their signature.
"""

from __future__ import annotations

from collections.abc import Iterable

from metamori.errors import Damaged
from metamori.store.read.checksums import require_all
from metamori.store.read.store import Store
from metamori.tables.view import Piece


class Unverified(Damaged):
    """What an index needs is not what was signed; nothing was touched."""


class TakenOver:
    """Of one index. Invariant: what `require` has let through was compared since this was made."""

    def __init__(self, store: Store, index: int) -> None:
        self._store, self._index = store, index
        self._seen: set[tuple[int, int, int]] = set()

    def require(self, pieces: Iterable[Piece]) -> None:
        """Unverified unless these BUFFER pieces are what was signed."""
        asked = {(each.run, each.offset, each.offset + each.end - each.start) for each in pieces} - self._seen
        try:
            require_all(self._store, self._index, asked)
        except Damaged as error:
            raise Unverified(str(error)) from None
        self._seen |= asked
