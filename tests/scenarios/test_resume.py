"""run --resume: an interrupted run continues from its last checkpoint, as a loop of any kind would have it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROOT, Lab, wait_until

METAMORI = f"{sys.executable} -m metamori"
# Counts to 4 in a log, with a file of its own that says how far it is; a checkpoint after each step.
# It is killed in the middle of a step: the log has a line then that the state does not know of.
COUNT = f"""
n=$(cat state 2>/dev/null || echo 0)
while [ "$n" -lt 4 ]; do
    n=$((n + 1))
    echo "step $n" >> log
    echo "step $n on standard output"
    [ ! -e "../kill.$n" ] || {{ mv "../kill.$n" "../killed.$n"; kill -9 $$; }}
    [ ! -e "../fail.$n" ] || {{ mv "../fail.$n" "../failed.$n"; exit 3; }}
    echo $n > state
    {METAMORI} checkpoint -m "step $n" >/dev/null
done
echo done >> log
"""
UNSEEN = ("--exclude", "kill*", "--exclude", "fail*")  # what the test itself leaves for the program
WHOLE = [f"step {n}" for n in range(1, 5)] + ["done"]


def loop(lab: Lab, *options: str, most: int = 6) -> list[int]:
    """What `until metamori run --resume ...; do :; done` does; the statuses."""
    statuses: list[int] = []
    with open(lab.folder / "out", "ab") as out:
        while not statuses or statuses[-1]:
            assert len(statuses) < most
            done = subprocess.run([*lab.argv("run", "--resume", "--stdio", *UNSEEN, *options), "--", "sh", "-c", COUNT],
                                  cwd=lab.work, env=lab.env, stdout=out, stderr=subprocess.PIPE, timeout=180,
                                  check=False)
            assert done.returncode != 125, done.stderr
            statuses.append(done.returncode)
    return statuses


def as_if_uninterrupted(lab: Lab) -> None:
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]
    assert (lab.folder / "out").read_text().splitlines() == [f"step {n} on standard output" for n in range(1, 5)]


@pytest.mark.parametrize("mode", [(), ("--isolate",)], ids=["default", "isolate"])
def test_killed_twice_and_failed_once(lab: Lab, mode: tuple[str, ...]) -> None:
    for name in ("kill.2", "fail.3", "kill.4"):
        (lab.folder / name).touch()
    assert loop(lab, *mode) == [137, 3, 137, 0]
    as_if_uninterrupted(lab)


def test_single_mode_knows_the_way_back_after_a_kill_only(lab: Lab) -> None:
    """Where its last run ended by itself, its end is what is left, and that is said."""
    (lab.folder / "kill.2").touch()
    assert loop(lab, "--mode", "single") == [137, 0]
    as_if_uninterrupted(lab)
    lab.run(["sh", "-c", f"{METAMORI} checkpoint; echo >> log; exit 3"], "--mode", "single")
    refused = lab.run(["true"], "--resume", "--mode", "single")
    assert refused.returncode == 125 and b"in single mode only the last one is kept" in refused.stderr


def test_killed_before_its_first_checkpoint(lab: Lab) -> None:
    """It begins again on the files as they were when it began, also when that was not the store's beginning."""
    (lab.folder / "kill.1").touch()
    assert loop(lab) == [137, 0]
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]
    for name in ("log", "state"):
        (lab.work / name).unlink()
    (lab.folder / "kill.1").touch()
    lab.run(["sh", "-c", "echo header > log"])
    assert loop(lab) == [137, 0]
    assert (lab.work / "log").read_text().split() == ["header", *" ".join(WHOLE).split()]


