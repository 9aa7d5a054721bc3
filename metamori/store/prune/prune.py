"""Pruning: indexes go, what they held alone is freed, every kept index stays what it was. docs/adr/0007.

States, and what makes the transition:
  whole            --prune-->    new records lie beside their places, durable; nothing has changed
  records written  --prune-->    the prune file: all that is to be done. Before it, nothing was touched
  prune file       --_apply-->   its name durable, then new records in their places, then the old ones gone (children
                                 before parents, late undo records before early ones: at every moment each kept index
                                 reads the same), then the counters (who reads beside us looks at them after reading
                                 a buffer), then backing files and buffer bytes are freed
  applied          --_apply-->   the prune file is removed
A stop in the first two states leaves temporary files, which the next prune overwrites or removes. A stop later
leaves the prune file, and `recover` continues from its beginning.

durable=False leaves out what makes names durable. No file gets its name before what is in it is on the disk, all the
same: an empty one after a power cut would stand in the way of what was durable before.

Without room the spare file goes, and where new records find none then, one index at a time is pruned: each makes room
for the records of the next.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

from metamori.errors import Damaged, MetamoriError
from metamori.store.format import files
from metamori.store.format.layout import parse_record_name, temporary
from metamori.store.format.records import Hole, MemoryEntry, Meta, Pruning, Undo
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.prune import spare
from metamori.store.prune.merge import Checksums, meta_of, offsets_of, signed_anew, with_initial
from metamori.store.prune.prune_plan import Live, Shape, allocated
from metamori.store.read import image, image_chain
from metamori.store.read.checksums import all_signed
from metamori.store.read.store import Store
from metamori.tables.record import record, replace
from metamori.tables.retention import Rules, choose

Write = Callable[[bytes, bytes], None]     # path, content


@record
class Result:
    """What was done. `before` and `after`: bytes of disk that the store takes."""

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    before: int
    after: int
    shape: Shape
    needed: int                            # bytes that what stays needs, where a limit was asked for


def prune(
    store: Store, rules: Rules, always: Iterable[int] = (), live: Live | None = None, *, first: int = 0,
    dry_run: bool = False, durable: bool = True,
) -> Result:
    """Drop what no rule keeps; head and the newest index stay. The caller holds the lock, or the live run's session.

    first: the rules are about the indexes from this one on, and the bytes that these take.

    Raises Damaged where bytes that have to be signed anew are not what their record says, and MetamoriError when
    the system fails: before anything was changed, or so that the next command continues from there.
    """
    recover(store, durable)
    store.refresh()
    homes = _homes(store, first)
    times = [(index, store.meta(index).time_ns if index else 0) for index in store.indexes if index >= first]
    keep = choose(times, rules, {store.head.index, store.newest, *always},
                  lambda those: Shape(store, those, live, first).nbytes(homes))
    shape, before = Shape(store, keep, live, first), disk_bytes(store)
    needed = shape.nbytes(homes) if rules.max_bytes or dry_run else 0
    if not dry_run and (shape.drop or _garbage(store, shape)):
        _carry_out(store, shape, homes, durable)
        if live is None:
            spare.hold(store)
    after = min(before, needed) if dry_run else disk_bytes(store)
    return Result(tuple(shape.keep), tuple(shape.drop), before, after, shape, needed)


def _carry_out(store: Store, shape: Shape, homes: dict[bytes, set[int]], durable: bool) -> None:
    """All of it at once; where there is no room for that, the oldest alone first, then the rest."""
    keep, live, first, done = shape.keep, shape.live, shape.first, 0
    wait_for = list(shape.drop)
    while True:
        try:
            return _once(store, shape, homes, durable)
        except OSError as error:
            why = error
        _sweep_temporaries(store)
        if why.errno not in spare.NO_ROOM:
            break
        if commit.exists(store.door, store.layout.spare):
            spare.give_up(store)
            continue
        if len(wait_for) < 2:
            break
        del wait_for[0]
        try:
            _once(store, Shape(store, [*keep, *wait_for], live, first), homes, durable)
        except OSError as error:
            why = error
            _sweep_temporaries(store)
            break
        done += 1
        shape, homes = Shape(store, keep, live, first), _homes(store, first)
    raise MetamoriError(f"the store {store.path}: {why.strerror}; checkpoints pruned: {done}") from why


def _once(store: Store, shape: Shape, homes: dict[bytes, set[int]], durable: bool) -> None:
    """OSError before anything was changed; MetamoriError after that."""
    pruning, metas = _write_records(store, shape, homes, durable)
    data = files.encode_pruning(pruning, store.layout.id)
    commit.write_file(store.door, store.layout.prune, data, sync_folder=False)
    _finish(store, pruning, durable, metas)


def recover(store: Store, durable: bool = True) -> bool:
    """Complete a prune that was interrupted, if there is one; whether there was."""
    try:
        data = commit.read_file(store.door, store.layout.prune)
    except FileNotFoundError:
        return False
    try:
        _finish(store, _checked(files.decode_pruning(data, store.layout.id)), durable)
    except files.FormatError as error:
        raise Damaged(f"{os.fsdecode(store.layout.prune)}: {error}") from error
    return True


def disk_bytes(store: Store, first: int = 0, run: int = 0) -> int:
    """Bytes of disk that the store takes, without the run area. Of the indexes from `first` on, the buffers from that
    of `run` on, and backing files that head does not name."""
    layout = store.layout
    homes = {each.name for each in store.head.kept} if first else ()

    def counts(folder: bytes, name: bytes) -> bool:
        if folder == layout.buffers:
            return not name.isdigit() or int(name) >= run
        if folder == layout.kept_folder:
            return name not in homes
        found = parse_record_name(name)
        return found is None or found.index >= (first - 1 if found.kind == "undo" else first)

    return sum(allocated(store, os.path.join(folder, name)) for folder in layout.folders
               for name in store.door.listdir(folder) if counts(folder, name))


def _homes(store: Store, first: int) -> dict[bytes, set[int]]:
    """Names in the kept folder -> objects that they are, or may be, the backing files of; those of indexes from `first`
    on."""
    homes: dict[bytes, set[int]] = {}
    there = set(store.door.listdir(store.layout.kept_folder))
    for index in store.history.indexes[1:]:
        for pif in store.meta(index).pifs if index >= first else ():
            homes.setdefault(pif.kept, set()).add(pif.inode)
    for kept in store.head.kept:
        homes.setdefault(kept.name, set()).add(kept.inode)
    for name in there:
        if name.isdigit():
            homes.setdefault(name, set()).add(int(name))
    return {name: objects for name, objects in homes.items() if name in there}


def _garbage(store: Store, shape: Shape) -> bool:
    """Whether a buffer takes notably more than what is needed of it."""
    return any(_wasteful(store, shape, run) for run in shape.runs())


def _wasteful(store: Store, shape: Shape, run: int) -> bool:
    return allocated(store, store.layout.buffer(run)) > sum(end - start for start, end in shape.needed(run)) + (1 << 16)


# -- new records ---------------------------------------------------------------------------------


def _write_records(
    store: Store, shape: Shape, homes: dict[bytes, set[int]], durable: bool
) -> tuple[Pruning, dict[int, Meta]]:
    """Everything that changes is written beside its place. Also what the records of the indexes that stay will be."""
    put: list[bytes] = []
    remove: list[bytes] = []

    def write(path: bytes, data: bytes) -> None:
        commit.write_beside(store.door, path, data)
        put.append(os.path.basename(path))

    _sweep_temporaries(store)
    store.door.expect("merging", lambda: _to_be_read(store, shape), how="read")
    sums = Checksums(store.buffers, lambda: all_signed(store))
    _undo_records(store, shape, sums, write, remove)
    images = _images(store, shape, put)
    metas = _index_records(store, shape, sums, write, remove, images)
    for index in reversed(shape.drop):
        if index:
            meta = store.meta(index)
            remove += [os.path.basename(store.layout.meta(index, meta.process)),
                       os.path.basename(store.layout.offset(index, meta.process)),
                       *(os.path.basename(store.layout.memory(index, each.process)) for each in meta.memory)]
    if durable:
        commit.fsync_folder(store.door, store.layout.checkpoints)
    gone, holes = _freed(store, shape)
    return Pruning(store.numbers(), tuple(put), tuple(remove), tuple(shape.lost_homes(homes)), gone, holes), metas


def _to_be_read(store: Store, shape: Shape) -> int:
    """Of images of memory, to check and to merge them; of buffers, what is signed anew."""
    images = sum(entry.size for index in shape.keep for chain in _merged_images(store, shape, index)
                 for _, entry in chain)
    return 2 * images + sum(map(signed_anew, shape.folded.values())) + sum(map(signed_anew, shape.undo))


def _freed(store: Store, shape: Shape) -> tuple[tuple[int, ...], tuple[Hole, ...]]:
    gone: list[int] = []
    holes: list[Hole] = []
    for run in shape.runs():
        if not any(shape.needed(run)):
            gone.append(run)
        elif _wasteful(store, shape, run):
            holes += shape.holes(run)
    return tuple(gone), tuple(holes)


def _undo_records(store: Store, shape: Shape, sums: Checksums, write: Write, remove: list[bytes]) -> None:
    seq = max((undo.seq for undo in store.undos), default=0)
    old = {(undo.after_index, undo.seq) for undo in shape.undos}
    for group in shape.undo:
        entries = group.entries(sums)
        if group.is_as_before(entries):
            old.discard((group.records[0].after_index, group.records[0].seq))
        elif entries:
            seq += 1
            path = store.layout.undo(group.after_index, seq)
            write(path, files.encode_undo(Undo(group.after_index, seq, entries), store.layout.id))
    remove += [os.path.basename(store.layout.undo(*key)) for key in sorted(old, reverse=True)]


def _images(store: Store, shape: Shape, put: list[bytes]) -> dict[int, tuple[MemoryEntry, ...]]:
    """Memory of kept indexes that counts from pruned ones: images of its own, down to the next kept one."""
    new: dict[int, tuple[MemoryEntry, ...]] = {}
    for index in shape.keep:
        changed: dict[int, MemoryEntry] = {}
        for chain in _merged_images(store, shape, index):
            paths = [store.layout.memory(each, entry.process) for each, entry in reversed(chain)]
            for (_, entry), path in zip(reversed(chain), paths, strict=True):
                wrong = image.check(store.door, path, entry)
                if wrong:
                    raise Damaged(f"{wrong}; nothing was pruned")
            images = [image.read(store.door, path) for path in paths]
            base = chain[-1][1].base
            size, crc = image.merge(store.door, images, base, temporary(paths[-1]))
            put.append(os.path.basename(paths[-1]))
            changed[chain[0][1].pid] = replace(chain[0][1], base=base, size=size, crc=crc)
        if changed:
            new[index] = tuple(changed.get(each.pid, each) for each in store.meta(index).memory)
    return new


def _merged_images(store: Store, shape: Shape, index: int) -> list[list[tuple[int, MemoryEntry]]]:
    """For each process whose memory counts from pruned indexes: its images of the index and of those, newest first."""
    memory = store.meta(index).memory if index else ()
    return [image_chain.chain(store, index, each.pid, shape.stays) for each in memory
            if each.base not in (0, *shape.stays)]


def _index_records(
    store: Store, shape: Shape, sums: Checksums, write: Write, remove: list[bytes],
    images: dict[int, tuple[MemoryEntry, ...]],
) -> dict[int, Meta]:
    rootless = 0 not in shape.stays
    metas = {index: meta for index, meta in store.held_metas().items() if index in shape.stays}
    for index in shape.keep:
        if index == 0:
            continue
        meta, before, parent = store.meta(index), shape.initial_from(index), shape.parents[index]
        own_rootless = rootless and parent == 0
        if len(shape.steps[index]) == 1 and not before and meta.rootless == own_rootless:
            continue
        if index in shape.folded:
            offsets = offsets_of(shape.folded[index], index, meta.process, meta.run, sums)
            path = store.layout.offset(index, meta.process)
            if offsets.entries:
                write(path, files.encode_offsets(offsets, store.layout.id))
            elif meta.offset_entries:
                remove.append(os.path.basename(path))
        else:
            offsets = store.offsets(index)
        steps = [store.meta(each) for each in shape.steps[index]]
        new = with_initial(meta_of(steps, parent, own_rootless, offsets), before)
        if index in images:
            new = replace(new, memory=images[index])
        new = replace(new, bytes_added=new.bytes_added + sum(each.size for each in new.memory))
        write(store.layout.meta(index, meta.process), files.encode_meta(new, store.layout.id))
        metas[index] = new
    return metas


def _sweep_temporaries(store: Store) -> None:
    """What a prune that was stopped wrote; what cannot be removed stays for the next."""
    with contextlib.suppress(OSError):
        for name in store.door.listdir(store.layout.checkpoints):
            if name.startswith(b".") and parse_record_name(name) is None:
                commit.remove_file(store.door, store.layout.record(name), durable=False)


# -- doing it ------------------------------------------------------------------------------------


def _checked(pruning: Pruning) -> Pruning:
    """A store may come from a stranger: only names of records, and of files right in the kept folder."""
    for name in (*pruning.put, *pruning.remove):
        if parse_record_name(name) is None:
            raise files.FormatError(f"{name!r} is not a record", 0)
    for name in pruning.kept:
        if not name or b"/" in name or name in (b".", b".."):
            raise files.FormatError(f"{name!r} is not a name", 0)
    return pruning


def _finish(store: Store, pruning: Pruning, durable: bool, metas: dict[int, Meta] | None = None) -> None:
    try:
        try:
            _apply(store, pruning, durable)
        except OSError as error:
            if error.errno not in spare.NO_ROOM:
                raise
            spare.give_up(store)
            _apply(store, pruning, durable)
        store.prune_done(metas or {})
    except OSError as error:
        raise MetamoriError(f"the store {store.path}: {error.strerror}; run the command again") from error


def _apply(store: Store, pruning: Pruning, durable: bool) -> None:
    door, layout = store.door, store.layout
    if durable:
        commit.fsync_folder(door, layout.root)         # what is begun goes on after a power cut
    for name in pruning.put:
        path = layout.record(name)
        if commit.exists(door, temporary(path)):
            door.rename(temporary(path), path)
    if durable:
        commit.fsync_folder(door, layout.checkpoints)
    for name in pruning.remove:
        commit.remove_file(door, layout.record(name), durable=False)
    if durable:
        commit.fsync_folder(door, layout.checkpoints)
    commit.write_file(door, layout.counters, files.encode_numbers(pruning.numbers, layout.id), sync_folder=durable)
    _remove_homes(store, set(pruning.kept), durable)
    store.buffers.close()
    door.expect("freeing", sum(hole.end - hole.start for hole in pruning.holes), how="freed")
    for run in pruning.buffers:
        commit.remove_file(door, layout.buffer(run), durable=False)
    _punch(store, pruning.holes)
    commit.remove_file(door, layout.prune, durable)


def _remove_homes(store: Store, names: set[bytes], durable: bool) -> None:
    head = store.head
    if any(home.name in names for home in head.kept):
        kept = tuple(home for home in head.kept if home.name not in names)
        data = files.encode_head(replace(head, kept=kept), store.layout.id)
        commit.write_file(store.door, store.layout.head, data, sync_folder=durable)
    for name in sorted(names):
        path = store.layout.kept(name)
        found = lstat_or_none(store.door, path)
        if found is not None and found.st_nlink == 1:   # else it would get another change time, and free nothing
            commit.remove_file(store.door, path, durable=False)


def _punch(store: Store, holes: Iterable[Hole]) -> None:
    for run in sorted({hole.run for hole in holes}):
        fd = store.door.open(store.layout.buffer(run), os.O_RDWR)
        try:
            for hole in holes:
                if hole.run == run and not store.door.punch_hole(fd, hole.start, hole.end):
                    return                 # not on this filesystem: the bytes stay, as they would without a prune
        finally:
            store.door.close(fd)

