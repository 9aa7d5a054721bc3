"""Servers and interpreters as they are installed go on with memory: at the first, a middle, the last of ten indexes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from comeback import Memory
from lab import wait_until

pytestmark = [pytest.mark.usefixtures("installed"), pytest.mark.slow]

PYTHON = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0
    def do_GET(self):
        Handler.count += self.path == "/count"
        text = b"%d" % Handler.count
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
NODE = """
let count = 0;
require('http').createServer((asked, answer) => {
    count += asked.url == '/count';
    answer.end(String(count));
}).listen(+process.argv[1], '127.0.0.1');
"""
NOTEBOOK = """
import sys
from jupyter_client.blocking import BlockingKernelClient
client = BlockingKernelClient(connection_file=sys.argv[1])
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout=60)
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(12):
        said = []
        try:
            client.execute_interactive(line, timeout=5, output_hook=lambda m: said.append(m["content"].get("text", "")))
            break
        except TimeoutError:
            pass                           # it had not subscribed again yet: zmq drops what nobody has asked for
    print("".join(said).strip(), flush=True)
"""
R = """
set.seed(3); table <- numeric(5000); log <- file("log", "w")
for (i in 1:2500000) {
    k <- (i * 7919) %% 4001 + 1; table[k] <- (table[k] * 31 + i) %% 1000003
    if (i %% 50000 == 0) {
        table[1:100] <- table[1:100] + rnorm(100); cat(i, table[k], "\\n"); cat(i, table[k], "\\n", file = log)
    }
}
m <- matrix(runif(40000), 200); cat(sum(solve(m) %*% m), sum(table), "\\n"); close(log)
"""
JAVA = """
public class Sums {
    public static void main(String[] words) throws Exception {
        java.util.HashMap<Integer, Long> table = new java.util.HashMap<>();
        java.io.PrintWriter lines = new java.io.PrintWriter("lines");
        long s = 1, sum = 0;
        for (int i = 0; i < 120000000; i++) {
            s = (s * 31 + i) % 1000003;
            table.put((int) (s % 5000), s);
            if (i % 2000000 == 0) { System.out.println(i + " " + s); lines.println(s); lines.flush(); }
        }
        for (long value : table.values()) sum += value;
        lines.close();
        System.out.println(sum);
    }
}
"""
SCRIPT = """
const fs = require('fs'), lines = fs.openSync('lines', 'w'), table = {};
let s = 1;
for (let i = 0; i < 60000000; i++) {
    s = (s * 31 + i) % 1000003;
    table[s % 5000] = s;
    if (i % 1000000 == 0) { console.log(i, s); fs.writeSync(lines, i + ' ' + s + '\\n'); }
}
setTimeout(() => console.log(Object.values(table).reduce((a, b) => a + b, 0)), 10);
"""


def need(program: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    return program


def three(indexes: list[int]) -> tuple[int, int, int]:
    return indexes[0], indexes[len(indexes) // 2], indexes[-1]


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found: list[int] = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


@contextmanager
def over_http(port: int) -> Iterator[Callable[[bool], int]]:
    """Asks for the count, with one more or not; keeps a connection of its own open beside."""
    def ask(more: bool) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{'count' if more else ''}", timeout=60) as answer:
            return int(answer.read())

    with closing(socket.create_connection(("127.0.0.1", port))):
        yield ask


@contextmanager
def over_redis(port: int) -> Iterator[Callable[[bool], int]]:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client:
        def ask(more: bool) -> int:
            client.send(b"INCRBY count %d\r\n" % more)
            return int(client.recv(100)[1:])

        yield ask


def answers(port: int) -> bool:
    with closing(socket.socket()) as this:
        return this.connect_ex(("127.0.0.1", port)) == 0


def await_answer(case: Memory, run: subprocess.Popen[bytes], *ports: int) -> None:
    wait_until(lambda: all(map(answers, ports)) or run.poll() is not None, f"it listens: {case.errors()}")


SERVERS = {
    "redis": (over_redis, lambda port: [need("redis-server"), "--port", str(port), "--save", "",
                                        "--appendonly", "yes"]),
    "python": (over_http, lambda port: ["/usr/bin/python3", "-c", PYTHON, str(port)]),
    "node": (over_http, lambda port: [need("node"), "-e", NODE, str(port)]),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server(tmp_path: Path, name: str) -> None:
    client, command = SERVERS[name]
    port, = free_ports(1)
    case = Memory(tmp_path, command(port), ends=False)
    run = case.start("--outside", "close")
    try:
        await_answer(case, run, port)
        with client(port) as ask:
            counts = {}
            for _ in range(10):
                count = ask(True)
                counts[saved(case)] = count
        case.kill_with(run)
        for index in three(list(counts)):
            run = case.restart_in_background(index, "--outside", "close")
            await_answer(case, run, port)
            with client(port) as ask:
                assert [ask(False), ask(True), ask(True)] == [counts[index], counts[index] + 1, counts[index] + 2]
            case.kill_with(run)
    finally:
        if run.poll() is None:
            case.kill_with(run)
    assert case.verb("verify").returncode == 0


def saved(case: Memory) -> int:
    done = case.verb("checkpoint")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_notebook(tmp_path: Path) -> None:
    """Its front end stays, loses the kernel, and finds it again."""
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import ipykernel, jupyter_client"], check=False).returncode:
        pytest.skip("ipykernel is not installed")
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    connection = tmp_path / "connection.json"
    ports = free_ports(5)
    connection.write_text(json.dumps({**dict(zip(names, ports, strict=True)), "ip": "127.0.0.1", "key": "secret",
                                      "transport": "tcp", "signature_scheme": "hmac-sha256", "kernel_name": ""}))
    case = Memory(tmp_path, [python, "-m", "ipykernel_launcher", "-f", str(connection)], ends=False)
    run = case.start("--outside", "close")
    await_answer(case, run, *ports)
    front = subprocess.Popen([python, "-c", NOTEBOOK, str(connection)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, bufsize=1)
    assert front.stdin and front.stdout

    def ask(line: str) -> str:
        front.stdin.write(line + "\n")
        return front.stdout.readline().strip()

    try:
        assert front.stdout.readline() == "ready\n", case.errors()
        ask("import random; random.seed(1); drawn = []")
        states = {}
        for _ in range(10):
            ask("drawn.append(random.random())")
            state = ask("print(drawn)")
            states[saved(case)] = state
        future = ask("print(random.random())")
        case.kill_with(run)
        for index in three(list(states)):
            run = case.restart_in_background(index, "--outside", "close")
            assert ask("print(drawn)") == states[index]
            ask("for _ in range(10 - len(drawn)): drawn.append(random.random())")
            assert ask("print(random.random())") == future
            case.kill_with(run)
    finally:
        front.kill()
        if run.poll() is None:
            case.kill_with(run)


PROGRAMS = {
    "R": lambda folder: [*r_itself(), "--vanilla", "--slave", "-e", R],
    "java": lambda folder: [need("java"), "-Xmx100m", "-cp", compiled(folder), "Sums"],
    "node": lambda folder: [need("node"), "-e", SCRIPT],
}


def r_itself() -> list[str]:
    """Without its start script, which runs several processes."""
    home = subprocess.run([need("R"), "RHOME"], capture_output=True, text=True, check=True).stdout.strip()
    return ["env", f"R_HOME={home}", f"LD_LIBRARY_PATH={home}/lib", f"{home}/bin/exec/R"]


def compiled(folder: Path) -> str:
    (folder / "Sums.java").write_text(JAVA)
    subprocess.run([need("javac"), "Sums.java"], cwd=folder, check=True)
    return str(folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(tmp_path: Path, name: str) -> None:
    case = Memory(tmp_path, PROGRAMS[name](tmp_path))
    case.may_refuse = lambda line: "several processes" in line     # while R starts it asks a shell what the system is
    for index in three(case.run_and_kill("300ms", 10, least=10)):
        case.goes_on(index)
    assert case.verb("verify").returncode == 0
