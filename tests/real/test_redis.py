"""Redis with its append-only file: written while it is rewritten; redis-check-aof and a server judge each restore."""

from __future__ import annotations

from itertools import pairwise

import pytest
from beside import Trial, need

SERVER = """
serve() {  # serve PORT-LESS FOLDER OPTIONS...: a server on a socket, and its pid in $server
  folder=$1; shift
  bash -c 'exec -a redis-server redis-check-rdb "$@"' - --port 0 --unixsocket "$socket" --dir "$folder" --save '' \\
    --appendonly yes --daemonize no --logfile "$PWD/server.log" "$@" > /dev/null & server=$!
  for i in $(seq 600); do [ "$(ask ping 2> /dev/null)" = PONG ] && return; sleep 0.1; done
  cat server.log; exit 3
}
ask() { redis-cli -s "$socket" "$@"; }
short=$(mktemp -d /tmp/redis.XXXXXX); socket=$short/s; trap 'rm -rf $short' EXIT
"""
JOB = (
    SERVER
    + """
set -e
mkdir data
serve "$PWD/data" --appendfsync "$1" --auto-aof-rewrite-min-size 20kb --auto-aof-rewrite-percentage 50
fill() {  # one client: a counter and the list that goes with it always change together
  for n in $(seq "$2"); do
    printf 'MULTI\\nINCR count:%s\\nRPUSH list:%s %s\\nSET key:%s:%s %0200d\\nEXEC\\n' $1 $1 $n $1 $((n % 50)) $n
  done | ask > /dev/null
}
fill 0 20; touch ready
for client in 1 2 3; do fill $client "$2" & jobs="$jobs $!"; done
for round in 1 2 3; do sleep 0.3; ask bgrewriteaof > /dev/null; done
until [ -e "$TAKEN" ]; do sleep 0.05; done
for job in $jobs; do wait $job; done
ask mget count:0 count:1 count:2 count:3
# what it answered and, while an fsync is slow, still holds in its memory is lost by a kill: "everysec" allows it
while ask info persistence | grep -qE 'aof_rewrite_in_progress:1|aof_buffer_length:[1-9]'; do sleep 0.1; done
kill -9 $server; wait $server 2> /dev/null || echo killed
serve "$PWD/data" --appendfsync "$1"
ask mget count:0 count:1 count:2 count:3; ask llen list:3
ask shutdown; wait $server || true
"""
)
CHECK = (
    SERVER
    + """
cd data || exit
manifest=appendonlydir/appendonly.aof.manifest  # a rewrite in progress has temp-*.manifest beside it
yes | redis-check-aof --fix $manifest > check.log 2>&1 || { cat check.log; exit 1; }
serve "$PWD"
for client in 0 1 2 3; do
  count=$(ask get count:$client); length=$(ask llen list:$client); last=$(ask lindex list:$client -1)
  echo "${count:-0} $length ${last:-0}"
done
ask shutdown; wait $server
"""
)


def written_while_rewritten(trial: Trial, sync: str, commands: int, *options: str) -> None:
    need("redis-check-aof", "redis-check-rdb", "redis-cli")
    command = ["bash", "-c", JOB, "job", sync, str(commands)]
    want = trial.natively(command)
    have = trial.under(command, *options, ready="ready", checkpoints=6)
    assert (have.status, have.out, have.err) == (0, want.out, want.err)
    counts = []
    for index in trial.at_three(have.taken):
        lines = [line.split() for line in trial.check_copy(CHECK, f"restore {index}").splitlines()]
        assert all(count == length == last for count, length, last in lines), f"restore {index}: {lines}"
        counts.append((index, [int(line[0]) for line in lines]))
    in_order = [numbers for _, numbers in sorted(counts)]
    assert all(now >= before for one, two in pairwise(in_order) for before, now in zip(one, two))


def test_written_while_rewritten(trial: Trial) -> None:
    written_while_rewritten(trial, "everysec", 400)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--every", "200ms"]], ids=" ".join)
@pytest.mark.parametrize("sync", ["everysec", "always", "no"])
def test_written_while_rewritten_for_longer(trial: Trial, sync: str, options: list[str]) -> None:
    written_while_rewritten(trial, sync, 3000, *options)
