"""Calls beside calls, in the order that once lost bytes: a thread is held in the window while another goes first.

The points are in the checked build only (tests/stops.py); each test here failed before the window was closed.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
import zlib
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, Session
from stops import Stops

from metamori.runtime.area.run_area import Area
from metamori.store.io.os_io import Door

ISOLATED = [["--isolate", "--cache-size", "0"], ["--mode", "single"]]
ALL = [[], *ISOLATED]


def named(words: list[str]) -> str:
    return " ".join(words) or "default"


@pytest.fixture
def stops(lab: Lab, tmp_path: Path) -> Stops:
    """Stop points of every program that the laboratory starts from here on."""
    stops = Stops(tmp_path / "stops")
    lab.env |= stops.env
    return stops


def number(answer: str) -> int:
    return int(answer.split()[0])


def contents(driver: Session) -> dict[str, str]:
    """The files as the program sees them."""
    found = {}
    for name in "fg":
        fd = driver.ask(f"open {name} r")
        if not fd.startswith("-1"):
            found[name] = driver.ask(f"pread {fd} 250000 0").split()[1]
            driver.ask(f"close {fd}")
    return found


def restored(lab: Lab, index: int) -> dict[str, str]:
    """The files as an index has them."""
    lab.restore(index, "--to", lab.folder / "copy")
    return {path.name: f"{zlib.crc32(path.read_bytes()):08x}" for path in (lab.folder / "copy").rglob("?")}


def begun(lab: Lab, *options: str, threads: int = 1) -> Session:
    """The driver with threads, and `f` redirected: written, checkpointed, written over."""
    driver = lab.start(*options)
    driver.must([f"thread {n}" for n in range(threads)])
    driver.must(["fill f w,creat 196608 1", "checkpoint"])
    return driver


@pytest.mark.parametrize("options", [["--isolate"], ["--mode", "single"]], ids=named)
def test_a_frame_becomes_free_within_a_write(lab: Lab, stops: Stops, options: list[str]) -> None:
    """A block that is written in part is copied up first: to the disk buffer where all frames are taken. The frame
    that the part itself got showed zeros around it, to every reader."""
    driver = begun(lab, *options, "--cache-size", "65536")
    driver.must([f"fill n{n} w,creat 16 1" for n in range(1030)])   # a frame each, of 1,024
    for name in "hijklm":                              # those that are left, too; f has none
        if name == "k":
            driver.must([f"close {number(driver.ask('open f rw'))}"])
        driver.must([f"pwrite {number(driver.ask(f'open {name} rw,creat'))} 16 0 1"])
    fd, other = number(driver.ask("open f rw")), number(driver.ask("open n0 rw"))
    before = driver.ask(f"pread {fd} 4080 4112")
    stops.arm("data.copied_up")
    driver.ask(f"begin 0 pwrite {fd} 16 4096 3")
    stops.wait("data.copied_up")
    driver.must([f"close {other}"])                    # the last one of its file: its frame is given back
    stops.go("data.copied_up")
    assert number(driver.ask("await 0")) == 16
    assert driver.ask(f"pread {fd} 4080 4112") == before
    driver.must(["checkpoint"])
    now = contents(driver)["f"]
    assert driver.end() == 0
    assert now == restored(lab, 2 if "--isolate" in options else 3)["f"]


@pytest.mark.parametrize("options", ISOLATED, ids=named)
@pytest.mark.parametrize("point", ["home.copied", "home.shown", "home.cleared"])
def test_read_while_the_file_is_settled(lab: Lab, stops: Stops, options: list[str], point: str) -> None:
    """Who reads without the lock finds every byte, wherever it is just then."""
    driver = begun(lab, *options)
    fd = number(driver.ask("open f rw"))
    driver.must([f"pwrite {fd} 49152 94208 2", f"pwrite {fd} 8192 196608 3"])
    before = driver.ask(f"pread {fd} 65536 65536")
    stops.arm(point)
    driver.ask(f"begin 0 map {fd} 204800 rw shared 0")
    stops.wait(point)
    meanwhile = driver.ask(f"pread {fd} 65536 65536")   # whole blocks that lie in no frame: without the lock
    stops.go(point)
    assert number(driver.ask("await 0")) == 0
    assert meanwhile == before == driver.ask(f"pread {fd} 65536 65536")
    assert driver.end() == 0


@pytest.mark.parametrize("options", ISOLATED, ids=named)
def test_time_set_while_the_file_is_settled(lab: Lab, stops: Stops, options: list[str]) -> None:
    """Who writes the bytes back leaves the time that the program has set meanwhile."""
    driver = begun(lab, *options, threads=2)
    fd = number(driver.ask("open f rw"))
    driver.must([f"pwrite {fd} 49152 94208 2"])
    stops.arm("home.times")
    driver.ask(f"begin 0 map {fd} 196608 rw shared 0")
    stops.wait("home.times")
    driver.ask("begin 1 touch f 1000000000")
    time.sleep(0.3)                    # it is done, or waits: nothing tells
    stops.go("home.times")
    assert number(driver.ask("await 0")) == 0
    assert driver.ask("await 1") == "0"
    assert driver.ask("mtime f") == "1000000000000000000"
    assert driver.end() == 0


@pytest.mark.parametrize("options", ALL, ids=named)
def test_the_file_is_renamed_while_its_path_is_looked_up(lab: Lab, stops: Stops, options: list[str]) -> None:
    """A time that a call sets is that of the file which has the name then; it was taken for the renamed one's."""
    driver = begun(lab, *options)
    driver.must(["fill g w,creat 65536 1", "checkpoint"])
    for name in "fg":
        driver.must([f"fill {name} w 8192 2"])
    stops.arm("paths.found")
    driver.ask("begin 0 touch f 1000000000")
    stops.wait("paths.found")
    driver.must(["rename f h", "rename g f"])
    stops.go("paths.found")
    assert driver.ask("await 0") == "0"
    assert driver.ask("mtime f") == "1000000000000000000"
    assert driver.ask("mtime h") != "1000000000000000000"
    assert driver.end() == 0


