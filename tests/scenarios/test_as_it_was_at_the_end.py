"""What the end of a run leaves of a file that somebody outside of it has changed last: what all saw just before."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import honest
import pytest
from lab import Lab, Session

from metamori.store.format.records import Intent
from metamori.store.restore.redo import Applier

LONG = b"o" * 30_000
MODES = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])


def written(lab: Lab, options: list[str], more: list[str] | None = None) -> Session:
    """Blocks 0, 2 and 4 of an old file are redirected, and an index has them."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 4096 0 1", "pwrite 3 4096 8192 2", "pwrite 3 4096 16384 3", *(more or [])])
    program.must(["checkpoint"])
    return program


def stays(lab: Lab, program: Session, time: int | None = None) -> None:
    """At the end, and in the last index."""
    seen = program.ask("tree")
    assert program.end() == 0
    assert honest.tree_of(lab.work) == seen
    assert time is None or (lab.work / "f").stat().st_mtime_ns == time
    lab.restore(lab.log()["head"], "--to", lab.folder / "copy")
    files = [file.read_bytes() for folder in (lab.work, lab.folder / "copy/work") for file in folder.rglob("f")]
    assert files == files[:1] * 2


@pytest.mark.in_turn("length", 2)
@pytest.mark.parametrize("length", [0, 100, 4096, 5000, 9000, 20_000])
@pytest.mark.parametrize("looks", [["open f r", "read 4 30000"], ["pread 3 30000 0"], ["read 3 30000"],
                                   ["lseek 3 0 end", "pread 3 4096 0"], ["pread 3 30000 4096"]],
                         ids=["opened", "read", "at its position", "its end first", "the rest"])
@MODES
def test_a_file_is_cut_and_read(lab: Lab, options: list[str], looks: list[str], length: int) -> None:
    """Zeros were read up to its old end, and what had been redirected there."""
    program = written(lab, options)
    os.truncate(lab.work / "f", length)
    *before, last = looks
    program.must(before)
    count, start = [*map(int, last.split()[2:]), 0][:2]
    assert int(program.ask(last).split()[0]) == min(max(length - start, 0), count)
    assert program.ask("tree").split(":")[3] == f"{length}"
    stays(lab, program)


def cut(path: Path) -> None:
    os.truncate(path, 3000)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def appended_to(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"his" * 1000)


def written_to(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"his")


def chmodded(path: Path) -> None:
    path.chmod(0o740)


def dated(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 10**15))


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", [cut, emptied, appended_to, written_to, chmodded, dated], ids=lambda way: way.__name__)
@pytest.mark.parametrize("more", [[], ["ftruncate 3 50000"], ["map 3 4096 rw shared 0", "unmap 0 4096 0"], ["fsync 3"]],
                         ids=["written", "longer", "mapped", "synced"])
@pytest.mark.parametrize("after", [[], ["checkpoint"], ["chmod f 600", "checkpoint"]],
                         ids=["at once", "checkpoint", "used"])
@MODES
def test_a_file_that_the_run_does_not_write_to_any_more(lab: Lab, options: list[str], way: Callable[[Path], None],
                                                        more: list[str], after: list[str]) -> None:
    """In isolation, at the end, its time and mode were as the run had left them, and where it had been mapped what was
    appended was cut off; where some was cut off nothing came back of what the run had written to it."""
    program = written(lab, options, more)
    way(lab.work / "f")
    program.must(after)
    stays(lab, program, None if way is chmodded else (lab.work / "f").stat().st_mtime_ns)


@MODES
def test_in_a_folder_that_was_moved_twice(lab: Lab, options: list[str]) -> None:
    """At the first checkpoint it was nowhere. What the run had redirected was given up as somebody else's."""
    (lab.work / "d").mkdir()
    (lab.work / "d/f").write_bytes(LONG)
    program = lab.start(*options)
    program.must(["open d/f rw", "pwrite 3 4096 0 1", "close 3"])
    (lab.work / "d").rename(lab.folder / "away")
    program.must(["checkpoint"])
    (lab.folder / "away").rename(lab.work / "e")
    program.must(["chmod e/f 600", "checkpoint"])
    stays(lab, program)


@pytest.mark.parametrize("length,used", [(0, "open f r"), (100, "open f r"), (100, "pwrite 3 1 0 7"),
                                         (5000, "pwrite 3 1 0 7"), (9000, "pwrite 3 1 0 7")])
