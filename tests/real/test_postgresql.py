"""PostgreSQL, unmodified: made, loaded, killed with SIGKILL and recovered, with checkpoints from outside all the while.

Each restored data folder is what a power cut at that instant would have left: a server must start on it and recover,
and pg_checksums, pg_amcheck and the accounts' sums must find nothing wrong.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from beside import Trial, need

BIN = max((str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")), default="")
SETTINGS = """
start() {
  BIN/pg_ctl -w -t 300 -D data -l server.log -o "-c listen_addresses= -c unix_socket_directories=$PWD" start > /dev/null
}
export PGHOST=$PWD PGUSER=user PGDATABASE=postgres
"""
JOB = """
set -e
BIN/initdb -k -U user -A trust -D data > initdb.log
cat >> data/postgresql.conf <<END
checkpoint_timeout = 30s
min_wal_size = 32MB
max_wal_size = 32MB
full_page_writes = on
END
start
BIN/psql -qc 'CREATE EXTENSION amcheck'
BIN/pgbench -q -i -s 1 > /dev/null 2>&1
touch ready
BIN/pgbench -c 8 -j 2 -t "$1" > bench.log 2>&1
until [ -e "$TAKEN" ]; do sleep 0.05; done
server=$(head -1 data/postmaster.pid); children=$(ps -o pid= --ppid $server)
kill -9 $server $children 2> /dev/null || true  # a worker may have ended meanwhile
for pid in $server $children; do while ps -o stat= -p $pid | grep -qv Z; do sleep 0.1; done; done
rm -f data/postmaster.pid .s.PGSQL.*  # where nobody reaps, their owner seems to live
start
BIN/psql -tAc 'SELECT count(*) FROM pgbench_history'
BIN/psql -qc 'VACUUM FULL pgbench_accounts' -c 'CHECKPOINT'
BIN/pgbench -n -c 8 -j 2 -t "$1" -N > bench2.log 2>&1  # -n: it would empty the history
BIN/pg_ctl -w -t 300 -D data -m fast stop > /dev/null
BIN/pg_checksums -D data -c | grep Bad
"""
CHECK = """
set -e
rm -f data/postmaster.pid
export TMPDIR=$(mktemp -d /tmp/pg.XXXXXX); trap 'rm -rf $TMPDIR' EXIT   # a socket's name is short
PGHOST=$TMPDIR
sockets="-c listen_addresses= -c unix_socket_directories=$TMPDIR"
BIN/pg_ctl -w -t 300 -D data -l check.log -o "$sockets" start > /dev/null || { cat check.log; exit 1; }
BIN/psql -tAc 'SELECT count(*), (SELECT sum(abalance) FROM pgbench_accounts) = coalesce(sum(delta), 0)
  FROM pgbench_history'
BIN/psql -tAc 'SELECT (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)'
BIN/pg_amcheck --heapallindexed postgres
BIN/pg_ctl -w -t 300 -D data -m fast stop > /dev/null
BIN/pg_checksums -D data -c | grep Bad
"""


def script(text: str) -> list[str]:
    return ["bash", "-c", (SETTINGS + text).replace("BIN", BIN)]


@pytest.fixture
def ordinary(trial: Trial) -> Trial:
    """PostgreSQL refuses to run as root: there it sees an ordinary user, in a user namespace."""
    need("ps")
    if not BIN:
        pytest.skip("PostgreSQL is not installed")
    if os.getuid() == 0:
        need("unshare")
        trial.as_user = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
        if trial.check_copy("id -u").strip() != "1000":
            pytest.skip("no user namespace can be made here")
    return trial


def killed_and_recovered(trial: Trial, transactions: int, *options: str) -> None:
    want = trial.natively([*script(JOB), "job", str(transactions)])
    have = trial.under([*script(JOB), "job", str(transactions)], *options, ready="ready", checkpoints=6)
    assert (have.status, have.out, have.err) == (0, want.out, want.err)
    assert have.out.split()[0] == str(8 * transactions)
    assert "number of failed transactions: 0" in (trial.lab.work / "bench.log").read_text()
    done = []
    for index in trial.at_three(have.taken):
        said = trial.check_copy(script(CHECK)[2], f"restore {index}").splitlines()
        assert said[0].endswith("|t") and said[1] == "t" and "Bad checksums:  0" in said[2], said
        done.append((index, int(said[0].split("|")[0])))
    assert [count for _, count in sorted(done)] == sorted(count for _, count in done)


def test_killed_and_recovered(ordinary: Trial) -> None:
    killed_and_recovered(ordinary, 40)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--every", "500ms"]], ids=" ".join)
def test_killed_and_recovered_for_longer(ordinary: Trial, options: list[str]) -> None:
    killed_and_recovered(ordinary, 400, *options)
