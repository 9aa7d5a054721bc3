"""Room that is held before a disk is full: for what a call makes durable, for names, and for what the cache holds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from disks import MB, fill
from lab import Lab, Session
from stops import Stops

from metamori.runtime.area.run_area import Area


@pytest.mark.in_turn("options")
@pytest.mark.parametrize(
    "options", [[], ["--isolate"], ["--isolate", "--max-bytes", "1G"]], ids=["default", "isolate", "max"]
)
def test_a_synced_write_that_finds_no_room_has_written_nothing(small: Lab, options: list[str]) -> None:
    """What makes it durable takes room too. It failed when it had written, and with leave to prune was made again."""
    (small.work / "f0").write_bytes(bytes(range(256)) * 256)
    session = small.start(*options)
    session.must(["open f0 rw,sync", "open f0 rw,sync,append", f"pwrite 3 {MB} 300 1"])
    filler, full = fill(small.folder), 0
    for turn in range(40):
        os.truncate(filler, filler.stat().st_size - 4096 * (turn % 13 + 1))
        lines = f"pwrite 3 5000 {turn * 7000} {turn}", f"write 4 {turn * 700 + 50} {turn}", f"write 3 9000 {turn}"
        for line in lines * 3:
            before = session.do(["tree", "lseek 3 0 cur"])
            answer = session.ask(line)
            assert answer.isdigit() or answer == "-1 ENOSPC", (line, answer)
            if answer == "-1 ENOSPC":
                full += 1
                assert session.do(["tree", "lseek 3 0 cur"]) == before, (turn, line)
    filler.unlink()
    assert full
    before = session.ask("tree")
    assert session.end() == 0, session.stderr()
    assert small.start(native=True).ask("tree") == before
    small.verb("verify")


SYNCED = """
import ctypes, errno, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.pwrite.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long
MB, HIGH = 1 << 20, (1 << 63) - 1
def said(fd, at, size, place):
    done = libc.pwrite(fd, at, size, place)
    return done, errno.errorcode[ctypes.get_errno()] if done < 0 else ""
data, mapped = (os.open(name, os.O_RDWR | os.O_SYNC) for name in ("data", "mapped"))
shown = mmap.mmap(mapped, 16384)
memory = ctypes.create_string_buffer(MB)
here = ctypes.addressof(memory)
print("ready", flush=True)
if input() == "full":
    for size in MB, 4096:
        while said(data, here, size, os.lseek(data, 0, 1))[0] == size and os.lseek(data, size, 1) < 20 * MB:
            pass
for write in (data, here, 0, 0), (data, 8, 4096, 0), (data, 8, 100, 0), (data, 8, MB, 4096), \
        (data, here, 4096, HIGH - 99), (mapped, here, 100, 0), (mapped, here, 16384, 0):
    print(write[0] - data, *write[2:], *said(*write), flush=True)
