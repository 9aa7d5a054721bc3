"""What an index costs on disk: redirected data, images of memory, and what was saved or kept when its interval, or the
end of its run, overwrote or removed what earlier indexes need.

The sum over all indexes is what the store takes, but for records, room held in reserve, and the run area of a live run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from metamori.store.io.commit import lstat_or_none
from metamori.store.read.store import Store

_BLOCK = 4096


def by_index(store: Store) -> dict[int, int]:
    """Bytes, of every index."""
    found = {index: 0 for index in store.history.indexes}
    own: dict[int, int] = {}
    for index, _, nbytes in saved(store, own):
        found[index] += nbytes
    return {index: nbytes + own.get(index, 0) for index, nbytes in found.items()}


def saved(store: Store, own: dict[int, int] | None = None) -> Iterator[tuple[int, int, int]]:
    """Index, object, bytes of old content that the store holds beside the indexes' own. own: gets these, by index."""
    indexes = store.history.indexes
    runs: dict[int, list[int]] = {}
    removed: dict[int, int] = {}           # object -> the index whose interval removed it
    kept: dict[bytes, tuple[int, int]] = {}    # name in the kept folder -> that index, and the object that it is
    for index in indexes[1:]:              # once: of a long history not all records are held
        meta = store.meta(index)
        runs.setdefault(meta.run, []).append(index)
        for pif in meta.pifs:
            if pif.was_deleted or pif.inode not in removed:
                removed[pif.inode] = index
            if pif.kept:
                kept[pif.kept] = (index, pif.inode)
        if own is not None:
            own[index] = meta.bytes_added
    for undo in store.undos:
        for entry in undo.entries:
            if entry.run:
                blocks = -(-(entry.buffer_start + entry.end - entry.start) // _BLOCK) - entry.buffer_start // _BLOCK
                yield _since(runs.get(entry.run) or indexes, undo.after_index), entry.inode, blocks * _BLOCK
    kept |= {home.name: (removed.get(home.inode, indexes[-1]), home.inode) for home in store.head.kept}
    for name, (index, inode) in kept.items():
        st = lstat_or_none(store.door, store.layout.kept(name))
        if st is not None and st.st_nlink == 1:          # else it is a file of the user's too
            yield index, inode, st.st_blocks * 512


def _since(indexes: list[int], after: int) -> int:
    """The interval that overwrote what the indexes up to `after` need: the next; what the end of a run overwrote
    counts for its last."""
    return indexes[min(bisect_right(indexes, after), len(indexes) - 1)]
