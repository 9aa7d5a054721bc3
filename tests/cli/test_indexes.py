"""How indexes are named on the command line: one way for all verbs."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lab import Lab

from metamori import indexes
from metamori.errors import MetamoriError, NoSuchCheckpoint, Usage
from metamori.store.format.records import Meta
from metamori.tables.record import replace

HOUR_NS = 3_600_000_000_000
NOW_NS = 1_800_000_000_000_000_000


class Known:
    """What `find` asks of a store: 0, and checkpoints 1, 2, 4 of three, two and one hour ago; 3 was pruned."""

    def __init__(self) -> None:
        self.indexes = [0, 1, 2, 4]
        self.messages = {1: "step 1", 2: "step 2", 4: ""}

    def meta(self, index: int) -> Meta:
        hours = {1: 3, 2: 2, 4: 1}[index]
        empty = replace(_META, index=index, time_ns=NOW_NS - hours * HOUR_NS, message=self.messages[index])
        return replace(empty, reason="end of run")

    def require(self, index: int) -> None:
        if index not in self.indexes:
            raise NoSuchCheckpoint(f"there is no checkpoint {index}")


def _empty_meta() -> Meta:
    from metamori.tables.record import names_of

    made = object.__new__(Meta)
    for name in names_of(Meta):
        object.__setattr__(made, name, None)
    return made


_META = _empty_meta()


def found(text: str) -> int:
    return indexes.find(Known(), indexes.wanted(text))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_NS)


@pytest.mark.parametrize("text, index", [
    ("0", 0), ("2", 2), ("002", 2), ("last", 4), ("-1", 4), ("-2", 2), ("-4", 0), ("@1h", 4), ("@90m", 2), ("@2h", 2),
    ("@2.5h", 1), ("@0.1d", 1), (":step 1", 1), (":*2", 2), (":end*", 4), (":before*", 0),
])
def test_each_form_names_its_checkpoint(text: str, index: int) -> None:
    assert found(text) == index


@pytest.mark.parametrize("hours, index", [(1, 4), (2.5, 1)])
def test_an_instant_is_local_time_or_says_its_zone(hours: float, index: int) -> None:
    then = (NOW_NS - hours * HOUR_NS) / 1e9
    assert found(f"@{datetime.fromtimestamp(then).isoformat()}") == index
    assert found(f"@{datetime.fromtimestamp(then, UTC).isoformat()}") == index
    assert found(f"@{datetime.fromtimestamp(then, UTC):%Y-%m-%dT%H:%M:%SZ}") == index


@pytest.mark.parametrize("text, kind, said", [
    ("3", NoSuchCheckpoint, "no checkpoint 3"), ("-5", NoSuchCheckpoint, "0 to 2, 4"),
    ("@4h", NoSuchCheckpoint, "the oldest is 1, of "), (":nothing", NoSuchCheckpoint, "matches nothing"),
    (":step*", Usage, "matches 2 checkpoints: 1 (step 1), 2 (step 2); name one"),
    ("latest", Usage, "is not a checkpoint"), ("", Usage, "is not a checkpoint"), ("-0", Usage, "is not a checkpoint"),
    ("@", Usage, "is not"), ("@2026", Usage, "is not"), ("@2x", Usage, "is not"), ("@2026-13-01", Usage, "is not"),
    (":", Usage, "is not"), ("1.5", Usage, "is not"), ("٣", Usage, "is not"), ("@0s", Usage, "is not"),
])
def test_what_is_wrong_is_said(text: str, kind: type[MetamoriError], said: str) -> None:
    with pytest.raises(kind, match=said.replace("(", r"\(").replace(")", r"\)")):
        found(text)


def test_every_verb_takes_every_form(lab: Lab) -> None:
    (lab.work / "f").write_text("before\n")
    for text in ("one", "two"):
        assert lab.run(["sh", "-c", f"echo {text} > f"]).returncode == 0
    file = str(lab.work / "f")
    assert len(lab.log()["checkpoints"]) == 3
    assert lab.verb("cat", "last", file).stdout == "two\n" and lab.verb("cat", "-2", file).stdout == "one\n"
    assert lab.verb("cat", ":before*", file).stdout == "before\n"
    assert json.loads(lab.verb("diff", "--json", "-2", "@0.001s").stdout)["second"] == 2
    assert json.loads(lab.verb("show", "--json", "-1").stdout)["index"] == 2
    assert "1 (end of run), 2 (end of run)" in lab.verb("cat", ":end*", file, code=2).stderr
    lab.verb("restore", "-2")
    assert Path(file).read_text() == "one\n"
    done = subprocess.run([*lab.argv("restart"), "last"], cwd=lab.work, env=lab.env, capture_output=True, timeout=120)
    assert done.returncode == 0 and Path(file).read_text() == "two\n"
