"""A program natively, and under `metamori run --memory`: checkpointed, killed, brought back everywhere, compared."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import PATIENCE, difference, gone, picture, wait_until

METAMORI = [sys.executable, "-m", "metamori"]


@dataclass(frozen=True)
class Uninterrupted:
    """What the program does when nobody disturbs it."""

    status: int
    output: bytes
    files: dict


class Memory:
    """One program in folders of its own."""

    def __init__(self, folder: Path, command: Sequence[str | Path], stdin: bytes = b"",
                 setup: dict[str, bytes] | None = None) -> None:
        self.folder, self.command = folder, [str(word) for word in command]
        self.store = folder / "store"
        self.input = folder / "input"
        self.input.write_bytes(stdin)
        self.setup = setup or {}
        self.added: dict[str, str] = {}    # to the environment of what is started from now on
        self.native = self._uninterrupted()
        self.work = self._place("work")

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir()
        for path, content in self.setup.items():
            (place / path).write_bytes(content)
        return place

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("METAMORI")}
        return {**kept, "PYTHONHASHSEED": "1", "METAMORI_STORE": str(self.store), "PYTHONPATH": str(Path.cwd()),
                **self.added}

    def _uninterrupted(self) -> Uninterrupted:
        # the same working folder's name, so that nothing that depends on it differs
        place = self._place("work")
        with self.input.open("rb") as stdin:
            done = subprocess.run(self.command, cwd=place, env=self.environment(), stdin=stdin, capture_output=True,
                                  timeout=PATIENCE * 2, check=False)
        files = picture(place)
        place.rename(self.folder / "uninterrupted")
        return Uninterrupted(done.returncode, done.stdout, files)

    # -- verbs ---------------------------------------------------------------------------------------

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [*METAMORI, "run", "--memory", *options, "--", *self.command]
        with self.input.open("rb") as stdin, (self.folder / "out").open("wb") as out, \
                (self.folder / "err").open("wb") as err:
            return subprocess.Popen(command, cwd=self.work, env=self.environment(), stdin=stdin, stdout=out, stderr=err)

    def verb(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*METAMORI, *words], cwd=self.work, env=self.environment(), stdin=stdin,
                              capture_output=True, timeout=PATIENCE * 2, check=False)

    def errors(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    def images(self) -> list[int]:
        """Indexes that hold memory, by their files: without disturbing a live run."""
        folder = self.store / "checkpoints"
        names = os.listdir(folder) if folder.exists() else []
        metas = {int(name.split(".")[0]) for name in names if re.fullmatch(r"\d+\.meta\.\d+", name)}
        return sorted(metas & {int(name.split(".")[0]) for name in names if re.fullmatch(r"\d+\.memory\.\d+", name)})

    def log(self) -> dict:
        done = self.verb("log", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    # -- the whole story -----------------------------------------------------------------------------

    def run_and_kill(self, every: str, images: int) -> list[int]:
        """Checkpoints by the timer; SIGKILL after so many, unless the program was faster. The indexes with memory."""
        run = self.start("--every", every)
        try:
            wait_until(lambda: len(self.images()) >= images or run.poll() is not None, f"images: {self.errors()}")
            self.kill(run)
            run.wait(PATIENCE)
        finally:
            if run.poll() is None:
                run.kill()
        found = self.images()
        assert found, f"no checkpoint holds memory: {self.errors()}"
        assert "no checkpoint" not in self.errors(), self.errors()
        return found

    def children(self, run: subprocess.Popen[bytes]) -> list[int]:
        """The program, and whoever writes an image of it just now."""
        command = ["ps", "-o", "pid=", "--ppid", str(run.pid)]
        return list(map(int, subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()))

    def kill_all(self, pids: Sequence[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_until(lambda: all(gone(pid) for pid in pids), "the killed program ends")

    def kill(self, run: subprocess.Popen[bytes]) -> None:
        """The program, not `metamori run`."""
        self.kill_all(self.children(run))

    def restart_in_background(self, index: int, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "err").open("ab") as err:
            return subprocess.Popen([*METAMORI, "restart", *options, str(index)], cwd=self.work, env=self.environment(),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)

    def goes_on(self, index: int, *options: str) -> None:
        """From an index to the end: output, status and files as if nothing had happened."""
        done = self.verb("restart", *options, str(index))
        assert done.returncode == self.native.status, (index, done.returncode, done.stderr.decode(errors="replace"))
        assert self.native.output.endswith(done.stdout), (index, done.stdout[-300:], self.native.output[-300:])
        found = difference(picture(self.work), self.native.files)
        assert found == "", (index, found)

    def everywhere(self, indexes: Sequence[int], most: int = 3) -> None:
        """Backward and forward, and the store is whole afterwards."""
        step = max(1, len(indexes) // most)
        chosen = list(indexes)[::-1][::step][:most]
        for index in [*chosen, *chosen[:-1][::-1]]:
            self.goes_on(index)
        checked = self.verb("verify")
        assert checked.returncode == 0, checked.stderr
