"""Undo, redo and restore while the run is alive, from inside of it: files go back, processes go on."""

from __future__ import annotations

import base64
import io
import json
import random
import signal
import subprocess
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from lab import Lab, Tree, difference, picture


class Shell:
    """A real shell under `metamori run`, told what to do line by line; it answers each with its status."""

    def __init__(self, lab: Lab, *options: str) -> None:
        self.lab = lab
        env = lab.env | {"M": " ".join([lab.argv("x")[0], "-m", "metamori"])}
        self.process = subprocess.Popen([*lab.argv("run", *options), "--", "bash", "--norc"], cwd=lab.work, env=env,
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)

    def do(self, line: str, status: int = 0) -> str:
        """What the line prints, on both streams."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{{ {line}\n}} 2>&1; echo \"@@ $?\"\n")
        self.process.stdin.flush()
        said = ""
        for printed in self.process.stdout:
            if printed.startswith("@@ "):
                assert int(printed[3:]) == status, (line, printed, said)
                return said
            said += printed
        raise AssertionError(f"{line}: the shell has ended: {said}")

    def end(self) -> None:
        _, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == 0 and not errors, errors


def test_undo_and_redo_from_inside(lab: Lab) -> None:
    (lab.work / "old").write_text("old\n")
    shell = Shell(lab)
    states = [inside(shell, lab)]
    for line in ("echo one > a", "mkdir d; echo x > d/x; echo more >> old", "mv a b; rm old", "chmod 600 b; ln -s b l"):
        shell.do(line)
        states.append(inside(shell, lab))
        shell.do("$M checkpoint")
    for want in reversed(states[:-1]):
        shell.do("$M undo")
        same(inside(shell, lab), want, "after an undo")
    assert "nothing to undo" in shell.do("$M undo", status=13)
    for want in states[1:]:
        shell.do("true; $M redo")
        same(inside(shell, lab), want, "after a redo")
    assert "nothing to redo" in shell.do("$M redo", status=13)
    shell.do("$M undo 3")
    same(inside(shell, lab), states[1], "three undone at once")
    shell.do("$M redo 2")
    same(inside(shell, lab), states[3], "two done again")
    assert "only 3 to undo" in shell.do("$M undo 4", status=13)
    shell.do("echo another > branch")
    shell.do("$M restore 1")
    same(inside(shell, lab), states[1], "restored from inside")
    shell.do("$M redo 3")                 # along the branch on which the last change was made
    shell.end()
    assert (lab.work / "branch").read_text() == "another\n"
    lab.verb("verify")


def test_files_that_the_session_never_used_are_not_lost(lab: Lab) -> None:
    """A restore inside puts them aside; when the session has ended they are still there to be restored."""
    lab.run(["sh", "-c", "mkdir d; seq 30000 > big; seq 40000 > d/x"])     # longer than what has a second copy
    want = lab.state()
    shell = Shell(lab)
    shell.do("$M restore 0; test ! -e big && echo more > other")
    shell.end()
    lab.verb("verify")
    lab.restore(1)
    lab.assert_state(want, "restored after the session")


def test_what_is_open_for_writing_is_named(lab: Lab) -> None:
    shell = Shell(lab)
    shell.do("echo one > log; echo one > other; $M checkpoint")
    shell.do("exec 7>> log; echo two >&7; echo two > other")
    said = shell.do("$M undo", status=11)
    assert "has files open for writing that would change: /" in said and "/log by bash (" in said
    assert "; close them, or restore under them with --force" in said and "other" not in said
    assert (lab.work / "log").read_text() == "one\ntwo\n" and (lab.work / "other").read_text() == "two\n"
    assert "while open for writing: " in shell.do("$M undo --force")
    assert shell.do("cat log other") == "one\none\n"
    shell.do("echo three >&7")
    assert shell.do("cat log") == "one\nthree\n"
    shell.do("exec 7>&-; $M restore 2")   # nobody has it open any more
    assert shell.do("cat log other") == "one\ntwo\ntwo\n"
    shell.do("exec 6< other; $M undo; cat <&6")  # a reader is in nobody's way
    shell.end()
    lab.verb("verify")


def test_a_file_that_does_not_change_may_be_open(lab: Lab) -> None:
    shell = Shell(lab)
    shell.do("exec 7> held; echo one >&7; echo one > other; $M checkpoint; echo two > other; $M undo; echo two >&7")
    assert shell.do("cat held other") == "one\ntwo\none\n"
    shell.end()


def test_refused_where_it_cannot_be_right(lab: Lab) -> None:
    shell = Shell(lab, "--mode", "single")
    shell.do("echo one > f; $M checkpoint; echo two > f")
    assert "single" in shell.do("$M undo", status=11)
    shell.end()
    assert (lab.work / "f").read_text() == "two\n"


def test_when_the_run_is_over(lab: Lab) -> None:
    states = [lab.state()]
    for text in ("one", "two", "three"):
        lab.run(["sh", "-c", f"echo {text} > {text}"])
        states.append(lab.state())
    for want in (states[2], states[1]):
        lab.verb("undo")
        lab.assert_state(want, "undone")
    lab.verb("redo", 2)
    lab.assert_state(states[3], "done again")
    (lab.work / "three").write_text("changed from outside")
    lab.verb("undo", code=14)
    changed = lab.state()
    assert json.loads(lab.verb("undo", "--force", "--json").stdout)["recorded"] == 4
    lab.assert_state(states[3], "what somebody else did is undone")
    lab.verb("redo")
    lab.assert_state(changed, "and is still there")


def commands(folder: Path, number: int, pick: random.Random) -> str:
    """One line that an agent could give."""
    names = [path for path, entry in picture(folder).items() if entry.kind == "file"]
    one = pick.choice(names) if names else "first"
    return pick.choice([
        f"seq {pick.randrange(3000)} > new{number}", f"echo line {number} >> {one}", f"rm -f {one}",
        f"mkdir -p d{number} && echo {number} > d{number}/f", f"mv {one} moved{number} 2>/dev/null || true",
        f"cp {one} copy{number} 2>/dev/null || true", f"sed -i 's/1/x/' {one} 2>/dev/null || true",
        f"truncate -s {pick.randrange(9000)} {one}", f"rm -rf d{pick.randrange(number + 1)}", "true",
        f"dd if=/dev/zero of={one} bs=100 count=3 seek={pick.randrange(50)} conv=notrunc status=none",
    ])


@pytest.mark.parametrize(("options", "count"), [([], 50), (["--isolate"], 30)], ids=["default", "isolate"])
def test_commands_of_an_agent_and_an_undo_after_each_tenth(lab: Lab, options: list[str], count: int) -> None:
    pick = random.Random(20)
    (lab.work / "first").write_text("before\n" * 3000)
    shell = Shell(lab, *options)
    indexes: dict[int, Tree] = {}
    for number in range(1, count + 1):
        before = inside(shell, lab)
        indexes[json.loads(shell.do("$M checkpoint --json"))["index"]] = before
        shell.do(commands(lab.work, number, pick))
        if number % 10 == 0:
            after = inside(shell, lab)
            target = json.loads(shell.do("$M undo --json"))["index"]
            undone = inside(shell, lab)
            wrong = difference(undone, indexes[target])
            assert not wrong, f"{number}: undone to {target}: {wrong}"
            assert number % 20 or undone != after or after == before
            if number % 20:
                shell.do("$M redo")
                wrong = difference(inside(shell, lab), after)
                assert not wrong or after == before, f"{number}: done again: {wrong}"
    last = inside(shell, lab)
    shell.end()
    lab.assert_state(last, "at the end")
    lab.verb("verify")
    for index in [*indexes][::-3]:         # far and near: each restore is a difference to the one before
        lab.restore(index)
        lab.assert_state(indexes[index], f"checkpoint {index}")


def same(have: Tree, want: Tree, what: str) -> None:
    wrong = difference(have, want)
    assert not wrong, f"{what}: {wrong}"


def inside(shell: Shell, lab: Lab) -> Tree:
    """The files as the run sees them: isolated, what is written is not in them yet."""
    packed = base64.b64decode(shell.do("tar -cf - . | base64 -w0; echo"))
    with tempfile.TemporaryDirectory(dir=lab.folder) as copy:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(copy)
        return picture(Path(copy))


def test_a_verb_that_is_killed_in_the_middle(lab: Lab) -> None:
    """The next one carries it through; whatever point it was killed at, the files are those of one of both."""
    shell = Shell(lab)
    shell.do("for i in $(seq 40); do echo $i > f$i; done; $M checkpoint; for i in $(seq 40); do echo x >> f$i; done")
    after = inside(shell, lab)
    before = {name: replace(entry, content=entry.content[:-2]) for name, entry in after.items()}
    begun = time.monotonic()
    lab.run(lab.argv("undo"), native=True)
    took, killed = time.monotonic() - begun, 0
    shell.do("$M redo")
    for part in range(3, 10):              # of the time that it takes; a third of that is its start
        begun = time.monotonic()
        verb = subprocess.Popen(lab.argv("undo"), cwd=lab.work, env=lab.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        try:
            verb.wait(took * part / 10)
            took = min(took, time.monotonic() - begun)         # the machine was busy before
        except subprocess.TimeoutExpired:
            verb.kill()
        verb.communicate()
        killed += verb.returncode == -signal.SIGKILL
        shell.do("$M restore 1")
        same(inside(shell, lab), before, "restored")
        shell.do("$M redo")
        same(inside(shell, lab), after, "done again")
    assert killed
    shell.end()
    lab.verb("verify")