def test_metamori_run_is_killed_too(lab: Lab) -> None:
    """As when a node goes down: the next start completes what was left, then goes back."""
    program = COUNT.replace("kill -9 $$", "kill -9 $PPID $$")
    (lab.folder / "kill.4").touch()
    argv = [*lab.argv("run", "--resume", *UNSEEN), "--", "sh", "-c", program]
    first = subprocess.run(argv, cwd=lab.work, env=lab.env, capture_output=True, text=True, timeout=180, check=False)
    assert first.returncode == -signal.SIGKILL
    second = subprocess.run(argv, cwd=lab.work, env=lab.env, capture_output=True, text=True, timeout=180, check=False)
    assert second.returncode == 0, second.stderr
    assert "continuing from checkpoint 3" in second.stderr
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]


def test_what_ended_by_itself_is_left_alone(lab: Lab) -> None:
    assert loop(lab) == [0]
    again = lab.run(["sh", "-c", "echo more >> log"], "--resume")
    assert again.returncode == 0 and b"going on" not in again.stderr
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, "more", ""]


@pytest.mark.parametrize("options", [(), ("--keep-last", "1")], ids=["default", "keep-last"])
def test_others_that_outlive_the_program_do_not_make_it_complete(lab: Lab, options: tuple[str, ...]) -> None:
    """Their end is an index of its own, after that of the program that was killed."""
    script = (f"echo one >> log; {METAMORI} checkpoint; echo two >> log; "
              "(read x < ../pipe; echo late >> log) >/dev/null 2>&1 & kill -9 $$")
    os.mkfifo(lab.folder / "pipe")
    assert lab.run(["sh", "-c", script], "--exclude", "pipe", *options).returncode == 137
    (lab.folder / "pipe").write_text("go\n")
    wait_until(lambda: 3 in lab.messages(), "the end of the one that was left")
    done = lab.run(["cat", "log"], "--resume")
    assert done.stdout == b"one\n" and b"continuing from checkpoint 1" in done.stderr


@pytest.mark.parametrize("options", [(), ("--isolate",), ("--keep-last", "1")], ids=["default", "isolate", "keep-last"])
@pytest.mark.parametrize("status", [0, 3])
def test_others_that_are_killed_do_not_tell_how_it_ended(lab: Lab, status: int, options: tuple[str, ...]) -> None:
    """Of a run that was complete the files went back to its last checkpoint."""
    os.mkfifo(lab.folder / "pipe")
    os.mkfifo(lab.folder / "begun")
    script = (f"echo one >> log; {METAMORI} checkpoint; echo two >> log; "
              "sh -c 'echo $$ > ../left; echo > ../begun; read x < ../pipe' >/dev/null 2>&1 & "
              f"read x < ../begun; exit {status}")
    assert lab.run(["sh", "-c", script], *options).returncode == status
    os.kill(int((lab.folder / "left").read_text()), signal.SIGKILL)
    wait_until(lambda: "killed" in lab.messages().values(), "the end of the one that was left")
    again = lab.run(["cat", "log"], "--resume")
    assert again.stdout == (b"one\n" if status else b"one\ntwo\n"), again.stderr
    assert (b"continuing from checkpoint 1" in again.stderr) == bool(status)
    assert b"starting" not in again.stderr


@pytest.mark.parametrize("checkpoint", [0, 1])
def test_prune_leaves_what_it_continues_from(lab: Lab, checkpoint: int) -> None:
    (lab.work / "log").write_text("begun\n")
    take = f"{METAMORI} checkpoint; " * checkpoint
    assert lab.run(["sh", "-c", f"{take}echo late >> log; kill -9 $$"]).returncode == 137
    lab.verb("prune", "--keep-last", 1)
    done = lab.run(["cat", "log"], "--resume")
    assert done.returncode == 0 and done.stdout == b"begun\n", done.stderr
    lab.verb("prune", "--keep-last", 1)    # it is complete now
    left = [index for index, message in lab.messages().items() if not message.endswith("(pruned)")]
    assert left == [max(lab.messages())]


