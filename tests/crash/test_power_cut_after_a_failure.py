"""A checkpoint is not written, the run goes on, and then the power goes: the one before it is what it was.

A path that was noted before the cut is noted again after it, as what the run has made of it since. That may be the only
note of the path which is left: that nothing was there is no name in the store, and the journal may be lost.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Compile
from lab import Entry, Lab, picture, wait_until
from rewind import another_boot
from stops import Stops

from metamori._area import lib
from metamori.cli.checkpoint import take
from metamori.errors import MetamoriError
from metamori.runtime.area import name_journal
from metamori.runtime.area.run_area import Touch
from metamori.runtime.checkpoint.session import Session

OPTIONS: dict[str, list[str]] = {"default": [], "isolate": ["--isolate"], "single": ["--mode", "single"]}
BEFORE = [
    *(line for n in range(6) for line in (f"open f{n} w,creat", f"write 3 {n + 1} {n}", "close 3")),
    *(line for n in range(5) for line in (f"mkdir d{n}", f"open d{n}/in w,creat", "close 3")),
    *(f"symlink f{n} l{n}" for n in range(2)),
]
# what the run does before the checkpoint that is not written, and after it
CHANGES = [
    ("mkdir a", "chmod a 700"), ("mkdir b; open b/in w,creat; close 3", "chmod b/in 600; rename b b2"),
    ("mkdir c", "rmdir c"), ("symlink f0 e", "rename e e2"), ("mkfifo g", "chmod g 600"), ("mkfifo h", "unlink h"),
    ("open i w,creat; close 3", "chmod i 600"), ("open j w,creat; write 3 5 5; close 3", "rename j j2"),
    ("rename f1 k", "chmod k 600"), ("rename f2 f3", "chmod f3 600"), ("link f4 m", "chmod m 600; rename m m2"),
    ("rename d1 n", "chmod n 700"), ("rename d2 o", "chmod o/in 600; rename o o2"),
    ("rename d3 p; mkdir d3", "rmdir d3"), ("unlink l1; symlink f0 l1", "rename l1 q"),
    ("mkdir r", "rmdir r; symlink f0 r"), ("rmdir r0; mkfifo r0", "unlink r0"),
    ("unlink f5; mkdir f5", "chmod f5 700"),
]


class Run:
    """A program that answers lines under `metamori run`, and how it ends. It is the driver, if no other is given."""

    def __init__(self, lab: Lab, driver: Path, options: list[str], *other: str, stops: Stops | None = None) -> None:
        self.lab, self.area = lab, lab.store / "run"
        text = "".join(f"{line}\n" for line in (*BEFORE, "mkdir r0"))
        subprocess.run([driver], input=text.encode(), cwd=lab.work, check=True, stdout=subprocess.DEVNULL)
        self.before = looks(lab.work)
        command = [*lab.argv("run", *options), "--", *(other or (driver,))]
        self.run = subprocess.Popen(command, cwd=lab.work, env=lab.env | (stops.env if stops else {}),
                                    start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def does(self, lines: str) -> str:
        """The last answer."""
        assert self.run.stdin and self.run.stdout
        for line in lines.split("; "):
            self.run.stdin.write(line.encode() + b"\n")
            self.run.stdin.flush()
            answer = self.run.stdout.readline()
            assert answer and not answer.startswith((b"-1 ", b"?")), f"{line}: {answer!r}"
        return answer.decode().strip()

    def notes(self) -> dict[int, Touch]:
        return name_journal.surviving((self.area / "journal").read_bytes())

    def fails(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """A checkpoint, when it has cut. The byte of the journal behind all notes before."""
        def fail(*_: object) -> None:
            raise OSError(5, os.strerror(5))

        with monkeypatch.context() as patch:
            patch.setattr(Session, "_write", fail)
            with pytest.raises(MetamoriError):
                take(str(self.lab.store), "")
        return max(self.notes())

    def _left(self) -> list[int]:
        found = []
        for pid in (int(each) for each in os.listdir("/proc") if each.isdecimal() and int(each) != os.getpid()):
            with suppress(OSError):
                if os.fsencode(self.area) in Path(f"/proc/{pid}/maps").read_bytes():
                    found.append(pid)
        return found

    def cut(self, lost: int | None = None) -> None:
        """lost: what is not left of the journal, with the names of all later notes; or all of it, and no name."""
        for number in signal.SIGSTOP, signal.SIGKILL:   # none of them sees the others end, and ends the run
            for pid in self._left():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        os.killpg(self.run.pid, signal.SIGKILL)
        self.run.wait()
        wait_until(lambda: not self._left(), "somebody is left in the run")
        with (self.area / "journal").open("r+b") as file:
            file.write(bytes(os.fstat(file.fileno()).st_size if lost is None else lost))
        for name in os.listdir(self.area / "notes"):
            if lost is not None and not name.startswith(".") and int(name.split(".")[0], 16) > lost:
                (self.area / "notes" / name).unlink()
        another_boot(self.lab.folder)
        done = self.lab.verb("log")
        assert "the machine went down" in done.stderr, done


def looks(folder: Path) -> dict[str, Entry]:
    """Every name; not how many a file has: one that the run made may stay."""
    return {name: Entry(each.kind, each.mode, each.content) for name, each in picture(folder).items()}


def with_one_place(folder: Path) -> tuple[str, str]:
    """Two names in this folder that drive each other out of the table of noted paths (hash_of in names/touch.c)."""
    places = dict[int, str]()
    for name in map(str, range(10000)):
        path = os.fsencode(folder / name)
        place = lib.mm_mixed(1, path, len(path)) * 0xd6e8feb86659fd93 >> 20 & lib.MM_SEEN - 1
        if place in places:
            return places[place], name
        places[place] = name
    raise AssertionError("no two of ten thousand names share a place")


def is_as_it_was(lab: Lab, index: int, then: dict[str, Entry], more: bool) -> None:
    """What the checkpoint knows was there, and it brings all back. more: names that no note is left of stay."""
    copy = lab.folder / "copy"
    lab.restore(index, "--to", copy)
    known = looks(copy / "work" if (copy / "work").is_dir() else copy)
    wrong = {name: (each, then.get(name)) for name, each in known.items() if each != then.get(name)}
    assert not wrong, f"checkpoint {index} knows {wrong}"
    lab.restore(index)
    now = looks(lab.work)
    wrong = {name: (now.get(name), each) for name, each in then.items() if now.get(name) != each}
    assert not wrong, f"checkpoint {index} brings {wrong}"
    assert more or now.keys() == then.keys()


@pytest.mark.in_turn("flavour", "index", "left")
@pytest.mark.parametrize("left", ["names", "journal"])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("flavour", ["plain", "static"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_checkpoint_before_it(
    lab: Lab, compiled: Compile, monkeypatch: pytest.MonkeyPatch, options: str, flavour: str, index: int, left: str,
) -> None:  # fmt: skip
    run = Run(lab, compiled("driver", flavour), OPTIONS[options])
    if index:
        run.does("chmod f0 600; mkdir d9")
        assert take(str(lab.store), "") == index
    then = looks(lab.work)
    for before, _ in CHANGES:
        run.does(before)
    noted = run.fails(monkeypatch)
    for _, after in CHANGES:
        if left == "names" or after.startswith("chmod"):   # what is renamed on a disk was noted in names on it
            run.does(after.split("; ")[0] if left == "journal" else after)
    run.cut(noted if left == "journal" else None)
    is_as_it_was(lab, index, then, options == "default")


@pytest.mark.in_turn("lost", "made")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("made", ["mkdir {}", "symlink f0 {}", "mkfifo {}", "open {} w,creat; close 3"])
@pytest.mark.parametrize("lost", [0, None], ids=["nothing", "journal"])
def test_a_path_that_another_drove_out_of_the_table(
    lab: Lab, compiled: Compile, made: str, options: str, lost: int | None,
) -> None:  # fmt: skip
    """Nothing failed. Once it was noted again, as what the run had made there."""
    run = Run(lab, compiled("driver"), OPTIONS[options])
    one, two = with_one_place(lab.work)
    run.does(f"{made.format(one)}; open {two} w,creat; rename {one} elsewhere; open {two}2 w,creat")
    assert [note.mode for note in run.notes().values() if note.path == os.fsencode(lab.work / one)] == [0]
    run.cut(lost)
    is_as_it_was(lab, 0, run.before, options == "default")


@pytest.mark.parametrize("options", ["default", "isolate"])
def test_behind_a_redirected_block(lab: Lab, compiled: Compile, options: str) -> None:
    """By default what the run appends there is in place, and durable by the same fsync; an index had zeros there."""
    lines = "open g rw; pwrite 3 10 4990 1; pwrite 3 300 5000 2; fsync 3"
    (lab.work / "g").write_bytes(b"o" * 5000)
    shutil.copytree(lab.work, lab.folder / "twin")
    native = lab.start(native=True, cwd=lab.folder / "twin")
    native.must(lines.split("; "))
    assert native.end() == 0
    run = Run(lab, compiled("driver"), OPTIONS[options])
    run.does(lines)
    run.cut()
    want = (lab.folder / "twin/g").read_bytes()
    lab.restore(lab.log()["checkpoints"][-1]["index"])
    assert (lab.work / "g").read_bytes() == want
    lab.restore(0)
    assert (lab.work / "g").read_bytes() == b"o" * 5000


DIRECT = """
import mmap, os, sys
def wrote(at, byte):
    page = mmap.mmap(-1, 4096)
    page.write(byte * 512)
    fd = os.open("g", os.O_RDWR | os.O_DIRECT)
    os.pwritev(fd, [memoryview(page)[:512]], at)
    os.fsync(fd)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@pytest.mark.parametrize("options", ["default", "isolate"])
