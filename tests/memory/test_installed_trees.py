"""Programs of several processes as they are installed: servers with their clients, workers, MPI's ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from comeback import PROGRAMS, Memory, Printing, comes_back

pytestmark = [pytest.mark.usefixtures("installed"), pytest.mark.slow]

MANAGER = """
import hashlib, multiprocessing
def work(n, found, lock, count):
    state = bytes([n])
    for step in range(12):
        for i in range(9000):
            state = hashlib.sha256(state * 5).digest()
        with lock:
            found[n] = found.get(n, "") + state.hex()[:4]
            count.value += 1
if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        found, lock, count = manager.dict(), manager.Lock(), manager.Value("i", 0)
        workers = [multiprocessing.Process(target=work, args=(n, found, lock, count)) for n in range(4)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        print(sorted(found.items()), count.value, [each.exitcode for each in workers])
"""
R = """
library(parallel)
work <- function(n) { s <- n; for (i in 1:400000) s <- (s * 31 + i) %% 1000003; s }
for (k in 1:8) { cat(k, unlist(mclapply(1:6, function(n) work(n * k), mc.cores = 2)), "\\n"); flush(stdout()) }
"""
HTTP = """
import hashlib, http.server, os, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
server.RequestHandlerClass.log_message = lambda *words: None
child = os.fork()
if child == 0:
    server.serve_forever()
port = server.server_address[1]
server.socket.close()
state = b""
for n in range(60):
    open(f"page{n % 5}", "w").write(state.hex() * 1000)
    got = urllib.request.urlopen(f"http://127.0.0.1:{port}/page{n % 5}").read()
    for i in range(10000):
        state = hashlib.sha256(state + got[:40]).digest()
    print(n, state.hex()[:9], flush=True)
os.kill(child, 15)
print(os.waitpid(child, 0)[1])
"""
NGINX = """
cat > nginx.conf <<END
user $(id -un); daemon off; worker_processes 2; pid $PWD/nginx.pid; error_log $PWD/errors;
events { worker_connections 64; }
http { access_log off; client_body_temp_path $PWD/b; proxy_temp_path $PWD/p; fastcgi_temp_path $PWD/f;
  uwsgi_temp_path $PWD/u; scgi_temp_path $PWD/s; server { listen 127.0.0.1:$1; root $PWD/pages; } }
END
mkdir -p pages
nginx -c $PWD/nginx.conf -e $PWD/errors & server=$!
until [ -s nginx.pid ]; do sleep 0.05; done
for n in $(seq 1 25); do
  seq $n $((n * 20000)) > pages/page
  exec 5<>/dev/tcp/127.0.0.1/$1
  printf 'GET /page HTTP/1.0\\r\\n\\r\\n' >&5
  sed '1,/^.$/d' <&5 | md5sum
  exec 5>&-
done
kill -QUIT $server; wait $server; echo "status $?"
"""
TMUX = r"""
export TERM=screen HISTFILE= PS1='$ '
t() { tmux -S "$PWD/socket" -f /dev/null "$@"; }
t new-session -d -s s -x 100 -y 30 'exec bash --norc --noprofile -i' || exit 9
t split-window -d -t s 'exec bash --norc --noprofile -i'
t new-window -d -t s 'exec cat > typed'
t send-keys -t s:0.0 'for i in {1..60}; do echo one $i | md5sum; sleep 0.05; done > out.0; exit' Enter
t send-keys -t s:0.1 'for ((i = 0; i < 150000; i++)); do s=$(((s * 31 + i) % 1000003)); done; \
echo $s $LINES $COLUMNS > out.1; exit' Enter
t send-keys -t s:1.0 'half a '
while [ ! -s out.0 ] || t list-panes -t s:0 > /dev/null 2>&1; do sleep 0.1; done
t send-keys -t s:1.0 'line' Enter C-d
while t has-session 2> /dev/null; do sleep 0.05; done
md5sum out.0; cat out.1 typed
"""
POSTGRES = """
export PGHOST=$PWD/socket PGUSER=tester PGDATABASE=postgres TZ=UTC
mkdir socket
initdb -D data -U tester --no-sync > /dev/null 2>&1 || { echo no initdb; exit 3; }
postgres -D data -k $PWD/socket -c listen_addresses= -c autovacuum=off -p 5432 > postgres.log 2>&1 & server=$!
until psql -c 'select 1' > /dev/null 2>&1; do sleep 0.1; done
pgbench -i -q -s 1 > /dev/null 2>&1
pgbench -c 2 -t 1500 --random-seed=1 -n > /dev/null 2>&1; echo "bench $?"
psql -Atc 'select sum(abalance), (select count(*) from pgbench_history) from pgbench_accounts'
kill -INT $server; wait $server; echo "status $?"
"""


def mpi_run(monkeypatch: pytest.MonkeyPatch, kind: str) -> tuple[str, str]:
    """Launcher and compiler of Open MPI or MPICH."""
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    found = shutil.which(f"mpirun.{kind}"), shutil.which(f"mpicc.{kind}")
    if not all(found):
        pytest.skip(f"{kind} is not installed")
    return str(found[0]), str(found[1])


@pytest.mark.parametrize(("kind", "ranks", "steps"), [("openmpi", 4, 12000), ("mpich", 4, 1000)])
def test_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, ranks: int, steps: int) -> None:
    run, compiler = mpi_run(monkeypatch, kind)
    subprocess.run([compiler, "-O1", PROGRAMS / "ring.c", "-o", tmp_path / "ring"], check=True)
    more = "OMPI_MCA_orte_tmpdir_base=$PWD " if kind == "openmpi" else ""
    options = "--oversubscribe " if kind == "openmpi" else ""
    case = Memory(tmp_path, ["/bin/sh", "-c", f"{more}exec {run} {options}-n {ranks} {tmp_path}/ring {steps}"])
    case.may_refuse = lambda line: "holds unread bytes" in line
    comes_back(case, "400ms")


SCRIPTS = {"a manager": (MANAGER, "/usr/bin/python3"), "a web server": (HTTP, "/usr/bin/python3"),
           "R's workers": (R, shutil.which("Rscript"))}


@pytest.mark.parametrize("what", SCRIPTS)
def test_workers(tmp_path: Path, what: str) -> None:
    text, program = SCRIPTS[what]
    if not program:
        pytest.skip(f"what {what} needs is not installed")
    script = tmp_path / "script"
    script.write_text(text)
    case = Memory(tmp_path, [program, script])
    case.may_refuse = lambda line: what == "a manager" and "the name is gone" in line    # when it ends
    comes_back(case, "300ms")


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_a_web_server_and_its_clients(tmp_path: Path) -> None:
    """A master and two workers: it has signals sent for what they say to it (O_ASYNC)."""
    comes_back(Printing(tmp_path, ["/bin/bash", "-c", NGINX, "bash", str(20000 + os.getpid() % 10000)]), "300ms")


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_shells_in_windows(tmp_path: Path) -> None:
    """Its server is nobody's child; in one window half a line has been typed."""
    case = Memory(tmp_path, ["/bin/bash", "-c", TMUX])
    assert case.native.output.endswith(b"half a line\n"), case.native
    comes_back(case, "500ms")


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that any user can enter."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.mark.skipif(not (shutil.which("postgres") and shutil.which("pgbench")), reason="PostgreSQL is not installed")
def test_a_database_under_load(open_to_all: Path) -> None:
    """Root may not run it."""
    case = Printing(open_to_all, ["/bin/bash", "-c", POSTGRES], user="nobody" if os.geteuid() == 0 else None)
    assert case.native.output.startswith(b"bench 0\n"), case.native
    found = case.run_and_kill("300ms", 9)
    case.everywhere(found, most=3)
    case.goes_on(case.branch(found[-4], "300ms")[-1])