@MODES
def test_a_file_is_cut_and_appended_to(lab: Lab, options: list[str], length: int, used: str) -> None:
    """After the run, or a checkpoint, has seen it cut."""
    program = written(lab, options)
    os.truncate(lab.work / "f", length)
    program.must([used, "checkpoint"])
    appended_to(lab.work / "f")
    his = (lab.work / "f").read_bytes()[length:]
    stays(lab, program)
    assert (lab.work / "f").read_bytes()[length:] == his


@pytest.mark.in_turn("before", "then")
@pytest.mark.parametrize("then", [[], ["checkpoint"], ["pwrite 3 10 5100 2"], ["pwrite 3 10 4800 2"],
                                  ["open f rw,append", "write 4 100 3"], ["map 3 8192 rw shared 0"],
                                  ["ftruncate 3 5100"], ["ftruncate 3 20000"]],
                         ids=["not used", "checkpoint", "written there", "written before", "appended", "mapped", "cut",
                              "longer"])
@pytest.mark.parametrize("before", [True, False], ids=["indexed", "new"])
@MODES
def test_appended_to_in_a_redirected_block(lab: Lab, options: list[str], before: bool, then: list[str]) -> None:
    """Zeros were read there, and written over what he had appended."""
    (lab.work / "f").write_bytes(b"o" * 5000)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 10 4990 1", *["checkpoint"] * before])
    appended_to(lab.work / "f")
    his = (lab.work / "f").read_bytes()[5000:]
    program.must(then)
    stays(lab, program)
    have = (lab.work / "f").read_bytes()
    assert have[5110:8000] in (his[110:], b"")
    assert have[5000:5100] == his[:100]


@pytest.mark.parametrize("more", ["pwrite 4 10 4300 2", "ftruncate 4 4500"])
@pytest.mark.parametrize("then", ["", "pwrite 4 10 4990 4", "write 3 10 5", "ftruncate 3 5500"])
def test_appended_to_when_the_program_has_gone_back(lab: Lab, more: str, then: str) -> None:
    """Zeros were read in the redirected block, and written over what he had appended."""
    (lab.work / "f").write_bytes(b"o" * 5000)
    program = lab.start()
    program.must(["open f rw,append", "open f rw", "pwrite 4 10 4200 1", "checkpoint"])
    program.must([more, "checkpoint", "restore 1"])
    appended_to(lab.work / "f")
    his = (lab.work / "f").read_bytes()
    program.must([then] * bool(then))
    if not then:
        assert int(program.ask(f"pread 4 {len(his)} 0").split()[0]) == len(his)
    stays(lab, program)
    have = (lab.work / "f").read_bytes()
    assert have[5000:len(his)] == his[5000:len(have)]
    assert len(have) == (5500 if then.startswith("ftruncate") else len(his) + 10 * then.startswith("write"))


@pytest.mark.parametrize("again", [False, True])
@MODES
def test_the_program_goes_back_to_when_it_was_appended_to(lab: Lab, options: list[str], again: bool) -> None:
    """In isolation that was zeros in the redirected block, where nothing of the bytes had changed since."""
    (lab.work / "f").write_bytes(b"o" * 5000)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 10 4200 1"])
    appended_to(lab.work / "f")
    seen = program.ask("tree")
    program.must(["checkpoint", "chmod f 600", "checkpoint", "restore 1"])
    assert program.ask("tree") == seen
    program.must(["checkpoint", "pwrite 3 10 4300 1", "checkpoint", "restore 1"] * again)
    assert program.ask("tree") == seen
    stays(lab, program)


@pytest.mark.parametrize("change", ["hole 3 9000 100", "ftruncate 3 5000", "pwrite 3 10 4200 3; checkpoint; restore 1"])
@MODES
def test_appended_to_when_its_size_has_stayed(lab: Lab, options: list[str], change: str) -> None:
    """In isolation it counted as the run's own: what he appended then was not seen, and cut off at the end."""
    (lab.work / "f").write_bytes(b"o" * 5000)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 10 4100 1", "checkpoint", *change.split("; ")])
    appended_to(lab.work / "f")
    his = (lab.work / "f").read_bytes()[5000:]
    assert program.ask("fsize 3").split()[0] == "8000"
    program.must(["pwrite 3 10 4300 2"])
    stays(lab, program)
    assert (lab.work / "f").read_bytes()[5000:] == his


