"""metamori_restore inside the program: descriptors, streams and files of the checkpoint work again.

Each scenario is done once, taken back, and done again: every answer must be the same the second time, and
the same as the native program's.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest
from catalog import DESCRIPTORS, FIELD, NAMES, STREAMS, Scenario
from conftest import Compile
from honest import assert_honest, tree_of
from lab import Lab, Tree, difference

from metamori.runtime.area.run_area import Area


def natively(native: Lab, scenario: Scenario, flush: bool) -> tuple[Tree, list[str], Tree]:
    """The files at the checkpoint, the answers after it and the files at the end, without interruption."""
    scenario.prepare(native.work)
    program = native.start(native=True)
    program.must(line for line in scenario.before)
    if flush:
        program.ask("tree")  # flushes, as the C call does
    at_checkpoint = native.state()
    answers = program.do(scenario.after)
    assert program.end() == 0
    return at_checkpoint, answers, native.state()


def check(lab: Lab, native: Lab, scenario: Scenario, ask: str, options: list[str]) -> None:
    at_checkpoint, answers, at_end = natively(native, scenario, flush=ask == "C")
    scenario.prepare(lab.work)
    program = lab.start(*options)
    program.do(scenario.before)
    index = int(program.ask("checkpoint")) if ask == "C" else lab.checkpoint()
    for turn in ("first", "second", "third"):
        assert program.do(scenario.after) == answers, f"the {turn} time"
        if turn != "third":
            assert program.ask(f"restore {index}") == "0"
    assert program.end() == 0
    lab.assert_state(at_end, "after the run")
    lab.restore(index)
    lab.assert_state(at_checkpoint, f"after restore {index}")


@pytest.mark.parametrize("scenario", DESCRIPTORS + STREAMS + FIELD + NAMES, ids=lambda s: s.name)
def test_taken_back_and_done_again(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    check(lab, native_lab, scenario, "C", [])


@pytest.mark.in_turn("scenario", 2)
@pytest.mark.parametrize("scenario", FIELD[::2] + NAMES[::2] + DESCRIPTORS[:4], ids=lambda s: s.name)
def test_store_on_another_filesystem(
    lab: Lab, native_lab: Lab, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either taken back, or, where a removed file would have to come from the store, refused and nothing changed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == lab.work.stat().st_dev:
            pytest.skip("/dev/shm is no other filesystem")
        monkeypatch.setattr(lab, "store", Path(folder) / "store")
        check(lab, native_lab, scenario, "C", [])


@pytest.mark.parametrize("scenario", STREAMS, ids=lambda s: s.name)
def test_streams_with_a_checkpoint_from_outside(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    """The program does not flush: the bytes in its buffers belong to the checkpoint too."""
    check(lab, native_lab, scenario, "outside", [])


@pytest.mark.in_turn("scenario", 2)
@pytest.mark.parametrize("scenario", DESCRIPTORS + STREAMS[::3] + FIELD + NAMES, ids=lambda s: s.name)
def test_taken_back_in_isolation(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    check(lab, native_lab, scenario, "C", ["--isolate"])


@pytest.mark.parametrize("scenario", DESCRIPTORS[:4] + FIELD[:4], ids=lambda s: s.name)
def test_taken_back_in_single_mode(lab: Lab, native_lab: Lab, scenario: Scenario) -> None:
    """Single mode keeps the last checkpoint, and only that: it can be gone back to again and again."""
    _, answers, at_end = natively(native_lab, scenario, flush=True)
    scenario.prepare(lab.work)
    program = lab.start("--mode", "single")
    program.do(scenario.before)
    index = int(program.ask("checkpoint"))
    for _ in range(2):
        assert program.do(scenario.after) == answers
        assert program.ask(f"restore {index}") == "0"
    assert program.do(scenario.after) == answers
    assert program.end() == 0
    lab.assert_state(at_end, "after the run")


@pytest.mark.parametrize("scenario", DESCRIPTORS + STREAMS, ids=lambda s: s.name)
def test_scenario_itself_natively(native_lab: Lab, scenario: Scenario) -> None:
    """The scenario is sound: it answers the same in a fresh folder, with and without a flush."""
    _, answers, at_end = natively(native_lab, scenario, flush=True)
    again = Lab(native_lab.folder, native_lab.driver)
    for path in sorted(again.work.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    _, second, end = natively(again, scenario, flush=False)
    if scenario.name != "line buffered":
        assert second == answers
    assert not difference(end, at_end)


MADE_ANEW = """
import metamori, os
first = metamori.checkpoint()
for name in "link", "fifo":
    os.unlink(name)
