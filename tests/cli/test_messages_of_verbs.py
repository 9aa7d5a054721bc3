"""What the verbs say: each message is provoked by the verb itself, on a store that a synthetic run has filled."""

from __future__ import annotations

import importlib.metadata
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab import Lab
from synthetic import Run
from test_verbs import Bench

from metamori import pytest_plugin
from metamori.cli import config, main, progress
from metamori.cli import restore as restore_verb
from metamori.errors import ChangedOutside, Damaged
from metamori.store.format import files
from metamori.store.format.records import InheritedEntry, Intent, Pruning
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.tables.record import replace

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def said(bench: Bench, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """A verb in this process: status, standard output, standard error."""
    monkeypatch.chdir(bench.folder)

    def verb(*words: object) -> tuple[int, str, str]:
        status = main.main([str(words[0]), "--store", str(bench.store), *map(str, words[1:])])
        return status, *capfd.readouterr()

    return verb


def store_of(bench: Bench) -> Store:
    return Store.open(os.fsencode(bench.store))


def other_work(bench: Bench) -> None:
    """Somebody else's."""
    (bench.files / "old").write_bytes(b"mine")


def lost_bytes(bench: Bench) -> None:
    """Somebody else's, and saved: what older checkpoints had there is nowhere."""
    other_work(bench)
    bench.verb("restore", "--force", 3, code=12)


def other_new(bench: Bench) -> None:
    """Of a file that has all its bytes at the newest checkpoint only."""
    (bench.files / "new").chmod(0o600)


def interrupted(bench: Bench) -> None:
    """A prune and a restore, each with everything written down and nothing done."""
    with store_of(bench) as store:
        intent, prune = files.encode_intent(Intent(3), store.layout.id), Pruning(store.numbers())
        Path(os.fsdecode(store.layout.intent)).write_bytes(intent)
        Path(os.fsdecode(store.layout.prune)).write_bytes(files.encode_pruning(prune, store.layout.id))


def flipped(bench: Bench) -> None:
    """A byte of the buffer that every checkpoint's records refer to."""
    path = bench.store / "buffer" / "1"
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))


CASES: dict[str, tuple[Callable[[Bench], object] | None, tuple[object, ...], int, str]] = {
    "changed outside": (other_work, ("restore", 1), 14,
                        "modified outside Metamori: files/old; --force saves that state as a checkpoint, then "),
    "one of the chosen": (other_new, ("restore", 2, "files/new"), 14, "--force saves that state as a checkpoint"),
    "lost": (lost_bytes, ("restore", 1), 12, "; --force restores the rest"),
    "one of the chosen lost": (lost_bytes, ("restore", 1, "files/old"), 12, "; --force restores the rest"),
    "a copy of what is lost": (lost_bytes, ("restore", 1, "--to", "copy"), 12, "; --force copies the rest"),
    "a copy": (None, ("restore", 1, "--to", "copy"), 0, "copied checkpoint 1 (2 names) to copy"),
    "nothing to prune": (None, ("prune", "--keep-last", 9), 0, "nothing to prune\n"),
    "what a prune would do": (None, ("prune", "--keep-last", 1, "--dry-run"), 0, "3 would be pruned (0-2), "),
    "a record": (None, ("show", 1), 0, "run 1, process 1, incremental, 4 KiB added\n"),
    "a message that none has": (None, ("restore", ":none*"), 13,
                                "no checkpoint's message matches none*; metamori log shows them"),
    "a file that no checkpoint changed": (
        None, ("report", "heatmap", "--file", "nothing", "-o", "x.svg"), 1,
        "nothing: no checkpoint of this store changed such a file (see metamori log, diff)"),
    "left by a kill": (interrupted, ("verify",), 0,
                       "a restore was interrupted; the next command that writes completes it\n"
                       "metamori: a prune was interrupted; the next command that writes completes it"),
    "a prune completed": (interrupted, ("log",), 0, "an interrupted prune was completed"),
    "a restore completed": (interrupted, ("log",), 0, "an interrupted restore was completed"),
    "pruned": (lambda bench: bench.verb("prune", "--keep-last", 2), ("restore", 1), 13,
               "checkpoint 1 was pruned; there are 2 to 3"),
    "a buffer that is damaged": (flipped, ("verify",), 12, "buffer/1: checksum mismatch at bytes 0-"),
    "a restore from it": (flipped, ("restore", 0), 12, "buffer/1: checksum mismatch at bytes 0-"),
    "read of what is lost": (lost_bytes, ("cat", 1, "files/old"), 12, "of checkpoint 1 are lost"),
    "read of what was modified": (other_work, ("cat", 3, "files/old"), 14,
                                  "old was modified outside Metamori since checkpoint 3"),
    "verified though modified": (other_work, ("verify",), 12, "old was modified outside Metamori"),
    "verified": (None, ("verify",), 0, "3 checkpoints, 1 ranges, 7 B of buffers"),
}


