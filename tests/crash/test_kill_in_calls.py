"""A process is killed between two instructions of a call, another one of the run goes on with the same files: it sees
them as before the call, as after it or on the way, and so do the checkpoints that it takes."""

from __future__ import annotations

import os
import signal
import zlib
from pathlib import Path

import pytest
from conftest import Compile
from lab import PATIENCE, Lab, gone, wait_until
from stops import Stops

import metamori
from metamori._area import lib
from metamori.runtime.area.run_area import Area

MODES = pytest.mark.parametrize("options", [[], ["--isolate"], ["--isolate", "--cache-size", "0"],
                                            ["--mode", "single"]], ids=["default", "isolate", "no cache", "single"])


def zeros(count: int) -> str:
    return f"{count} {zlib.crc32(bytes(count)):08x}"


def killed_at(lab: Lab, point: str, call: str, *options: str) -> None:
    """`f`, 20,000 bytes of which some are redirected; another process had its lock when it was killed."""
    stops, pid = Stops(lab.folder / "stops"), lab.folder / "pid"
    lab.env |= stops.env
    driver = lab.start("--exclude", "pid", *options)
    driver.must(["fill f w,creat 20000 1", "checkpoint", "open f rw", "pwrite 3 9000 11000 2"])
    stops.arm(point)
    driver.ask(f"sh {call} & echo $! > {pid}")
    stops.wait(point)
    killed = int(pid.read_text())
    os.kill(killed, signal.SIGKILL)
    (stops.folder / point).unlink(missing_ok=True)
    wait_until(lambda: gone(killed), "the killed process is gone")


def grown(lab: Lab, size: int) -> None:
    """It grows, and there is nothing but zeros; likewise in the checkpoint that is taken then, and in the end."""
    driver = lab.sessions[0]
    old = driver.ask(f"pread 3 {size} 0")
    driver.must([f"ftruncate 3 {size + 30000}"])
    assert driver.ask(f"pread 3 30000 {size}") == zeros(30000)
    index = int(driver.ask("checkpoint"))
    driver.must(["pwrite 3 100 40 5"])
    assert driver.ask(f"pread 3 30000 {size}") == zeros(30000)
    assert driver.end() == 0
    assert (lab.work / "f").read_bytes()[size:] == bytes(30000)
    if "single" not in " ".join(driver.command):
        lab.restore(index)
        assert (lab.work / "f").read_bytes()[size:] == bytes(30000)
        was = (lab.work / "f").read_bytes()[:size]
        assert old == f"{size} {zlib.crc32(was):08x}"
    lab.verb("verify")


@pytest.mark.parametrize("length", [200, 9000])
def test_killed_when_a_file_is_about_to_be_longer(lab: Lab, length: int) -> None:
    """In isolation. Its new bytes were in the buffer, and nobody had said that it has them: when it grew they were
    there."""
    killed_at(lab, "data.grows", f"printf %0{length}d 7 >> f", "--isolate")
    grown(lab, 20000)


@pytest.mark.in_turn("size")
@MODES
@pytest.mark.parametrize("size", [4500, 8192, 15000])
def test_killed_when_a_file_was_cut(lab: Lab, options: list[str], size: int) -> None:
    """The file was shorter and its table not yet: when it grew what had been cut off was there again."""
    killed_at(lab, "data.cut", f"truncate -s {size} f", *options)
    grown(lab, size)


def test_killed_when_a_block_ends_where_the_file_was_cut(lab: Lab) -> None:
    """What somebody outside of the run has appended since was zeros, for the program and at the end."""
    killed_at(lab, "table.said", "truncate -s 19000 f")
    driver = lab.sessions[0]
    with (lab.work / "f").open("ab") as file:
        file.write(b"theirs" * 500)
    assert driver.ask("pread 3 5000 19000") == f"3000 {zlib.crc32(b'theirs' * 500):08x}"
    assert driver.end() == 0
    assert (lab.work / "f").read_bytes()[19000:] == b"theirs" * 500


def test_the_lock_is_taken_over_while_flags_are_changed(lab: Lab) -> None:
    """By a call before its look for the freeze: of what it noted and what the checkpoint did, one was lost."""
    killed_at(lab, "data.cut", "truncate -s 4500 f")
    driver, stops = lab.sessions[0], Stops(lab.folder / "stops")
    area = Area(str(lab.store))
    file = next(area.pif(slot) for slot in area.pifs() if area.pif(slot).lock)
    stops.arm("data.looked")
    assert driver.process.stdin
    driver.process.stdin.write(b"pwrite 3 100 0 2\n")
    driver.process.stdin.flush()
    stops.wait("data.looked")
    with area.session_lock(PATIENCE), area.frozen():
        flags = file.flags
        stops.arm("data.locked")
        stops.go("data.looked")
        stops.wait("data.locked")
        file.flags = flags | lib.MM_INDEXED
        stops.go("data.locked")
        wait_until(lambda: file.lock == 0, "the call waits for the thaw")
    area.close()
    assert driver._line().startswith("100")
    grown(lab, 4500)


@MODES
def test_written_behind_the_end_of_a_file_that_was_cut(lab: Lab, options: list[str]) -> None:
    """Within what it had before: the next write made it no longer, and its bytes were gone at the end."""
    killed_at(lab, "data.cut", "truncate -s 4500 f", *options)
    driver = lab.sessions[0]
    driver.must(["pwrite 3 100 6000 5"])
    assert driver.ask("pread 3 1000 9000").split()[0] == "0"
    assert driver.end() == 0
    found = (lab.work / "f").read_bytes()
    assert (len(found), found[4500:6000]) == (6100, bytes(1500)) and found[6000:].strip(bytes(1))
    lab.verb("verify")


