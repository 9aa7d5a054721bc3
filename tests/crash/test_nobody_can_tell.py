"""What a killed run left is intact, and who would complete it cannot tell: /proc/sys is hidden, as sandboxes do, or
there is no memory to look at it. It is left as it is.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from honest import told, verb
from lab import Lab, Session, Tree, gone, picture, wait_until
from short_of_memory import no_more_memory

from metamori._area import lib
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import Area
from metamori.store.io import os_io

BEFORE = ["open old rw,creat", "write 3 300000 1", "close 3"]
LINES = ["open old rw", "pwrite 3 9000 20000 2", "checkpoint", "pwrite 3 9000 100000 3"]


@pytest.fixture
def session(lab: Lab) -> Session:
    native = lab.start(native=True)
    native.must(BEFORE)
    native.end()
    session = lab.start()
    session.must(LINES)
    return session


def area_files(lab: Lab) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((lab.store / "run").rglob("*")) if path.is_file()}


def present(lab: Lab) -> Tree:
    """With what a native program makes of the same lines."""
    native = lab.folder / "native"
    native.mkdir()
    other = lab.start(native=True, cwd=native)
    other.do([*BEFORE, *(line for line in LINES if line != "checkpoint")])
    other.end()
    return picture(native)


def hide(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(os_io, "BOOT_ID", str(folder / "sys" / "boot_id"))


def as_begun_where_hidden(lab: Lab) -> None:
    """The log's first record is what such a run writes there."""
    log = wal.log_path(str(lab.store / "run"))
    first, data = wal.read(str(lab.store / "run"))[0], Path(log).read_bytes()
    record = wal._record(lib.MM_AHEAD_START, first.run, first.index, first.flags, b"", first.object, (first.dev, 0, 0))
    Path(log).write_bytes(record.ljust(4096, b"\0") + data[4096:])


def test_a_killed_run_is_left_until_it_can_be_told(
        lab: Lab, session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once it was taken for one of another boot: what it had redirected was lost."""
    session.kill_all()
    before, files = area_files(lab), lab.state()
    with monkeypatch.context() as patch:
        hide(patch, tmp_path)
        for words in (["log"], ["restore", "1"]):
            done = verb(lab.store, *words)
            assert done.code == 1 and "cannot be told where" in done.err and "run this where it can" in done.err, done
            # a restore looks first whether the run is alive, which lets dead processes go
            assert (words != ["log"] or area_files(lab) == before) and lab.state() == files
    assert lab.messages()[2] == "killed"
    lab.assert_state(present(lab), "as it was killed")
    assert (told(lab.store).lost, told(lab.store).problems) == (set(), [])


@pytest.mark.parametrize("number", [errno.ENFILE, errno.EIO, errno.ENOMEM])
def test_a_machine_in_trouble_hides_nothing(
        lab: Lab, session: Session, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    session.kill_all()
    before = area_files(lab)

    def fails(path: str, mode: str) -> object:
        if path == os_io.BOOT_ID:
            raise OSError(number, os.strerror(number), path)
        return open(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os_io, "open", fails, raising=False)
        done = verb(lab.store, "log")
        assert done.code == 1 and os.strerror(number) in done.err, done
        assert area_files(lab) == before
    assert lab.messages()[2] == "killed"
    lab.assert_state(present(lab), "as it was killed")


def test_there_is_no_memory_to_look_at_it(lab: Lab, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once that was damage: what had been redirected was lost."""
    session.kill_all()
    before, real = area_files(lab), Area.unsound

    def unsound(area: Area) -> str:
        with no_more_memory():
            return real(area)

    with monkeypatch.context() as patch:
        patch.setattr(Area, "unsound", unsound)
        done = verb(lab.store, "log")
        assert done.code == 1 and "the end of the last run in" in done.err and "Cannot allocate" in done.err, done
        assert area_files(lab) == before
    assert lab.messages()[2] == "killed"
    lab.assert_state(present(lab), "as it was killed")


@pytest.mark.parametrize("now", ["told", "hidden"])
def test_what_a_run_mapped_that_began_where_it_was_hidden(
        lab: Lab, session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: str) -> None:
    """Perhaps a power cut has torn it: once it was trusted by whoever could not tell either."""
    session.kill_all()
    as_begun_where_hidden(lab)
    if now == "hidden":
        hide(monkeypatch, tmp_path)
    done = verb(lab.store, "log")
    assert done.code == 0 and "nothing tells whether the machine went down during the last run: what" in done.err, done
    assert (told(lab.store).lost, told(lab.store).problems) == (set(), [])
    for index in (0, 1, 2):
        assert verb(lab.store, "restore", index).code == 0


def test_who_lives_tells(lab: Lab, session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its `metamori run` is killed, and the program goes on: nothing of its is completed by others."""
    program = session.program()
    as_begun_where_hidden(lab)
    session.process.kill()
    session.process.wait()
    hide(monkeypatch, tmp_path)
    before = area_files(lab)
    try:
        done = verb(lab.store, "log")
        assert (done.code, done.err) == (0, ""), done
        done = verb(lab.store, "restore", 1)
        assert done.code == 11 and "is alive" in done.err, done
        assert area_files(lab).keys() == before.keys()
    finally:
        os.kill(program, signal.SIGKILL)
    wait_until(lambda: gone(program), "the program is gone")
