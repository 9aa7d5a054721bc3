"""The bank of the demo: one sqlite3 shell under ``metamori run``, spoken to through its standard input.

Nothing in here knows Metamori's insides: the shell is Debian's, unmodified, and what "was true" at a moment
is what the shell and its own child processes saw in the bank's folder at that moment.
"""
from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path

# What a folder holds: file name -> SHA-256 of its content.
Contents = dict[str, str]


def contents(folder: Path) -> Contents:
    """Hash every file of ``folder`` as anybody sees it from outside."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


class Ledger:
    """A sqlite3 shell in ``folder`` with bank.db open. Each ``do`` returns when the shell has finished."""

    def __init__(self, metamori: str, store: Path, folder: Path) -> None:
        command = [metamori, "run", "--store", str(store), "--", "sqlite3", "-interactive", "bank.db"]
        self.shown = f"metamori run --store {store.name} -- sqlite3 bank.db"
        self.folder = folder
        self.asked = 0
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        # Without a prompt the shell still flushes its output before it reads the next line.
        self.do('.prompt "" ""')
        self.pid = int(self.do(".shell echo $PPID")[-1])

    def do(self, *lines: str) -> list[str]:
        """Give ``lines`` to the shell, wait for the last one, return what it printed (its echo left out)."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.asked += 1
        end = f"-- line {self.asked} done --"
        self.process.stdin.write("".join(f"{line}\n" for line in (*lines, f".print {end}")))
        self.process.stdin.flush()
        answer = []
        for line in self.process.stdout:
            text = line.rstrip("\n")
            if text == end:
                return answer
            if text not in lines and not text.endswith(f".print {end}"):
                answer.append(text)
        raise SystemExit(f"the shell ended early: {self.errors()}")

    def query(self, sql: str) -> str:
        """One line of answer to one line of SQL."""
        return self.do(sql)[-1]

    def contents(self) -> Contents:
        """Hash every file of the bank's folder as the run sees it: sha256sum, started by the shell."""
        pairs = (line.split(maxsplit=1) for line in self.do(".shell sha256sum *"))
        return {name: digest for digest, name in pairs}

    def kill(self) -> int:
        """SIGKILL to the sqlite3 shell itself. Returns the exit status of ``metamori run``."""
        os.kill(self.pid, signal.SIGKILL)
        return self.finish()

    def close(self) -> int:
        """Leave the shell as a person does."""
        assert self.process.stdin is not None
        self.process.stdin.write(".quit\n")
        return self.finish()

    def finish(self) -> int:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(timeout=120)
        return self.process.returncode

    def errors(self) -> str:
        """What came on standard error, the shell's and Metamori's, once the run has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().strip()