def test_killed_amid_what_is_counted(lab: Lab) -> None:
    """Room is held for what is redirected: when that was gone, blocks were taken away that nobody had counted."""
    killed_at(lab, "table.set", "dd if=/dev/zero bs=8192 seek=4 count=1 of=f conv=notrunc 2> /dev/null", "--isolate")
    driver = lab.sessions[0]
    driver.must(["ftruncate 3 0"])
    area = Area(str(lab.store))
    assert len(area.pids()) == 1           # what was set aside for the killed one's blocks is given back with it
    assert area.head.owed == 0
    area.close()
    driver.must(["pwrite 3 9000 0 5"])
    assert driver.end() == 0 and (lab.work / "f").stat().st_size == 9000
    lab.verb("verify")


def test_killed_when_a_file_is_known(lab: Lab) -> None:
    """Who had it open for reading had found it unknown, and was not told: it did not see what others wrote then."""
    (lab.work / "f").write_bytes(b"old" * 3000)
    stops = Stops(lab.folder / "stops")
    lab.env |= stops.env
    driver = lab.start("--exclude", "pid")
    driver.must(["open f r", "pread 3 9000 0"])
    stops.arm("pif.made")
    driver.ask(f"sh dd if=/dev/zero bs=9000 count=1 of=f conv=notrunc 2> /dev/null & echo $! > {lab.folder}/pid")
    stops.wait("pif.made")
    killed = int((lab.folder / "pid").read_text())
    os.kill(killed, signal.SIGKILL)
    (stops.folder / "pif.made").unlink(missing_ok=True)
    wait_until(lambda: gone(killed), "the killed process is gone")
    driver.must(["pread 3 9000 0", "checkpoint"])
    driver.ask("sh dd if=/dev/zero bs=9000 count=1 of=f conv=notrunc 2> /dev/null")
    assert driver.ask("pread 3 9000 0") == zeros(9000)
    assert driver.end() == 0 and (lab.work / "f").read_bytes() == bytes(9000)
    lab.verb("verify")


# -- at any instruction (tests/programs/stepped.c) ---------------------------------------------------------------------

CALLS = ["small", "across", "large", "blocks", "vector", "append", "append-more", "beyond", "shorter", "short-blocks",
         "longer", "sync", "close", "close-removed", "end", "dup", "open", "create", "renew", "onto", "away",
         "exchange", "link", "unlink", "punch", "map", "unmap", "read", "copy"]


def sum_of(data: bytes) -> str:
    found = 14695981039346656037
    for byte in data:
        found = (found ^ byte) * 1099511628211 & (1 << 64) - 1
    return f"{found:016x}"


def stepped(lab: Lab, program: Path, call: str, first: int, stride: int, last: int, *options: str,
            every: int = 1, timeout: float = PATIENCE * 3) -> str:
    """What it said last; each `every`th checkpoint has been looked at."""
    for name in "wn":
        (lab.work / name).mkdir()
    done = lab.run([program, call, first, stride, last], *options, timeout=timeout)
    lines = done.stdout.decode().splitlines()
    wrong = [line for line in lines if line.startswith("wrong")]
    assert (done.returncode, wrong, done.stderr) == (0, [], b""), (done.returncode, wrong[:5], done.stderr[-2000:])
    taken = {int(word[1]): word[2:] for word in (line.split() for line in lines) if word[0] == "index"}
    with metamori.open_store(str(lab.store)) as history:
        chosen = [max(taken)] if "single" in options else [*taken][::-every]
        for index in chosen:
            there = {str(path) for path in history.paths(index)}
            for name, size, found in zip(*[iter(taken[index])] * 3):
                path = str(lab.work / "w" / name)
                assert (path in there) == (size != "-1"), (index, name, size)
                if size != "-1":
                    with history.open(index, path) as file:
                        data = file.read()
                    assert (len(data), sum_of(data)) == (int(size), found), (index, name)
    looked = lab.verb("verify")
    assert looked.stderr == "", looked.stderr
    return lines[-1]


@pytest.mark.in_turn("call", 2)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_killed_at_some_instructions(lab: Lab, compiled: Compile, call: str, options: list[str]) -> None:
    print(stepped(lab, compiled("stepped"), call, 40 + len(call) * 7, 211, 2400, *options, every=3))


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("call", CALLS)
@MODES
def test_killed_at_every_instruction(lab: Lab, compiled: Compile, call: str, options: list[str]) -> None:
    print(stepped(lab, compiled("stepped"), call, 1, 3, 20000, *options, every=10, timeout=2400))


WRITERS = {"first": "dd if=/dev/zero bs=9000 count=1 2> /dev/null",
           "second": "exec python3 -c 'import os; os.write(1, bytes(10)); os.write(1, bytes(9000))'"}


@pytest.mark.parametrize("write", WRITERS)
def test_a_position_is_behind_what_a_killed_one_has_written(lab: Lab, write: str) -> None:
    """What had its description, too, wrote over that."""
    stops, pid = Stops(lab.folder / "stops"), lab.folder / "pid"
    lab.env |= stops.env
    driver = lab.start("--exclude", "pid")
    driver.must(["fill f w,creat 20000 1", "checkpoint", "open f rw", "pwrite 3 8192 0 2"])
    stops.arm("data.copied_up")            # of the second piece
    driver.ask(f"sh {WRITERS[write]} >&3 & echo $! > {pid}")
    stops.wait("data.copied_up")
    killed = int(pid.read_text())
    os.kill(killed, signal.SIGKILL)
    (stops.folder / "data.copied_up").unlink(missing_ok=True)
    wait_until(lambda: gone(killed), "the killed process is gone")
    assert driver.ask("pread 3 8192 0") == zeros(8192)
    assert driver.ask("lseek 3 0 cur") == "8192"