@pytest.mark.parametrize("first", ["copied", "truncated"])
@pytest.mark.parametrize("options", ALL, ids=named)
def test_truncated_by_another_name_while_one_goes(
    lab: Lab, stops: Stops, tmp_path: Path, options: list[str], first: str
) -> None:  # fmt: skip
    """The store takes a copy of it: the size that the file has then counts, and the one that it gets later."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if Path(folder).stat().st_dev == lab.work.stat().st_dev:
            pytest.skip("both are on one filesystem")
        lab.store = Path(folder, "store")
        lab.work.joinpath("f").write_bytes(bytes(10000))
        os.link(lab.work / "f", lab.work / "h")
        driver = lab.start(*options)
        driver.must(["thread 0", "thread 1", "checkpoint"])
        if first == "truncated":
            stops.arm("keep.copies")
            driver.ask("begin 0 unlink f")
            stops.wait("keep.copies")
            driver.ask("begin 1 truncate h 12000")
            time.sleep(0.3)            # it is done, or waits: nothing tells
            stops.go("keep.copies")
            assert [driver.ask("await 0"), driver.ask("await 1")] == ["0", "0"]
        else:
            driver.must(["unlink f", "truncate h 12000"])
        driver.must(["checkpoint"])
        assert driver.ask("size h").split()[0] == "12000"
        fd = number(driver.ask("open h rw"))
        assert driver.ask("size h").split()[0] == "12000"
        driver.must([f"pwrite {fd} 10 11000 2", "checkpoint"])
        assert driver.end() == 0
        assert lab.work.joinpath("h").stat().st_size == 12000


@pytest.mark.parametrize("options", ALL, ids=named)
def test_a_new_file_has_the_number_and_birth_of_one_that_is_gone(lab: Lab, stops: Stops, options: list[str]) -> None:
    """Born in the same tick of the clock (played: the run area says so), it is a file of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if Path(folder).stat().st_dev == lab.work.stat().st_dev:
            pytest.skip("both are on one filesystem")
        lab.store = Path(folder, "store")
        driver = lab.start(*options)
        fd = number(driver.ask("open f rw,creat"))
        driver.must(["thread 0", f"pwrite {fd} 5000 0 1", "checkpoint"])
        before = lab.work.joinpath("f").stat()
        driver.must(["unlink f", f"close {fd}"])
        stops.arm("opened.looks")
        driver.ask("begin 0 open g rw,creat")
        stops.wait("opened.looks")
        area, new = Area(str(lab.store)), lab.work.joinpath("g").stat()
        gone = next(slot for slot in range(1, area.head.pif_count + 1) if area.pif(slot).ino == before.st_ino)
        area.identify(gone, new.st_dev, new.st_ino, Door().birth_ns(os.fsencode(lab.work / "g")))
        stops.go("opened.looks")
        fd = number(driver.ask("await 0"))
        driver.must([f"pwrite {fd} 7000 0 2", "checkpoint", f"pwrite {fd} 100 50 3"])
        sees = contents(driver)
        assert driver.end() == 0
    assert sees == {"g": f"{zlib.crc32(lab.work.joinpath('g').read_bytes()):08x}"}


