"""Output on a full device, or closed, no room for temporary files, a folder that is gone: a sentence and its code."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from lab import Lab

import metamori

READS = {"log": [], "status": [], "verify": [], "report": ["timeline"], "show": [1], "diff": [0, 1], "cat": [1, "f"],
         "doctor": []}


@pytest.mark.parametrize("words", [*([verb, *map(str, READS[verb])] for verb in READS), ["--help"], ["--version"],
                                   ["run", "--help"], ["cat", "--help"]], ids="-".join)
def test_full(lab: Lab, words: list[str]) -> None:
    lab.run(["sh", "-c", "echo one > f"])
    argv = [*lab.argv("log")[:3], *words] if words[-1].startswith("--") else lab.argv(*words)
    with Path("/dev/full").open("w") as full:
        for env in ({"PYTHONUNBUFFERED": "1"}, {}):    # what is printed fails at once, or at the end
            rest = {name: lab.env[name] for name in lab.env if name != "PYTHONUNBUFFERED"} | {"TMPDIR": "/dev/full"}
            done = subprocess.run(argv, cwd=lab.work, env=rest | env, stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=120, check=False)
            code = 125 if words[0] == "run" else 1
            assert (done.returncode, done.stderr) == (code, "metamori: No space left on device\n"), env


def said_to(lab: Lab, to: str, verb: str, *words: object) -> subprocess.CompletedProcess[str]:
    """to: where a shell has standard streams of a verb lead."""
    argv = ["sh", "-c", f'exec "$@" {to}', "sh", *lab.argv(verb, *words)]
    return subprocess.run(argv, cwd=lab.work, env=lab.env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("to", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("verb", "code"), [("log", 10), ("undo", 10), ("run", 125)])
def test_a_sentence_that_nobody_reads_has_its_code(lab: Lab, verb: str, code: int, to: str) -> None:
    assert said_to(lab, to, verb).returncode == code


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_has_the_number_of_no_file(lab: Lab, closed: str) -> None:
    """What was said went into the store's lock, which says where the store belongs: it was taken for a copy."""
    lab.run(["sh", "-c", "echo one > f"])
    before = (lab.store / "lock").read_bytes()
    done = said_to(lab, closed, "run", "--", "sh", "-c", "[ -e /proc/$$/fd/2 ] || echo closed > f; kill -9 $$")
    assert (done.returncode, done.stdout + done.stderr) == (137, "")
    assert (lab.store / "lock").read_bytes() == before and (lab.work / "f").read_text() == "closed\n"


@pytest.mark.parametrize("verb", [*READS, "restore", "run"])
def test_the_folder_is_gone(lab: Lab, verb: str) -> None:
    lab.run(["sh", "-c", "echo one > f"])
    words = {"restore": ["0"], "run": ["--", "true"]}.get(verb, READS.get(verb, []))
    line = f"mkdir gone; cd gone; rmdir ../gone; exec {' '.join(lab.argv('x')[:3])} {verb} {' '.join(map(str, words))}"
    env = {name: value for name, value in lab.env.items() if name != "METAMORI_STORE"}
    done = subprocess.run(["sh", "-c", line], cwd=lab.work, env=env, capture_output=True, text=True, timeout=120,
                          check=False)
    said = "metamori: the folder that you are in was removed; change to another one\n"
    assert (done.returncode, done.stdout, done.stderr) == (125 if verb == "run" else 1, "", said)


def test_sizes_agree(lab: Lab) -> None:
    """What the checkpoints added, what the end of the run saved before it wrote back, and what was removed, is what the
    report shows, and what du counts. Sparse files take what their blocks do."""
    data = lab.work / "data"
    data.write_bytes(os.urandom(3 << 20))
    program = lab.folder / "program.py"
    program.write_text("""
import os, subprocess, sys
for number in range(3):
    fd = os.open("data", os.O_RDWR)
    os.pwrite(fd, os.urandom(1 << 20), number << 20)
    os.close(fd)
    with open(f"sparse{number}", "wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 29)
        file.write(b"x")
    if number:
        os.remove(f"sparse{number - 1}")           # kept by a link
    subprocess.run([*sys.argv[1:], "checkpoint"], check=True, stdout=subprocess.DEVNULL)
""")
    lab.run(["python3", program, *lab.argv("x")[:3]])
    log = lab.log()["checkpoints"]
    printed = lab.verb("log").stdout
    space = lab.run([*lab.argv("report"), "space"], native=True).stdout.decode()
    taken = int(subprocess.run(["du", "-sk", str(lab.store)], capture_output=True, text=True,
                               check=True).stdout.split()[0])
    added = sum(entry["bytes"] for entry in log)
    assert 6 << 20 <= added < (6 << 20) + 100_000 and abs(added - taken * 1024) < 300_000
    assert printed.count("1 MiB") >= 2 and "6.01 MiB of old and redirected data" in space
    with metamori.open_store(lab.store) as store:
        assert [each.bytes for each in store] == [entry["bytes"] for entry in log]
    for entry in log[1:]:
        assert json.loads(lab.verb("show", "--json", entry["index"]).stdout)["bytes"] == entry["bytes"]
    shown = re.search(r"the store takes ([0-9.]+) MiB on disk", space)
    assert shown and abs(float(shown[1]) - taken / 1024) < 0.05    # du counts the folders too
    lab.verb("prune", "--keep-last", 1)
    assert "on disk" in lab.run([*lab.argv("report"), "space"], native=True).stdout.decode()