@pytest.mark.in_turn("then")
@pytest.mark.parametrize("first", [0, 4096])
@pytest.mark.parametrize("then", ["pwrite 3 10 {} 4", "ftruncate 3 {}", "checkpoint", "lseek 3 0 end"])
@MODES
def test_cut_where_no_index_knows_of_it(lab: Lab, options: list[str], then: str, first: int) -> None:
    """What the run had written behind the cut, in a redirected block, showed again when the file grew."""
    (lab.work / "f").write_bytes(b"o" * (first + 900))
    program = lab.start(*options)
    program.must(["open f rw", "open f rw,append", f"pwrite 3 10 {first + 100} 1"])
    appended_to(lab.work / "f")
    program.must([f"pwrite 3 800 {first + 1000} 2"])
    os.truncate(lab.work / "f", first + 1100)
    program.must([then.format(first + 1800)])
    if then in ("checkpoint", "lseek 3 0 end"):
        with (lab.work / "f").open("ab") as file:
            file.write(bytes(700))
    stays(lab, program)
    data = (lab.work / "f").read_bytes()
    assert first + 1800 <= len(data) <= first + 1900
    assert data[first + 1100:first + 1800] == bytes(700)


@pytest.mark.in_turn("looks", 2)
@pytest.mark.parametrize("first", [0, 4096])
@pytest.mark.parametrize("looks", ["open f r", "fsize 3", "pread 3 9000 0", "pread 3 100 5050", "read 3 9000"])
@MODES
def test_cut_where_no_index_knows_of_it_and_looked_at(lab: Lab, options: list[str], looks: str, first: int) -> None:
    """Where the program did not write then either, its own old bytes were there when somebody had appended."""
    (lab.work / "f").write_bytes(b"o" * (first + 900))
    program = lab.start(*options)
    program.must(["open f rw", f"pwrite 3 10 {first + 100} 1"])
    appended_to(lab.work / "f")
    program.must([f"pwrite 3 800 {first + 1000} 2"])
    os.truncate(lab.work / "f", first + 1100)
    program.must([looks])
    with (lab.work / "f").open("ab") as file:
        file.write(bytes(700))
    stays(lab, program)
    assert (lab.work / "f").read_bytes()[first + 1100:] == bytes(700)


@pytest.mark.in_turn("write", 2)
@pytest.mark.parametrize("write", ["pwrite 3 4096 4096 5", "pwrite 3 10 4990 5", "pwrite 3 6000 100 5",
                                   "write 3 4096 5"])
@pytest.mark.parametrize("before", [[], ["pwrite 3 10 100 1"], ["pwrite 3 9000 0 1", "checkpoint"],
                                    ["pwrite 3 9000 0 1"]], ids=["first", "elsewhere", "indexed", "over it"])
@MODES
def test_written_behind_a_cut(lab: Lab, options: list[str], before: list[str], write: str) -> None:
    """It was lost when the program looked next: where an index knew bytes nobody asked how many there are."""
    (lab.work / "f").write_bytes(LONG)
    program = lab.start(*options)
    program.must(["open f rw", *before])
    time.sleep(0.05)                       # a tick of the kernel's clock
    os.truncate(lab.work / "f", 104)
    program.must([write])
    _, _, count, *place = write.split()[:-1]
    start = int(place[0]) if place else 0
    seen = program.ask(f"pread 3 {count} {start}")
    assert program.ask("fsize 3").split()[0] == f"{start + int(count)}"
    assert program.ask(f"pread 3 {count} {start}") == seen
    stays(lab, program)
    assert (lab.work / "f").read_bytes()[104:start] == bytes(max(start - 104, 0))


@pytest.mark.parametrize("length", [8192, 5000])
@pytest.mark.parametrize("before", ["lseek 3 0 set", "pwrite 3 10 100 1"], ids=["not written to", "redirected"])
@pytest.mark.parametrize("longer", ["ftruncate 3 50000; ftruncate 3 {}", "pwrite 3 9000 {} 3; ftruncate 3 {}",
                                    "ftruncate 3 50000; checkpoint; ftruncate 3 {}",
                                    "checkpoint; ftruncate 3 50000; restore 1"])
@MODES
def test_appended_to_when_it_was_longer_for_a_while(lab: Lab, options: list[str], longer: str, before: str,
                                                    length: int) -> None:
    """In isolation that was not seen, and cut off at the end."""
    (lab.work / "f").write_bytes(b"o" * length)
    os.utime(lab.work / "f", (10**9, 10**9))
    program = lab.start(*options)
    program.must(["open f rw", before, *longer.format(*[length] * 2).split("; ")])
    assert program.ask("fsize 3").split()[0] == f"{length}"
    appended_to(lab.work / "f")
    assert program.ask("fsize 3").split()[0] == f"{length + 3000}"
    stays(lab, program)
    assert (lab.work / "f").read_bytes()[length:] == b"his" * 1000


