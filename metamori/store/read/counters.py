"""The counters of a store: the highest numbers ever handed out. Each prune writes them anew; so others notice it."""

from __future__ import annotations

import os

from metamori.errors import Damaged
from metamori.store.format import files
from metamori.store.format.layout import Layout
from metamori.store.format.records import Numbers
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import Door


class Counters:
    """What they say as of the last look; `damage` is why they cannot be read, else ""."""

    def __init__(self, door: Door, layout: Layout) -> None:
        self._door, self._layout = door, layout
        self._first: tuple[int, int] | None = None
        self._seen = (0, 0)
        self.numbers = Numbers()
        self.damage = ""
        self._handed = {"index": 0, "object": 0, "process": 0, "run": 0}

    def note(self, what: str, number: int) -> None:
        """A number that is in use."""
        self._handed[what] = max(self._handed[what], number)

    def after_prune(self, newest: int) -> Numbers:
        """What a prune writes in a store whose newest index is given."""
        handed = self._handed
        return Numbers(self.numbers.pruned + 1, newest, handed["object"], handed["process"], handed["run"])

    def hand_out(self, what: str) -> int:
        """The next one. Damaged when what was handed out before is not known."""
        if self.damage:
            raise Damaged(self.damage)
        self._handed[what] += 1
        return self._handed[what]

    def look(self) -> bool:
        """Read them if they are others than at the last look; whether they are."""
        found = lstat_or_none(self._door, self._layout.counters)
        seen = (found.st_ino, found.st_mtime_ns) if found is not None else (0, 0)
        if self._first is None:
            self._first = seen
        if seen == self._seen:
            return False
        path = self._layout.counters
        try:
            self.numbers = files.decode_numbers(commit.read_file(self._door, path), self._layout.id)
            self.damage = ""
        except FileNotFoundError:
            self.damage = f"{os.fsdecode(path)} is missing"
        except files.FormatError as error:           # what the indexes say does not depend on it
            self.damage = f"{os.fsdecode(path)}: {error}"
        self._seen = seen                  # last: what could not be read for the moment is looked at again
        for what in self._handed:
            self.note(what, getattr(self.numbers, what))
        return True

    def changed_since_opened(self) -> bool:
        """As of the last look."""
        return self._seen != self._first
