"""The laboratory of the black-box tests: a folder to work in, a store, programs, the `metamori` command.

Nothing here looks inside Metamori: tests see the command line, the C API (by the driver program) and files.
"""

from __future__ import annotations

import io
import json
import os
import select
import shlex
import signal
import stat
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hang
import served

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0  # seconds that any single answer may take; more is a hang


@dataclass(frozen=True)
class Entry:
    """One name of a folder, as a user sees it. `content` is a symbolic link's target or a file's bytes."""

    kind: str
    mode: int
    content: bytes = b""
    links: int = 1
    mtime_ns: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        crc = zlib.crc32(self.content)
        return f"<{self.kind} {self.mode:o}, {len(self.content)} B, {crc:08x}, {self.links} links>"


Tree = dict[str, Entry]


def picture(folder: Path) -> Tree:
    """Every name below `folder` (the store's own, if it is there, left out)."""
    found: Tree = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(where, name)
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                entry = Entry("link", 0, os.readlink(path).encode())
            elif stat.S_ISDIR(status.st_mode):
                entry = Entry("folder", mode)
            elif not stat.S_ISREG(status.st_mode):
                entry = Entry("other", mode)
            else:
                entry = Entry("file", mode, path.read_bytes(), status.st_nlink, status.st_mtime_ns)
            found[str(path.relative_to(folder))] = entry
        folders[:] = [name for name in folders if name != ".metamori"]
    return found


def difference(have: Tree, want: Tree) -> str:
    """Empty when both are equal, else one line per name that differs."""
    lines = []
    for path in sorted(have.keys() | want.keys()):
        one, other = have.get(path), want.get(path)
        if one == other:
            continue
        line = f"{path}: have {one}, want {other}"
        if one and other and one.content != other.content:
            first = next((i for i, (x, y) in enumerate(zip(one.content, other.content)) if x != y), None)
            line += f", first difference at byte {first}"
        lines.append(line)
    return "\n".join(lines)


def gone(pid: int) -> bool:
    """Whether a process has ended, one that nobody has reaped yet too; not while a thread of it still holds what it had
    open."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
        return state == "X" or (state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1)
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition, what: str, seconds: float = PATIENCE) -> None:
    """Polls until the condition holds; fails the test after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(0.01)


