"""What the C API and the end of a run promise beside files: indexes, errors, inherited descriptors, times."""

from __future__ import annotations

import os
import subprocess

import pytest
from lab import Lab, wait_until


def test_api_without_metamori(native_lab: Lab) -> None:
    program = native_lab.start(native=True)
    assert program.do(["active", "checkpoint", "restore 1"]) == ["0", "-1 ENOSYS", "-1 ENOSYS"]
    assert program.end() == 0


def test_api_under_metamori(lab: Lab) -> None:
    program = lab.start()
    assert program.ask("active") == "1"
    first, second = int(program.ask("checkpoint")), int(program.ask("checkpoint"))
    assert 1 <= first < second, "a checkpoint is a new index also when nothing changed"
    assert program.ask(f"restore {first}") == "0"
    assert program.end() == 0


@pytest.mark.parametrize("index", ["999", "-1", "-2147483648"])
def test_unknown_index(lab: Lab, index: str) -> None:
    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1", "checkpoint", "write 3 10 2"])
    assert program.ask(f"restore {index}") == "-1 EINVAL"
    assert program.do(["fsize 3", "lseek 3 0 cur"]) == ["20 644 1", "20"], "a refused restore changes nothing"
    assert program.end() == 0


def test_busy_with_another_live_process(lab: Lab) -> None:
    """Another process of the run is alive: EBUSY, or it is rolled back too; never half of it."""
    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1"])
    index = program.ask("checkpoint")
    program.must(["write 3 10 2", "child", "sleep 200"])
    assert program.do([f"restore {index}", "fsize 3"]) == ["-1 EBUSY", "20 644 1"]
    program.must(["endchild"])
    assert program.do([f"restore {index}", "fsize 3"]) == ["0", "10 644 1"]
    assert program.end() == 0


def test_index_of_an_earlier_process(lab: Lab) -> None:
    """An index that this process took no part in: ESRCH."""
    first = lab.start()
    first.must(["open file w,creat", "write 3 10 1"])
    index = first.ask("checkpoint")
    first.end()
    second = lab.start()
    second.must(["open file rw", "pwrite 3 5 0 2"])
    assert second.ask(f"restore {index}") == "-1 ESRCH"
    assert second.end() == 0


def test_inherited_descriptors_are_left_alone(lab: Lab) -> None:
    """`run … >> out.log`: neither a restore inside nor one from outside touches it, but --stdio cuts it."""
    out = lab.work / "out.log"
    out.write_bytes(b"before the run\n")
    script = "open file w,creat\nwrite 3 10 1\ncheckpoint\nwrite 3 10 2\nrestore @0\nfsize 3\nwrite 3 5 3\n"
    with out.open("ab") as stdout:
        command = [*lab.argv("run"), "--", str(lab.driver)]
        subprocess.run(command, cwd=lab.work, env=lab.env, input=script.encode(), stdout=stdout, check=True)
    wanted = b"before the run\n3\n10\n1\n10\n0\n10 644 1\n5\n"
    assert out.read_bytes() == wanted
    assert (lab.work / "file").stat().st_size == 15
    lab.restore(1)
    assert (lab.work / "file").stat().st_size == 10
    assert out.read_bytes() == wanted, "restore leaves inherited files alone"
    lab.verb("restore", "--stdio", 1)
    assert out.read_bytes() == b"before the run\n3\n10\n"


def test_no_descriptor_numbers_taken(lab: Lab, native_lab: Lab) -> None:
    """The program gets the numbers that it would get natively, also around checkpoints and restores."""
    lines = ["open a w,creat", "open b w,creat", "close 3", "write 4 10 1", "open c w,creat", "sh true"]
    lines += ["dup 4", "fopen 0 d w", "open e rw,creat", "fclose 0", "open f rw,creat"]
    native = native_lab.start(native=True)
    wanted = native.do(lines)
    program = lab.start()
    index = program.ask("checkpoint")
    assert program.do(lines) == wanted
    program.ask("checkpoint")
    assert program.ask(f"restore {index}") == "0"
    assert program.do(lines) == wanted


def test_times_as_at_the_checkpoint(lab: Lab) -> None:
    """mtime comes back with the content; a file that did not change keeps its own."""
    (lab.work / "file").write_bytes(b"x" * 5000)
    os.utime(lab.work / "file", (1000, 1000))
    program = lab.start()
    program.must(["open file rw", "pwrite 3 10 0 1", "open new w,creat", "write 4 10 1", "touch new 12345"])
    inside = program.must(["mtime file", "mtime new"])
    index = int(program.ask("checkpoint"))
    program.must(["sleep 20", "pwrite 3 10 100 2", "write 4 5 2", "chmod file 600"])
    assert program.end() == 0
    lab.restore(index)
    after = [str((lab.work / name).stat().st_mtime_ns) for name in ("file", "new")]
    assert after == inside
    assert after[1] == "12345000000000"
    lab.restore(0)
    assert (lab.work / "file").stat().st_mtime == 1000


