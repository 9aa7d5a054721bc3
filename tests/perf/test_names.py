"""What names cost, in system calls: their number does not depend on how busy a machine is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Lab

from metamori.cli.checkpoint import take
from metamori.runtime.area.run_area import Area

COUNT = 200
NATIVE = 6                                 # create, close, rename, chmod, unlink, mkdir: a call each
# With what Metamori does for them, in the present folder, in one below it, and in one by its whole path. A path costs
# one call (where the process is, or whether its folder is still there), a relative one with a folder both.
MOST = {"here": 18, "in a folder": 23, "by the whole path": 18}


def calls(lab: Lab, *command: Path | str | int, but: str = "") -> tuple[int, str]:
    counts = lab.folder / "counts"
    done = lab.run(["strace", "-c", "-o", str(counts), *map(str, command)])
    assert done.returncode == 0, done.stderr.decode()
    text = counts.read_text()
    return sum(int(line.split()[3]) for line in text.splitlines()
               if re.match(r" *\d+\.\d+ +\d", line) and line.split()[-1] not in ("total", but)), text


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed: nothing counts system calls")
@pytest.mark.parametrize("where", MOST)
def test_calls_for_names(lab: Lab, tmp_path: Path, where: str) -> None:
    program = tmp_path / "names"
    subprocess.run(["gcc", "-O2", "-Wall", "-o", program, Path(__file__).with_name("names.c")], check=True)
    (lab.work / "d").mkdir()
    prefix = {"here": "", "in a folder": "d/", "by the whole path": f"{lab.work}/d/"}[where]
    few, _ = calls(lab, program, 2, prefix + "a")
    many, text = calls(lab, program, COUNT + 2, prefix + "b")
    made = (many - few) / COUNT
    assert made > NATIVE + 4, "the preload library was not there"
    assert made <= MOST[where] + 0.3, text


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed: nothing counts system calls")
def test_calls_for_names_in_a_folder_that_moves(lab: Lab) -> None:
    """Files that no checkpoint knows: each is looked at, asked for its attributes, and noted as names (adr/0016), whose
    number depends on the length of its path."""
    for count in (2, COUNT + 2):
        (lab.work / f"d{count}").mkdir()
        for i in range(count):
            (lab.work / f"d{count}" / f"{i}").touch()
    few, _ = calls(lab, "mv", "d2", "e2", but="linkat")
    many, text = calls(lab, "mv", f"d{COUNT + 2}", "e", but="linkat")
    assert 1.9 <= (many - few) / COUNT <= 2.1, text


MANY_NEW = """
import os, sys
for each in range(int(sys.argv[1])):
    os.makedirs(f"d{each // 100}", exist_ok=True)
    open(f"d{each // 100}/{each}", "w").close()
print("made", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed: nothing counts system calls")
def test_names_are_looked_at_before_the_run_is_frozen(lab: Lab) -> None:
    """The first thing that a checkpoint does of a frozen run is to open the buffer; at last it wakes up who waits."""
    told, count = lab.folder / "told", 10 * COUNT
    command = [*lab.argv("run"), "--", sys.executable, "-c", MANY_NEW, str(count)]
    with subprocess.Popen(command, cwd=lab.work, env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdin and run.stdout and run.stdout.readline() == b"made\n"
        subprocess.run(["strace", "-f", "-o", told, *lab.argv("checkpoint")], cwd=lab.folder, env=lab.env,
                       check=True, stdout=subprocess.DEVNULL)
        run.stdin.close()
    calls = told.read_text().splitlines()
    frozen = next(at for at, call in enumerate(calls) if f"{lab.store}/buffer/" in call and "openat" in call)
    thawed = next(at for at, call in enumerate(calls) if at > frozen and "FUTEX_WAKE" in call)
    assert sum("llistxattr" in call for call in calls[:frozen]) >= count
    assert thawed - frozen < COUNT, calls[frozen:thawed][:COUNT]


def test_no_python_for_each_name_while_the_run_is_frozen(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its functions, and those in C that it calls: a few for each new folder, of 100 names."""
    asked, counted = [0], list[int]()
    freeze, thaw = Area.freeze, Area.thaw

    def frozen(area: Area) -> None:
        freeze(area)
        sys.setprofile(lambda frame, event, what: asked.append(1) if "return" not in event else None)

    def thawed(area: Area) -> None:
        sys.setprofile(None)
        thaw(area)

    monkeypatch.setattr(Area, "freeze", frozen)
    monkeypatch.setattr(Area, "thaw", thawed)
    command = [*lab.argv("run"), "--", sys.executable, "-c", MANY_NEW]
    for count in (3 * COUNT, 13 * COUNT):
        work = lab.work / f"{count}"
        work.mkdir()
        with subprocess.Popen([*command, str(count)], cwd=work, env=lab.env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as run:
            assert run.stdin and run.stdout and run.stdout.readline() == b"made\n"
            asked.clear()
            take(str(lab.store), "")
            counted.append(len(asked))
            run.stdin.close()
        assert run.returncode == 0
    assert counted[0] and (counted[1] - counted[0]) / (10 * COUNT) < 0.5, counted


COUNTED = """
import os, sys
count = 0
def seen(frame, event, what):
    global count
    count += event == "call" and frame.f_code.co_name == "dirname"
end, folders = os._exit, "/".join("abcdefgh")
os.makedirs(folders)
def said(status):
    sys.setprofile(None)
    print(count)
    sys.stdout.flush()
    end(status)
sys.argv = ["metamori", "run", "--store", sys.argv[2], "--", "sh", "-c",
            f"for i in $(seq {sys.argv[1]}); do echo $i > {folders}/$i; done"]
from metamori.__main__ import main
os._exit = said
sys.setprofile(seen)
main()
"""


def test_folders_around_new_files(native_lab: Lab) -> None:
    """However deep they are: what is asked of a folder is asked once, not of each name in it."""
    def asked(count: int) -> int:
        work = native_lab.folder / f"{count}"
        work.mkdir()
        done = subprocess.run([sys.executable, "-c", COUNTED, str(count), str(work / "store")], cwd=work, text=True,
                              capture_output=True, check=True)
        return int(done.stdout)

    assert (asked(COUNT + 2) - asked(2)) / COUNT <= 3
