"""Wrong use gets one clear line and the right exit code, and harms nothing."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab

import metamori


def one_line(text: str) -> str:
    """Messages are one line each, without a traceback."""
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    return lines[0]


@pytest.mark.parametrize("words", [["log"], ["restore", "1"], ["checkpoint"], ["verify"], ["show", "1"]])
def test_no_store(lab: Lab, words: list[str]) -> None:
    done = lab.verb(*words, code=10)
    assert str(lab.store) in one_line(done.stderr)
    assert not done.stdout
    assert not lab.store.exists(), "looking for a store does not make one"


@pytest.mark.parametrize("below", ["", "buffer"])
def test_a_store_around_the_command(lab: Lab, below: str) -> None:
    """What it wrote was the store's own, not tracked, and nobody said so."""
    if below:
        lab.run(["true"])
    (lab.store / below).mkdir(parents=True, exist_ok=True)
    done = lab.run(["sh", "-c", "echo x > f"], cwd=lab.store / below)
    assert (done.returncode, done.stderr.decode()) == (
        125, f"metamori: the store {lab.store} cannot be the folder that the command runs in: nothing in a store is "
             "tracked; --store names another place\n")
    assert not (lab.store / below / "f").exists()


def test_unknown_index(lab: Lab) -> None:
    lab.run("touch file")
    for words in (["restore", "77"], ["show", "77"], ["cat", "77", "file"], ["diff", "1", "77"]):
        done = lab.verb(*words, code=13)
        assert "77" in one_line(done.stderr)


@pytest.mark.parametrize("words", [["restore"], ["restore", "one"], ["restore", "-0"], ["no"], ["cat", "1"]])
def test_usage(lab: Lab, words: list[str]) -> None:
    lab.run("true")
    assert lab.verb(*words, code=2).stderr.strip()


def test_run_without_a_command(lab: Lab) -> None:
    """A wrong use of `run` itself: 125, as `env` has it."""
    done = subprocess.run(lab.argv("run"), env=lab.env, cwd=lab.work, capture_output=True, check=False)
    assert done.returncode == 125
    assert done.stderr.strip()


def test_store_in_use(lab: Lab) -> None:
    """While a run is alive: a second run 125, restore of what it has open 11, and its own verbs work."""
    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1", "checkpoint"])
    second = lab.run("true")
    assert second.returncode == 125
    assert str(lab.store) in one_line(second.stderr.decode())
    assert one_line(lab.restore(0, code=11).stderr)
    assert program.do(["write 3 5 2", "fsize 3"]) == ["5", "15 644 1"], "the run has not noticed"
    assert lab.checkpoint() == 2
    assert [entry["index"] for entry in lab.log()["checkpoints"]][-2:] == [1, 2]
    assert program.end() == 0
    lab.restore(1)


def test_checkpoint_without_a_live_run(lab: Lab) -> None:
    lab.run("touch file")
    done = lab.verb("checkpoint", code=15)
    assert one_line(done.stderr)
    assert not done.stdout


def test_missing_command(lab: Lab) -> None:
    done = lab.run(["no-such-command-anywhere"])
    assert done.returncode == 127
    assert "no-such-command-anywhere" in one_line(done.stderr.decode())


def test_command_not_executable(lab: Lab) -> None:
    (lab.work / "plain").write_text("not a program\n")
    done = lab.run(["./plain"])
    assert done.returncode == 126
    assert "plain" in one_line(done.stderr.decode())
    assert lab.run([str(lab.work)]).returncode == 126, "a folder"


def test_script_without_interpreter_line(lab: Lab, native_lab: Lab) -> None:
    """`env` runs such a file by the shell; so do we."""
    for some in (lab, native_lab):
        (some.work / "script").write_text("echo from the script > out\nexit 5\n")
        (some.work / "script").chmod(0o755)
    wanted = native_lab.run(["env", "./script"], native=True).returncode
    assert lab.run(["./script"]).returncode == wanted


