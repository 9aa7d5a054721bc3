"""Moving the user's files from one index to another, so that it may be interrupted anywhere and lose nothing.

States, and what makes the transition:
  at head           --move_home-->  pre-images saved: in the buffer, then in an undo record, both durable
  pre-images saved  --move_home-->  intent: the whole redo list, durable. Before it, nothing was touched
  intent            --Applier.run-->  files and names as at the target, durable
  applied           --_finish-->    head says the target
  head written      --_finish-->    at head: the intent is removed
A stop in the first two states leaves the files as they were, and at most some saved bytes that nobody needs.
A stop later leaves the intent, and `recover` continues from its beginning.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from itertools import groupby

from metamori.errors import ChangedOutside, Damaged, MetamoriError
from metamori.store.format.records import Identity, Intent, KeptHome, UndoEntry
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.read import invalidated
from metamori.store.read.checksums import require_all
from metamori.store.read.head import identity_now, is_as_noted, kept_homes
from metamori.store.read.store import Store
from metamori.store.restore.redo import Applier, read_intent, write_intent
from metamori.store.restore.restore_plan import Part, Plan, Save, make_plan, plan_commit, plan_names
from metamori.tables.aml import AddressMap
from metamori.tables.pif import nearest_ns


def plan(store: Store, index: int, part: Part | None = None) -> Plan:
    """What `move_home` would do; nothing is touched. An unfinished move has to be recovered before."""
    store.require_restorable(index)
    require_known(store, index)
    return make_plan(store, index, part)


def require_known(store: Store, index: int) -> None:
    """Damaged when a record is missing or cannot be read that may speak of the way from head to an index.

    What a damaged checkpoint says of paths before it was taken is needed by every index that is older, and by those
    after it; not by one of another branch that is younger, when head is of another branch too.
    """
    for why in store.missing():
        raise Damaged(why)
    for bad, why in store.damaged.items():
        if index < bad or store.head.index < bad:
            raise Damaged(why)


def unknown(store: Store) -> list[str]:
    """Records that are missing or cannot be read, as messages."""
    return [*store.missing(), *(f"checkpoint {index}: {why}" for index, why in sorted(store.damaged.items()))]


def move_home(
    store: Store, index: int, *, durable: bool = True, unknown: bool = False, part: Part | None = None,
) -> Plan:
    """Bring the user's files from head to `index`; the caller holds the lock. Returns what was done.

    Pre-images go to the newest buffer: no live run may be writing to it. `unknown`: also to an index that a run may
    have spoiled whose records were removed, and though more users may read it than then. part: all else of it is in
    place. Raises NoSuchCheckpoint, Damaged, ChangedOutside before anything is touched; MetamoriError
    when the system fails on the way, and then the next call goes on.
    """
    recover(store, durable=durable)
    if not unknown:
        invalidated.require_none(store, index)
    store.require_restorable(index)
    from metamori.store.restore import kept_changes  # a run that begins needs none of it

    kept_changes.give_up_where_it_costs_nothing(store, index)
    work = plan(store, index, part)
    if work.lost:
        path, start, end = work.lost[0]
        more = f", and {len(work.lost) - 1} more" if len(work.lost) > 1 else ""
        raise Damaged(f"{os.fsdecode(path)}: bytes {start}-{end} of checkpoint {index} are lost{more}; "
                      f"'metamori restore --force {index}' puts the rest back")
    if work.exposed and not unknown:
        from metamori.store.read.holders import listed  # a run that begins needs none of it

        raise ChangedOutside(f"{listed(work.exposed)} somebody else's, and what is written there may be read by others "
                             f"than at checkpoint {index}; --force writes it all the same", tuple(work.exposed))
    require_all(store, index, ((op.run, op.buffer_start, op.buffer_start + op.end - op.start)
                               for op in work.intent.writes if op.run))
    _carry_out(store, work, 0, True, durable)    # the newest run's buffer
    return work


def commit_home(
    store: Store, index: int, pending: dict[int, AddressMap] | None = None, *, save_preimages: bool = True,
    run: int = 0, durable: bool = True, kept: Iterable[KeptHome] = (), but: Container[bytes] = frozenset(),
) -> Plan:
    """A run's end: names are at `index`, and what it redirected is written back. Head then says `index`. but: names at
    which its files are no more."""
    work = plan_commit(store, index, pending, kept, but)
    _carry_out(store, work, run, save_preimages, durable, what="writing back")
    return work


def move_names(
    store: Store, here: int, target: int, settled: Collection[int] = (), run: int = 0, durable: bool = True,
    kept: Iterable[KeptHome] = (), retire: Callable[[], None] | None = None, is_all_known: bool = False,
    but: Container[bytes] = frozenset(),
) -> Plan:
    """Bring names and attributes back from `here` to `target`, whose bytes the files never left.

    kept: backing files of those without a name that another branch knows. but: as in `commit_home`. retire: ends the
    run. Head says `target` before and after, so it is the end of the run that tells whether the move has begun: a stop
    before it leaves all to do, one after it an intent. Nothing is copied of what leaves `kept/`: the user's files hold
    what they held before.
    """
    work = plan_names(store, here, target, settled, kept, is_all_known, but)
    _record_left(store, run, here, target, settled, kept, durable, work, but)
    _carry_out(store, work, run, True, durable, retire, copies=False)
    return work


def _record_left(store: Store, run: int, here: int, target: int, settled: Collection[int], kept: Iterable[KeptHome],
                 durable: bool, work: Plan, but: Container[bytes]) -> None:
    from metamori.store.restore import left_in_place  # after a kill only

    ranges = left_in_place.of_run(store, run, target, settled)
    if not ranges:
        return
    now, then = store.state(here), store.state(target)
    homes = {each.inode: store.layout.kept(each.name) for each in (
        *kept, *kept_homes(store.door, store.layout, store.head, now))}
    places = {inode: now.paths(inode)[0] if now.paths(inode) else homes.get(inode) or then.paths(inode)[0]
              for inode in ranges}
    ranges = {inode: each for inode, each in ranges.items() if places[inode] not in but}
    entries, saves = left_in_place.as_saved(store, target, ranges, places)
    work.saves += saves
    if entries:
        store.add_undo(entries, store.newest, durable)


def recover(store: Store, durable: bool = True, looks: bool = False) -> list[bytes] | None:
    """Complete a move that was interrupted; None: there is none. looks: what somebody has replaced or removed since
    stays, is found to be modified, and returned; not where a run or a job is to be completed, which may have made files
    that no record tells of, and not in a copy, where all files are others."""
    if leaving := read_intent(store, store.layout.leaving):
        if commit.exists(store.door, store.layout.run_area):
            commit.remove_file(store.door, store.layout.leaving, durable)   # nothing was touched; it is planned again
        else:
            _finish(store, leaving, durable, store.layout.leaving, copies=False)
    intent = read_intent(store, store.layout.intent)
    if intent is None:
        return None if leaving is None else []
    layout = store.layout
    of_a_run = any(commit.exists(store.door, path) for path in (layout.run_area, layout.nodes, layout.nodes_over))
    if store.head.index == intent.target:
        if not of_a_run:
            _copy_what_came(store, intent, durable)
        commit.remove_file(store.door, store.layout.intent, durable)
        return []
    return _finish(store, intent, durable, layout.intent, looks and not of_a_run and not store.is_copied)


def _carry_out(store: Store, work: Plan, run: int, save_preimages: bool, durable: bool,
               retire: Callable[[], None] | None = None, what: str = "restoring", copies: bool = True) -> None:
    record = store.layout.leaving if retire else store.layout.intent
    store.door.expect(what, sum(op.end - op.start for op in work.intent.writes)
                      + sum(save.end - save.start for save in work.saves if save_preimages))
    try:
        if what == "restoring" and not retire:
            require_no_flags(store, work.intent)
        if save_preimages and work.saves:
            _save(store, work.saves, run or newest_run(store), durable)
        clear_stages(store, work.intent)
        if retire or not work.is_empty:
            _begin(store, work.intent, durable, record)
        if retire:
            retire()                       # and the name `leaving` is durable with it
    except PermissionError as error:       # the file has to be named: its owner can change that
        file = os.fsdecode(error.filename or store.path)
        raise MetamoriError(f"{file}: {error.strerror}; no file was touched. Run the same command again when "
                            "it may be read and written") from error
    except OSError as error:
        raise MetamoriError(f"the store {store.path}: {error.strerror}; no file was touched") from error
    _finish(store, work.intent, durable, record, copies=copies)


def _begin(store: Store, intent: Intent, durable: bool, record: bytes) -> None:
    """Nothing is begun where the record's name cannot be made durable: OSError, it has none; MetamoriError, it has."""
    write_intent(store, intent, durable, record, sync_folder=False)
    try:
        if durable:
            commit.fsync_folder(store.door, os.path.dirname(record))
    except OSError:
        try:
            commit.remove_file(store.door, record, durable=False)
        except OSError as error:
            raise MetamoriError(f"the store {store.path}: {error.strerror}; run the command again") from error
        raise


