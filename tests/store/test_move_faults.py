"""A move is stopped at every operation in turn, by an error or dead, and then completed."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, take_snapshot
from test_move_property import make_history

from metamori.errors import MetamoriError
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import restore


class Killed(BaseException):
    """The process is gone at this point; nothing after it happens."""


class FailingDoor:
    """A door whose Nth operation, counted from 1, fails instead of being done. `what` makes the exception."""

    def __init__(self, nth: int, what: Callable[[], BaseException]) -> None:
        self._door, self._nth, self._what = Door(), nth, what
        self.count = 0

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        real = getattr(self._door, name)

        def operation(*values, **named):  # type: ignore[no-untyped-def]
            if name in ("close", "expect"):  # a killed process's descriptors close by themselves
                return real(*values, **named)
            self.count += 1
            if self.count == self._nth or (self.count > self._nth and self._what is Killed):
                raise self._what()
            return real(*values, **named)

        return operation


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def copy_of(source: Path, target: Path) -> None:
    """The whole laboratory, hard links between files and kept included, at the path it was made at."""
    shutil.rmtree(source, ignore_errors=True)
    os.system(f"cp -a '{target}' '{source}'")


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("what", [Killed, no_space], ids=["killed", "no space"])
@pytest.mark.parametrize("seed", range(3))
def test_stopped_at_every_operation(tmp_path: Path, seed: int, what: Callable[[], BaseException]) -> None:
    """Of the first history at each one, of the others at every third. What follows need not be durable."""
    lab, saved = tmp_path / "lab", tmp_path / "saved"
    lab.mkdir()
    rng = random.Random(seed)
    store, models = make_history(lab, rng, runs=2, steps=8)
    target = rng.choice([index for index in models if index != store.head.index])
    store.close()
    os.system(f"cp -a '{lab}' '{saved}'")
    nth, step = seed, 3 if seed else 1
    while True:
        nth += step
        copy_of(lab, saved)
        fresh = Store.open(os.fsencode(lab / "store"))
        fresh.set_head(fresh.head.index, fresh.head.kept)  # the copies have other inode numbers
        door = FailingDoor(nth, what)
        if not _interrupted(lab, door, target):
            break
        after = Store.open(os.fsencode(lab / "store"), write=True)
        assert verify(after).problems == [], nth
        restore.recover(after)
        assert take_snapshot(lab / "files") == models[after.head.index], nth
        restore.move_home(after, target, durable=False)
        assert take_snapshot(lab / "files") == models[target], nth
        for index in (0, target):
            restore.move_home(after, index, durable=False)
            assert take_snapshot(lab / "files") == models[index], (nth, index)
        after.close()
    assert nth > 20 and take_snapshot(lab / "files") == models[target]


def _interrupted(lab: Path, door: FailingDoor, target: int) -> bool:
    """Whether the move was stopped; a clean error is one of ours, or the kernel's before anything began."""
    store = Store(os.fsencode(lab / "store"), door)  # type: ignore[arg-type]
    try:
        store.read_format()
        store.lock()
        restore.move_home(store, target)
    except (Killed, MetamoriError, OSError):
        return True
    finally:
        store.close()
    return False


class BrokenDoor(FailingDoor):
    """From the nth operation on, all fail."""

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        operation = super().__getattr__(name)

        def failing(*values, **named):  # type: ignore[no-untyped-def]
            if name not in ("close", "expect") and self.count >= self._nth:
                raise self._what()
            return operation(*values, **named)

        return failing


@pytest.mark.in_turn("kind", 2)
@pytest.mark.parametrize("kind", [FailingDoor, BrokenDoor])
def test_where_no_file_was_touched_nothing_is_begun(tmp_path: Path, kind: type[FailingDoor]) -> None:
    """The next command would complete the restore, over whatever the user has done meanwhile."""
    lab, saved, said = tmp_path / "lab", tmp_path / "saved", []
    lab.mkdir()
    store, models = make_history(lab, random.Random(1), runs=2, steps=5)
    target = next(index for index in models if models[index] != models[store.head.index])
    store.close()
    os.system(f"cp -a '{lab}' '{saved}'")
    for nth in itertools.count(1):
        copy_of(lab, saved)
        with Store.open(os.fsencode(lab / "store"), write=True) as fresh:
            fresh.set_head(fresh.head.index, fresh.head.kept)  # the copies have other inode numbers
        door = kind(nth, lambda: OSError(errno.EIO, os.strerror(errno.EIO)))
        store = Store(os.fsencode(lab / "store"), door)  # type: ignore[arg-type]
        try:
            store.read_format()
            store.lock()
            restore.move_home(store, target)
            break
        except OSError:
            continue
        except MetamoriError as error:
            said.append(str(error))
            assert "no file was touched" not in said[-1] or not (lab / "store" / "intent").exists(), nth
        finally:
            store.close()
    assert any("no file was touched" in each for each in said) and any("run the command again" in each for each in said)


def a_run_to_leave(lab: Path) -> tuple[int, int]:
    """A run has removed a link and renamed a file: where head is, and where the files are."""
    files = lab / "files"
    files.mkdir(parents=True)
    (files / "a").write_bytes(b"text")
    with Store.create_or_open(os.fsencode(lab / "store")) as store:
        run = Run(store, files, {}, random.Random(1))
        run.rename(files / "a", files / "c")
        run.rename(files / "c", files / "a")
        run.symlink("a", files / "l")
        here = run.end()
        os.link(files / "l", lab / "holds its number", follow_symlinks=False)
        store.set_head(here)
        run = Run(store, files, {}, random.Random(1))
        run.unlink(files / "l")
        run.rename(files / "a", files / "b")
        return here, run.checkpoint()


def test_head_notes_what_lies_there_when_a_completion_is_done_again(tmp_path: Path) -> None:
    """Head is at one index before and after, and the link comes back as another inode: once a stop between the second
    intent and head left the number of the link that is gone, and the next restore was refused."""
    for nth in itertools.count(1):
        lab, stopped = tmp_path / str(nth), False
        here, there = a_run_to_leave(lab)
        store = Store(os.fsencode(lab / "store"), FailingDoor(nth, Killed))  # type: ignore[arg-type]
        try:
            store.read_format()
            store.lock()
            restore.move_names(store, there, here, retire=lambda: None)
        except Killed:
            stopped = True
        store.close()
        with Store.open(os.fsencode(lab / "store"), write=True) as after:
            restore.recover(after)
            if (lab / "files" / "b").exists():         # nothing had begun
                restore.move_names(after, there, here, retire=lambda: None)
            assert {*take_snapshot(lab / "files")} == {"a", "l"} and after.changed_outside() == [], nth
        if not stopped:
            break
    assert nth > 20