@pytest.mark.parametrize("place", ["/proc/metamori-store", "/dev/null/store", "file/store"])
def test_unwritable_store(lab: Lab, place: str) -> None:
    """The command is not even started."""
    (lab.work / "file").write_text("in the way")
    store = Path(place) if place.startswith("/") else lab.work / place
    done = subprocess.run(
        [*lab.argv("run", store=store), "--", "touch", "started"],
        cwd=lab.work, env=lab.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 125
    assert str(store) in one_line(done.stderr)
    assert not (lab.work / "started").exists()


@pytest.mark.parametrize("options", ["--mode both", "--cache-size lots", "--every soon", "--wrong"])
def test_wrong_options_of_run(lab: Lab, options: str) -> None:
    done = lab.run("touch started", *options.split())
    assert done.returncode == 125
    assert done.stderr.strip()
    assert not (lab.work / "started").exists()


def test_static_binary(lab: Lab, compiled: Compile) -> None:
    """It runs, and one line on stderr says that it cannot be tracked, where its calls are not to be."""
    static = compiled("writer", "static")
    done = lab.run([static, "file", "words"], env={"METAMORI_STATIC": "untracked"})
    assert done.returncode == 0
    assert (lab.work / "file").read_text() == "words\n"
    line = one_line(done.stderr.decode())
    assert "static" in line
    assert static.name in line
    assert lab.verb("doctor", static, code=None).stdout.count("static") >= 1


@pytest.mark.parametrize("command", ["./sanitized", "sh -c './sanitized; exit $?'"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sanitized_program(lab: Lab, compiler: str, command: str) -> None:
    """Its runtime must be the first library (gcc's) or does not bear ours (clang's, linked into it): it is not offered
    ours, and says what it says natively."""
    source = lab.work / "sanitized.c"
    source.write_text("""#include <stdio.h>
        #include <stdlib.h>
        int main(void) {
            puts(getenv("LD_PRELOAD") ? "told" : "not told"); fflush(stdout);
            volatile char *p = malloc(8); free((void *)p); return *p;
        }""")
    build = [compiler, "-w", "-fsanitize=address", "-o", lab.work / "sanitized", source]
    if not shutil.which(compiler) or subprocess.run(build, check=False).returncode:
        pytest.skip(f"no AddressSanitizer of {compiler}")
    done = lab.run(command)
    assert (done.returncode, done.stdout) == (1, b"not told\n")
    assert b"cannot be tracked" not in done.stderr and b"heap-use-after-free" in done.stderr
    done = lab.run(command, env={"METAMORI_STATIC": "untracked"})
    assert (done.returncode, done.stdout) == (1, b"not told\n")
    why = "it is built with AddressSanitizer or ThreadSanitizer, which do not work beside this library"
    assert f"cannot be tracked: {why}" in done.stderr.decode() and b"heap-use-after-free" in done.stderr
    assert "AddressSanitizer" in lab.verb("doctor", lab.work / "sanitized", code=None).stdout


def changed_outside(lab: Lab, name: str = "file") -> None:
    (lab.work / "file").write_bytes(b"a" * 5000)
    program = lab.start()
    program.must(["open file rw", "pwrite 3 100 0 1", "checkpoint", "pwrite 3 100 2000 2"])
    assert program.end() == 0
    with (lab.work / name).open("ab") as file:
        file.write(b"changed by somebody else")


def test_files_changed_outside(lab: Lab) -> None:
    """restore refuses with 14; --force goes on, and keeps the changed state as an index."""
    changed_outside(lab)
    before = lab.state()
    done = lab.restore(1, code=14)
    assert "file" in done.stderr
    lab.assert_state(before, "a refused restore changes nothing")
    known = set(lab.messages())
    lab.restore(1, "--force")
    at_one = lab.state()
    assert not at_one["file"].content.endswith(b"else")
    kept = set(lab.messages()) - known
    assert len(kept) == 1
    lab.restore(kept.pop())
    lab.assert_state(before, "the state that somebody else left")
    lab.restore(1)
    lab.assert_state(at_one, "and 1 again")


@pytest.mark.parametrize("how", ["removed", "replaced", "same size", "a folder now"])
def test_other_changes_from_outside(lab: Lab, how: str) -> None:
    changed_outside(lab, "unrelated")
    path = lab.work / "file"
    lab.verb("restore", "--dry-run", 1)
    if how == "same size":
        with path.open("r+b") as file:
            file.write(b"X")
    else:
        path.unlink()
        if how == "replaced":
            path.write_bytes(b"b" * 5000)
        elif how == "a folder now":
            path.mkdir()
    before = lab.state()
    assert "file" in lab.restore(1, code=14).stderr
    lab.assert_state(before, "a refused restore changes nothing")
    lab.restore(1, "--force")
    assert (lab.work / "file").stat().st_size == 5000
    lab.verb("verify")
    newest = max(lab.messages())
    lab.restore(newest)
    lab.assert_state(before, f"as somebody else left it: {how}")


def test_run_after_a_change_from_outside(lab: Lab) -> None:
    """A run that finds its files changed begins with an index of its own, "start of run"."""
    changed_outside(lab)
    changed = lab.state()
    program = lab.start()
    program.must(["open file rw,trunc", "write 3 10 5", "checkpoint"])
    assert program.end() == 0
    start = [index for index, text in lab.messages().items() if text == "start of run"]
    assert len(start) == 1
    lab.restore(start[0])
    lab.assert_state(changed, "the state at the start of the second run")


def test_unrelated_files_are_nobodys_business(lab: Lab) -> None:
    (lab.work / "other").write_text("never touched by the run\n")
    changed_outside(lab, "other")
    lab.restore(1)
    assert (lab.work / "other").read_text().endswith("else")


# What a new user types, the status, and what the one line that he reads must name: what, which, and what to do.
MISTAKES = [
    ("restor 1", 2, "'restor'", "did you mean restore?"),
    ("chekpoint", 2, "'chekpoint'", "did you mean checkpoint?"),
    ("run --evry 5m -- true", 125, "--evry", "did you mean --every?"),
    ("run --every 5minutes -- true", 125, "'5minutes'", "10m"),
    ("run --cache-size 5X -- true", 125, "'5X'", "25M"),
    ("run --keep-last 0 -- true", 125, "'0'", "from 1 on"),
    ("run --on-signal KILL -- true", 125, "'KILL'", "USR1"),
    ("run --requeue -- true", 125, "SLURM_JOB_ID", "--resume"),
    ("run --stdio -- true", 125, "--stdio", "--resume"),
    ("run --resume-at x -- true", 125, "--resume-at", "--resume"),
    ("run", 125, "needs a command", "metamori run -- COMMAND"),
    ("run -- cd /tmp", 127, "cd", "sh -c"),
    ("run -- 'echo hi > out'", 127, "echo hi > out", "sh -c"),
    ("run -- ./nothing", 127, "./nothing", "No such file"),
    ("run --max-bytes 0 -- true", 125, "'0'", "a size above 0"),
    ("prune --max-bytes 0K", 2, "'0K'", "a size above 0"),
    ("run -- .", 126, ".", "Permission denied"),
    ("restore latest", 2, "'latest'", "is not a checkpoint"),
    ("restore 99", 13, "99", "there are 0 to"),
    ("restore", 2, "INDEX", "--help"),
    ("restore 1 --to taken", 1, "taken", ""),
    ("cat 1 nofile", 1, "nofile", "checkpoint 1"),
    ("cat 1", 2, "PATH", "--help"),
    ("show 0", 13, "0", "before the first run"),
    ("checkpoint", 15, "store", "metamori run -- COMMAND"),
    ("status --watch", 15, "store", "metamori log"),
    ("prune", 2, "--keep-last", "--max-bytes"),
    ("report graph", 2, "'graph'", "timeline, heatmap, space"),
    ("report timeline -o no/folder.svg", 1, "no/folder.svg", "No such file"),
    ("log --store elsewhere", 10, "elsewhere", "--store names another"),
    ("run --store taken/file -- true", 125, "taken/file", "--store names another"),
    ("config", 2, "--cflags", "--libs"),
]


def test_mistakes_are_told_in_one_line(lab: Lab) -> None:
    lab.run("touch file")
    (lab.work / "taken").mkdir()
    (lab.work / "taken" / "file").write_text("somebody's")
    before = lab.state()
    environment = {name: value for name, value in lab.env.items() if not name.startswith("SLURM")}
    environment["METAMORI_STORE"] = str(lab.store)
    for typed, status, which, what_to_do in MISTAKES:
        done = subprocess.run([sys.executable, "-m", "metamori", *shlex.split(typed)], cwd=lab.work, env=environment,
                              capture_output=True, text=True, timeout=100, check=False)
        line = one_line(done.stderr)
        assert (done.returncode, done.stdout) == (status, ""), (typed, line)
        assert which in line and what_to_do in line and "Traceback" not in line, (typed, line)
    lab.assert_state(before, "nothing has happened to the files")


@pytest.mark.parametrize("words, status", [("log", 1), ("run -- true", 125), ("run --store STORE -- true", 125)])
def test_the_folder_that_one_is_in_was_removed(lab: Lab, words: str, status: int) -> None:
    environment = {name: value for name, value in lab.env.items() if name != "METAMORI_STORE"}
    line = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", sys.executable, "-m", "metamori"]
    words = words.replace("STORE", str(lab.store))
    done = subprocess.run([*line, *shlex.split(words)], cwd=lab.work, env=environment, capture_output=True, text=True,
                          timeout=100, check=False)
    assert (done.returncode, one_line(done.stderr)) == \
        (status, "metamori: the folder that you are in was removed; change to another one")


@pytest.mark.parametrize("words, status", [("log", 1), ("doctor", 1), ("run -- true", 125)])
def test_a_tree_that_is_not_built(lab: Lab, words: str, status: int) -> None:
    package = Path(metamori.__file__).parent
    shutil.copytree(package, lab.work / "tree" / "metamori", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = subprocess.run([sys.executable, "-m", "metamori", *shlex.split(words)], cwd=lab.work, capture_output=True,
                          text=True, timeout=100, check=False,
                          env={**lab.env, "PYTHONPATH": str(lab.work / "tree"), "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == status and one_line(done.stderr).endswith("is not built; build it with: make build")


def test_standard_output_is_closed(lab: Lab) -> None:
    """What a verb prints goes nowhere; the command of a run finds it closed, as natively."""
    for words in (["run", "--", "sh", "-c", "echo 1 >file; echo 2"], ["log"], ["restore", "0"]):
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *lab.argv(words[0]), *words[1:]], cwd=lab.work,
                              env=lab.env, capture_output=True, text=True, timeout=100, check=False)
        assert "Traceback" not in done.stderr and done.returncode == (words[0] == "run"), (words, done)
    assert not (lab.work / "file").exists()