def sweep_kept(store: Store) -> int:
    """Remove the additional names that a run gave to files which have names of their own after all.

    Returns how many. Not while a run lives: it counts on them. The files of nameless objects stay, and so
    does everything else that is not the same file as one that head names.
    """
    names = store.state(store.head.index).names
    removed = _sweep(store, (each for each in store.head.identities if names[each.path].kind == "file"),
                     store.head.kept)
    if removed:
        # a link less is another change time; what lies in the store stays known as what it was
        store.set_head(store.head.index, store.head.kept, noted=True)
    return removed


def _sweep(store: Store, files: Iterable[Identity], homes: tuple[KeptHome, ...]) -> int:
    """files: those that have names of their own, as somebody has seen them; other runs of a job may have changed that
    since. They are looked at where there is something to remove only."""
    def there(path: bytes) -> tuple[int, int] | None:
        found = lstat_or_none(store.door, path)
        return (found.st_dev, found.st_ino) if found else None

    names = set(store.door.listdir(store.layout.kept_folder)) - {each.name for each in homes}
    kept = {name: there(store.layout.kept(name)) for name in names}
    spare = {*kept.values()} - {None}
    own = {there(each.path) for each in files if (each.dev, each.ino) in spare} if spare else set()
    if names:                              # a file that came back from elsewhere, and was removed anew, has two
        own |= {there(store.layout.kept(each.name)) for each in homes}
    removed = 0
    for name, at in kept.items():
        if at and at in own:
            try:
                store.door.unlink(store.layout.kept(name))
                removed += 1
            except PermissionError:
                if not store.door.is_shut_by_flags(store.layout.kept(name)):
                    raise                  # else it stays until that is over
    return removed