def test_times_inside_the_run(lab: Lab) -> None:
    """A write into an old file moves its time at once, whether its bytes are in place or buffered."""
    (lab.work / "file").write_bytes(b"x" * 5000)
    os.utime(lab.work / "file", (1000, 1000))
    for options in ([], ["--isolate"]):
        program = lab.start(*options)
        before = int(program.ask("mtime file"))
        program.must(["open file rw", "pwrite 3 10 0 1"])
        assert int(program.ask("mtime file")) > before
        assert program.end() == 0


def test_default_mode_shows_new_bytes_at_once(lab: Lab) -> None:
    """New files and bytes past the old end are in place while the run lives (`tail -f` works)."""
    (lab.work / "old").write_bytes(b"o" * 100)
    program = lab.start()
    program.must(["open new w,creat", "write 3 9000 1", "open old w,append", "write 4 500 2", "checkpoint"])
    program.must(["write 3 100 3", "write 4 100 4"])
    wait_until(lambda: [(lab.work / name).stat().st_size for name in ("new", "old")] == [9100, 700], "the new bytes")
    assert program.end() == 0


def test_isolated_run_shows_nothing_before_its_end(lab: Lab) -> None:
    (lab.work / "old").write_bytes(b"o" * 100)
    program = lab.start("--isolate")
    program.must(["open old rw", "write 3 9000 1", "checkpoint", "write 3 100 3"])
    assert (lab.work / "old").read_bytes() == b"o" * 100
    assert program.ask("size old") == "9100 644 1"
    assert program.end() == 0
    assert (lab.work / "old").stat().st_size == 9100


@pytest.mark.parametrize("kill", ["program", "all"])
def test_isolated_kill_commits_nothing(lab: Lab, kill: str) -> None:
    """The files are as at the last commit; the killed state is kept as an index."""
    (lab.work / "old").write_bytes(b"o" * 100)
    before = lab.state()
    program = lab.start("--isolate")
    program.must(["open old rw", "write 3 9000 1", "open new w,creat", "write 4 50 1", "checkpoint"])
    program.must(["write 3 100 2"])
    wanted = program.ask("tree")
    if kill == "program":
        assert program.kill_program() == 128 + 9
    else:
        program.kill_all()
    last = lab.log()["checkpoints"][-1]
    assert last["message"] == ("killed by SIGKILL" if kill == "program" else "killed")
    assert (lab.work / "old").read_bytes() == before["old"].content
    lab.restore(last["index"])
    assert lab.start(native=True).ask("tree") == wanted


def test_killed_run_says_how_to_go_back(lab: Lab) -> None:
    program = lab.start()
    program.must(["open file w,creat", "write 3 10 1", "checkpoint", "write 3 10 2"])
    program.kill_program()
    lines = [line for line in program.stderr().splitlines() if line.strip()]
    assert len(lines) == 1
    assert "restore" in lines[0]
    quiet = lab.start()
    quiet.must(["open file w,creat"])
    assert quiet.end() == 0
    assert not quiet.stderr(), "nothing to say after an ordinary end"


def test_survivor_commits_at_its_own_end(lab: Lab) -> None:
    """The first process has gone, a daemon still writes: the last one's exit commits the rest."""
    (lab.work / "old").write_bytes(b"o" * 5000)
    os.mkfifo(lab.folder / "gate")
    script = f"(read x < {lab.folder}/gate; printf late | dd of=old conv=notrunc bs=1 seek=100; echo > flag) & exit 3"
    done = lab.run(["sh", "-c", f"exec >/dev/null 2>&1 </dev/null; {script}"])
    assert done.returncode == 3
    (lab.folder / "gate").write_text("\n")
    wait_until(lambda: (lab.work / "flag").exists(), "the survivor's flag")
    wait_until(lambda: (lab.work / "old").read_bytes()[100:104] == b"late", "the survivor's bytes")
    wait_until(lambda: lab.verb("restore", 0, code=None).returncode == 0, "the end of the run")
    assert (lab.work / "old").read_bytes() == b"o" * 5000
    assert not (lab.work / "flag").exists()