class Session:
    """A program that answers lines: the driver, natively or under `metamori run`."""

    def __init__(self, command: Sequence[str], cwd: Path, env: dict[str, str], stderr: Path) -> None:
        self.command, self.env, self.stderr_path = list(command), env, stderr
        self._buffer = b""
        with stderr.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self.pid = 0  # of the program itself; known after the first question about it

    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def last_words(self) -> str:
        return f"ended with {self.process.wait(PATIENCE)}; stderr: {self.stderr()}"

    def _line(self) -> str:
        assert self.process.stdout
        while b"\n" not in self._buffer:
            answer = select.poll()         # select knows no descriptor from 1024 on
            answer.register(self.process.stdout, select.POLLIN)
            ready = answer.poll(PATIENCE * 1000)
            assert ready, f"no answer for {PATIENCE:.0f} s; stderr: {self.stderr()}"
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, f"no answer: {self.last_words()}"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def ask(self, line: str) -> str:
        """Sends one line and waits for its answer."""
        assert self.process.stdin
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"no listener: {self.last_words()}") from None
        return self._line()

    def do(self, lines: Iterable[str]) -> list[str]:
        """Sends several lines one after the other; all their answers."""
        return [self.ask(line) for line in lines]

    def must(self, lines: Iterable[str]) -> list[str]:
        """The same, and no answer may be a failure."""
        answers = []
        for line in lines:
            answers.append(self.ask(line))
            assert not answers[-1].startswith(("-1 ", "?")), f"{line}: {answers[-1]}"
        return answers

    def program(self) -> int:
        """Process id of the program itself."""
        self.pid = self.pid or int(self.ask("pid"))
        return self.pid

    def end(self) -> int:
        """Closes the program's input and waits for the end; the exit status."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return status

    def kill_program(self) -> int:
        """SIGKILL to the program only; the exit status of what was started."""
        os.kill(self.program(), signal.SIGKILL)
        return self.end()

    def kill_all(self) -> None:
        """SIGKILL to `metamori run` and then to the program, as a node that dies would do."""
        program = self.program()
        self.process.kill()
        if program != self.process.pid:
            os.kill(program, signal.SIGKILL)
        self.end()
        wait_until(lambda: gone(program), "the killed program is still there")

    def cleanup(self) -> None:
        for pid in (self.process.pid, self.pid):
            if pid and self.process.poll() is None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()


@dataclass
class Lab:
    """`work` is the program's folder, `store` the store, `driver` the compiled driver."""

    folder: Path
    driver: Path
    sessions: list[Session] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work = self.folder / "work"
        self.store = self.folder / "store"
        elsewhere = os.environ.get("METAMORI_TEST_STORES")  # stores on another filesystem: tools/on-filesystems
        if elsewhere:
            self.store = Path(tempfile.mkdtemp(dir=elsewhere)) / "store"
        self.work.mkdir(exist_ok=True)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("METAMORI", "LD_PRELOAD"))}
        if "METAMORI_CHECKED" in os.environ:  # the build with assertions: `make test` runs the scenarios with it too
            self.env["METAMORI_CHECKED"] = os.environ["METAMORI_CHECKED"]
        self.env["PYTHONPATH"] = str(ROOT)
        self.env["METAMORI_TRACK"] = "/"   # a test may write anywhere; those of the scope take this away
        self.env["LC_ALL"] = "C.UTF-8"

    # commands

    def argv(self, verb: str, *words: object, store: Path | None = None) -> list[str]:
        return [*served.METAMORI, verb, "--store", str(store or self.store), *map(str, words)]

    def verb(
        self, verb: str, *words: object, code: int | None = 0, store: Path | None = None,
        cwd: Path | None = None, timeout: float = PATIENCE * 2,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """A verb other than run; its exit code must be `code` (None: any)."""
        done = served.run(self.argv(verb, *words, store=store), cwd or self.folder, self.env, timeout)
        out, errors = (io.TextIOWrapper(io.BytesIO(said), "utf-8", "replace").read()
                       for said in (done.stdout, done.stderr))
        if code is not None:
            assert done.returncode == code, f"{verb} {words}: {done.returncode}, wanted {code}\n{errors}"
        return subprocess.CompletedProcess(done.args, done.returncode, out, errors)

    def run(
        self, command: Sequence[object] | str, *options: object, native: bool = False,
        cwd: Path | None = None, stdin: str | bytes = b"",
        timeout: float = PATIENCE * 3, env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
        """A whole command, natively or under `metamori run OPTIONS --`."""
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
        argv = words if native else [*self.argv("run", *options), "--", *words]
        return hang.run(argv, timeout, stdin.encode() if isinstance(stdin, str) else stdin,
                        cwd=cwd or self.work, env=self.env | (env or {}))

    def start(
        self, *options: object, native: bool = False, cwd: Path | None = None, driver: Path | None = None
    ) -> Session:
        """The driver as a session, in the work folder."""
        words = [str(driver or self.driver)]
        argv = words if native else [*self.argv("run", *options), "--", *words]
        session = Session(argv, cwd or self.work, self.env, self.folder / f"stderr.{len(self.sessions)}")
        self.sessions.append(session)
        return session

    # the verbs that most tests need

    def checkpoint(self, *words: object) -> int:
        """A checkpoint from outside; its index."""
        return int(self.verb("checkpoint", *words).stdout.strip())

    def restore(self, index: int, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.verb("restore", index, *words, code=code)

    def log(self) -> dict:
        return json.loads(self.verb("log", "--json").stdout)

    def messages(self) -> dict[int, str]:
        """What `log` says of each index."""
        return {entry["index"]: entry["message"] for entry in self.log()["checkpoints"]}

    def state(self) -> Tree:
        return picture(self.work)

    def assert_state(self, want: Tree, what: str) -> None:
        wrong = difference(self.state(), want)
        assert not wrong, f"{what}:\n{wrong}"

    def close(self) -> None:
        for session in self.sessions:
            session.cleanup()