@pytest.mark.parametrize("blocked", ["loop", "shut"])
@pytest.mark.parametrize("options", ISOLATED, ids=named)
def test_a_path_leads_nowhere_until_the_call(lab: Lab, stops: Stops, options: list[str], blocked: str) -> None:
    """A link to itself is replaced by a file, a folder is opened, between the look and the call: not unseen."""
    if blocked == "shut" and os.geteuid() == 0:
        pytest.skip("no folder is shut for root")
    driver = begun(lab, *options, threads=2)
    driver.must(["fill f w 8192 2", "symlink l l", "mkdir d", "checkpoint"])
    path, change = ("l", "rename f l") if blocked == "loop" else ("d/f", "chmod d 755")
    if blocked == "shut":
        driver.must(["rename f d/f", "chmod d 0"])
    stops.arm("noted.begun")
    driver.ask(f"begin 0 touch {path} 1000000000")
    stops.wait("noted.begun")
    driver.ask(f"begin 1 {change}")
    time.sleep(0.3)                    # it is done, or waits: nothing tells
    stops.go("noted.begun")
    touched = driver.ask("await 0") == "0"
    assert driver.ask("await 1") == "0"
    assert (driver.ask(f"mtime {path}") == "1000000000000000000") == touched
    assert driver.end() == 0


@pytest.mark.parametrize("options", ALL, ids=named)
def test_pages_of_a_table_under_a_reader(lab: Lab, stops: Stops, options: list[str]) -> None:
    """A reader that is in the table while its file is settled never walks on in another file's."""
    driver = begun(lab, *options)
    driver.must(["fill g w,creat 200000 7", "checkpoint"])
    f, g = (number(driver.ask(f"open {name} rw")) for name in "fg")
    backwards = range(94208, -1, -4096)                # a long sequence goes in place
    driver.must(f"pwrite {f} 4096 {at} 2" for at in backwards)
    before = driver.ask(f"pread {f} 8192 8192")
    h = number(driver.ask("open h rw,creat"))
    stops.arm("table.walk")
    driver.ask(f"begin 0 pread {f} 8192 8192")
    stops.wait("table.walk")
    driver.must([f"map {f} 196608 rw shared 0", *(f"pwrite {g} 4096 {at} 5" for at in backwards),
                 f"pwrite {h} 98304 0 6"])
    stops.go("table.walk")
    assert driver.ask("await 0") == before
    assert driver.end() == 0


@pytest.mark.parametrize("options, cut", [([], "data.cut"), *((each, "data.forgotten") for each in ISOLATED)], ids=str)
def test_read_while_the_file_is_cut(lab: Lab, stops: Stops, options: list[str], cut: str) -> None:
    """What stood in place long before never shows again, nor zeros: a reader finds what was there, or the end."""
    lab.work.joinpath("f").write_bytes(b"old" * 40_000)
    driver = lab.start(*options)
    driver.must(["thread 0", "thread 1"])
    fd = number(driver.ask("open f rw"))
    driver.must(["checkpoint", f"pwrite {fd} {120000 if options else 4096} 0 2"])
    before = driver.ask(f"pread {fd} 8192 8192")
    stops.arm("data.sized")
    driver.ask(f"begin 0 pread {fd} 8192 8192")
    stops.wait("data.sized")
    stops.arm(cut)
    driver.ask(f"begin 1 ftruncate {fd} 0")
    stops.wait(cut)
    stops.go("data.sized")
    time.sleep(0.3)                    # it has read, or waits: nothing tells
    stops.go(cut)
    assert driver.ask("await 0") in (before, "0 00000000")
    assert driver.ask("await 1") == "0"
    assert driver.end() == 0