def test_files_changed_from_outside_are_not_overwritten(lab: Lab) -> None:
    (lab.folder / "kill.3").touch()
    done = lab.run(["sh", "-c", COUNT], "--resume", *UNSEEN)
    assert done.returncode == 137
    with (lab.work / "log").open("a") as log:
        log.write("by hand\n")
    refused = lab.run(["sh", "-c", COUNT], "--resume", *UNSEEN)
    assert refused.returncode == 125 and b"restore --force 2" in refused.stderr
    assert (lab.work / "log").read_text().endswith("by hand\n")
    lab.restore(2, "--force")
    assert lab.run(["sh", "-c", COUNT], "--resume", *UNSEEN).returncode == 0
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]


def test_after_a_restore_by_hand_it_goes_on_from_there(lab: Lab) -> None:
    (lab.folder / "kill.4").touch()
    assert lab.run(["sh", "-c", COUNT], "--resume", *UNSEEN).returncode == 137
    lab.restore(2)
    done = lab.run(["sh", "-c", COUNT], "--resume", *UNSEEN)
    assert done.returncode == 0 and b"continuing from checkpoint 2" in done.stderr
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]


def test_only_where_the_program_said_so(lab: Lab) -> None:
    """A checkpoint that the timer or a person took between the log and the state is passed over."""
    between = f'{METAMORI} checkpoint -m "by chance" >/dev/null; [ ! -e "../kill.$n" ]'
    program = COUNT.replace('[ ! -e "../kill.$n" ]', between)
    (lab.folder / "kill.3").touch()
    assert lab.run(["sh", "-c", program], *UNSEEN).returncode == 137
    assert lab.messages()[5] == "by chance"
    done = lab.run(["sh", "-c", program], "--resume", "--resume-at", "step*", *UNSEEN)
    assert done.returncode == 0 and b"continuing from checkpoint 4" in done.stderr
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]


def test_where_resume_at_goes_back_to_stays(lab: Lab) -> None:
    """Both prunes left the last checkpoint of any message, and it began anew."""
    script = (f"echo good >> log; {METAMORI} checkpoint -m good; for n in 1 2 3; do echo $n >> log; "
              f"{METAMORI} checkpoint -m other; done; [ -e ../killed ] || {{ touch ../killed; kill -9 $$; }}")
    options = ("--resume", "--resume-at", "go*d", "--exclude", "killed")
    assert lab.run(["sh", "-c", script], *options, "--keep-last", "2").returncode == 137
    lab.verb("prune", "--keep-last", 1)
    done = lab.run(["cat", "log"], *options)
    assert done.stdout == b"good\n" and b"continuing from checkpoint 1" in done.stderr, done.stderr
    lab.verb("prune", "--keep-last", 1)    # it is complete now
    left = [index for index, message in lab.messages().items() if not message.endswith("(pruned)")]
    assert left == [max(lab.messages())]


def test_a_command_that_starts_again_does_not_see_it(lab: Lab) -> None:
    """--resume-at is recorded among the command's variables, and is none of them."""
    script = "env > seen; [ -e ../killed ] || { touch ../killed; kill -9 $$; }"
    options = ("--resume", "--resume-at", "good", "--exclude", "killed")
    assert lab.run(["sh", "-c", script], *options).returncode == 137
    lab.verb("restart", 0)
    assert "METAMORI_STORE=" in (lab.work / "seen").read_text()
    assert "RESUME_AT" not in (lab.work / "seen").read_text()


def test_what_a_killed_run_can_be_restored_to(lab: Lab) -> None:
    """Those that were pruned were named too; the last prune comes with the end."""
    script = f"for n in 1 2 3 4; do echo $n >> log; {METAMORI} checkpoint; done; kill -9 $$"
    said = lab.run(["sh", "-c", script], "--keep-last", "2").stderr.decode()
    assert "can be restored to checkpoints 0, 4 to 5: " in said, said
    left = json.loads(lab.verb("log", "--json").stdout)["checkpoints"]
    assert [each["index"] for each in left if not each.get("pruned")] == [0, 4, 5], left


