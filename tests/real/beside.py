"""A real program natively and under Metamori: same results, then back at three of its checkpoints.

Two ways. A *story* is a script that says `mark` wherever it stands still: natively that copies the folder aside,
under Metamori it takes a checkpoint, so each restored folder has a true picture to be equal to. A *server* is watched
from outside: checkpoints come while it works, and its own checkers judge what a restore brings back.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest
from lab import Lab, Tree, difference, picture

HERE = Path(__file__).resolve().parent
PATIENCE = 600.0  # seconds that a whole program may take on a slow machine
PATHS = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
ENVIRONMENT = {
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "", "LC_ALL": "C.UTF-8", "PATH": PATHS,
}  # fmt: skip


def need(*tools: str) -> None:
    """Skips with a message when a program is not installed."""
    missing = [tool for tool in tools if not shutil.which(tool, path=PATHS)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


@dataclass(frozen=True)
class Story:
    """A script of stories/. Its first comments say what it needs, what no two runs have equal, and who checks it."""

    path: Path
    needs: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()  # globs of paths left out of comparisons
    checks: tuple[str, ...] = ()  # commands that must succeed in a copy of every restored folder
    shell: str = "bash"

    @classmethod
    def read(cls, path: Path) -> Story:
        said: dict[str, list[str]] = {"needs": [], "volatile": [], "check": []}
        for line in path.read_text().splitlines():
            found = re.match(r"# (needs|volatile|check): (.*)", line)
            if not found:
                break
            said[found[1]] += [found[2]] if found[1] == "check" else found[2].split()
        shell = "/usr/bin/python3" if path.suffix == ".py" else "bash"
        return cls(path, tuple(said["needs"]), tuple(said["volatile"]), tuple(said["check"]), shell)

    def lasting(self, tree: Tree) -> Tree:
        """Without what no two runs have equal."""
        return {
            path: entry for path, entry in tree.items()
            if not any(fnmatch(path, glob) for glob in self.volatile)
        }  # fmt: skip


@dataclass
class Outcome:
    status: int
    out: str
    err: str
    taken: list[int] = field(default_factory=list)  # checkpoints from outside


@dataclass
class Trial:
    """`lab` has Metamori, `native` does without."""

    lab: Lab
    native: Lab
    as_user: tuple[str, ...] = ()  # a command in front of each that makes it an ordinary user

    @staticmethod
    def taken(lab: Lab) -> Path:
        """A file, named by TAKEN to programs that are watched from outside, that is there when a checkpoint of them
        is: until then they go on, or wait, so that none is ever through before. Natively it is there."""
        return lab.folder / "taken"

    # stories

    def tell(self, story: Story, *options: str) -> None:
        """The whole story: told twice, compared, then taken back to its marks in random order."""
        need(*story.needs)
        copies_folder = self.native.folder / "marks"
        copies_folder.mkdir()
        want = self._told(story, f"n=$(ls {copies_folder} | wc -l)\nexec cp -a . {copies_folder}/$n", native=True)
        self.native.work.rmdir()
        self.lab.work.rename(self.native.work)  # both in the same folder: some write down where they are
        self.lab.work.mkdir()
        before = self.lab.state()
        checkpoint = f"PYTHONPATH={self.lab.env['PYTHONPATH']} exec {' '.join(self.lab.argv('checkpoint'))} -m mark"
        have = self._told(story, checkpoint + " >/dev/null", options=options)
        assert have == want, f"{have}\nnatively:\n{want}"
        end = self.lab.state()
        self._equal(story, end, self.native.state(), "after the end")
        copies = sorted(copies_folder.iterdir(), key=lambda path: int(path.name))
        taken = [index for index, text in sorted(self.lab.messages().items()) if text == "mark"]
        assert len(taken) == len(copies) >= 2, "a story has some marks"
        for index, copy in random.Random(len(copies)).sample(list(zip(taken, copies)), min(3, len(copies))):
            self.lab.restore(index)
            self._equal(story, self.lab.state(), picture(copy), f"after restore {index}")
            for check in story.checks:
                self.check_copy(check, f"after restore {index}")
        self.lab.restore(0)
        self.lab.assert_state(before, "after restore 0")
        self.lab.restore(max(self.lab.messages()))
        self._equal(story, self.lab.state(), self.native.state(), "after going to the end again")
        self.lab.verb("verify")

    def _told(self, story: Story, mark: str, native: bool = False, options: tuple[str, ...] = ()) -> Outcome:
        """The script in the work folder; `mark` is what that command of the script does there."""
        commands = self.lab.folder / ("mark" if native else "checkpoint")
        commands.mkdir()
        (commands / "mark").write_text(f"#!/bin/sh\ncd {self.lab.work}\n{mark}\n")
        (commands / "mark").chmod(0o755)
        env = ENVIRONMENT | {"PATH": f"{commands}:{PATHS}", "PYTHONPATH": self.lab.env["PYTHONPATH"]}
        command = ["env", "-u", "PYTHONPATH", story.shell, str(story.path)]
        done = self.lab.run(command, *options, native=native, env=env, timeout=PATIENCE)
        return Outcome(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    @staticmethod
    def _equal(story: Story, have: Tree, want: Tree, what: str) -> None:
        wrong = difference(story.lasting(have), story.lasting(want))
        assert not wrong, f"{what}:\n{wrong}"

    # servers and other programs that are watched from outside

    def natively(self, command: list[str], status: int = 0) -> Outcome:
        self.taken(self.native).touch()
        env = self.native.env | ENVIRONMENT | {"TAKEN": str(self.taken(self.native))}
        done = subprocess.run(
            [*self.as_user, *command], cwd=self.native.work, env=env, capture_output=True, text=True,
            errors="replace", timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"natively: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Outcome(done.returncode, done.stdout, done.stderr)

    def under(self, command: list[str], *options: str, ready: str = "", checkpoints: int = 4) -> Outcome:
        """The same under `metamori run`, with checkpoints from outside once the file `ready` is there."""
        work = self.lab.work
        env = {"PYTHONPATH": self.lab.env["PYTHONPATH"], "TAKEN": str(self.taken(self.lab))}
        with (self.lab.folder / "out").open("wb") as out, (self.lab.folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [*self.as_user, *self.lab.argv("run", *options), "--", *command], cwd=work,
                env=self.lab.env | ENVIRONMENT | env, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                taken = self._watched(process, work / ready if ready else None, checkpoints)
                status = process.wait(PATIENCE)
            finally:
                process.kill()
        said = [(self.lab.folder / name).read_text(errors="replace") for name in ("out", "err")]
        return Outcome(status, *said, taken=taken)

    def _watched(self, process: subprocess.Popen[bytes], ready: Path | None, wanted: int) -> list[int]:
        taken: list[int] = []
        while process.poll() is None and len(taken) < wanted:
            time.sleep(0.05)
            if ready is None or ready.exists():
                done = self.verb("checkpoint", code=None)
                if done.returncode == 0:
                    taken.append(int(done.stdout))
                    self.taken(self.lab).touch()
                else:
                    assert done.returncode in (1, 10, 15), done.stderr  # not begun, or over; 1: tried while busy
        return taken

    def verb(self, verb: str, *words: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """A verb as the program's user."""
        done = subprocess.run(
            [*self.as_user, *self.lab.argv(verb, *words)], cwd=self.lab.folder, env=self.lab.env, capture_output=True,
            text=True, errors="replace", timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, f"{verb}: {done.returncode}\n{done.stderr}"
        return done

    def at_three(self, taken: list[int]) -> Iterator[int]:
        """The files are at three of the checkpoints, one after the other, and at the end again at last."""
        end = picture(self.lab.work)
        assert taken, "no checkpoint was taken while it worked"
        for index in dict.fromkeys([taken[len(taken) // 2], taken[-1], taken[0]]):
            self.verb("restore", index)
            yield index
        self.verb("restore", max(self.lab.messages()))
        wrong = difference(picture(self.lab.work), {k: v for k, v in end.items() if v.kind != "other"})
        assert not wrong, f"after going to the end again:\n{wrong}"
        self.verb("verify")

    def check_copy(self, command: str, what: str = "", status: int = 0) -> str:
        """A checker, run by a shell in a copy of the files, which it may change; its output."""
        copy = self.lab.folder / "copy"
        subprocess.run(["cp", "-a", "--reflink=auto", self.lab.work, copy], check=True)
        try:
            done = subprocess.run(
                [*self.as_user, "bash", "-c", command], cwd=copy, env=self.lab.env | ENVIRONMENT, capture_output=True,
                text=True, errors="replace", timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        finally:
            shutil.rmtree(copy)
        assert done.returncode == status, f"{what}: {command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
