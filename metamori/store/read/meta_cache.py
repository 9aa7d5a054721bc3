"""The checkpoint records that were looked at last, as many as have room together."""

from __future__ import annotations

from collections import OrderedDict

from metamori.store.format.records import Meta

ENTRIES = 50_000  # names, files and descriptors in all of them: about 20 MB


class Recent:
    """Index -> record. Invariant: `_weight` is the sum of what `_metas` weigh; above ENTRIES only one is held."""

    def __init__(self) -> None:
        self._metas: OrderedDict[int, Meta] = OrderedDict()
        self._weight = 0

    def get(self, index: int) -> Meta | None:
        found = self._metas.get(index)
        if found is not None:
            self._metas.move_to_end(index)
        return found

    def put(self, meta: Meta) -> None:
        before = self._metas.pop(meta.index, None)
        self._metas[meta.index] = meta
        self._weight += _weight(meta) - (_weight(before) if before else 0)
        while self._weight > ENTRIES and len(self._metas) > 1:
            self._weight -= _weight(self._metas.popitem(last=False)[1])

    def clear(self) -> None:
        self._metas.clear()
        self._weight = 0


def _weight(meta: Meta) -> int:
    """What a record takes in memory, in entries."""
    return 1 + len(meta.names) + len(meta.initial_names) + len(meta.pifs) + len(meta.initial_pifs) + len(meta.fits)
