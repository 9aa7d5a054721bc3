"""Interpreters and tools as they are installed: killed, and continued from their checkpoints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from comeback import Memory

pytestmark = pytest.mark.usefixtures("installed")

PYTHON = """
from __future__ import print_function
import hashlib, os, random
random.seed(3)
data = {}
log = open("log", "w")
for i in range(200000):
    k = int(random.random() * 5000)
    data[k] = hashlib.md5(("%d %s" % (i, data.get(k))).encode()).hexdigest()
    if i % 500 == 0:
        log.write("%d %s\\n" % (i, data[k]))
        print("%d %s" % (i, data[k]))
    if i % 5000 == 0:
        with open("tmp%d" % (i // 5000 % 3), "w") as f:
            f.write(data[k] * 10)
        os.rename("tmp%d" % (i // 5000 % 3), "current")
        import decimal, fractions, json
print(hashlib.md5(repr(sorted(map(str, data.items()))).encode()).hexdigest())
"""
THREADS = """
import queue, threading, zlib
todo, done = queue.Queue(), queue.Queue()
def work():
    while (n := todo.get()) is not None:
        data = bytes(range(256)) * 400
        for _ in range(8):
            data = zlib.compress(data, 9) + str(n).encode()
        done.put((n, zlib.crc32(data)))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
with open("sums", "w") as out:
    for block in range(60):
        for n in range(20):
            todo.put(block * 20 + n)
        for n, crc in sorted(done.get() for _ in range(20)):
            out.write(f"{n} {crc}\\n")
        print("block", block, flush=True)
[todo.put(None) for _ in threads]
[t.join() for t in threads]
import subprocess
print(subprocess.run(["echo", "a child"], capture_output=True, text=True).stdout)
"""
NUMPY = """
import numpy as np
rng = np.random.default_rng(1)
a = rng.random((300, 300))
out = open("norms", "w")
for i in range(200):
    a = a @ a.T
    a /= np.linalg.norm(a)
    a[i % 300] += rng.random(300)
    out.write(f"{np.trace(a):.15e}\\n")
    if i % 20 == 0:
        print(i, float(a.sum()), flush=True)
np.save("last", a)
"""
SQL = "create table t(a, b);" + "".join(
    f"insert into t select value, value * {i} from generate_series(1, 20000);"
    f"select {i}, count(*), sum(b) from t; delete from t where a % 7 = {i % 7};" for i in range(40)
) + "select sum(a * b) from t;"
AWK = 'BEGIN { srand(2); for (i = 0; i < 3000000; i++) { k = int(rand() * 5000); t[k] = (t[k] * 31 + i) % 1000003; ' \
      'if (i % 50000 == 0) { print i, t[k]; print i, t[k] > "table" } } for (k = 0; k < 5000; k++) s += t[k]; print s }'
PERL = 'my %h; open(my $f, ">", "lines"); for my $i (0..1500000) { my $k = $i * 7919 % 4001; $h{$k} .= $i % 10; ' \
       '$h{$k} = substr($h{$k}, -50); if ($i % 25000 == 0) { print "$i $h{$k}\\n"; print $f "$i $h{$k}\\n"; } } ' \
       'print join(",", map { "$_=$h{$_}" } sort keys %h), "\\n";'
LUA = 'local t = {} local f = io.open("lines", "w") for i = 0, 15000000 do local k = i * 7919 % 4001 ' \
      't[k] = ((t[k] or 1) * 31 + i) % 1000003 ' \
      'if i % 300000 == 0 then print(i, t[k]) f:write(i, " ", t[k], "\\n") end end f:close() print(#t)'

JAVA = """
import java.io.PrintWriter;
import java.util.HashMap;
public class Sums {
    public static void main(String[] words) throws Exception {
        HashMap<Integer, Long> table = new HashMap<>();
        PrintWriter lines = new PrintWriter("lines");
        long s = 1, sum = 0;
        for (int i = 0; i < 25000000; i++) {
            s = (s * 31 + i) % 1000003;
            table.put((int) (s % 5000), s);
            if (i % 500000 == 0) {
                System.out.println(i + " " + s);
                lines.println(s);
                lines.flush();
            }
        }
        for (long value : table.values())
            sum += value;
        System.out.println(sum + " " + Thread.currentThread().getName());
    }
}
"""
NODE = """
const fs = require('fs'), lines = fs.openSync('lines', 'w'), table = {};
let s = 1;
for (let i = 0; i < 6000000; i++) {
    s = (s * 31 + i) % 1000003;
    table[s % 5000] = s;
    if (i % 100000 == 0) { console.log(i, s); fs.writeSync(lines, i + ' ' + s + '\\n'); }
}
setTimeout(() => console.log(Object.values(table).reduce((a, b) => a + b, 0)), 10);
"""


def pythons() -> list[str]:
    """Debian's, the one that runs the tests, and further ones of pyenv."""
    found = ["/usr/bin/python3", os.path.realpath(sys.executable)]
    if os.geteuid() == 0:
        found += map(str, sorted(Path("/root/.pyenv/versions").glob("*/bin/python")))
    return list(dict.fromkeys(os.path.realpath(path) for path in found if os.path.exists(path)))


@pytest.mark.in_turn("python", 2)
@pytest.mark.parametrize("python", pythons())
def test_python(tmp_path: Path, python: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PYTHON)
    case = Memory(tmp_path, [python, script])
    case.everywhere(case.run_and_kill("150ms", 4), most=2)


def test_python_with_threads(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(THREADS)
    case = Memory(tmp_path, ["/usr/bin/python3", script])
    case.everywhere(case.run_and_kill("200ms", 4), most=2)


def test_numpy(tmp_path: Path) -> None:
    """Debian's, else that of the tests."""
    able = [python for python in ("/usr/bin/python3", sys.executable)
            if subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode == 0]
    if not able:
        pytest.skip("numpy is not installed")
    script = tmp_path / "program.py"
    script.write_text(NUMPY)
    case = Memory(tmp_path, [able[0], script])
    case.everywhere(case.run_and_kill("200ms", 4), most=2)


def test_java(tmp_path: Path) -> None:
    """Its threads ask the C library about themselves after they came back."""
    if shutil.which("javac") is None or shutil.which("java") is None:
        pytest.skip("a Java development kit is not installed")
    (tmp_path / "Sums.java").write_text(JAVA)
    subprocess.run(["javac", "Sums.java"], cwd=tmp_path, check=True)
    case = Memory(tmp_path, ["java", "-Xmx100m", "-cp", str(tmp_path), "Sums"])
    case.everywhere(case.run_and_kill("300ms", 3), most=2)


TOOLS = {
    "sqlite3": (["sqlite3", ":memory:"], SQL.encode()),
    "awk": (["awk", AWK], b""),
    "perl": (["perl", "-e", PERL], b""),
    "bc": (["bc", "-lq"], b"scale=900; 4*a(1)\nscale=600; e(3)\n"
                          b"for (i = 0; i < 250; i++) { x = sqrt(i + x); print x, \"\\n\" }\n"),
    "lua": (["lua5.4", "-e", LUA], b""),
    "node": (["node", "-e", NODE], b""),
    "octave": (["octave-cli", "--no-gui", "--eval", "x = 1; for i = 1:200000; x = mod(x * 31 + i, 1000003); "
                "if mod(i, 10000) == 0; disp(x); fflush(stdout); end; end"], b""),
}


@pytest.mark.in_turn("tool", 2)
@pytest.mark.parametrize("tool", TOOLS)
def test_tools(tmp_path: Path, tool: str) -> None:
    command, stdin = TOOLS[tool]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    case = Memory(tmp_path, command, stdin)
    case.everywhere(case.run_and_kill("100ms", 3), most=2)
