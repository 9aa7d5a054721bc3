#!/usr/bin/env python3
"""A bank's database is changed under Metamori, killed in the middle, and taken back to each of its days.

    make demo            or, with metamori installed:  python3 demo/demo.py

Uses the public command line only. Exits with 1 as soon as anything is not what it was.
"""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ledger import Contents, Ledger, contents

ACCOUNTS = 1_000_000
SUMMARY = "SELECT count(*) || ' accounts, ' || printf('%,d', sum(cents)/100) || ' in all' FROM account;"
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


@dataclass(frozen=True)
class Moment:
    """What was true when a checkpoint was taken."""

    index: int
    message: str
    files: Contents
    summary: str


class Demo:
    """The story in the order in which it is told; ``moments`` grows with each checkpoint."""

    def __init__(self, base: Path, metamori: str) -> None:
        self.metamori = metamori
        self.store = base / "store"
        self.folder = base / "bank"
        self.folder.mkdir()
        self.moments: list[Moment] = []
        self.bank: Ledger

    # -- telling -------------------------------------------------------------------------------------

    def heading(self, text: str) -> None:
        print(f"\n{BOLD}{text}{PLAIN}")

    def command(self, *words: str, show: bool = True) -> str:
        """Run a Metamori verb on the store, show it as a person would have typed it, return its output."""
        verb, *rest = words
        if show:
            typed = " ".join(f'"{word}"' if " " in word else word for word in rest)
            print(f"{DIM}$ metamori {verb} --store store {typed}{PLAIN}".rstrip())
        done = subprocess.run([self.metamori, verb, "--store", str(self.store), *rest],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"metamori {verb} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.rstrip()

    def log(self) -> list[dict]:
        """The checkpoints, oldest first, from ``metamori log --json``."""
        return json.loads(self.command("log", "--json", show=False))["checkpoints"]

    def indented(self, text: str) -> None:
        for line in text.splitlines():
            print(f"    {line}")

    def check(self, what: str, want: object, have: object) -> None:
        """One line for what is right; the end of the demo for what is not."""
        if want != have:
            raise SystemExit(f"  WRONG  {what}\n    was:  {want}\n    now:  {have}")
        print(f"  right  {what}")

    # -- the bank's week -----------------------------------------------------------------------------

    def say(self, day: str) -> None:
        """One more line at the end of the bank's journal, appended by a shell that sqlite3 starts."""
        self.bank.do(f".shell echo '{day}' >> journal.txt")

    def checkpoint(self, message: str) -> None:
        """From outside, while sqlite3 runs. What the run sees at this moment is noted first."""
        files, summary = self.bank.contents(), self.bank.query(SUMMARY)
        index = int(self.command("checkpoint", "-m", message))
        self.moments.append(Moment(index, message, files, summary))
        print(f"checkpoint {index}: {summary}; files: {', '.join(sorted(files))}")

    def monday(self) -> None:
        self.heading("Monday: the bank opens (an ordinary sqlite3 shell, from Debian)")
        self.bank = Ledger(self.metamori, self.store, self.folder)
        print(f"{DIM}$ {self.bank.shown}{PLAIN}")
        self.bank.do(
            "CREATE TABLE account(id INTEGER PRIMARY KEY, owner TEXT, cents INTEGER);",
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {ACCOUNTS})"
            " INSERT INTO account SELECT i, hex(randomblob(24)), 10000 + i % 977 FROM n;",
            ".once rates-draft.csv", "SELECT id, cents / 400 FROM account LIMIT 2000;")
        self.say("monday: accounts opened")
        self.checkpoint("accounts opened")

    def tuesday(self) -> None:
        self.heading("Tuesday: interest for everybody (pages overwritten, a file renamed, a line appended)")
        self.bank.do("UPDATE account SET cents = cents + cents / 40;", ".shell mv rates-draft.csv rates.csv")
        self.say("tuesday: interest paid")
        self.checkpoint("interest paid")

    def wednesday(self) -> None:
        self.heading("Wednesday: a bad idea (accounts deleted, the database shrunk, a file removed)")
        self.bank.do("DELETE FROM account WHERE id % 3 = 0;", "VACUUM;", ".shell rm rates.csv")
        self.say("wednesday: small accounts closed")
        self.checkpoint("small accounts closed")

    def thursday(self) -> None:
        self.heading("Thursday: kill -9 in the middle of a transaction")
        before = self.moments[-1]
        self.bank.do("PRAGMA cache_size = 20;", "BEGIN;", "UPDATE account SET cents = 0;")
        half = self.bank.contents()
        status = self.bank.kill()
        print(f"{DIM}$ kill -9 {self.bank.pid}   (metamori run ended with {status}){PLAIN}")
        self.indented(self.bank.errors())
        self.check("the exit status is that of a killed program", 137, status)
        self.check("the files are what a plain crash would have left, the half-done transaction included",
                   half, contents(self.folder))
        self.check("sqlite3's own journal undoes that half, and only that", before.summary, self.ask_copy())
        newest = self.log()[-1]
        self.moments.append(Moment(newest["index"], "the killed state", half, before.summary))

    # -- and back ------------------------------------------------------------------------------------

    def ask_copy(self) -> str:
        """Integrity and summary of a copy of the database: the original must not be touched by a reader."""
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(self.folder, copy, dirs_exist_ok=True)
            answer = subprocess.run(["sqlite3", "bank.db", "PRAGMA integrity_check;", SUMMARY], cwd=copy,
                                    capture_output=True, text=True, check=True).stdout.splitlines()
        if answer[0] != "ok":
            raise SystemExit(f"  WRONG  integrity_check says: {answer[0]}")
        return answer[-1]

    def back_to(self, moment: Moment) -> None:
        """Restore, then compare every file and the database's answers with what was noted at that moment."""
        self.heading(f"Back to {moment.index}: {moment.message}")
        started = time.monotonic()
        self.command("restore", str(moment.index))
        print(f"  took   {(time.monotonic() - started) * 1000:.0f} ms")
        self.check(f"SHA-256 of each of the {len(moment.files)} files, and no file more", moment.files,
                   contents(self.folder))
        self.check(f"integrity_check ok; {moment.summary}", moment.summary, self.ask_copy())

    def go_on(self, moment: Moment) -> None:
        self.heading(f"The week goes on from {moment.index}, as if Wednesday had not happened")
        self.command("restore", str(moment.index))
        self.bank = Ledger(self.metamori, self.store, self.folder)
        print(f"{DIM}$ {self.bank.shown}{PLAIN}")
        self.check("a new run starts where the old one was", moment.summary, self.bank.query(SUMMARY))
        self.bank.do("INSERT INTO account(owner, cents) VALUES ('a new customer', 500000);")
        self.say("wednesday, again: one more customer")
        self.checkpoint("a better Wednesday")
        self.check("the shell ended well", 0, self.bank.close())
        end = self.moments.pop()
        self.check("after the run the folder holds what the run saw", end.files, contents(self.folder))
        self.indented(self.command("log"))
        parents = {checkpoint["index"]: checkpoint["parent"] for checkpoint in self.log()}
        self.check(f"checkpoint {end.index} grew from {moment.index}", moment.index, parents[end.index])
        self.back_to(self.moments[2])

    def tell(self) -> None:
        for day in (self.monday, self.tuesday, self.wednesday, self.thursday):
            day()
        self.heading("What there is to go back to")
        self.indented(self.command("log"))
        one, two, _, killed = self.moments
        for moment in (two, one, killed):
            self.back_to(moment)
        self.go_on(two)
        self.heading("Is the store sound?")
        self.indented(self.command("verify"))


def main() -> int:
    metamori = shutil.which("metamori", path=str(Path(sys.executable).parent)) or shutil.which("metamori")
    for program, found in (("metamori", metamori), ("sqlite3", shutil.which("sqlite3"))):
        if not found:
            print(f"demo: {program} is not installed here", file=sys.stderr)
            return 1
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="metamori-demo-") as base:
        Demo(Path(base), str(metamori)).tell()
    print(f"\n{BOLD}All as it was.{PLAIN} ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
