"""The power goes after a checkpoint was cut and before it is written: what the run had made was not there before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from lab import Lab
from rewind import another_boot

from metamori.cli.checkpoint import take
from metamori.errors import MetamoriError
from metamori.runtime.checkpoint.session import Session

ASKED = """
import os, sys
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
MADE = "os.mkdir('d'); os.symlink('old', 's'); os.mkfifo('p'); open('n', 'w').close()"
CHANGED = "os.chmod('d', 0o700); os.rename('s', 's2'); os.unlink('p'); os.chmod('n', 0o600); os.chmod('was', 0o700)"


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_what_a_run_made_was_not_there_before(lab: Lab, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (lab.work / "old").write_text("old")
    (lab.work / "was").mkdir(mode=0o755)
    command = [*lab.argv("run", *options, "--durability", "power"), "--", sys.executable, "-c", ASKED]
    with subprocess.Popen(command, cwd=lab.work, env=lab.env, start_new_session=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as run:
        def does(line: str) -> None:
            assert run.stdin and run.stdout
            run.stdin.write(line.encode() + b"\n")
            run.stdin.flush()
            assert run.stdout.readline() == b"done\n"

        def fails(*_: object) -> None:
            raise OSError(5, os.strerror(5))

        does(MADE)
        monkeypatch.setattr(Session, "_write", fails)
        with pytest.raises(MetamoriError):
            take(str(lab.store), "")
        monkeypatch.undo()
        does(CHANGED)
        os.killpg(run.pid, signal.SIGKILL)
    journal = lab.store / "run" / "journal"
    size = journal.stat().st_size
    os.truncate(journal, 0)                # what was mapped did not reach the disk
    os.truncate(journal, size)
    another_boot(lab.folder)
    lab.verb("log")                        # completes the run
    lab.restore(0, "--to", lab.folder / "copy")
    made = {"d", "s", "s2", "p", "n"} & {name for _, folders, files in os.walk(lab.folder / "copy")
                                         for name in (*folders, *files)}
    assert not made
    lab.restore(0)
    assert (lab.work / "was").stat().st_mode & 0o777 == 0o755
