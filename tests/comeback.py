"""A program natively, and under `metamori run --memory`: checkpointed, killed, brought back everywhere, compared."""

from __future__ import annotations

import json
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import built_once
import pytest
import served
from hang import descendants
from lab import PATIENCE, ROOT, difference, gone, picture, wait_until
from served import METAMORI

PROGRAMS = ROOT / "tests" / "memory" / "programs"


@dataclass(frozen=True)
class Uninterrupted:
    """What the program does when nobody disturbs it."""

    status: int
    output: bytes
    files: dict


# the beginning of a program of Python's: it asks for a checkpoint, and says on which side of it it is
TAKEN = """
import ctypes, os, select, socket, struct, sys, time
libc = ctypes.CDLL(None)
def taken():
    r = libc.metamori_checkpoint() if hasattr(libc, "metamori_checkpoint") else 1
    sys.stderr.write("taken\\n" if r > 0 else "came back\\n" if r == 0 else "none\\n")
"""


def state_of(pid: int) -> list[str]:
    """The words of /proc/PID/stat from the state on; none of a process that is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def stopped(pid: int) -> bool:
    return state_of(pid)[:1] == ["T"]


def started(pid: int) -> int:
    return int((state_of(pid) or [0] * 20)[19])


def built(folder: Path, name: str, *options: str) -> Path:
    """A compiled program of tests/memory/programs; skipped with a message without its compiler."""
    compiler = {".c": "gcc", ".cc": "g++", ".f90": "gfortran"}[Path(name).suffix]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    target = folder / Path(name).stem
    include = ROOT / "shim_c" / "include"
    built_once.build([compiler, "-O1", f"-I{include}", PROGRAMS / name, "-pthread", *options], target)
    return target


def _numbers(words: Sequence[str]) -> dict[str, str]:
    """Half of the restarts give programs other numbers, also where root could choose them."""
    is_other = words[0] == "restart" and words[-1].isdigit() and int(words[-1]) % 2 == 0
    return {"METAMORI_MEMORY_NUMBERS": "new"} if is_other else {}


class Memory:
    """One program in folders of its own."""

    def __init__(self, folder: Path, command: Sequence[str | Path], stdin: bytes = b"",
                 setup: dict[str, bytes] | None = None, ends: bool = True, user: str | None = None) -> None:
        """user: who runs it, where root may not; the folder must be open to all."""
        self.folder, self.command = folder, [str(word) for word in command]
        self.user = pwd.getpwnam(user) if user else None
        self.store = folder / "store"
        self.input = folder / "input"
        self.input.write_bytes(stdin)
        self.setup = setup or {}
        self.may_refuse: Callable[[str], bool] = lambda line: False
        self.within: Sequence[str] = ()    # what starts the run
        self.added: dict[str, str] = {}    # to the environment of what is started from now on
        self.native = self._uninterrupted() if ends else Uninterrupted(0, b"", {})
        self.work = self._place("work")

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir()
        for path, content in self.setup.items():
            (place / path).write_bytes(content)
        if self.user:
            for each in (self.folder, place, *place.iterdir()):
                os.chown(each, self.user.pw_uid, self.user.pw_gid)
        return place

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("METAMORI")}
        if self.user:
            kept["HOME"] = str(self.folder)
        return {**kept, "PYTHONHASHSEED": "1", "METAMORI_STORE": str(self.store), "PYTHONPATH": str(Path.cwd()),
                **self.added}

    @property
    def _as_user(self) -> dict[str, Any]:
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}

    def _uninterrupted(self) -> Uninterrupted:
        # the same working folder's name, so that nothing that depends on it differs
        place = self._place("work")
        with self.input.open("rb") as stdin:
            done = subprocess.run(self.command, cwd=place, env=self.environment(), stdin=stdin, capture_output=True,
                                  timeout=PATIENCE * 2, check=False, **self._as_user)
        assert done.returncode != 99, done.stderr     # MUST of the programs: nothing could be compared with it
        files = picture(place)
        place.rename(self.folder / "uninterrupted")
        return Uninterrupted(done.returncode, done.stdout, files)

    # -- verbs ---------------------------------------------------------------------------------------

    def start(self, *options: str, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        command = [*within, *self.within, *METAMORI, "run", "--memory", *options, "--", *self.command]
        with self.input.open("rb") as stdin, (self.folder / "out").open("wb") as out, \
                (self.folder / "err").open("wb") as err:
            return subprocess.Popen(command, cwd=self.work, env=self.environment(), stdin=stdin, stdout=out, stderr=err,
                                    **self._as_user)

    def verb(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[bytes]:
        argv, env = [*METAMORI, *words], self.environment() | _numbers(words)
        if not self.user:
            return served.run(argv, self.work, env, PATIENCE * 2, stdin)
        return subprocess.run(argv, cwd=self.work, env=env, stdin=stdin, capture_output=True, timeout=PATIENCE * 2,
                              check=False, **self._as_user)

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

    def run_and_kill(self, every: str, images: int, least: int = 1) -> list[int]:
        """Checkpoints by the timer; SIGKILL after so many, unless the program was faster. The indexes with memory.

        A program that was through before the `least` of them is begun again, with a timer that is twice as fast."""
        milliseconds = int(every.removesuffix("ms"))
        while True:
            found = self._run_and_kill(f"{milliseconds}ms", images)
            if len(found) >= least:
                return found
            assert milliseconds > 1, f"{len(found)} checkpoints hold memory: {self.errors()}"
            milliseconds //= 2
            shutil.rmtree(self.store)
            shutil.rmtree(self.work)
            self.work = self._place("work")

    def _run_and_kill(self, every: str, images: int) -> list[int]:
        run = self.start("--every", every)
        try:
            wait_until(lambda: len(self.images()) >= images or run.poll() is not None, f"images: {self.errors()}")
            said = self.errors()           # not what is said of processes that are being killed
            self.kill(run)
            run.wait(PATIENCE)
        finally:
            if run.poll() is None:
                run.kill()
        self._require_none_refused(said)
        return self.images()

    def _require_none_refused(self, said: str) -> None:
        refused = [line for line in said.splitlines() if "no checkpoint" in line and not self.may_refuse(line)]
        assert refused == [], self.errors()

    def branch(self, index: int, every: str) -> list[int]:
        """Gone on with from an index, checkpoints on the way, all killed: those of them with memory."""
        milliseconds, before = int(every.removesuffix("ms")), set(self.images())
        while True:
            self._branch(index, f"{milliseconds}ms", before)
            if found := sorted(set(self.images()) - before):
                return found
            assert milliseconds > 1, f"no checkpoint of a branch holds memory: {self.errors()}"
            milliseconds //= 2

    def _branch(self, index: int, every: str, before: set[int]) -> None:
        run = self.restart_in_background(index, "--every", every)
        try:
            wait_until(lambda: len(set(self.images()) - before) > 1 or run.poll() is not None,
                       f"images of a branch: {self.errors()}")
            said = self.errors()
            self.kill_with(run)
            run.wait(PATIENCE)
        finally:
            run.kill()
        self._require_none_refused(said)

    def of_the_run(self) -> list[int]:
        """Its processes, by their environment: wherever they are in the tree by now."""
        wanted = f"METAMORI_STORE={self.store}".encode()
        found = []
        for each in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if wanted in Path(f"/proc/{each}/environ").read_bytes().split(b"\0"):
                    found.append(int(each))
        return found

    def kill_with(self, run: subprocess.Popen[bytes]) -> None:
        """The program and what started it. That stands still while its children are looked for: it would have another
        by the time that it is killed, which nobody would end."""
        run.send_signal(signal.SIGSTOP)
        wait_until(lambda: gone(run.pid) or stopped(run.pid), "it stands still")
        victims = descendants(run.pid)
        run.kill()
        self.kill_all(victims)
        self._kill_orphans(run)

    def is_saved_and_killed(self) -> None:
        """As soon as it says that it is ready."""
        run = self.start()
        try:
            wait_until((self.work / "ready").exists, f"it is ready: {self.errors()}")
            assert self.verb("checkpoint").returncode == 0, self.errors()
        finally:
            self.kill_with(run)
            run.wait()

    def _kill_orphans(self, run: subprocess.Popen[bytes]) -> None:
        """Those that are nobody's children, and what they have begun meanwhile."""
        while left := [pid for pid in self.of_the_run() if pid != run.pid and not gone(pid)]:
            self.kill_all(left)

    def kill_all(self, pids: Sequence[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_until(lambda: all(gone(pid) for pid in pids), "the killed program ends")

    def kill(self, run: subprocess.Popen[bytes]) -> None:
        """The program, not `metamori run`; then whoever writes an image of it just now: his end alone is a failure. No
        checkpoint is begun meanwhile: it would be of those that are left."""
        run.send_signal(signal.SIGSTOP)
        wait_until(lambda: gone(run.pid) or stopped(run.pid), "it stands still")
        first, *others = sorted(descendants(run.pid), key=started) or [0]
        self.kill_all([first] if first else [])
        self.kill_all(others)
        self._kill_orphans(run)
        run.send_signal(signal.SIGCONT)

    def restart_in_background(self, index: int, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "err").open("ab") as err:
            environment = self.environment() | _numbers(["restart", str(index)])
            return subprocess.Popen([*METAMORI, "restart", *options, str(index)], cwd=self.work, env=environment,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, **self._as_user)

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


def comes_back(case: Memory, every: str = "200ms") -> None:
    """At the last index, at earlier ones, and at one of a branch."""
    found = case.run_and_kill(every, 3)
    case.everywhere(found, most=2)
    case.goes_on(case.branch(found[0], every)[-1])
    case.goes_on(found[-1])


@contextmanager
def running(run: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield run
    finally:
        if run.poll() is None:             # its program, too: it would wait for ever for what nobody makes any more
            victims = descendants(run.pid)
            run.kill()
            for pid in victims:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def came_back(case: Memory, *indexes: int) -> None:
    """One that says so, to the same end."""
    for index in indexes:
        done = case.verb("restart", str(index))
        assert (done.returncode, b"came back" in done.stderr) == (case.native.status, True), done
        assert case.native.output.endswith(done.stdout) and done.stdout, (done.stdout, case.native.output)


def run_of(case: Memory) -> None:
    """One that takes its checkpoints itself."""
    if case.native.status == 77:
        pytest.skip("this machine has none")
    assert case.start().wait(300) == case.native.status, case.errors()
    assert (case.folder / "out").read_bytes() == case.native.output


class Printing(Memory):
    """Compared by what it prints: its files carry times, and numbers of their own."""

    def goes_on(self, index: int, *options: str) -> None:
        done = self.verb("restart", *options, str(index))
        assert done.returncode == self.native.status, (index, done.returncode, done.stderr.decode(errors="replace"))
        assert self.native.output.endswith(done.stdout), (index, done.stdout[-300:], self.native.output[-300:])


def is_as_it_was(folder: Path, script: str) -> None:
    """A program of Python's that takes one checkpoint, and says what it sees before and after."""
    (folder / "script").write_text(TAKEN + script)
    case = Memory(folder, ["/usr/bin/python3", folder / "script"])
    assert case.native.status in (0, 77), case.native
    run_of(case)
    assert case.errors().count("taken") == 1
    came_back(case, 1)


def killed_again(case: Memory, random_: random.Random, index: int) -> None:
    """Gone on from an index, checkpoints on the way, SIGKILL at some moment."""
    run = case.restart_in_background(index, "--every", "60ms")
    try:
        wanted = len(case.images()) + random_.randint(0, 2)
        wait_until(lambda: len(case.images()) >= wanted or run.poll() is not None, "images")
        time.sleep(random_.random() * 0.05)
        if random_.random() < 0.5:
            case.kill(run)
        else:                              # `metamori restart` itself dies too
            case.kill_with(run)
        run.wait(PATIENCE)
    finally:
        run.kill()
