"""SQLite with four writers at once, in each of its journal modes, and checkpoints from outside at any moment."""

from __future__ import annotations

import pytest
from beside import Trial, need

CHECK = """
test "$(sqlite3 data.db 'PRAGMA integrity_check')" = ok
sqlite3 data.db 'SELECT count(*) || " " || (coalesce(sum(amount), 0) = 0) || " " ||
  (SELECT coalesce(min(seen = (SELECT count(*) FROM entry e WHERE e.writer = w.writer)), 1) FROM writer w) FROM entry'
"""
WRITER = r"""
import os, random, sqlite3, sys, time
writer, rounds, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
base = sqlite3.connect("data.db", timeout=300, isolation_level=None)
assert base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0] == mode
base.execute("PRAGMA wal_autocheckpoint=20")
rng = random.Random(writer)
for n in range(rounds):
    while n == rounds // 2 and not os.path.exists(os.environ["TAKEN"]):
        time.sleep(0.01)
    base.execute("BEGIN IMMEDIATE")
    amount = rng.randrange(1000)
    base.execute("INSERT INTO entry(writer, amount, text) VALUES(?, ?, ?)", (writer, amount, "x" * amount))
    base.execute("INSERT INTO entry(writer, amount, text) VALUES(?, ?, ?)", (writer, -amount, ""))
    base.execute("UPDATE writer SET seen = seen + 2 WHERE writer = ?", (writer,))
    if n % 7 == 3:
        base.execute("ROLLBACK")
        continue
    base.execute("COMMIT")
    assert base.execute("SELECT sum(amount) FROM entry").fetchone()[0] == 0
"""
START = """
import sqlite3, sys
base = sqlite3.connect("data.db", isolation_level=None)
base.execute(f"PRAGMA journal_mode={sys.argv[1]}")
base.execute("CREATE TABLE entry(id INTEGER PRIMARY KEY, writer INT, amount INT, text TEXT)")
base.execute("CREATE INDEX by_writer ON entry(writer, amount)")
base.execute("CREATE TABLE writer(writer INT, seen INT)")
base.executemany("INSERT INTO writer VALUES(?, 0)", [(n,) for n in range(4)])
open("ready", "w").close()
"""
JOB = """
set -e
env -u PYTHONPATH /usr/bin/python3 -c "$0" "$1"
for n in 0 1 2 3; do env -u PYTHONPATH /usr/bin/python3 -c "$2" $n "$3" "$1" & jobs="$jobs $!"; done
for job in $jobs; do wait $job; done
sqlite3 data.db 'SELECT writer, count(*), sum(abs(amount)) FROM entry GROUP BY writer'
"""


def four_writers(trial: Trial, mode: str, rounds: int, *options: str) -> None:
    need("sqlite3", "/usr/bin/python3")
    command = ["bash", "-c", JOB, START, mode, WRITER, str(rounds)]
    want = trial.natively(command)
    have = trial.under(command, *options, ready="ready", checkpoints=6)
    assert (have.status, have.out, have.err) == (0, want.out, want.err)
    committed = 4 * 2 * sum(n % 7 != 3 for n in range(rounds))
    assert trial.check_copy(CHECK, "at the end").split() == [str(committed), "1", "1"]
    counts = {}
    for index in trial.at_three(have.taken):
        said = trial.check_copy(CHECK, f"restore {index}").split()
        counts[index] = int(said[0])
        assert said[1:] == ["1", "1"], f"restore {index}: {said}"
    in_order = [counts[index] for index in sorted(counts)]
    assert in_order == sorted(in_order) and in_order[-1] <= committed


@pytest.mark.parametrize("mode", ["delete", "truncate", "wal"])
def test_four_writers(trial: Trial, mode: str) -> None:
    four_writers(trial, mode, 400 if mode == "wal" else 40)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--every", "200ms"]], ids=" ".join)
@pytest.mark.parametrize("mode", ["delete", "truncate", "persist", "wal"])
def test_four_writers_for_longer(trial: Trial, mode: str, options: list[str]) -> None:
    four_writers(trial, mode, 300, *options)
