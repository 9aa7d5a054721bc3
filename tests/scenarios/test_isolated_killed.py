"""An isolated run that is killed leaves its files as of the last commit. What its checkpoints have in place may be what
an older index has somewhere else too, as it was saved, or as zeros: it is saved before it goes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lab import Lab

# arguments: how it ends, what it does
PROGRAM = """
import metamori, os, signal, sys
exec(sys.argv[2])
print(metamori.checkpoint(), flush=True)
if sys.argv[1] != "exit":
    if sys.argv[1] == "kill all":
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"""
PART = "f = os.open('f', os.O_WRONLY); os.pwrite(f, b'part', 9000)"
# what the run before does to a file of 30000 bytes, of which the killed one overwrites a block
BEGINNINGS = {
    "overwritten": "f = os.open('f', os.O_WRONLY); os.pwrite(f, b'n' * 30000, 0)",
    "longer": "f = os.open('f', os.O_WRONLY); os.pwrite(f, b'n' * 70000, 0)",
    "zeros": "os.truncate('f', 0); os.truncate('f', 30000)",
    "part of it": "f = os.open('f', os.O_WRONLY); os.pwrite(f, b'n' * 50, 20000)",
}


def run(lab: Lab, end: str, what: str, *options: str) -> int:
    done = lab.run([sys.executable, "-c", PROGRAM, end, what], "--isolate", *options)
    assert b"Traceback" not in done.stderr, done.stderr
    return int(done.stdout)


def with_part(data: bytes) -> bytes:
    return data[:9000] + b"part" + data[9004:]


def begun(lab: Lab, beginning: str) -> tuple[Path, bytes, int]:
    """The file, what is in it, and the index that says so: another branch has overwritten all of it, and gone."""
    file = lab.work / "f"
    file.write_bytes(b"o" * 30000)
    run(lab, "exit", BEGINNINGS[beginning])
    index, data = lab.log()["head"], file.read_bytes()
    lab.restore(0)
    run(lab, "exit", "f = os.open('f', os.O_WRONLY); os.pwrite(f, b'b' * 30000, 0)")
    lab.restore(index)
    assert file.read_bytes() == data
    return file, data, index


@pytest.mark.in_turn("beginning")
@pytest.mark.parametrize("end", ["kill", "kill all"])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_its_checkpoints_come_back(lab: Lab, beginning: str, end: str) -> None:
    file, data, index = begun(lab, beginning)
    killed = run(lab, end, PART)
    assert lab.log()["head"] == index and file.read_bytes() == data
    other, first = (index + 1, b"b" * 30000), (0, b"o" * 30000)
    for each, want in (other, (killed, with_part(data)), (index, data), first, (killed + 1, with_part(data))):
        lab.restore(each)
        assert file.read_bytes() == want, each
    lab.verb("verify")


@pytest.mark.in_turn("beginning")
@pytest.mark.parametrize("end", ["kill", "kill all"])
@pytest.mark.parametrize("between", ["restore", "run", "changed"])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_from_an_index_that_says_the_same_of_it(lab: Lab, beginning: str, between: str, end: str) -> None:
    """Nothing of the file was saved on the way there, and from there nobody knew of the killed run."""
    file, data, index = begun(lab, beginning)
    run(lab, "exit", "open('g', 'w')")
    killed = run(lab, end, PART)
    lab.log()
    if between == "run":
        run(lab, "exit", "open('h', 'w')")
    elif between == "changed":
        run(lab, "exit", "os.truncate('f', 10)")
    else:
        lab.restore(index)
    other, first = (index + 1, b"b" * 30000), (0, b"o" * 30000)
    for each, want in (first, (killed, with_part(data)), other, (killed + 1, with_part(data)), (index, data)):
        lab.restore(each)
        assert file.read_bytes() == want, each
    lab.verb("verify")


def test_of_two_killed_one_after_the_other(lab: Lab) -> None:
    """Whatever was saved for the first does not tell of the second."""
    file, data, index = begun(lab, "part of it")
    first = run(lab, "kill", PART)
    lab.restore(index + 1)
    lab.restore(index)
    second = run(lab, "kill", "f = os.open('f', os.O_WRONLY); os.pwrite(f, b'other', 20000)")
    lab.restore(index + 1)
    for each, want in ((second, data[:20000] + b"other" + data[20005:]), (first, with_part(data)), (index, data)):
        lab.restore(each)
        assert file.read_bytes() == want, each


TAKEN_AWAY = {
    "not used": "taken = 'f'",
    "renamed": "os.rename('f', 'g'); taken = 'g'",
    "renamed and back": "taken = 'f'; os.rename('f', 'g'); metamori.checkpoint(); os.rename('g', 'f')",
}


@pytest.mark.in_turn("what", "end")
@pytest.mark.parametrize("size", [3000, 300000])
@pytest.mark.parametrize("what", TAKEN_AWAY)
@pytest.mark.parametrize("end", ["kill", "kill all"])
def test_a_file_that_somebody_took_away_meanwhile(lab: Lab, end: str, what: str, size: int) -> None:
    """It stays away, or comes from the store's copy: it was made anew as zeros, or no command worked any more."""
    (lab.folder / "long").write_bytes(b"o" * size)
    assert lab.run(["sh", "-c", "cat ../long > f"]).returncode == 0
    remove = "import subprocess; subprocess.run(['env', '-u', 'LD_PRELOAD', 'METAMORI_DISABLE=1', 'rm', taken])"
    run(lab, end, f"open('new', 'w'); {TAKEN_AWAY[what]}; {remove}")
    allowed = [{}, {"f": b"o" * size}]
    assert "No such file" not in lab.verb("log", code=None).stderr
    assert {name: entry.content for name, entry in lab.state().items()} in allowed
    lab.verb("restore", 1, "--force", code=None)
    have = {name: entry.content for name, entry in lab.state().items()}
    assert have in allowed and (have or size == 300000)