def test_with_its_memory(lab: Lab, compiled) -> None:  # type: ignore[no-untyped-def]
    """The program knows its step by heart only, and continues from there."""
    source = lab.folder / "heart.c"
    source.write_text("""
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
int main(void) {
    FILE *log = fopen("log", "a");
    for (int step = 1; step <= 4; step++) {
        fprintf(log, "step %d\\n", step);
        fflush(log);
        if (step == 4 && access("../kill.4", F_OK) == 0) { unlink("../kill.4"); raise(SIGKILL); }
        if (metamori_checkpoint() < 0) { perror("checkpoint"); return 9; }
    }
    fprintf(log, "done\\n");
    return 0;
}
""")
    binary = lab.folder / "heart"
    subprocess.run(["gcc", "-O1", "-I", str(ROOT / "shim_c" / "include"), str(source), "-o", str(binary)], check=True)
    (lab.folder / "kill.4").touch()
    first = lab.run([binary], "--resume", "--memory", *UNSEEN)
    if b"no checkpoint" in first.stderr:
        pytest.skip(f"memory cannot be saved here: {first.stderr.decode()}")
    assert first.returncode == 137, first.stderr
    second = lab.run([binary], "--resume", "--memory", *UNSEEN)
    assert second.returncode == 0 and b"continuing from checkpoint 3" in second.stderr, second.stderr
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]


# -- a Slurm that is played: scontrol notes that it was asked, and what was safe by then -------------------------------

SCONTROL = f"""#!/bin/sh
echo "$@" > "$PLAYED/asked"
{METAMORI} log --store "$PLAYED_STORE" > "$PLAYED/log-then"
exit $(cat "$PLAYED/answer" 2>/dev/null || echo 0)
"""


@pytest.fixture
def played(lab: Lab) -> dict[str, str]:
    folder = lab.folder / "bin"
    folder.mkdir()
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "PLAYED": str(lab.folder), "PLAYED_STORE": str(lab.store),
            "SLURM_JOB_ID": "4711"}


WAITS = f"""
echo "step 1" >> log
{METAMORI} checkpoint >/dev/null
echo "step 2" >> log
kill -USR1 $PPID
for i in $(seq 3000); do [ ! -e "$PLAYED/asked" ] || break; sleep 0.02; done
echo "after the requeue" >> log
kill -TERM $$
"""


def test_a_checkpoint_is_complete_before_the_requeue(lab: Lab, played: dict[str, str]) -> None:
    done = lab.run(["sh", "-c", WAITS], "--requeue", env=played)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert (lab.folder / "asked").read_text() == "requeue 4711\n"
    assert "2 " in (lab.folder / "log-then").read_text()
    assert lab.messages()[3] == "requeued"
    started_again = played | {"SLURM_RESTART_COUNT": "1"}
    done = lab.run(["sh", "-c", "cat log"], "--requeue", env=started_again)
    assert done.stdout == b"step 1\nstep 2\n" and b"continuing from checkpoint 2" in done.stderr


def test_a_signal_to_the_whole_step_comes_to_the_program_first(lab: Lab, played: dict[str, str]) -> None:
    """As Slurm sends it, in no order."""
    script = f"{METAMORI} checkpoint > /dev/null; (sleep 0.1; kill -USR1 $PPID) & kill -USR1 $$"
    done = lab.run(["sh", "-c", script], "--requeue", env=played)
    assert done.returncode == 128 + signal.SIGUSR1, done.stderr
    assert (lab.folder / "asked").read_text() == "requeue 4711\n"
    assert lab.messages()[max(lab.messages())] == "requeued"


def test_a_controller_that_refuses_is_heard(lab: Lab, played: dict[str, str]) -> None:
    (lab.folder / "answer").write_text("1")
    done = lab.run(["sh", "-c", WAITS.replace("kill -TERM $$", "")], "--requeue", env=played)
    assert done.returncode == 0 and b"job 4711 was not requeued" in done.stderr
    assert (lab.work / "log").read_text().endswith("after the requeue\n")