def test_longer_in_a_redirected_block(lab: Lab, compiled: Compile, options: str) -> None:
    """O_DIRECT writes take no part of a disk's block, and go on there: by default what an fsync had acknowledged was
    zeros."""
    (lab.work / "g").write_bytes(b"o" * 4608)
    run = Run(lab, compiled("driver"), OPTIONS[options], sys.executable, "-c", DIRECT)
    run.does("wrote(4096, b'1'); wrote(4608, b'2')")
    run.cut()
    lab.restore(lab.log()["checkpoints"][-1]["index"])
    assert (lab.work / "g").read_bytes() == b"o" * 4096 + b"1" * 512 + b"2" * 512


@pytest.mark.parametrize("options", OPTIONS)
def test_a_note_that_a_kill_broke_off(lab: Lab, compiled: Compile, options: str) -> None:
    """It counts for nothing: what another process notes after it is the first note of the path, and in names."""
    stops = Stops(lab.folder / "stops")
    shell = "while read line; do eval \"$line\"; done"
    run = Run(lab, compiled("driver"), OPTIONS[options], "sh", "-c", shell, stops=stops)
    run.does("echo ready")
    stops.arm("touch.appended")
    killed = run.does("chmod 700 d0 & echo $!")
    stops.wait("touch.appended")
    run.does(f"kill -9 {killed} && wait {killed} || mv d0 x && echo moved")
    assert [note.before for note in run.notes().values() if note.path == os.fsencode(lab.work / "d0")] == [0, 0]
    run.cut()
    is_as_it_was(lab, 0, run.before, options == "default")