@pytest.mark.parametrize("end", ["kill", "kill all"])
def test_a_file_that_somebody_else_wrote_meanwhile(lab: Lab, end: str) -> None:
    """It keeps what he has put there: it was cut off at the size that an index knew."""
    assert lab.run(["sh", "-c", "echo first > theirs; echo o > f"]).returncode == 0
    write = "import subprocess; subprocess.run(['env', '-u', 'LD_PRELOAD', 'METAMORI_DISABLE=1', 'sh', '-c', " \
            "'echo second >> theirs; chmod 600 theirs'])"
    run(lab, end, f"open('f', 'a').write('x'); os.chmod('f', 0o600); {write}")
    assert lab.log()["head"] == 1
    have = {name: (entry.content, entry.mode) for name, entry in lab.state().items()}
    assert have == {"theirs": (b"first\nsecond\n", 0o600), "f": (b"o\n", 0o644)}


@pytest.mark.parametrize("end", ["kill", "kill all"])
def test_a_folder_in_a_file_s_place_that_holds_what_is_nobody_s(lab: Lab, end: str) -> None:
    """It goes back to where it was with all that is in it, and is not in the file's way: the file stayed away."""
    (lab.work / "box").mkdir()
    (lab.work / "box" / "beside").write_bytes(b"nobody's")
    (lab.work / "a").write_bytes(b"o" * 30000)
    run(lab, end, "os.unlink('a'); os.rename('box', 'a')", "--exclude", "beside")
    lab.log()
    assert (lab.work / "a").read_bytes() == b"o" * 30000
    assert (lab.work / "box" / "beside").read_bytes() == b"nobody's"
    lab.restore(1)
    assert (lab.work / "a" / "beside").read_bytes() == b"nobody's"


@pytest.mark.parametrize("later", ["pass", PART], ids=["not used", "overwritten later"])
def test_what_an_undo_record_has_of_a_file_not_used(lab: Lab, later: str) -> None:
    """Where the file is as an older index has it again; that index had its bytes from the record, the run's had not."""
    (lab.work / "f").write_bytes(b"o" * 30000)
    what = "f = os.open('f', os.O_WRONLY); os.pwrite(f, b'n' * 30000, 0)"
    assert lab.run([sys.executable, "-c", f"import os; {what}"]).returncode == 0
    lab.restore(0)
    first = run(lab, "kill all", f"open('g', 'w').close(); metamori.checkpoint(); {later}") - 1
    lab.restore(1)
    assert (lab.work / "f").read_bytes() == b"n" * 30000
    lab.restore(first)
    assert (lab.work / "f").read_bytes() == b"o" * 30000


@pytest.mark.in_turn("beginning")
@pytest.mark.parametrize("end", ["kill", "kill all"])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_used_after_its_first_checkpoint(lab: Lab, beginning: str, end: str) -> None:
    """That has the file as the index before; what the next one has in place must be saved."""
    file, data, index = begun(lab, beginning)
    killed = run(lab, end, f"open('g', 'w').close(); metamori.checkpoint(); {PART}")
    for back in (0, index, 0):
        lab.restore(back)
        lab.restore(killed)
        assert file.read_bytes() == with_part(data)
        lab.verb("verify")
