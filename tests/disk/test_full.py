"""Disks that fill up: the errno is the kernel's, at the write that finds no room; the run's end always has room."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from conftest import Compile
from disks import MB, NoMount, fill, free, mounted
from lab import Lab, Session, wait_until

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "fills_disk.py"
KINDS = ["ext4", "tmpfs"]


def crc_of(path: Path) -> str:
    data = path.read_bytes()
    return f"{len(data)} {zlib.crc32(data)}"


def filling(lab: Lab, append: bool, *options: str) -> Session:
    words = [sys.executable, str(PROGRAM), "data", "append" if append else "within", "7"]
    elsewhere = lab.folder.parent / "stderr.filling"
    session = Session([*lab.argv("run", *options), "--", *words], lab.work, lab.env, elsewhere)
    lab.sessions.append(session)
    return session


def test_a_run_says_how_much_room_it_needs(small: Lab) -> None:
    """Where that is free it begins, and where half of it is nothing is harmed."""
    filler = fill(small.folder, 2 * MB)
    done = small.run(["true"])
    said = f"the store {small.store} cannot be used: No space left on device; a run needs 4 MiB there to begin"
    assert done.returncode == 125 and said in done.stderr.decode()
    filler.unlink()
    filler = fill(small.folder, 4 * MB)
    assert small.run(["sh", "-c", "echo one > f"]).returncode == 0
    small.verb("verify")


@pytest.mark.in_turn("append", "options")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("append", [False, True], ids=["within", "append"])
def test_the_end_has_room_when_others_have_filled_the_disk(small: Lab, append: bool, options: list[str]) -> None:
    data = small.work / "data"
    data.write_bytes(bytes(range(256)) * (20 * MB // 256))
    before = crc_of(data)
    session = filling(small, append, *options)
    assert session._line().startswith("full")
    filler = fill(small.folder)
    assert free(small.folder) < MB
    failed = session.ask("go on")
    seen = session._line()
    assert session.end() == 0, session.stderr()
    said = session.stderr().splitlines()
    assert failed.startswith("failed") and len(said) == 1 and "the disk is full" in said[0], (failed, said)
    assert crc_of(data) == seen
    filler.unlink()
    small.verb("verify")
    end = small.log()["head"]
    shown = small.run([*small.argv("cat"), 0, data], native=True)
    assert f"{len(shown.stdout)} {zlib.crc32(shown.stdout)}" == before
    if append and not options:             # what was appended is in place only: there is no room to save it
        assert "no file was touched" in small.restore(0, code=1).stderr
        assert crc_of(data) == seen
        return
    small.restore(0)
    assert crc_of(data) == before
    small.restore(end)
    assert crc_of(data) == seen


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_full_btrfs(tmp_path: Path, compiled: Compile, installed: None, options: list[str]) -> None:
    """It writes to a new place what has one already: the run's own mapped files too, and all died of SIGBUS."""
    if not shutil.which("mkfs.btrfs") or tuple(map(int, os.uname().release.split(".")[:2])) < (6, 16):
        pytest.skip("mkfs.btrfs is missing, or the kernel is too old")
    try:
        with mounted(tmp_path, "btrfs", 120) as disk:
            lab = Lab(disk, compiled("driver"))
            data = lab.work / "data"
            data.write_bytes(bytes(range(256)) * (20 * MB // 256))
            before = crc_of(data)
            session = filling(lab, False, *options)
            assert session._line().startswith("full")
            filler = fill(lab.folder)
            session.ask("go on")
            seen = session._line()
            assert session.end() == 0, session.stderr()
            assert crc_of(data) == seen
            filler.unlink()
            lab.verb("verify")
            lab.restore(0)
            assert crc_of(data) == before
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))


def test_a_program_whose_bytes_find_no_room_is_not_executed(small: Lab) -> None:
    """The kernel runs what is in place: that was the program as it had been before, and nobody said so."""
    program = small.work / "program"
    program.write_bytes(b"#!/bin/false\n".ljust(20 * MB, b"#"))
    program.chmod(0o755)
    full = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import disks, pathlib; " \
           f"print(disks.fill(pathlib.Path({str(small.folder)!r})))"
    (small.work / "job.sh").write_text(f"""printf '#!/bin/true\\n#' | dd of=program conv=notrunc status=none
filler=$({sys.executable} -c "{full}") || exit 9
./program
echo $?
rm "$filler"
./program && echo it is the new one
""")
    done = small.run(["sh", "job.sh"])
    assert done.stdout == b"126\nit is the new one\n", done
    assert b"is not executed: its redirected data cannot be put in place (No space left on device)" in done.stderr
    small.verb("verify")


