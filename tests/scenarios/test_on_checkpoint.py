"""run --on-checkpoint: a command for each checkpoint, beside the program and after it."""

from __future__ import annotations

from pathlib import Path

from lab import Lab, wait_until


def test_each_checkpoint_once_and_in_order(lab: Lab) -> None:
    told = lab.folder / "told"
    line = f'echo "$METAMORI_INDEX $METAMORI_STORE $LD_PRELOAD" >> {told}; echo out'
    session = lab.start("--on-checkpoint", line)
    session.must(["open f rw,creat", "write 3 100 1", "checkpoint", "write 3 100 2", "checkpoint"])
    wait_until(lambda: told.exists() and told.read_text().count("\n") == 2, "the command runs beside the program")
    session.must(["write 3 100 3"])
    assert session.end() == 0
    assert told.read_text() == "".join(f"{index} {lab.store} \n" for index in (1, 2, 3))
    assert session.stderr() == "out\n" * 3


def test_a_slow_or_failing_command_holds_nobody_up(lab: Lab) -> None:
    """A checkpoint while it runs waits; at the end all have run. What failed is said; the status is the program's."""
    done = lab.run(["sh", "-c", f"for i in 1 2 3; do echo $i > f; {' '.join(lab.argv('checkpoint'))}; done; exit 5"],
                   "--on-checkpoint", f"sleep 0.3; cp f {lab.folder}/at.$METAMORI_INDEX; test $METAMORI_INDEX != 2")
    assert done.returncode == 5 and done.stdout == b"1\n2\n3\n"
    assert done.stderr == b"metamori: --on-checkpoint: the command ended with 1 at checkpoint 2\n"
    assert sorted(path.name for path in lab.folder.glob("at.*")) == ["at.1", "at.2", "at.3", "at.4"]


def test_verbs_in_it(lab: Lab) -> None:
    """It copies each state elsewhere."""
    words = " ".join(lab.argv("restore"))
    done = lab.run(["sh", "-c", "echo 1 > f"], "--on-checkpoint",
                   f"{words} $METAMORI_INDEX --to {lab.folder}/copy.$METAMORI_INDEX >/dev/null")
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    assert [path.read_text() for path in lab.folder.glob("copy.1/**/f")] == ["1\n"]


def test_the_users_own_preloads_in_a_nested_run(lab: Lab) -> None:
    """The run around it has put its library before them; that one goes, they stay."""
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line)
    command = f'echo "$LD_PRELOAD" > {lab.folder}/told'
    inner = [*lab.argv("run", "--on-checkpoint", command, store=lab.folder / "inner"), "--", "sh", "-c", "echo 1 > f"]
    done = lab.run(inner, env={"LD_PRELOAD": libc})
    said = f"metamori: the run around this one, in {lab.store}, does not track it\n"
    assert done.returncode == 0 and done.stderr.decode() == said, done.stderr
    assert (lab.folder / "told").read_text() == f"{libc}\n"
