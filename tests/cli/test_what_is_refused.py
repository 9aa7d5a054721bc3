"""What the command line says of words that do not go together, and of values that it cannot read."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest
from lab import Lab

from metamori import config
from metamori._area import lib
from metamori.cli import main
from metamori.errors import MetamoriError, Usage
from metamori.runtime.lifecycle import elf, slurm


@pytest.mark.parametrize(("words", "said"), [
    (["prune"], "prune needs --keep-last, --keep-every or --max-bytes"),
    (["prune", "--max-bytes", "0"], "'0' is not a size above 0"),
    (["prune", "--max-bytes", "many"], "'many' is not a size; write 4096, 64K, 25M or 1G"),
    (["prune", "--keep-every", "5 minutes"], "'5 minutes' is not a duration; write 30s, 10m or 2h"),
    (["report", "cake"], "'cake' is not a picture: timeline, heatmap, space, or FILE.html for a page of all"),
    (["report", "a.html", "-o", "b.html"], "name a file for the page: metamori report FILE.html"),
    (["restore", "1", "--to", "x", "--dry-run"], "--to cannot be combined with --dry-run or --stdio"),
    (["run", "--stdio", "--", "true"], "--stdio needs --resume or --requeue"),
    (["run", "--resume-at", "x", "--", "true"], "--resume-at needs --resume or --requeue"),
    (["run", "--outside", "close", "--", "true"], "--outside needs --memory"),
    (["run", "--each-command", "--", "dash"], "--each-command is for bash and zsh, not for dash"),
    (["run", "--each-command", "--", "bash", "--norc"], "--each-command cannot be combined with bash --norc"),
    (["run", "--requeue", "--", "true"],
     "--requeue is for a job of Slurm, and SLURM_JOB_ID is not set; in a loop of your own use --resume"),
    (["run", "--store", "", "--", "true"], "--store needs the name of a folder"),
    (["log", "--store="], "--store needs the name of a folder"),
    (["restore"], "the following arguments are required: INDEX (see metamori restore --help)"),
    (["checkpoint", "-m", "é" * 2048], "a message has up to 4095 bytes"),
    (["config"], "say --cflags, --libs or both"),
    (["run", "--bogus", "--", "true"],
     "unrecognized arguments: --bogus; did you mean --outside? (see metamori run --help)"),
    ([], "a verb is missing (see metamori --help)"),
    (["--store", "x", "log", "--json"], "the verb comes first: metamori log --store x"),
])
def test_words_that_do_not_go(words: list[str], said: str, capsys: pytest.CaptureFixture[str],
                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main.main(words) == (125 if words[:1] == ["run"] else 2)     # 2 may be the status of its command
    assert capsys.readouterr().err == f"metamori: {said}\n"


def test_a_picture_is_not_for_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main.main(["report", "timeline"]) == 2
    assert "a picture needs a file: metamori report timeline -o timeline.svg" in capsys.readouterr().err


def test_a_command_without_a_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["run", "--store", str(tmp_path / "store"), "--", ""]) == 127
    assert capfd.readouterr().err == "metamori: '': No such file or directory\n"


@pytest.mark.parametrize(("verb", "status"), [("log", 1), ("run", 125)])
def test_too_little_memory(verb: str, status: int, monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    """As with `ulimit -v`: it ended with Python's own words."""
    def none(_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(f"metamori.cli.{verb}.run", none)
    assert main.main([verb, "--", "true"] if verb == "run" else [verb]) == status
    assert capsys.readouterr().err == "metamori: Cannot allocate memory\n"


def test_a_variable_that_is_empty() -> None:
    """The present folder became a store."""
    assert config.Config.make({}, {"METAMORI_STORE": ""}) == config.Config.make({}, {})


def test_settings_that_are_neither() -> None:
    with pytest.raises(Usage, match="METAMORI_MODE: 'neither' is not a mode; write incremental or single"):
        config.Config.make({}, {"METAMORI_MODE": "neither"})


@pytest.mark.parametrize(("name", "value", "said"), [
    ("EVERY", "x", "'x' is not a duration; write 30s, 10m or 2h"),
    ("KEEP_LAST", "-1", "'-1' is not a number from 1 on"),
    ("MAX_BYTES", "many", "'many' is not a size; write 4096, 64K, 25M or 1G")])
def test_a_variable_that_cannot_be_read(name: str, value: str, said: str) -> None:
    """It is named: who gave it may have been an administrator."""
    with pytest.raises(Usage) as found:
        config.Config.make({}, {f"METAMORI_{name}": value})
    assert str(found.value) == f"METAMORI_{name}: {said}"


@pytest.mark.parametrize("words", [["--track", "file"], ["--track", "f*"], ["--exclude", "x" * 4096]],
                         ids=["file", "glob", "long"])
def test_a_run_of_which_the_scope_is_refused(lab: Lab, words: list[str]) -> None:
    """It was one that had been killed; and where it was the first, all later runs tracked everything."""
    lab.env.pop("METAMORI_TRACK")
    (lab.work / "file").touch()
    assert lab.run(["true"], *words).returncode == 125
    assert lab.messages() == {0: "before the first run"} and lab.verb("verify").stderr == ""
    assert b"written outside of the scope" in lab.run(["sh", "-c", "echo one > ../elsewhere"]).stderr
    assert "track\t/\n" not in (lab.store / "scope").read_text()


@pytest.mark.parametrize("length", [lib.MM_STORE_MAX - 1, lib.MM_STORE_MAX, 4060])
def test_a_store_whose_path_is_too_long(lab: Lab, length: int) -> None:
    """A run area was begun, and no command could complete that."""
    around = str(lab.folder)
    while length - len(around) > 250:
        around = os.path.join(around, "d" * 200)
    os.makedirs(around)
    store = Path(around, "s" * (length - len(around) - 1))
    done = subprocess.run([*lab.argv("run", store=store), "--", "sh", "-c", "echo one > f"], cwd=lab.work, env=lab.env,
                          capture_output=True, text=True, check=False)
    fits = length < lib.MM_STORE_MAX
    assert done.returncode == (0 if fits else 125) and ("File name too long" in done.stderr) is not fits
    for verb in ("verify", "log"):
        assert lab.verb(verb, store=store).stderr == ""
    if fits:
        lab.verb("restore", 0, store=store)
        assert not (lab.work / "f").exists()


def test_stopping_others_in_a_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It was ignored."""
    monkeypatch.setattr("metamori.runtime.job.folder.is_live", lambda path: True)
    monkeypatch.setattr("metamori.runtime.job.member.ask", lambda path, message: 1)
    assert main.main(["checkpoint", "--stop"]) == 2
    assert capsys.readouterr().err == "metamori: --stop is not possible in a job: its runs take the checkpoint\n"


def test_a_job_that_cannot_be_requeued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Usage, match="--requeue needs the command scontrol, which is not in PATH here"):
        slurm.job({"SLURM_JOB_ID": "7"})
    with pytest.raises(MetamoriError, match=r"job 7 was not requeued: .*scontrol"):
        slurm.requeue("7")
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'Invalid job id specified' >&2\nexit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    with pytest.raises(MetamoriError, match="job 7 was not requeued: Invalid job id specified"):
        slurm.requeue("7")


def head(bits: int = 2, machine: int = 62) -> bytes:
    return b"\x7fELF" + bytes((bits, 1, 1)) + bytes(9) + struct.pack("<HH", 2, machine) + bytes(44)


@pytest.mark.parametrize(("content", "why"), [
    (b"#!/none/sh\n", "its interpreter /none/sh is not there"),
    (b"words\n", "it is not a program: neither ELF nor a script with an interpreter line"),
    (head(bits=1, machine=3), "it is a 32-bit program"),
    (head(machine=8), "it is for another kind of processor"),
])
def test_a_program_that_cannot_be_tracked(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "program"
    path.write_bytes(content)
    assert elf.look(str(path)).why == why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a program of another user's")
def test_a_program_with_other_rights(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(Path(os.path.realpath("/bin/true")).read_bytes())
    os.chown(path, 1, 1)
    path.chmod(0o4755)
    assert elf.look(str(path)).why == "it changes its privileges (set-user-ID): the loader ignores the preload library"