os.rmdir("folder")
metamori.checkpoint()
metamori.restore(first)
open("new", "w").close()
"""


def test_what_has_no_bytes_comes_back_as_another(lab: Lab) -> None:
    """Where no index speaks of it between the start of the run and its end, nobody else has changed it."""
    made = "ln -s nowhere link; mkfifo fifo; mkdir folder; echo text > text"
    assert lab.run(["sh", "-c", made]).returncode == 0
    before = lab.state()
    assert lab.run([sys.executable, "-c", MADE_ANEW]).returncode == 0
    assert "modified" not in lab.verb("verify").stderr
    for index in (0, 1):
        lab.restore(index)
    lab.assert_state(before, "as the first run left it")
    lab.work.joinpath("link").unlink()
    lab.work.joinpath("link").symlink_to("elsewhere")
    assert lab.verb("restore", 0, code=None).returncode == 14


SAME_PLACE = """
import mmap, metamori
with open("h", "wb") as h:
    h.write(b"H" * 9000)
first = metamori.checkpoint()
with open("h", "r+b") as h, mmap.mmap(h.fileno(), 0):
    second = metamori.checkpoint()         # all of it, where its pre-image is
with open("h", "r+b") as h:
    h.write(b"later")
metamori.restore(second)
metamori.restore(first)
with open("h", "rb") as h:
    assert h.read() == b"H" * 9000
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_what_an_older_index_knows_by_a_pre_image(lab: Lab, options: list[str]) -> None:
    """At the place where a record of a younger one has it: the end of the run writes it back all the same."""
    done = lab.run([sys.executable, "-c", SAME_PLACE], *options)
    assert done.returncode == 0, done.stderr
    for index in (lab.log()["head"], 1, 2, lab.log()["head"]):
        assert (lab.work / "h").read_bytes() == b"H" * 9000, index
        lab.restore(index)


OUT_OF_SCOPE = """
import errno, metamori, os, sys, tempfile
out, way = sys.argv[1:]
if way == "nameless":
    temporary = tempfile.TemporaryFile(dir=out)
    fd = temporary.fileno()
else:
    fd = os.open("moved" if way == "moved" else f"{out}/f", os.O_RDWR | os.O_CREAT)
os.write(fd, b"hello")
if way == "unlinked before":
    os.unlink(f"{out}/f")
elif way == "moved":
    os.rename("moved", f"{out}/f")
with open("inside", "w") as file:
    file.write("one")
index = metamori.checkpoint()
with open("inside", "w") as file:
    file.write("two")
if way in ("unlinked", "moved", "closed"):
    os.unlink(f"{out}/f")
elif way == "replaced":
    os.rename(f"{out}/f", f"{out}/g")
    with open(f"{out}/f", "w") as file:
        file.write("another")
if way == "closed":
    os.close(fd)
for _ in range(2):
    try:
        metamori.restore(index)
    except FileNotFoundError:
        assert way == "closed" and open("inside").read() == "two"
    else:
        assert way != "closed" and open("inside").read() == "one"
        assert os.lseek(fd, 0, os.SEEK_CUR) == 5 and os.pread(fd, 10, 0) == b"hello"
        assert os.pwrite(fd, b"h", 0) == 1
"""


@pytest.mark.parametrize("way", ["nameless", "unlinked before", "unlinked", "moved", "replaced", "closed"])
def test_what_has_left_its_name_out_of_the_scope(lab: Lab, way: str) -> None:
    """It is no file of the run: the program has it as before. If that is not possible, nothing goes back."""
    del lab.env["METAMORI_TRACK"]
    (lab.folder / "out").mkdir()
    done = lab.run([sys.executable, "-c", OUT_OF_SCOPE, lab.folder / "out", way])
    assert done.returncode == 0, done.stderr.decode()