def test_killed_on_a_full_disk(small: Lab) -> None:
    """The next verb finds the room that the dead run held."""
    data = small.work / "data"
    data.write_bytes(bytes(20 * MB))
    before = crc_of(data)
    session = filling(small, False)
    assert session._line().startswith("full")
    taken = small.verb("checkpoint", code=None).returncode == 0
    filler = fill(small.folder)
    pid = int(subprocess.run(["pgrep", "-P", str(session.process.pid)], capture_output=True, text=True,
                             check=True).stdout.split()[0])
    session.pid = pid
    session.kill_all()
    log = small.log()["checkpoints"]
    assert len(log) == 2 + taken and log[-1]["message"] == "killed"
    filler.unlink()
    small.verb("verify")
    end = crc_of(data)
    small.restore(0)
    assert crc_of(data) == before
    small.restore(log[-1]["index"])
    assert crc_of(data) == end


@pytest.mark.in_turn("write", "rule")
@pytest.mark.parametrize("rule", [["--max-bytes", "1G"], ["--keep-last", "2"]], ids=["max-bytes", "keep-last"])
@pytest.mark.parametrize("write", ["pwrite", "pwritesync"])
def test_a_run_that_may_prune_goes_on(small: Lab, write: str, rule: list[str]) -> None:
    """A file rewritten again and again with checkpoints: without pruning the disk would be full after a few."""
    session = small.start(*rule)
    (small.work / "f0").write_bytes(bytes(6 * MB))
    session.must(["open f0 rw"])
    taken = []
    for number in range(12):
        for at in range(0, 6 * MB, MB):
            answer = session.ask(f"{write} 3 {MB} {at} {number + 1}")
            assert not answer.startswith("-1"), (number, at, answer)
        taken.append((int(session.ask("checkpoint")), session.ask("tree")))
    assert session.end() == 0 and session.stderr() == ""
    there = {entry["index"] for entry in small.log()["checkpoints"]}
    kept = [index for index, _ in taken if index in there]
    assert kept and taken[-1][0] in kept and taken[0][0] not in kept
    reader = small.start(native=True)
    for index, tree in taken:
        if index in kept:
            small.restore(index)
            assert reader.ask("tree") == tree, index
    small.verb("verify")


@pytest.mark.in_turn("leave")
@pytest.mark.parametrize("leave", [4096, 400_000, 4 * MB])
def test_a_restore_inside_the_program_without_room(small: Lab, leave: int) -> None:
    """What an index knows of a file's end has to be saved before it is cut off: all goes back, or nothing. Once names
    had gone back alone, and no index that there was could be restored any more."""
    session = small.start()
    session.must(["open f0 rw,creat", "write 3 5000 1", "open gone w,creat", "close 4", "open old w,creat", "close 4"])
    first, before = int(session.ask("checkpoint")), session.ask("tree")
    session.must(["pwrite 3 100 10 2", *(f"write 3 {MB} {n}" for n in range(8)), "unlink gone", "rename old new"])
    last, then = int(session.ask("checkpoint")), session.ask("tree")
    filler = fill(small.folder.parent / "disk", leave)
    assert session.ask(f"restore {first}") == "-1 ENOSPC"
    filler.unlink()
    assert session.ask("tree") == then
    session.must(["pwrite 3 9 30 3", f"restore {first}"])
    assert session.ask("tree") == before
    session.must([f"restore {last}"])
    assert session.ask("tree") == then
    assert session.end() == 0, session.stderr()
    reader = small.start(native=True)
    for index, tree in ((first, before), (last, then)):
        small.restore(index)
        assert reader.ask("tree") == tree, index
    small.verb("verify")