@pytest.mark.parametrize("what", CASES)
def test_a_verb_says(what: str, bench: Bench, said: Said) -> None:
    before, words, status, quoted = CASES[what]
    if before:
        before(bench)
    found, out, err = said(*words)
    assert quoted in out + err and found == status, (found, out, err)


def test_a_prune_says_what_it_did(said: Said) -> None:
    assert re.fullmatch(r"2 pruned \(0-1\), \d+ [KMi]*B freed; 2 kept\n", said("prune", "--keep-last", 2)[1])


def test_forced_it_is_restored_in_part(bench: Bench, said: Said) -> None:
    lost_bytes(bench)
    assert said("restore", "--force", 1)[0] == 12
    assert '"reason": "restored in part"' in said("show", "last", "--json")[1]
    with store_of(bench) as store, pytest.raises(Damaged, match=r"old: bytes 0-\d+ of checkpoint 1 are lost.*; "
                                                 "'metamori restore --force 1' puts the rest back"):
        restore.move_home(store, 1)


def test_a_name_that_somebody_took(bench: Bench) -> None:
    """What a verb would have found before: nothing is moved onto it all the same."""
    (bench.files / "gone").write_bytes(b"mine")
    with store_of(bench) as store, pytest.raises(ChangedOutside, match="gone is in the way: it was made by somebody"):
        restore.move_home(store, 1)