@pytest.mark.parametrize("length", [0, 5000])
@MODES
def test_time_of_a_file_that_was_longer_for_a_while(lab: Lab, options: list[str], length: int) -> None:
    (lab.work / "f").write_bytes(b"o" * length)
    os.utime(lab.work / "f", (10**9, 10**9))
    program = lab.start(*options)
    program.must(["open f rw", "ftruncate 3 50000", f"ftruncate 3 {length}", "checkpoint"])
    stays(lab, program)
    assert (lab.work / "f").stat().st_mtime > 10**9
    assert (lab.folder / "copy/work/f").stat().st_mtime_ns == (lab.work / "f").stat().st_mtime_ns


@pytest.mark.parametrize("before", [False, True])
@MODES
def test_data_is_looked_for_in_what_was_appended(lab: Lab, options: list[str], before: bool) -> None:
    """In isolation there was none behind the end that the last checkpoint, or whoever cut the file, had left."""
    (lab.work / "f").write_bytes(b"o" * 5000)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 10 100 1", *["checkpoint"] * before])
    if not before:
        os.truncate(lab.work / "f", 4000)
        program.ask("tree")
    with (lab.work / "f").open("ab") as file:
        file.write(b"a" * 20_000)
    assert program.ask("lseek 3 9000 data") == "9000"
    assert program.ask("lseek 3 9000 hole") == f"{(lab.work / 'f').stat().st_size}"
    program.must(["hole 3 9000 100"])
    stays(lab, program)
    assert (lab.work / "f").read_bytes()[8990:9110].strip(b"a") == bytes(100)


@pytest.mark.parametrize("length", [9000, 12_000])
@MODES
def test_cut_behind_a_redirected_block(lab: Lab, options: list[str], length: int) -> None:
    """What he had appended in that block was read as zeros."""
    (lab.work / "f").write_bytes(b"o" * 5000)
    program = lab.start(*options)
    program.must(["open f rw", "pwrite 3 10 4990 1"])
    for _ in range(3):
        appended_to(lab.work / "f")
    his = (lab.work / "f").read_bytes()[5000:length]
    program.must([f"ftruncate 3 {length}"])
    stays(lab, program)
    have = (lab.work / "f").read_bytes()
    assert len(have) == length
    assert options or have[5000:] == his


APPENDING = """
import os, random, sys, time
fd, end, count = os.open("f", os.O_RDWR), os.open("f", os.O_WRONLY | os.O_APPEND), 0
print("begun", flush=True)
till = time.monotonic() + 1
while time.monotonic() < till:
    os.pwrite(fd, b"over" * 15 + b"\\n", 61 * random.randrange(40))
    count += os.write(end, b"mine" * 15 + b"\\n") == 61
print(count)
"""


def test_both_append(lab: Lab) -> None:
    """To a block of which some is redirected; until the run has ended. Some of what he appended was cut off."""
    (lab.work / "f").write_bytes((b"old." * 15 + b"\n") * 40)
    command = [*lab.argv("run"), "--", sys.executable, "-c", APPENDING]
    his = 0
    with subprocess.Popen(command, cwd=lab.work, env=lab.env, stdout=subprocess.PIPE, text=True) as program, \
            (lab.work / "f").open("ab", buffering=0) as file:
        assert program.stdout.readline() == "begun\n"
        while program.poll() is None:
            his += file.write(b"hers" * 15 + b"\n") == 61
            time.sleep(0.001)
        count = int(program.stdout.read())
    lines = (lab.work / "f").read_bytes().split(b"\n")
    assert (program.returncode, lines.count(b"mine" * 15), lines.count(b"hers" * 15)) == (0, count, his)
    assert len(lines) == 41 + count + his


@MODES
def test_appended_to_while_the_end_is_written(lab: Lab, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind what the last index knows; of an isolated run that was killed, whenever it is. A restore cut it off, and
    nobody had noticed that it was there."""
    program = written(lab, options)
    program.must(["pwrite 3 100 0 4"])
    program.kill_all()
    run = Applier.run

    def beside(it: Applier, intent: Intent) -> None:
        with (lab.work / "f").open("ab") as file:
            file.write(b"hers\n")
        run(it, intent)

    with monkeypatch.context() as patched:
        patched.setattr(Applier, "run", beside)
        assert honest.verb(lab.store, "log").code == 0
    have = (lab.work / "f").read_bytes()
    assert have.endswith(b"hers\n")
    assert honest.verb(lab.store, "restore", 1).code == 14
    assert (lab.work / "f").read_bytes() == have
    honest.verb(lab.store, "restore", 1, "--force")
    lab.restore("-2", "--to", lab.folder / "copy")
    assert next((lab.folder / "copy").rglob("f")).read_bytes() == have
