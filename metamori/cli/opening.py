"""How verbs open the store: what a kill left unfinished is completed first."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from glob import escape

from metamori.cli import output, progress
from metamori.errors import MetamoriError, StoreBusy, sentence
from metamori.runtime.job import folder
from metamori.store.io import commit
from metamori.store.prune import prune
from metamori.store.read import create
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore import restore


def for_reading(arguments: argparse.Namespace) -> Store:
    """A store to look at; it may be that of a live run. NoStore."""
    from metamori.runtime.area.unwritten import beside_runs

    return beside_runs(_looked_at(arguments))


def _looked_at(arguments: argparse.Namespace) -> Store:
    """What a kill left unfinished is completed where it can be."""
    folder.require_store(arguments.store)
    store = Store.open(os.path.abspath(arguments.store), door=progress.door())
    if folder.job_of(store.path) != store.path:
        return store                       # of one of a job's runs, which the job completes
    if not any(commit.exists(store.door, path) for path in store.layout.unfinished):
        return store
    if not create.is_in_place(store.door, store.layout):
        output.say(f"{store.path} is a copy: what is unfinished in it is completed by a restore in place or a run, "
                   "not by looking")
        return store
    try:
        store.lock()
    except StoreBusy:
        return store  # a run is alive: records are read as they appear
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EROFS):
            return store
        raise
    try:
        complete(store)
    except StoreBusy:
        store.refresh()    # processes that outlive their run, or a run by hand: alive without the lock
    finally:
        store.unlock()
    return store


def for_writing(arguments: argparse.Namespace) -> Store:
    """A locked store with nothing unfinished. NoStore, StoreBusy."""
    require_whole(arguments.store)
    store = Store.open(os.path.abspath(arguments.store), write=True, door=progress.door())
    try:
        complete(store)
        store.settle_in()
    except BaseException:
        store.close()
        raise
    return store


def require_whole(path: str) -> None:
    """MetamoriError for the store of one of a job's runs: the files of one run alone are of no index."""
    folder.require_no_part(path, "nodes")


def complete(store: Store) -> None:
    """Finish what a kill left unfinished; the caller holds the lock. StoreBusy while processes of a run live."""
    run_area = commit.exists(store.door, store.layout.run_area)
    if run_area:
        if importlib.util.find_spec("metamori._area") is None:
            raise MetamoriError("the last run was killed; completing it needs the built library: make build")
        from metamori.runtime.lifecycle.recover import finish_if_needed, require_over

        require_over(store)
    job = any(commit.exists(store.door, path) for path in (store.layout.nodes, store.layout.nodes_over))
    if job:
        from metamori.runtime.job import finish

        for name in folder.names(store):
            if folder.is_alive(store, name):
                raise StoreBusy(f"a job in {store.path} is alive: {os.fsdecode(name)}")
        commit.remove_file(store.door, store.layout.job, durable=False)    # nobody is reached there any more
    if prune.recover(store):
        output.say("an interrupted prune was completed")
    if (theirs := restore.recover(store, looks=True)) is not None:
        output.say("an interrupted restore was completed")
        if theirs:
            output.say(f"replaced or removed meanwhile, and left so: {output.paths_text(theirs)}")
    if run_area:
        try:
            said = finish_if_needed(store)
        except OSError as error:
            why = sentence(error)
            raise MetamoriError(f"the end of the last run in {store.path} could not be recorded: {why}") from error
        if said:
            output.say(said)
    for said in finish.finish(store) if job else ():
        output.say(said)
    store.refresh()


def tracked_path(store: Store, index: int, text: str) -> bytes:
    """The tracked path that a person means: from the current folder, else from the store's. MetamoriError."""
    names = store.state(index).names
    for path in meant(store, text):
        if path in names and names[path].kind != "absent":
            return path
    raise MetamoriError(f"{text} was not there at checkpoint {index}, or the runs have not touched it")


def is_tracked(store: Store, index: int, text: str) -> bool:
    """Whether it is the name of something that was there, whatever else it may mean."""
    try:
        return bool(tracked_path(store, index, text))
    except MetamoriError:
        return False


def meant(store: Store, text: str) -> list[bytes]:
    """Where a path that a person writes may be, the likeliest first."""
    tries = []
    for base in (os.getcwdb(), store.layout.id.anchor or os.path.dirname(store.layout.root)):
        path = os.path.normpath(os.path.join(base, os.fsencode(text)))
        tries += [path, os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))]
    return tries


def tracked_paths(store: Store, here: State, there: State, texts: Sequence[str]) -> set[bytes]:
    """All tracked paths of two states that a person means: files, folders with what is below them, globs. MetamoriError
    for a text that means none."""
    known = sorted(each.path for each in {each.path: each for each in (*here.existing(), *there.existing())}.values())
    found: set[bytes] = set()
    for text in texts:
        fits = tracked_glob(store, text)
        tops = next(([path] for path in meant(store, text) if _below(known, path)), None) or [
            path for path in known if fits and fits(path)]
        if not tops:
            raise MetamoriError(f"{text} is not there now and was not there at checkpoint {there.index}, or the runs "
                                "have not touched it")
        for path in tops:
            found.update(_below(known, path))
    return found


def _below(known: list[bytes], path: bytes) -> list[bytes]:
    """A path and what is below it, of a sorted list."""
    folder = path.rstrip(b"/") + b"/"
    own = [path] if (at := bisect_left(known, path)) < len(known) and known[at] == path else []
    return own + known[bisect_left(known, folder):bisect_left(known, folder[:-1] + b"0")]


def tracked_glob(store: Store, text: str) -> Callable[[bytes], bool] | None:
    """Whether a path fits, as a person writes it: from the current folder, else from the store's; `*` fits `/` too.
    None for a text that is no glob."""
    if not any(letter in text for letter in "*?["):
        return None
    globs = [os.path.normpath(os.path.join(escape(base), os.fsencode(text)))
             for base in (os.getcwdb(), store.layout.id.anchor or os.path.dirname(store.layout.root))]
    return lambda path: any(fnmatchcase(path, glob) for glob in globs)


def finish_unborn(store: Store) -> None:
    """A run whose program could not be started: nothing has happened in it."""
    from metamori.runtime.lifecycle.recover import finish_if_needed

    finish_if_needed(store)