def test_a_controller_that_does_not_say_whether_it_is_a_preemption_is_heard(lab: Lab, played: dict[str, str]) -> None:
    """It was taken for a cancelled job: the program ended, and nothing said why it was not queued again."""
    (lab.folder / "answer").write_text("1")
    script = "echo one > log; kill -TERM $PPID; exec sleep 60"
    done = lab.run(["sh", "-c", script], "--requeue", "--on-term", "checkpoint", env=played)
    assert done.returncode == 128 + signal.SIGTERM and b"job 4711 was not requeued" in done.stderr, done.stderr
    assert (lab.folder / "asked").read_text() == "show job -o 4711\n"


def test_a_job_s_first_run_begins_anew(lab: Lab, played: dict[str, str]) -> None:
    """Whatever an earlier job left in the store: only a restart goes back."""
    lab.run(["sh", "-c", "echo one >> log; kill -9 $$"])
    done = lab.run(["sh", "-c", "cat log"], "--requeue", env=played)
    assert done.stdout == b"one\n" and b"going on" not in done.stderr


def test_requeue_outside_of_a_job(lab: Lab, played: dict[str, str]) -> None:
    outside = {name: value for name, value in played.items() if name != "SLURM_JOB_ID"}
    done = lab.run(["true"], "--requeue", env=outside)
    assert done.returncode == 125 and b"--resume" in done.stderr
    assert not lab.store.exists()
    assert lab.run(["true"], "--stdio").returncode == 125


def test_somebodys_changes_after_a_completed_run(lab: Lab) -> None:
    """Recorded as an index that has the completed run's number: the run is complete all the same."""
    assert loop(lab) == [0]
    (lab.work / "log").write_text("mine\n")
    assert lab.run(["./nothing-here"]).returncode == 127      # has recorded them, and nothing came after
    assert "start of run" in lab.messages().values()
    again = lab.run(["sh", "-c", "echo more >> log"], "--resume")
    assert again.returncode == 0 and b"going on" not in again.stderr
    assert (lab.work / "log").read_text() == "mine\nmore\n"


@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["default", "isolate"])
def test_somebodys_changes_after_an_interrupted_run(lab: Lab, isolate: tuple[str, ...]) -> None:
    """It is still the one to go on with; the changes are an index."""
    (lab.folder / "kill.3").touch()
    script = ["sh", "-c", COUNT]
    assert lab.run(script, *UNSEEN, *isolate).returncode == 137
    with open(lab.work / "log", "a") as log:
        log.write("mine\n")
    assert lab.run(["./nothing-here"], *isolate).returncode == 127
    again = lab.run(script, "--resume", *UNSEEN, *isolate)
    assert again.returncode == 0 and b"continuing from checkpoint 2" in again.stderr
    assert (lab.work / "log").read_text().split("\n") == [*WHOLE, ""]
    kept = next(index for index, message in lab.messages().items() if message == "start of run")
    assert lab.verb("cat", kept, "log", cwd=lab.work).stdout.endswith("mine\n")


@pytest.mark.parametrize("words", [("run", "--resume", "--stdio"), ("restart", "--stdio", 1)],
                         ids=["resume", "restart"])