def _finish(store: Store, intent: Intent, durable: bool, record: bytes, looks: bool = False, copies: bool = True
            ) -> list[bytes]:
    applier = Applier(store, durable, record, looks)
    applier.run(intent)
    touched = _Touched(intent)
    theirs = {*applier.theirs, *(_changed(store, intent.target, touched) if looks else ())}
    written = {write.path for write in intent.writes} | {size.path for size in intent.sizes}
    kept = tuple(KeptHome(each.inode, each.name) if store.layout.kept(each.name) in written else each
                 for each in intent.kept)
    try:
        if not commit.exists(store.door, store.layout.run_area):
            noted = {each.name: each for each in store.head.kept}
            kept = tuple(each if store.layout.kept(each.name) in written else _as_noted(
                store, each, noted.get(each.name)) for each in kept)
            names = store.state(intent.target).existing()
            _sweep(store, (identity_now(store.door, each.path) for each in names if each.kind == "file"), intent.kept)
        store.set_head(intent.target, kept, durable, noted=True, touched=touched, theirs=theirs)
        if copies:
            _copy_what_came(store, intent, durable)
        commit.remove_file(store.door, record, durable)
    except OSError as error:
        raise MetamoriError(f"the store {store.path}: {error.strerror}; run the command again") from error
    return sorted(theirs)


def _copy_what_came(store: Store, intent: Intent, durable: bool) -> None:
    """Of files that have left `kept/`, which only the user's own hold now (docs/adr/0030)."""
    came = {op.inode for op in intent.names
            if op.op == "drop" and os.path.dirname(op.path) == store.layout.kept_folder}
    came -= {op.inode for op in intent.names if op.op == "keep"}       # there on the way only
    if came:
        from metamori.store.restore import safety_copies  # a run that begins needs none of it

        with suppress(Damaged):
            safety_copies.keep(store, intent.target, newest_run(store), durable, durable, came)


