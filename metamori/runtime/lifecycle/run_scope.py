"""Which files a run tracks: what its store has recorded, the folder that it starts in, and what it is told."""

from __future__ import annotations

import os

from metamori.config import Config
from metamori.errors import Usage
from metamori.runtime.area import scope as rules
from metamori.store.read import scope as recorded
from metamori.store.read.scope import EVERYTHING, Pattern, Scope
from metamori.store.read.store import Store


def settle(store: Store, config: Config, folder: bytes, is_first: bool) -> bytes:
    """Recorded before anything of the run is there; for its area (area/scope.py). is_first: no run has been in the
    store, which so has nothing to go on with. MetamoriError."""
    before = recorded.read(store.door, store.layout)
    scope = before or (Scope() if is_first else EVERYTHING)
    if config.memory:
        scope = EVERYTHING.plus((), scope.patterns)    # a process that comes back finds every file of its own
    folders = [] if scope.is_everything else [folder]
    folders += [_folder(folder, os.fsencode(given)) for given in config.track]
    patterns = [_pattern(folder, os.fsencode(given)) for given in config.exclude]
    scope = scope.plus(folders, patterns)
    if scope.is_everything:
        scope = EVERYTHING.plus((), scope.patterns)
    data = rules.rules(scope, os.environb)
    if scope != before:
        recorded.write(store.door, store.layout, scope)
    return data


def _folder(start: bytes, given: bytes) -> bytes:
    path = os.path.realpath(os.path.join(start, given))
    if not os.path.isdir(path) and (os.path.exists(path) or any(sign in given for sign in (b"*", b"?", b"["))):
        raise Usage(f"--track {os.fsdecode(given)}: not a folder")
    return path


def _pattern(start: bytes, given: bytes) -> Pattern:
    """An absolute path; a path from the folder in which the run starts; or a name, wherever it is."""
    text = given.removeprefix(b"!")
    relative = b"/" in text.rstrip(b"/") and not text.startswith(b"/")
    return Pattern(start.rstrip(b"/") if relative else b"", given)