def test_what_was_inherited_and_is_gone(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    with store_of(bench) as store:
        meta = store.meta(3)
        store._metas.put(3, replace(meta, inherited=(InheritedEntry(1, 1, b"/nowhere/out.log", 6, 1, 2),)))
        assert restore_verb.truncate_stdio(store, 3) == []
    assert "/nowhere/out.log: No such file or directory; it was not truncated" in capfd.readouterr().err


def test_a_folder_with_other_files_stays(bench: Bench, said: Said) -> None:
    with store_of(bench) as store:
        run = Run(store, bench.files, bench.models, random.Random(3))
        run.mkdir(bench.files / "made")
        run.end()
    (bench.files / "made" / "mine").write_text("mine")
    status, _, err = said("restore", 3)
    assert status == 0 and "made holds other files; it stays" in err


def test_progress_at_a_terminal(bench: Bench, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert re.search(r"B read, 0 B written, \d+ steps …", said("verify")[2])


def test_help_names_each_verb_and_what_it_does(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--help"])
    lines = " ".join(capfd.readouterr().out.split())
    for line in ("run a command and track its files", "take a checkpoint of the live run",
                 "what a checkpoint's records say", "a file's content as it was at a checkpoint",
                 "restore the files to a checkpoint", "take back the last changes of the files",
                 "make undone changes again", "what a live run is doing", "check every byte of the store",
                 "free space: drop checkpoints that no rule keeps", "what can and cannot be tracked here",
                 "compiler and linker flags for the C API"):
        assert line in lines


def test_the_version_of_what_is_not_installed(capfd: pytest.CaptureFixture[str],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nowhere)
    assert main.main(["--version"]) == 0
    assert capfd.readouterr().out == "metamori, not installed\n"


def test_flags_for_fortran_without_its_module(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libmetamori_fti.so").touch()
    monkeypatch.setattr(config, "_PACKAGE", tmp_path)
    assert main.main(["config", "--fti", "--fortran", "--libs"]) == 1
    assert "the module FTI is not built; on Debian: apt-get install gfortran, then make build" in capfd.readouterr().err


@pytest.mark.parametrize(("change", "quoted"), [
    (("platform.libc_ver", lambda: ("glibc", "2.36")), "glibc 2.36, streams can be tracked"),
    (("platform.libc_ver", lambda: ("glibc", "2.12")), "glibc 2.12: programs can be tracked with glibc 2.17 or newer"),
    (("metamori.cli.doctor._has", lambda *_: False),
     "does not export its stream tables: stdio output cannot be tracked"),
    (("platform.machine", lambda: "aarch64"), "run --memory: no, this is not Linux on x86-64"),
    (("metamori.runtime.memory.images.no_return", lambda: "forbidden"),
     "run --memory: no, nothing could be restarted: forbidden"),
    (("metamori.runtime.memory.images.no_return", lambda: ""), "run --memory: yes; images are "),
])
def test_what_the_doctor_finds(change: tuple[str, object], quoted: str, capfd: pytest.CaptureFixture[str],
                               monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    monkeypatch.setattr(*change)
    main.main(["doctor"])
    assert quoted in capfd.readouterr().out


def test_what_the_doctor_says_of_a_program(capfd: pytest.CaptureFixture[str], installed: None) -> None:
    main.main(["doctor", "sh"])
    assert "run --memory: yes, without io_uring, but while it has kernel aio, or, without " in capfd.readouterr().out


@pytest.mark.parametrize(("change", "options", "quoted"), [
    (("os.confstr", lambda _: "glibc 2.12"), (), "C library is glibc 2.12; programs can be tracked with glibc 2.17"),
    (("metamori.runtime.memory.images.no_return", lambda: "a process is not allowed it"), ("--memory",),
     "no checkpoint with --memory could be restarted here: a process is not allowed it"),
])
def test_a_run_that_cannot_begin(change: tuple[str, object], options: tuple[str, ...], quoted: str, tmp_path: Path,
                                 capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
                                 installed: None) -> None:
    monkeypatch.setattr(*change)
    assert main.main(["run", "--store", str(tmp_path / "store"), *options, "--", "true"]) == 125
    assert quoted in capfd.readouterr().err


def test_a_copy_of_one_name(lab: Lab) -> None:
    lab.run(["sh", "-c", "echo one > f"])
    copy = lab.folder / "copy"
    assert lab.verb("restore", 1, "--to", copy).stdout == f"copied checkpoint 1 (1 name) to {copy}\n"


def test_a_call_that_fails_with_a_descriptor(capfd: pytest.CaptureFixture[str],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number stands where a name would."""
    def listed(_: object) -> int:
        with Path("/etc/passwd").open() as file:
            return len(os.listdir(file.fileno()))

    monkeypatch.setattr("metamori.cli.log.run", listed)
    assert main.main(["log"]) == 1
    assert capfd.readouterr().err == "metamori: Not a directory\n"


def test_lines_without_an_interpreter_are_the_shell_s(lab: Lab) -> None:
    """As execvp has it; the shell is tracked, so there is nothing to warn of."""
    (lab.work / "lines").write_text("echo one > f\n")
    (lab.work / "lines").chmod(0o755)
    done = lab.run(["./lines"])
    assert (done.returncode, done.stderr) == (0, b"")
    lab.restore(0)
    assert not (lab.work / "f").exists()


def test_a_resume_over_somebody_else_s_work(lab: Lab) -> None:
    assert lab.run(["sh", "-c", "echo one > f; kill -9 $$"]).returncode == 137
    (lab.work / "f").write_text("mine")
    done = lab.run(["true"], "--resume")
    assert done.returncode == 125
    assert b"cannot resume, modified outside Metamori: " in done.stderr
    assert b"saves that state as a checkpoint, then restores" in done.stderr


def test_a_restore_beside_the_run_says_where_the_state_before_is(lab: Lab) -> None:
    session = lab.start()
    session.must(["open f w,creat", "write 3 10 1"])
    assert lab.checkpoint() == 1
    session.must(["write 3 10 2", "close 3"])
    done = lab.restore(1)
    assert done.stdout == "the files are at checkpoint 1; they were at 2\n"
    session.end()


def test_the_pytest_plugin_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Config:
        def getoption(self, name: str) -> bool:
            return True

    monkeypatch.setattr("metamori.active", lambda: False)
    with pytest.raises(pytest.UsageError, match="--metamori needs a run: metamori run -- python -m pytest --metamori"):
        pytest_plugin.pytest_configure(Config())  # type: ignore[arg-type]
