"""What checkpoints, their commit and their pruning need of a live run: its store and its run area."""

from __future__ import annotations

from metamori._area import lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Area
from metamori.store.read.store import Store


class NotDurable(MetamoriError):
    """No checkpoint of the run can be any more."""


class SessionState:
    """What a `Session` is built on. Every runtime of the run has its own; the truth is in the files."""

    def __init__(self, store: Store, area: Area) -> None:
        self.store, self.area = store, area
        self.stays = set[int]()            # what pruning leaves beside: where its program is about to go back to
        self.said = ""                     # what a person should hear; whoever says it takes it away

    @property
    def durable(self) -> bool:
        return bool(self.area.head.flags & lib.MM_POWER)

    @property
    def single(self) -> bool:
        return bool(self.area.head.flags & lib.MM_SINGLE)

    @property
    def has_lost(self) -> bool:
        """Whether a sync has failed. The end of the run writes all into its place anew."""
        return self.has_lost_since(0)

    def has_lost_since(self, before: int) -> bool:
        """Where so many had failed. Nobody takes one back: whoever is killed meanwhile leaves them all."""
        return self.durable and self.area.head.unsynced != before

    def require_synced(self) -> None:
        """NotDurable once a sync has failed."""
        if self.has_lost:
            raise NotDurable("a disk has not taken what this run had written: no checkpoint of it can be made durable "
                             "before its end")

    def will_write_records(self) -> None:
        """Before each record that is added: whoever has the session next looks for them."""
        assert self.area.holds_session
        self.area.head.records += 1