@pytest.mark.in_turn("leave", "goes")
@pytest.mark.parametrize(("leave", "goes"), [(16 * MB, True), (6 * MB, False)])
def test_holes_that_a_restore_cuts_off_need_no_room(small: Lab, leave: int, goes: bool) -> None:
    """Only their data does, and once: it is held where it will be."""
    session = small.start()
    session.must(["open f0 rw,creat", "write 3 5000 1"])
    first = int(session.ask("checkpoint"))
    session.must([f"ftruncate 3 {128 * MB}", *(f"pwrite 3 {MB} {n * 12 * MB} {n}" for n in range(1, 11))])
    last, then = int(session.ask("checkpoint")), session.ask("tree")
    filler = fill(small.folder.parent / "disk", leave)
    assert session.ask(f"restore {first}") == ("0" if goes else "-1 ENOSPC")
    assert (session.ask("tree") == then) is not goes
    filler.unlink()
    assert session.end() == 0, session.stderr()
    small.restore(last)
    assert small.start(native=True).ask("tree") == then
    small.verb("verify")


@pytest.mark.in_turn("kind")
@pytest.mark.parametrize("leave", [14, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_the_end_has_room_for_what_a_restore_redirected(
    tmp_path: Path, compiled: Compile, installed: None, kind: str, leave: int
) -> None:
    """What was written over in its place is redirected after a restore: without room for the end nothing goes back."""
    try:
        with mounted(tmp_path, kind, 96) as disk:
            lab = Lab(disk, compiled("driver"))
            (lab.work / "f0").write_bytes(bytes(range(256)) * (16 * MB // 256))
            session = lab.start()
            session.must(["open f0 rw"])
            first, before = int(session.ask("checkpoint")), session.ask("tree")
            session.must(f"pwrite 3 {MB} {at} 7" for at in range(0, 16 * MB, MB))
            last, then = int(session.ask("checkpoint")), session.ask("tree")
            filler = fill(lab.folder, leave * MB)
            goes = leave == 40
            assert session.ask(f"restore {first}") == ("0" if goes else "-1 ENOSPC")
            assert session.ask("tree") == (before if goes else then)
            fill(lab.folder)
            assert (session.end(), session.stderr()) == (0, "")
            reader = lab.start(native=True)
            assert reader.ask("tree") == (before if goes else then)
            filler.unlink()
            lab.verb("verify")
            for index, tree in ((last, then), (first, before)):
                lab.restore(index)
                assert reader.ask("tree") == tree, index
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))


def test_without_leave_to_prune_nothing_is(small: Lab) -> None:
    """The same without a rule: ENOSPC as from the kernel, and every index that was taken stays good."""
    session = small.start()
    (small.work / "f0").write_bytes(bytes(6 * MB))
    session.must(["open f0 rw"])
    taken, full = [], False
    for number in range(12):
        for at in range(0, 6 * MB, MB):
            answer = session.ask(f"pwrite 3 {MB} {at} {number + 1}")
            full = full or answer == "-1 ENOSPC"
            assert full or not answer.startswith("-1"), answer
        answer = session.ask("checkpoint")
        if answer.isdigit():
            taken.append((int(answer), session.ask("tree")))
        else:
            assert answer == "-1 ENOSPC", answer
            full = True
    assert full and len(taken) > 2
    assert session.end() == 0, session.stderr()
    reader = small.start(native=True)
    for index, tree in taken[::-1]:
        small.restore(index)
        assert reader.ask("tree") == tree, index
    small.verb("verify")


def test_who_has_the_room_is_said_once(small: Lab) -> None:
    """A disk that looks as if it had room: what is redirected needs it twice until the run has ended."""
    (small.work / "data").write_bytes(bytes(24 * MB))
    words = ["dd", "if=/dev/zero", "of=data", "bs=64k", "count=384", "conv=notrunc", "status=none"]
    done = small.run(["sh", "-c", f"{' '.join(words)}; {' '.join(words)}; exit 3"], "--isolate")
    assert done.returncode == 3 and free(small.folder) > 4 * MB
    assert done.stderr.count(b"No space left on device") == 2
    said = [line for line in done.stderr.decode().splitlines() if line.startswith("metamori: ")]
    assert len(said) == 1 and "the disk is full: redirected data needs as much room again" in said[0], said


RING = """
import ctypes, os, sys
fd = os.open("old", os.O_RDWR)
print("ready", flush=True)
input()
print(ctypes.CDLL(None).syscall(425, 4, (ctypes.c_uint * 30)()) >= 0, flush=True)
sys.stdin.read()
"""


def test_a_ring_when_there_is_no_room(small: Lab, tmp_path: Path) -> None:
    """io_uring may change the file at a time of its own, and what it holds cannot be saved: that is said."""
    if ctypes.CDLL(None).syscall(425, 4, (ctypes.c_uint * 30)()) < 0:
        pytest.skip("this kernel or container forbids io_uring")
    (small.work / "old").write_bytes(b"old\n" * (2 * MB))
    session = Session([*small.argv("run"), "--", sys.executable, "-c", RING], small.work, small.env,
                      tmp_path / "stderr")
    small.sessions.append(session)
    assert session._line() == "ready"
    filler = fill(small.folder)
    assert session.ask("go on") == "True"
    filler.unlink()
    assert session.end() == 0, session.stderr()
    assert "no room to save what a file holds before io_uring may change it: this cannot be undone" in session.stderr()
    assert (small.work / "old").read_bytes() == b"old\n" * (2 * MB)


FORKS = """
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    int ends[2], others = 600;             /* the first part of the table of processes has room for 512 */
    char byte;
    if (puts("ready") < 0 || fflush(stdout) || read(0, &byte, 1) != 1 || pipe(ends))
        return 1;
    for (int i = 0; i < others; i++)
        if (fork() == 0) {
            close(ends[1]);
            return (int)read(ends[0], &byte, 1);
        }
    close(ends[1]);
    printf("%d\\n", others);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
"""


def test_a_process_for_which_there_is_no_room(small: Lab, tmp_path: Path) -> None:
    """It runs all the same."""
    (small.folder / "main.c").write_text(FORKS)
    subprocess.run(["gcc", "-o", small.work / "main", small.folder / "main.c"], check=True)
    session = Session([*small.argv("run"), "--", "./main"], small.work, small.env, tmp_path / "stderr")
    small.sessions.append(session)
    assert session._line() == "ready"
    filler = fill(small.folder)
    assert session.ask("go on") == "600"
    words = " is not tracked: the disk has no room for another process in the run\n"
    wait_until(lambda: words in session.stderr(), "a child is there, and found no room")
    filler.unlink()
    assert session.end() == 0, session.stderr()


OVERWRITES = """
import os
fd = os.open("f", os.O_RDWR)
for _ in range(21 * 16):
    os.write(fd, bytes(65536))
"""


def test_what_is_saved_ahead_and_found_no_room_takes_none(tmp_path: Path, compiled: Compile, installed: None) -> None:
    """Pre-images in steps of 1, 2, 4, 8 MiB and then 16, for which there is no room: the rest is redirected."""
    try:
        with mounted(tmp_path, "tmpfs", 34) as disk:
            lab = Lab(tmp_path, compiled("driver"))
            lab.store = disk / "store"
            (lab.work / "f").write_bytes(os.urandom(64 * MB))
            done = lab.run([sys.executable, "-c", OVERWRITES])
            assert (done.returncode, done.stderr) == (0, b"")
            lab.verb("verify")
    except NoMount as why:
        pytest.skip(str(why))


def test_a_restore_inside_the_program_without_room_for_what_was_cut_off(small: Lab) -> None:
    """No record had told yet where those bytes are: no room was asked for, and then names had gone back alone."""
    (small.work / "f0").write_bytes(bytes(range(1, 256)) * (8 * MB // 255))
    session = small.start()
    session.must(["open f0 rw", "open old w,creat", "close 4"])
    first, before = int(session.ask("checkpoint")), session.ask("tree")
    session.must(["ftruncate 3 0", "rename old new"])
    then = session.ask("tree")
    filler = fill(small.folder.parent / "disk", MB)
    records = []
    for _ in range(3):                     # what is saved is said once, whatever is tried
        assert session.ask(f"restore {first}") == "-1 ENOSPC"
        assert session.ask("tree") == then
        records.append(sorted(path.name for path in small.store.glob("checkpoints/*.undo.*")))
    assert records[0] == records[2]
    filler.unlink()
    session.must([f"restore {first}"])
    assert session.ask("tree") == before
    last, end = int(session.ask("checkpoint")), session.end()
    assert end == 0, session.stderr()
    reader = small.start(native=True)
    for index in first, last:
        small.restore(index)
        assert reader.ask("tree") == before, index
    small.verb("verify")
