"""The one that counts goes on whatever a checkpoint ends with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("zmq")

from metamori.errors import MetamoriError
from metamori.runtime.job.counter import Counter
from metamori.runtime.job.member import ask
from metamori.store.read.store import Store


def test_a_mistake_of_ours_ends_one_checkpoint_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended who counted, who kept the lock: the next who asked waited for nobody."""
    store = Store.create_or_open(str(tmp_path / "store"))
    store.lock()
    os.mkdir(store.layout.nodes)
    one = Counter(store, "job", 1, durable=False, say=print)

    def take(message: str) -> int:
        assert message != "first", "a mistake of ours"
        return 7

    monkeypatch.setattr(one, "take", take)
    one.start()
    try:
        with pytest.raises(MetamoriError, match="no checkpoint was taken: AssertionError: a mistake of ours"):
            ask(store.path, "first")
        assert ask(store.path, "second") == 7
    finally:
        one.stop()
        store.close()
