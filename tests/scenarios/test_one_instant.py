"""A checkpoint is one instant of all threads and processes; big files, and how little a checkpoint costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Compile
from lab import PATIENCE, Lab, Session, wait_until


def listened(session: Session) -> int:
    """How often the second process has waited for the first: each time it is told something."""
    children = [session.process.pid]
    for _ in range(2):                     # the program, then its second process
        folder = Path(f"/proc/{children[-1]}/task/{children[-1]}")
        wait_until(lambda folder=folder: (folder / "children").read_text(), "the processes are there")
        children.append(int((folder / "children").read_text().split()[0]))
    status = Path(f"/proc/{children[-1]}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_threads_and_processes(lab: Lab, compiled: Compile, options: list[str]) -> None:
    for n in range(3):
        (lab.work / f"c{n}").write_bytes(b"0000000\n" + b"." * 5000)
    argv = [*lab.argv("run", *options), "--", str(compiled("instant"))]
    session = Session(argv, lab.work, lab.env, lab.folder / "stderr.instant")
    lab.sessions.append(session)
    assert session._line() == "counting"
    indexes = []
    for _ in range(5):
        before = listened(session)
        wait_until(lambda before=before: listened(session) > before + 50, "the run goes on")
        indexes.append(lab.checkpoint())
    assert session.end() == 0, session.stderr()
    reached = 0
    for index in indexes:
        lab.restore(index)
        for n in range(3):
            a, b = ((lab.work / f"{letter}{n}").read_bytes() for letter in "ab")
            c = int((lab.work / f"c{n}").read_bytes()[:8])
            counts = len(a) // 8, len(b) // 8, c
            assert a == b"".join(b"%07d\n" % i for i in range(1, counts[0] + 1))
            assert b == a[: len(b)]
            assert counts[0] >= counts[1] >= counts[2] >= counts[0] - 1, (index, n, counts)
        teller, told = ((lab.work / name).stat().st_size // 5 for name in ("teller", "told"))
        assert teller - 1 <= told <= teller
        assert teller > reached, "the run went on between the checkpoints"
        reached = teller


NEW_FOLDERS = """
import os
for turn in range(2):
    os.mkdir(f"new{turn}")
    for n in range(1000):                  # a checkpoint has to look through them
        os.mkdir(f"new{turn}/{n}")
    last = f"new{turn}/last"
    os.mkdir(last)
    n = 0
    open(f"{last}/file-0", "w").write("0" * 100)
    while not os.path.exists(f"enough{turn}"):
        n += 1
        file = os.open(f"{last}/temporary", os.O_CREAT | os.O_WRONLY)
        os.write(file, str(n % 10).encode() * 100)
        os.close(file)
        os.rename(f"{last}/temporary", f"{last}/file-{n}")
        os.unlink(f"{last}/file-{n - 1}")
        if n == 50:
            os.mkdir(f"ready{turn}")
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_files_come_and_go_in_a_new_folder(lab: Lab, options: list[str]) -> None:
    """What was not there at the instant is in no index: files that came since go without their bytes being kept."""
    process = subprocess.Popen([*lab.argv("run", *options), "--", sys.executable, "-c", NEW_FOLDERS], cwd=lab.work,
                               env=lab.env)
    try:
        indexes = []
        for turn in range(2):
            wait_until((lab.work / f"ready{turn}").exists, "files come and go")
            indexes.append(lab.checkpoint())
            (lab.work / f"enough{turn}").touch()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    for turn, index in enumerate(indexes):
        lab.restore(index)
        folder = lab.work / f"new{turn}" / "last"
        files = {path.name: path.read_text() for path in folder.iterdir()}
        numbers = sorted(int(name[5:]) for name in files if name != "temporary")
        assert len(numbers) == 1 or numbers == [numbers[0], numbers[0] + 1], files
        assert all(files[f"file-{n}"] == str(n % 10) * 100 for n in numbers)
        assert files.get("temporary", "") in ("", str((numbers[-1] + 1) % 10) * 100) and len(files) <= 2
    lab.verb("verify")


def test_beyond_four_gigabytes(lab: Lab) -> None:
    """Offsets beyond 32 bits, in a file that is nearly all hole."""
    far = 5_000_000_000
    program = lab.start()
    program.must(["open huge rw,creat", f"pwrite 3 9000 {far} 1"])
    before = program.ask(f"pread 3 20000 {far - 100}")
    index = int(program.ask("checkpoint"))
    program.must([f"pwrite 3 5000 {far + 2000} 2", f"pwrite 3 100 {far // 2} 3", f"ftruncate 3 {far + 5000}"])
    after = program.ask(f"pread 3 20000 {far - 100}")
    assert program.ask(f"restore {index}") == "0"
    assert program.ask(f"pread 3 20000 {far - 100}") == before
    program.must([f"pwrite 3 5000 {far + 2000} 2", f"pwrite 3 100 {far // 2} 3", f"ftruncate 3 {far + 5000}"])
    assert program.end() == 0
    assert (lab.work / "huge").stat().st_size == far + 5000
    assert (lab.work / "huge").stat().st_blocks < 2000, "holes stay holes"
    reader = lab.start(native=True)
    reader.must(["open huge r"])
    assert reader.ask(f"pread 3 20000 {far - 100}") == after
    lab.restore(index)
    reader.must(["open huge r"])
    assert reader.ask(f"pread 4 20000 {far - 100}") == before


def test_a_checkpoint_keeps_what_changed_and_no_more(lab: Lab) -> None:
    """30 MB, of which some KB change between checkpoints: the store grows by those."""
    program = lab.start()
    program.must(["open big w,creat", *["write 3 1000000 7"] * 30, "checkpoint"])
    for number in range(5):
        program.must([f"pwrite 3 10000 {number * 5_000_000} {number}", "checkpoint"])
    assert program.end() == 0
    size = sum(path.lstat().st_blocks * 512 for path in lab.store.rglob("*") if path.is_file())
    assert size < 3_000_000, f"the store has {size} bytes"
    added = [entry["bytes"] for entry in lab.log()["checkpoints"] if entry["index"] > 1]
    assert all(count < 300_000 for count in added), added


def test_log_is_what_the_reference_says(lab: Lab) -> None:
    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1", "checkpoint"])
    assert program.end() == 0
    log = json.loads(lab.verb("log", "--json").stdout)
    assert log["schema"] == 1
    for entry in log["checkpoints"]:
        assert entry.keys() >= {"index", "parent", "time", "message", "bytes", "files"}
        assert entry["time"] is None or entry["time"].endswith(("Z", "+00:00"))
    assert [entry["index"] for entry in log["checkpoints"]] == [0, 1, 2]
    assert lab.verb("log").stdout.strip()