def _changed(store: Store, target: int, touched: Container[bytes]) -> Iterator[bytes]:
    """Files that a move has brought, or moved, and that are not what the index says: somebody has been at them. The
    time of one that is somebody else's is not ours to set."""
    state, user = store.state(target), os.geteuid()
    for each in state.existing():
        if each.kind == "file" and each.path in touched:
            found, pif = lstat_or_none(store.door, each.path), state.pifs[each.inode]
            if found is None:
                continue
            apart = abs(nearest_ns(found.st_mtime_ns) - pif.mtime_ns)
            coarse = 1000 if found.st_mtime_ns % 10**7 else 2 * 10**9  # what NTFS or FAT, say, leaves of a time
            if found.st_size != pif.size or (apart > coarse and user in (0, found.st_uid)):
                yield each.path


class _Touched:
    """Paths that a move changes: those of its steps, and what lies below a folder or link that it puts elsewhere."""

    def __init__(self, intent: Intent) -> None:
        names = {path for op in intent.names for path in (op.path, op.other)}
        self._paths = names | {op.path for ops in (intent.writes, intent.sizes, intent.xattrs) for op in ops}
        self._moved = {path for op in intent.names if op.op in ("rename", "unlink", "rmdir", "symlink")
                       for path in (op.path, op.other)}

    def __contains__(self, path: object) -> bool:
        assert isinstance(path, bytes)
        parts = path.split(b"/") if self._moved else []
        return path in self._paths or any(b"/".join(parts[:n]) in self._moved for n in range(2, len(parts)))


def _as_noted(store: Store, kept: KeptHome, old: KeptHome | None) -> KeptHome:
    """A backing file that stays in the store and is not what it was stays known as what it was: it is damaged."""
    if old is not None and not is_as_noted(store.door, store.layout, old):
        return old
    return KeptHome(kept.inode, kept.name)


def newest_run(store: Store) -> int:
    """The run whose buffer takes what has to be saved between runs."""
    runs = store.buffers.runs()
    if runs:
        return runs[-1]
    return store.meta(store.newest).run if store.newest else 1


def _save(store: Store, saves: list[Save], run: int, durable: bool) -> None:
    """Pre-images into the buffer, then the undo record of them."""
    entries = []
    in_order = sorted(saves, key=lambda save: (save.path, save.start))
    for path, group in groupby(in_order, key=lambda save: save.path):
        fd = store.door.open_shut(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            of_file = list(group)
            places = store.buffers.save(run, fd, [(save.start, save.end) for save in of_file])
            entries += [UndoEntry(save.inode, save.start, save.end, run, place, crc)
                        for save, (place, crc) in zip(of_file, places, strict=True)]
        finally:
            store.door.close(fd)
    if durable:
        store.buffers.sync(run)
    store.add_undo(entries, store.newest, durable)


def require_no_flags(store: Store, intent: Intent) -> None:
    """No file that changes, or gets or loses a name, nor its folder, is shut by chattr: half of the move would be done.
    PermissionError; nothing is touched."""
    shut = {op.path for ops in (intent.writes, intent.sizes, intent.xattrs) for op in ops}
    growing: set[bytes] = set()            # folders in which names only come
    for op in intent.names:
        if op.op in ("keep", "unlink", "rmdir", "rename", "drop"):
            shut |= {op.path, os.path.dirname(op.path)}
        if op.op == "link":                # of such a file no link can be made: there would be two files instead of one
            shut.add(op.other)
        if op.op not in ("keep", "unlink", "rmdir", "drop"):
            comes = op.other if op.op == "rename" else op.path
            found = lstat_or_none(store.door, comes)
            if found is None:
                growing.add(os.path.dirname(comes))
            elif op.mode and (found.st_mode & 0o7777, found.st_mtime_ns) != (op.mode & 0o7777, op.mtime_ns):
                shut.add(comes)
    for path in sorted(shut | growing):
        if store.door.is_shut_by_flags(path, may_grow=path not in shut):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)


def clear_stages(store: Store, intent: Intent) -> None:
    """A name that `keep` is about to make may not be there yet: it would be taken for made."""
    for op in intent.names:
        if op.op == "keep":
            commit.remove_file(store.door, op.other, durable=False)
