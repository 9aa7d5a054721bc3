"""Fuzz targets of what the processes of a run share: a killed run's area, changed by another party, and the requests
that `metamori run` answers.

A run is really made, once: a small program under the preload library, killed together with `metamori run`. An input is
a list of changes to it: a file of the area, an offset, up to seven bytes. The files keep their inodes from one input to
the next, since the area knows them by that.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from lab import wait_until

from metamori.cli import opening
from metamori.errors import MetamoriError, StoreBusy
from metamori.runtime.lifecycle import recover
from metamori.store.read.store import Store

REGIONS = ("header", "processes", "fits", "pifs", "pages", "journal", "strings", "chunks", "frames", "ahead")
PROGRAM = """
import ctypes, os
c = ctypes.CDLL(None)
for name in ("old", "new"):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"n" * 9000, 3000)
assert c.metamori_checkpoint() > 0
os.pwrite(fd, b"m" * 5000, 4096)
os.rename("old", "moved")
os.unlink("gone")
os.kill(os.getppid(), 9)
os.kill(os.getpid(), 9)
"""


class Killed:
    """A folder with what a killed run left, whole again before each input."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work, self.store = folder, folder / "work", folder / "store"
        self.work.mkdir(parents=True)
        for name, size in (("old", 20000), ("gone", 5000), ("mine", 300)):
            (self.work / name).write_bytes(name.encode() * (size // len(name)))
        root = Path(__file__).resolve().parents[2]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("METAMORI", "LD_PRELOAD"))}
        run = [sys.executable, "-m", "metamori", "run", "--store", str(self.store), "--"]
        subprocess.run([*run, sys.executable, "-c", PROGRAM],
                       cwd=self.work, env=env | {"PYTHONPATH": str(root)}, stderr=subprocess.DEVNULL, check=False)
        wait_until(self._over, "the killed program is gone, too")
        assert (self.store / "run" / "header").exists()
        self.whole = {path: path.read_bytes() for path in self._files() if path.name not in ("room", "cache")}
        for number, path in enumerate(sorted(self.whole)):     # a second name keeps the inode
            os.link(path, self._second(number))
        self.modes = {path: path.stat() for path in self.whole}

    def _over(self) -> bool:
        """`metamori run` is killed first, and its death is what a test hears of."""
        try:
            with Store.open(str(self.store), write=True) as store:
                recover.require_over(store)
            return True
        except StoreBusy:
            return False

    def _second(self, number: int) -> Path:
        (self.folder / "second").mkdir(exist_ok=True)
        return self.folder / "second" / str(number)

    def _files(self) -> list[Path]:
        """But those by which a store knows that it is no copy."""
        return [path for part in (self.work, self.store) for path in part.rglob("*")
                if path.is_file() and path.name not in ("format", "lock")]

    def again(self) -> None:
        shutil.rmtree(self.store / "run.over", ignore_errors=True)
        for path in self._files():
            if path not in self.whole or path.parent.name == "run":
                path.unlink()
        for number, path in enumerate(sorted(self.whole)):
            second, then = self._second(number), self.modes[path]
            if second.stat().st_size != then.st_size or second.read_bytes() != self.whole[path]:
                second.write_bytes(self.whole[path])
            os.chmod(second, then.st_mode & 0o7777)
            os.utime(second, ns=(then.st_atime_ns, then.st_mtime_ns))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            os.link(second, path)
        for name in ("room", "cache"):
            (self.store / "run" / name).write_bytes(bytes(1 << 20 if name == "cache" else 0))

    def change(self, data: bytes) -> None:
        while len(data) > 4:
            path, at = self.store / "run" / REGIONS[data[0] % len(REGIONS)], (data[1] | data[2] << 8) * 4
            length = 1 + data[3] % 7
            piece, data = data[4:4 + length], data[4 + length:]
            if at + len(piece) <= len(self.whole[path]):
                with open(path, "r+b") as file:
                    file.seek(at)
                    file.write(piece)


@cache
def killed(folder: Path) -> Killed:
    return Killed(folder)


def area(folder: Path, data: bytes) -> None:
    """The next verb completes the run or says why not; a file that the run never had is not touched."""
    case = killed(folder)
    case.again()
    case.change(data)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(MetamoriError, OSError):
        opening.for_reading(SimpleNamespace(store=str(case.store))).unlock()
    assert (case.work / "mine").read_bytes() == b"mine" * 75, "a file of nobody was changed"
    assert {path.name for path in folder.iterdir()} == {"work", "store", "second"}


def request(folder: Path, data: bytes) -> None:
    """What a process of the run may have put where `metamori run` looks for requests: it is answered, or refused."""
    from metamori._area import ffi
    from metamori.config import Config
    from metamori.runtime.area.run_area import Area
    from metamori.runtime.checkpoint.session import Session
    from metamori.runtime.lifecycle.run_controller import Live

    case = killed(folder)
    case.again()
    with Store.open(str(case.store)) as store, contextlib.redirect_stderr(io.StringIO()):
        run = Area(store.path)
        try:
            live = Live(Session(store, run), Config.make({}, {}), 1 << 30, {})
            piece = data[:ffi.sizeof("struct mm_request")]
            ffi.memmove(ffi.addressof(run.head.request), piece, len(piece))
            run.head.request.lock = 0
            posted = run.head.request.posted
            live.serve()
            assert run.head.request.answered == posted
        finally:
            run.close()