def test_killed_between_two_stores_of_a_reservation(lab: Lab, stops: Stops) -> None:
    """Files whose buffer blocks were handed out around a kill have blocks of their own."""
    driver = begun(lab)
    driver.must(["fill f w 2000000 1", "fill g w,creat 2000000 7", "checkpoint", "twin 0"])
    f, g = (number(driver.ask(f"open {name} rw")) for name in "fg")
    driver.ask(f"pwrite {g} 4096 0 3")
    of_twin = number(driver.ask("in 0 open f rw"))
    pid = number(driver.ask("in 0 pid"))
    stops.arm("data.reserving")
    driver.ask(f"begin 0 in 0 pwrite {of_twin} 4096 0 2")
    stops.wait("data.reserving")
    os.kill(pid, signal.SIGKILL)
    driver.ask("await 0")
    driver.must([f"pwrite {f} 4096 4096 3", f"pwrite {g} 400000 0 4"])
    before = driver.ask(f"pread {g} 2000000 0")
    driver.must([f"pwrite {f} 1000000 8192 5"])
    assert driver.ask(f"pread {g} 2000000 0") == before
    driver.ask("endtwin 0")
    assert driver.end() == 0


@pytest.mark.parametrize("options", ALL, ids=named)
@pytest.mark.parametrize("call", ["dup2", "dup3"])
def test_write_beside_a_descriptor_that_is_given_away(lab: Lab, stops: Stops, options: list[str], call: str) -> None:
    """A log is rotated by dup2 while a thread writes to it: the write goes to one of the two."""
    driver = begun(lab, *options, threads=2)
    driver.must(["fill g w,creat 196608 7"])
    index, before = number(driver.ask("checkpoint")), contents(driver)
    f, g = (number(driver.ask(f"open {name} rw")) for name in "fg")
    driver.must([f"pwrite {f} 4096 0 2", f"lseek {f} 8192 set"])
    stops.arm("renumber.onto")
    driver.ask(f"begin 0 {call} {g} {f}")
    stops.wait("renumber.onto")
    driver.ask(f"begin 1 write {f} 4096 3")
    stops.go("renumber.onto")
    assert number(driver.ask("await 0")) == f
    assert number(driver.ask("await 1")) == 4096
    old = number(driver.ask("open f rw"))
    for fd in (f, old):
        assert driver.ask(f"pread {fd} 196608 0").startswith("196608 ")
    written = [driver.ask(f"lseek {fd} 0 cur") for fd in (f, g)]
    assert written == ["4096", "4096"]
    driver.must([f"close {f}", f"close {g}"])
    assert driver.end() == 0
    if "single" not in options:
        assert restored(lab, index) == before


@pytest.mark.parametrize("options", ALL, ids=named)
def test_write_beside_a_close(lab: Lab, stops: Stops, options: list[str]) -> None:
    """A descriptor that is being closed is no file that nobody follows."""
    driver = begun(lab, *options, threads=2)
    index, before = number(driver.ask("checkpoint")), contents(driver)
    fd = number(driver.ask("open f rw"))
    driver.must([f"pwrite {fd} 4096 0 2", f"lseek {fd} 8192 set"])
    stops.arm("renumber.closing")
    driver.ask(f"begin 0 close {fd}")
    stops.wait("renumber.closing")
    driver.ask(f"begin 1 write {fd} 4096 3")
    stops.go("renumber.closing")
    assert driver.ask("await 0") == "0"
    assert driver.ask("await 1") in ("4096", "-1 EBADF")
    assert driver.end() == 0
    if "single" not in options:
        assert restored(lab, index) == before