"""


def test_what_needs_no_room_is_as_natively_on_a_full_disk(small: Lab, tmp_path: Path) -> None:
    """A synced write of nothing, of what is no memory, to no place, or to a mapped file asks for none."""
    answers = []
    for full in (False, True):
        (small.work / "data").write_bytes(bytes(24 * MB))
        (small.work / "mapped").write_bytes(bytes(16384))
        words = [sys.executable, "-c", SYNCED]
        words = [*small.argv("run"), "--", *words] if full else words
        session = Session(words, small.work, small.env, tmp_path / "stderr")
        small.sessions.append(session)
        assert session._line() == "ready"
        filler = fill(small.folder) if full else None
        answers.append([session.ask("full" if full else "go on"), *(session._line() for _ in range(6))])
        assert session.end() == 0, session.stderr()
        if filler:
            filler.unlink()
    assert answers[0] == answers[1]
    small.verb("verify")


NAMES = """
import errno, os, sys
print("ready", flush=True)
for line in sys.stdin:
    try:
        if line == "missing\\n":
            os.unlink("missing")
        for n in range(4000) if line == "make\\n" else []:
            os.symlink("x", f"{n:06d}" + "n" * 150)
        print("made", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
sys.exit(3)
"""


def test_the_end_has_room_for_names(small: Lab, tmp_path: Path) -> None:
    """Held was what files need, for names nothing: the command's status was lost, and the run called killed."""
    words = [*small.argv("run"), "--", sys.executable, "-c", NAMES]
    session = Session(words, small.work, small.env, tmp_path / "stderr")
    small.sessions.append(session)
    assert session._line() == "ready" and session.ask("make") == "made"
    filler = fill(small.folder)
    assert session.ask("missing") == "ENOENT"
    assert (session.end(), session.stderr()) == (3, "")
    filler.unlink()
    assert small.log()["checkpoints"][-1]["message"] == "end of run, status 3"
    small.verb("verify")
    assert len(os.listdir(small.work)) == 4000
    small.restore(0)
    assert os.listdir(small.work) == []


@pytest.mark.in_turn("options")
@pytest.mark.parametrize("options", [[], ["--max-bytes", "1G"]], ids=["default", "max-bytes"])
def test_the_end_has_room_for_the_cache(small: Lab, options: list[str]) -> None:
    """Bytes that lie in memory go to the disk buffer at the end: nothing was held for that. A prune that freed
    nothing gave away what was."""
    session = small.start(*options)
    files = range(40)
    for n in files:
        (small.work / f"f{n}").write_bytes(bytes(range(256)) * 512)
    session.must(f"open f{n} rw" for n in files)
    session.must(f"pwrite {n + 3} 100 {at * 4096 + 50} {n}" for n in files for at in range(12))
    filler = fill(small.folder)
    if options:
        assert session.ask(f"pwrite 3 {MB} {16 * MB} 7") == "-1 ENOSPC"
    before = session.ask("tree")
    fill(small.folder)
    assert session.end() == 0 and "end" not in session.stderr(), session.stderr()
    assert small.log()["checkpoints"][-1]["message"] == "end of run"
    assert small.start(native=True).ask("tree") == before
    filler.unlink()
    small.verb("verify")


MOVES = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long
data = os.open("data", os.O_RDWR)
before = os.pread(data, 64 << 20, 0)
low, high = 64 << 10, 80 << 10
print("ready", flush=True)
for mode, after in (8, before[:low] + before[high:]), (32, before[:low] + bytes(high - low) + before[low:]):
    input()
    error = libc.fallocate(data, mode, low, high - low) and ctypes.get_errno()
    there = os.pread(data, 64 << 20, 0)
    print(errno.errorcode.get(error, ""), there == before, there == after, flush=True)
"""


@pytest.mark.in_turn("leave")
@pytest.mark.parametrize("leave", [0, 5 * MB, 13 * MB])
def test_a_range_is_taken_out_or_put_in_or_nothing_is(small: Lab, tmp_path: Path, leave: int) -> None:
    """In isolation all that is behind it gets new places: where the disk had room for a part, half of it had moved."""
    (small.work / "data").write_bytes(b"".join(b"%8d" % at * 512 for at in range(2048)))
    words = [*small.argv("run", "--isolate"), "--", sys.executable, "-c", MOVES]
    session = Session(words, small.work, small.env, tmp_path / "stderr")
    small.sessions.append(session)
    assert session._line() == "ready"
    filler = fill(small.folder, leave)
    answers = [session.ask("take out"), session.ask("put in")]
    assert answers[0] == answers[1] and answers[0] in ("ENOSPC True False", "ENOTSUP True False")
    filler.unlink()
    assert session.end() == 0, session.stderr()
    small.verb("verify")


def test_two_that_look_for_room_at_once_do_not_find_the_same(small: Lab, tmp_path: Path) -> None:
    """Each found what was held to be enough for its own blocks, before the other's counted."""
    stops = Stops(tmp_path / "stops")
    small.env |= stops.env
    for name in "fg":
        (small.work / name).write_bytes(bytes(4 * MB))
    session = small.start("--isolate")
    session.must(["thread 0", "open f rw", "open g rw"])
    stops.arm("data.copied_up")
    session.ask(f"begin 0 pwrite 3 {MB} 0 1")
    stops.wait("data.copied_up")
    session.must([f"pwrite 4 {MB} 0 2"])
    area = Area(str(small.store))
    assert area.head.room >= area.head.owed >= 2 * MB // 4096
    stops.go("data.copied_up")
    assert not session.ask("await 0").startswith("-1")
    assert area.head.room >= area.head.owed == 2 * MB // 4096
    area.close()
    assert session.end() == 0, session.stderr()