COPIES = """
import metamori, os, sys
with open("file", "w") as file:
    file.write("text")
index = metamori.checkpoint()
sizes = []
for _ in range(12):
    os.unlink("file")
    metamori.restore(index)
    sizes.append(os.path.getsize(sys.argv[1]))
assert open("file").read() == "text"
assert sizes[-1] < 12 * sizes[0], sizes
"""


def test_the_log_of_copies_grows_with_their_number(elsewhere: Lab) -> None:
    """Each restore makes the file anew, and what it has been is written again by each."""
    done = elsewhere.run([sys.executable, "-c", COPIES, elsewhere.store / "run" / "ahead"])
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_set_user_id_bits_and_owner_come_back(lab: Lab, compiled: Compile) -> None:
    done = lab.run([compiled("set_user_id")])
    assert (done.returncode, done.stderr) == (0, b"")
    shown = [line for line in done.stdout.decode().splitlines() if " of " in line]
    assert shown == ["106755 of 0:0", "100755 of 1:1", "106755 of 0:0"]


DUPLICATES = """
import fcntl, metamori, os
fd = os.open("log", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
kinds = fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC
each = [fd, *(fcntl.fcntl(fd, kinds[i % 3 == 1], 20) for i in range(200))]
plain = [os.open("other", os.O_RDWR | os.O_CREAT), 300]
os.set_inheritable(plain[0], True)
os.dup2(*plain, inheritable=False)
look = lambda: [(number, fcntl.fcntl(number, fcntl.F_GETFD)) for number in each + plain]
before = look()
index = metamori.checkpoint()
os.write(fd, b"more")
for number in each[:-1]:
    os.close(number)
metamori.restore(index)
assert look() == before, look()
for number in each[::50]:
    os.write(number, b"x")
assert [os.lseek(number, 0, 1) for number in each[::70]] == [5] * 3
"""


def test_duplicates_come_back_as_they_were(lab: Lab) -> None:
    """Each with a close-on-exec of its own, and however many there are."""
    done = lab.run([sys.executable, "-c", DUPLICATES])
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "log").read_bytes() == b"xxxxx"


MANY_DUPLICATES = """
import metamori, os
fd = os.open("log", os.O_RDWR | os.O_CREAT)
each = [fd, *(os.dup2(fd, number) for number in range(20, 190))]
index = metamori.checkpoint()
os.write(fd, b"more")
metamori.restore(index)
for number in each[::50]:
    os.write(number, b"x")
"""


def test_duplicates_come_back_where_there_is_no_number_to_spare(lab: Lab, compiled: Compile) -> None:
    fcntl_call, f_dupfd_cloexec = 72, 1030
    refuse = [compiled("refuse"), fcntl_call, errno.EMFILE, 1, 0xffffffff, f_dupfd_cloexec]
    done = lab.run([*refuse, sys.executable, "-c", MANY_DUPLICATES])
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "log").read_bytes() == b"xxxx"


def test_gone_back_past_a_file_that_is_counted_as_open(lab: Lab) -> None:
    """As a kill amid its close leaves it (played: the run area says so). An index of a branch that had not known it
    said nothing of what had been redirected, so that this stayed when the program went to where the file was."""
    session = lab.start()
    session.must(["checkpoint", "fill f rw,creat 2083 1", "checkpoint"])
    then = session.ask("tree")
    session.must(["open f rw", "pwrite 3 100 0 2", "close 3", "checkpoint"])
    area = Area(str(lab.store))
    next(p for p in map(area.pif, area.pifs()) if area.pif_path(p).endswith(b"/f")).refs += 1
    area.close()
    session.must(["restore 1", "restore 1", "checkpoint", "restore 2"])
    assert session.ask("tree") == then
    session.must(["checkpoint"])
    assert session.end() == 0
    assert tree_of(lab.work) == then
    assert_honest(lab.store, lab.work, {2: then, 5: then})