@pytest.mark.parametrize("options", ALL, ids=named)
def test_dup3_that_fails(lab: Lab, options: list[str]) -> None:
    """The descriptor that was to be replaced is what it was."""
    driver = begun(lab, *options)
    driver.must(["fill g w,creat 196608 7"])
    index, before = number(driver.ask("checkpoint")), contents(driver)
    f, g = (number(driver.ask(f"open {name} rw")) for name in "fg")
    driver.must([f"pwrite {f} 4096 0 2", f"pwrite {g} 4096 0 4"])
    content = driver.ask(f"pread {f} 8192 0")
    assert driver.ask(f"dup3 {g} {f} wrong") == "-1 EINVAL"
    assert driver.ask(f"pread {f} 8192 0") == content
    driver.must([f"pwrite {f} 4096 8192 5"])
    assert driver.end() == 0
    if "single" not in options:
        assert restored(lab, index) == before


def test_dup2_onto_a_number_of_no_tracked_file(lab: Lab, compiled: Compile) -> None:
    """Another thread may be just before its system call on that number: dup2 lets it run on first (ADR 27)."""
    done = lab.run([compiled("onto_number")], timeout=60)
    assert done.returncode == 0
    assert int(done.stdout) >= 200_000, "ns"


def test_memory_that_goes_while_another_thread_tries_it(lab: Lab, stops: Stops) -> None:
    """What a thread found in memory just before it was unmapped is not remembered as being there."""
    driver = begun(lab, threads=2)
    fd = number(driver.ask("open f rw"))
    driver.must([f"pwrite {fd} 100 0 2", f"pwrite {fd} 100 0 3"])
    driver.must(["fill g w,creat 8192 4"])
    other = number(driver.ask("open g r"))
    slot = number(driver.ask(f"map {other} 8192 r private 0"))
    stops.arm("map.goes")
    driver.ask(f"begin 0 unmap {slot} 8192 0")
    stops.wait("map.goes")
    assert driver.ask(f"on 1 writemap {fd} {slot} 100 0") == "100"
    stops.go("map.goes")
    assert driver.ask("await 0") == "0"
    assert driver.ask(f"on 1 writemap {fd} {slot} 100 0") == "-1 EFAULT"
    assert driver.end() == 0


def test_program_executed_while_its_first_thread_reads(lab: Lab, stops: Stops, compiled: Compile) -> None:
    """The new program's thread has the number of the one that held the lock of the position."""
    stops.arm("data.positioned")
    done = lab.run([compiled("exec_beside_read"), stops.folder / "data.positioned.reached"], timeout=60)
    assert (done.returncode, done.stdout) == (0, b"100\n"), done.stderr.decode()


@pytest.mark.parametrize("change, seen", [("chmod f 600", 0o600), ("truncate f 100", 0o644)])
def test_attributes_of_a_file_that_another_empties(lab: Lab, stops: Stops, change: str, seen: int) -> None:
    """O_TRUNC goes on in a fresh file, which has the attributes that it found: nobody changes them meanwhile."""
    driver = begun(lab, threads=2)
    driver.must(["fill g w,creat 2000000 7", "checkpoint"])
    stops.arm("fresh.alike")
    driver.ask("begin 0 open f w,trunc")
    stops.wait("fresh.alike")
    driver.ask(f"begin 1 {change}")
    time.sleep(0.3)                    # it has come by, or waits: nothing tells
    stops.go("fresh.alike")
    assert number(driver.ask("await 0")) > 0
    assert number(driver.ask("await 1")) == 0
    status = lab.work.joinpath("f").stat()
    assert status.st_mode & 0o777 == seen
    assert status.st_size in (0, 100)
    assert driver.end() == 0


@pytest.mark.parametrize("options", ALL, ids=named)
def test_write_beside_a_hole(lab: Lab, stops: Stops, options: list[str]) -> None:
    """In isolation a hole is made on the buffer: what another appends meanwhile stays."""
    driver = begun(lab, *options)
    fd, other = (number(driver.ask("open f rw")) for _ in "12")
    size = number(driver.ask(f"fsize {fd}"))
    isolated = options in ISOLATED
    if isolated:
        stops.arm("alloc.rehearsed")
    driver.ask(f"begin 0 hole {fd} 4096 4096")
    if isolated:
        stops.wait("alloc.rehearsed")
    assert number(driver.ask(f"pwrite {other} 1000 {size} 5")) == 1000
    if isolated:
        stops.go("alloc.rehearsed")
    assert number(driver.ask("await 0")) == 0
    assert number(driver.ask(f"fsize {fd}")) == size + 1000
    assert driver.end() == 0
    assert lab.work.joinpath("f").stat().st_size == size + 1000


