"""Files without a name, of which the store can only have a copy: what others do beside whoever has them open.

The store is on another filesystem. Such a file's number is another's as soon as the last descriptor goes, also that of
a process that was killed; and its bytes are where only that descriptor leads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from lab import Lab, Session

from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint.session import Session as LiveRun
from metamori.store.read.reader import Reader
from metamori.store.read.store import Store
from metamori.tables.view import BUFFER


def number(answer: str) -> int:
    return int(answer.split()[0])


def taken_over(lab: Lab, driver: Session) -> Path:
    """A new file, of somebody outside of the run, with the number of one that a killed process of the run had open."""
    for attempt in range(200):
        driver.must(["twin 0"])
        fd = number(driver.ask("in 0 open f rw,creat"))
        driver.must([f"in 0 pwrite {fd} 8192 0 1"])
        before = (lab.work / "f").stat().st_ino
        driver.must(["in 0 unlink f", "killtwin 0"])
        new = lab.work / f"x{attempt}"
        new.write_bytes(b"another one")
        if new.stat().st_ino == before:
            return new
    pytest.skip("this filesystem gives no number again soon")


@pytest.mark.parametrize("scope", [[], ["--exclude", "x*"]], ids=["tracked", "untracked"])
def test_number_of_a_file_that_a_killed_process_had_open(elsewhere: Lab, scope: list[str]) -> None:
    """What was written to the new file went into the buffer of the other one, and nowhere else."""
    driver = elsewhere.start("--isolate", *scope)
    new = taken_over(elsewhere, driver)
    crc = f"{zlib.crc32(b'another one'):08x}"
    assert driver.ask(f"size {new.name}").split()[0] == "11"
    reader = number(driver.ask(f"open {new.name} r"))
    driver.must(["fill g w,creat 10 1"])                     # a file more is tracked: descriptors are looked up again
    assert driver.ask(f"pread {reader} 100 0") == f"11 {crc}"
    fd = number(driver.ask(f"open {new.name} rw"))
    driver.must(["fill h w,creat 10 1", f"pwrite {fd} 4096 4096 3"])
    assert driver.ask(f"pread {reader} 11 0") == f"11 {crc}"
    assert driver.ask(f"size {new.name}").split()[0] == "8192"
    seen = driver.ask(f"pread {reader} 10000 0").split()[1]
    assert driver.end() == 0
    assert f"{zlib.crc32(new.read_bytes()):08x}" == seen


def test_renamed_and_recorded_with_such_a_number(elsewhere: Lab) -> None:
    """No call of the run has opened it: an index took it for the file that is gone."""
    driver = elsewhere.start("--isolate")
    new = taken_over(elsewhere, driver)
    driver.must([f"rename {new.name} y"])
    index = number(driver.ask("checkpoint"))
    driver.must(["fill y w,trunc 5000 2", "chmod y 600"])
    assert driver.end() == 0
    elsewhere.restore(index)
    assert (elsewhere.work / "y").read_bytes() == b"another one"
    elsewhere.verb("verify")


def test_index_of_a_file_whose_number_is_given_again(elsewhere: Lab) -> None:
    """One that was there before the run: no index but 0 has it, which finds it by that number."""
    was = bytes(range(256)) * 64
    driver = elsewhere.start("--isolate")
    for attempt in range(50):
        (elsewhere.work / "old").write_bytes(was)
        number_was = (elsewhere.work / "old").stat().st_ino
        driver.must(["twin 0", "in 0 open old rw", "in 0 pwrite 3 100 0 1", "unlink old", "killtwin 0"])
        driver.must([f"fill x{attempt} w,creat 10 1"])
        if (elsewhere.work / f"x{attempt}").stat().st_ino == number_was:
            break
    else:
        pytest.skip("this filesystem gives no number again soon")
    assert driver.end() == 0
    elsewhere.restore(0, "--to", elsewhere.folder / "copy")
    assert [path.read_bytes() for path in (elsewhere.folder / "copy").rglob("old")] == [was]


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_read_beside_a_run_when_its_number_is_given_again(elsewhere: Lab, options: list[str]) -> None:
    """By its path a new file was read, which has its number, and nobody said so."""
    was = bytes(range(256)) * 64
    (elsewhere.work / "f").write_bytes(was)
    driver = elsewhere.start(*options)
    driver.must(["open f rw", "pwrite 3 100 0 1", "close 3", "checkpoint"])
    before = (elsewhere.work / "f").stat().st_ino
    for attempt in range(50):
        driver.must(["unlink f" if not attempt else f"rename f x{attempt}", "fill f w,creat 16384 2"])
        if (elsewhere.work / "f").stat().st_ino == before:
            break
    else:
        pytest.skip("this filesystem gives no number again soon")
    elsewhere.restore(0, "--to", elsewhere.folder / "early", code=11)
    driver.must(["checkpoint"])
    elsewhere.restore(0, "--to", elsewhere.folder / "copy")
    assert [path.read_bytes() for path in (elsewhere.folder / "copy").rglob("f")] == [was]
    assert driver.end() == 0


def test_a_look_that_began_before_the_run_ended(elsewhere: Lab) -> None:
    """What it knows is older than what there is: the file was taken for missing."""
    (elsewhere.work / "f").write_bytes(b"old" * 3000)
    driver = elsewhere.start()
    driver.must(["open f rw", "pwrite 3 10 0 1", "close 3", "checkpoint"])
    with Store.open(str(elsewhere.store)) as store:
        entry = store.state(1).names[bytes(elsewhere.work / "f")]
        assert store.head.index == 0
        driver.must(["unlink f"])
        assert driver.end() == 0
        with Reader(store, 1, entry.inode) as reader:
            assert reader.read(5000) == (b"old" * 3000)[5000:]


HANDS_IT_OVER = """
import os, socket, sys
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 20000, 0)
os.unlink("f")
os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [fd])
print("ready", flush=True)
sys.stdin.readline()
os.closerange(3, 2000)
print("closed", flush=True)
sys.stdin.readline()
"""


def test_closed_while_a_checkpoint_is_written(elsewhere: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are in place, as whoever else got the descriptor sees them, and those of the instant."""
    lab, write = elsewhere, LiveRun._write
    with subprocess.Popen(lab.argv("run", "--isolate", "--", sys.executable, "-c", HANDS_IT_OVER), cwd=lab.work,
                          env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout and program.stdout.readline() == "ready\n"

        def beside(self: LiveRun, *words: object, **more: object) -> None:
            print(file=program.stdin, flush=True)
            assert program.stdout and program.stdout.readline() == "closed\n"
            write(self, *words, **more)        # type: ignore[arg-type]

        monkeypatch.setattr(LiveRun, "_write", beside)
        store, area = Store.open(str(lab.store)), Area(str(lab.store))
        index = LiveRun(store, area).checkpoint()
        area.close()
        print(file=program.stdin, flush=True)
    [piece] = store.state(index).pieces(1)
    store.close()
    assert program.returncode == 0 and (piece.start, piece.end, piece.kind) == (0, 20000, BUFFER)
    with open(lab.store / "buffer" / f"{piece.run}", "rb") as buffer:
        assert os.pread(buffer.fileno(), 20000, piece.offset) == b"x" * 20000
    lab.verb("verify")


THREE_NAMES = """
import metamori, os, sys
with open("a", "wb") as file:
    file.write(b"old" * 9000)
os.link("a", "b"); os.link("a", "c")
metamori.checkpoint()
fd = os.open("a", os.O_RDWR)
os.unlink("a")
os.pwrite(fd, b"new", 30000)
metamori.checkpoint()
os.fchmod(fd, os.fstat(fd).st_mode & 0o7777)
print("ready", flush=True)
sys.stdin.readline()
os.setxattr("b", "user.late", b"1")
print("set", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_attributes_that_come_while_a_checkpoint_is_written(elsewhere: Lab, monkeypatch: pytest.MonkeyPatch,
                                                            options: list[str]) -> None:
    """They are of the next one, by each of the file's names."""
    lab, write = elsewhere, LiveRun._write
    with subprocess.Popen(lab.argv("run", *options, "--", sys.executable, "-c", THREE_NAMES), cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout and program.stdout.readline() == "ready\n"

        def beside(self: LiveRun, *words: object, **more: object) -> None:
            print(file=program.stdin, flush=True)
            assert program.stdout and program.stdout.readline() == "set\n"
            write(self, *words, **more)        # type: ignore[arg-type]

        monkeypatch.setattr(LiveRun, "_write", beside)
        store, area = Store.open(str(lab.store)), Area(str(lab.store))
        index = LiveRun(store, area).checkpoint()
        area.close()
        store.close()
        print(file=program.stdin, flush=True)
    assert program.returncode == 0
    for at, want in ((index, []), (index + 1, ["user.late"]), (index, [])):
        lab.restore(at)
        assert [os.listxattr(lab.work / name) for name in "bc"] == [want, want], at


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_name_as_long_as_can_be(elsewhere: Lab, options: list[str]) -> None:
    """No copy could be made beside it, under a longer name: each command failed from then on."""
    long = "n" * 255
    (elsewhere.work / long).write_bytes(b"old" * 3000)
    os.link(elsewhere.work / long, elsewhere.work / ("o" * 242))
    before = elsewhere.state()
    driver = elsewhere.start(*options)
    driver.must([f"unlink {long}", f"unlink {'o' * 242}", "checkpoint"])
    assert driver.end() == 0
    for index, want in ((0, before), (1, {}), (0, before)):
        elsewhere.restore(index)
        elsewhere.assert_state(want, f"index {index}")