def test_output_is_not_cut_for_a_restore_that_is_refused(lab: Lab, words: tuple[object, ...]) -> None:
    """What is cut off does not come back: it goes when the files are there."""
    (lab.work / "f").write_bytes(b"0" * 9000)
    script = (f"{METAMORI} checkpoint; echo one; printf 1 1<>f; {METAMORI} checkpoint; echo two; "
              f"printf 2 1<>f; {METAMORI} checkpoint; echo three; printf 3 1<>f; kill -9 $$")
    with open(lab.folder / "out", "ab") as out:
        argv = [*lab.argv("run"), "--", "sh", "-c", script]
        subprocess.run(argv, cwd=lab.work, env=lab.env, stdout=out, timeout=180, check=False)
    buffer = lab.store / "buffer" / "1"
    buffer.write_bytes(bytes(buffer.stat().st_size))
    before, files = (lab.folder / "out").read_bytes(), (lab.work / "f").read_bytes()
    assert before == b"1\none\n2\ntwo\n3\nthree\n"
    with open(lab.folder / "out", "ab") as out:
        verb, *options = words
        argv = [*lab.argv(str(verb), *options), *(["--", "true"] if verb == "run" else [])]
        done = subprocess.run(argv, cwd=lab.work, env=lab.env, stdout=out, stderr=subprocess.PIPE, timeout=180,
                              check=False)
    assert done.returncode in (12, 125), done.stderr
    assert ((lab.folder / "out").read_bytes(), (lab.work / "f").read_bytes()) == (before, files)


@pytest.mark.parametrize("mode", [(), ("--isolate",)], ids=["default", "isolate"])
@pytest.mark.parametrize("keep", [1, 2])
def test_few_checkpoints_stay(lab: Lab, keep: int, mode: tuple[str, ...]) -> None:
    """How a killed run was left counts as its newest: what it continues from was pruned, and it began anew."""
    for name in ("kill.2", "fail.3", "kill.4"):
        (lab.folder / name).touch()
    assert loop(lab, "--keep-last", str(keep), *mode) == [137, 3, 137, 0]
    as_if_uninterrupted(lab)
    messages = lab.messages()
    assert [message for message in messages.values() if message.startswith("step")] == [
        f"step {n}" for n in (1, 2, 3)] + ["step 4"][:keep - 1], messages


def back_and_forth(lab: Lab) -> Path:
    """Takes as many checkpoints as it is told, goes back to the first, and there is killed if it is told so."""
    source = lab.folder / "back.c"
    source.write_text("""
#include <metamori.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    long first = metamori_checkpoint();
    if (first < 0) return 9;
    if (first == 0) {
        if (count > 2 && access("../killed", F_OK) != 0) { close(creat("../killed", 0600)); raise(SIGKILL); }
        return 0;
    }
    for (int more = 1; more < atoi(words[1]); more++)
        if (metamori_checkpoint() < 0) return 8;
    metamori_restore(first);
    return 7;
}
""")
    binary = lab.folder / "back"
    subprocess.run(["gcc", "-O1", "-include", "fcntl.h", "-I", str(ROOT / "shim_c" / "include"), str(source), "-o",
                    str(binary)], check=True)
    return binary


@pytest.mark.parametrize(("keep", "mode"), [(1, ()), (2, ()), (2, ("--isolate",))])
def test_where_a_program_goes_back_to_stays(lab: Lab, keep: int, mode: tuple[str, ...]) -> None:
    """The end before it goes back is one more than --keep-last keeps."""
    done = lab.run([back_and_forth(lab), keep], "--memory", "--keep-last", keep, *mode)
    if b"no checkpoint" in done.stderr:
        pytest.skip(f"memory cannot be saved here: {done.stderr.decode()}")
    assert done.returncode == 0, done.stderr


def test_where_a_killed_program_had_gone_back_to_stays(lab: Lab) -> None:
    """Come back it is another run, whose beginning is the other one's checkpoint."""
    words = [back_and_forth(lab), 1, "killed"]
    done = lab.run(words, "--memory", "--keep-last", 1, *UNSEEN)
    if b"no checkpoint" in done.stderr:
        pytest.skip(f"memory cannot be saved here: {done.stderr.decode()}")
    assert done.returncode == 137, done.stderr
    again = lab.run(words, "--memory", "--resume", *UNSEEN)
    assert again.returncode == 0 and b"continuing from checkpoint 1" in again.stderr, again.stderr