@pytest.mark.parametrize("options", ALL, ids=named)
def test_no_name_again_by_a_descriptor(lab: Lab, options: list[str]) -> None:
    """A file that lost its last name gets none by /proc/self/fd, though the store has a link to it."""
    driver = begun(lab, *options)
    fd = number(driver.ask("open f rw"))
    assert number(driver.ask(f"linkfd {fd} h")) == 0
    driver.must(["unlink f", "unlink h"])
    assert driver.ask(f"linkfd {fd} again").split()[:2] == ["-1", "ENOENT"]
    assert driver.end() == 0
    assert not lab.work.joinpath("again").exists()


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=named)
def test_mode_of_a_descriptor_whose_file_is_renamed(lab: Lab, stops: Stops, options: list[str]) -> None:
    """The call asks the descriptor for its name. Renamed then, and checkpointed, the file had its old mode in the index
    after that, too."""
    driver = begun(lab, *options, threads=2)
    fd = number(driver.ask("open f r"))
    stops.arm("attributes.named")
    driver.ask(f"begin 0 fchmod {fd} 600")
    stops.wait("attributes.named")
    driver.must(["rename f h"])
    driver.ask("begin 1 checkpoint")
    time.sleep(0.3)                    # it is done, or waits: nothing tells
    stops.go("attributes.named")
    assert number(driver.ask("await 0")) == 0
    assert number(driver.ask("await 1")) > 0
    last = number(driver.ask("checkpoint"))
    assert driver.end() == 0
    lab.restore(last, "--to", lab.folder / "copy")
    assert [path.stat().st_mode & 0o777 for path in (lab.folder / "copy").rglob("h")] == [0o600]


@pytest.mark.parametrize("options", ALL, ids=named)
@pytest.mark.parametrize(("name", "mode", "call"), [("f", "rw", "pwrite {} 100 0 3"), ("h", "r", "pread {} 100 0")],
                         ids=["a tracked file", "one that is tracked since a moment"])
def test_a_number_means_another_file_while_its_file_is_looked_up(
        lab: Lab, stops: Stops, tmp_path: Path, options: list[str], name: str, mode: str, call: str) -> None:
    """The call goes to the new file, as natively, and so do later ones: the old file's slot is not noted for it."""
    (lab.work / "h").write_bytes(bytes(4096))
    driver = begun(lab, *options)
    driver.must(["fill g w,creat 4096 2", "checkpoint"])
    fd = number(driver.ask(f"open {name} {mode}"))
    driver.must([f"close {number(driver.ask(f'open {name} rw'))}", "fill n w,creat 16 1"])   # tracked files more
    stops.arm("again.found")
    driver.ask(f"begin 0 {call.format(fd)}")
    stops.wait("again.found")
    driver.must([f"close {fd}"])
    assert number(driver.ask("open g rw")) == fd
    driver.must([f"pwrite {fd} 100 200 4"])
    stops.go("again.found")
    driver.ask("await 0")
    driver.must([f"pwrite {fd} 100 400 5", "checkpoint"])
    now = contents(driver)
    assert driver.end() == 0
    (tmp_path / "native").mkdir()
    native = lab.start(native=True, cwd=tmp_path / "native")
    native.must(["fill f w,creat 196608 1", "fill g w,creat 4096 2"])
    fd = number(native.ask("open g rw"))
    native.must([f"pwrite {fd} 100 200 4", *([call.format(fd)] if mode == "rw" else []), f"pwrite {fd} 100 400 5"])
    assert now == contents(native)
    assert native.end() == 0
    if "single" not in options:
        found = restored(lab, 3)
        assert {each: found[each] for each in now} == now
