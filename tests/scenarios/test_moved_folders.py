"""Folders that are renamed or exchanged, and what happens to files in them before and after: every index comes back."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from lab import Lab, picture

from metamori.store.read.store import Store

BEGIN = """
import ctypes, os, metamori, shutil

def put(path):
    with open(path, "r+b", 0) as file:
        os.pwrite(file.fileno(), b"PUT " + path.encode(), 2)

libc = ctypes.CDLL(None)

def exchange(one, other):
    assert libc.renameat2(-100, one.encode(), -100, other.encode(), 2) == 0

def checkpoint():
    number = metamori.checkpoint()
    shutil.copytree(".", f"../seen/{number}", symlinks=True)

rename, unlink, chmod, link, mkdir = os.rename, os.unlink, os.chmod, os.link, os.mkdir
checkpoint()
"""

CASES = {
    "written after": "rename('one', 'three'); put('three/b')",
    "written before": "put('one/b'); rename('one', 'three'); put('three/a')",
    "another in its place": "rename('one', 'three'); rename('two', 'one'); put('one/b')",
    "exchanged": "exchange('one', 'two'); put('two/b')",
    "exchanged, one file goes over": "exchange('one', 'two'); rename('two/b', 'one/x')",
    "unlinked after": "rename('one', 'three'); unlink('three/b')",
    "exchanged, unlinked": "exchange('one', 'two'); unlink('two/b')",
    "exchanged, chmodded": "exchange('one', 'two'); chmod('two/b', 0o600); chmod('two/in', 0o700)",
    "exchanged, by a descriptor": "f = os.open('one/in/c', 2); exchange('one', 'two'); os.pwrite(f, b'F', 5)",
    "in a later interval": "rename('one', 'three'); checkpoint(); put('three/b')",
    "exchanged, in a later interval": "exchange('one', 'two'); checkpoint(); put('two/b')",
    "open over both": "f = os.open('one/in/c', 2); exchange('one', 'two'); checkpoint(); "
                      "rename('two/in', 'gone'); os.pwrite(f, b'later', 5); checkpoint(); rename('gone', 'one/gone')",
    "into each other": "rename('one', 'two/in/one'); put('two/in/one/a'); rename('two/in', 'four'); "
                       "put('four/one/in/c')",
    "and back": "rename('one', 'three'); put('three/b'); rename('three', 'one'); put('one/a')",
    "and back later": "rename('one', 'three'); put('three/b'); checkpoint(); rename('three', 'one'); put('one/a')",
    "a new folder there": "rename('one', 'three'); mkdir('one'); open('one/b', 'w').write('new'); put('three/b')",
    "over an empty folder": "mkdir('empty'); rename('one', 'empty'); put('empty/in/c')",
    "a file and a folder": "exchange('one', 'two/b'); put('two/b/b'); chmod('one', 0o640)",
    "with a file, where a folder was": "os.symlink('a', 'one/l'); checkpoint(); shutil.rmtree('one'); checkpoint(); "
                                       "open('one', 'w').close(); os.symlink('b', 'two/l'); exchange('two', 'one'); "
                                       "checkpoint(); shutil.rmtree('one')",
    "with a file below it, where a folder was": "os.symlink('a', 'one/in/l'); checkpoint(); shutil.rmtree('one/in'); "
                                                "checkpoint(); open('one/in', 'w').close(); "
                                                "os.symlink('b', 'two/in/l'); exchange('one', 'two'); checkpoint(); "
                                                "shutil.rmtree('one')",
    "over a link, in vain": "os.symlink('one', 'link'); checkpoint(); "
                            "assert libc.rename(b'one', b'link') == -1; put('one/a')",
    "a link and a folder": "os.symlink('../two/in', 'one/to'); mkdir('two/to'); open('two/to/c', 'w').close(); "
                           "checkpoint(); exchange('one', 'two'); put('one/to/c')",
    "a link in its place": "put('one/b'); rename('one', 'three'); os.symlink('three', 'one'); put('one/b'); "
                           "put('one/a')",
    "a link in its place, to a new file": "open('one/n', 'w').close(); checkpoint(); rename('one', 'three'); "
                                          "os.symlink('three', 'one'); checkpoint(); unlink('three/n')",
    "a name is added": "rename('one', 'three'); link('three/b', 'three/z'); link('three/b', 'two/z')",
    "replaced after": "rename('one', 'three'); rename('two/a', 'three/a')",
    "three times round": "rename('one', 't'); rename('two', 'one'); rename('t', 'two'); put('one/a'); checkpoint(); "
                         "rename('two', 't'); rename('one', 'two'); rename('t', 'one'); put('one/b'); put('two/in/c')",
}


def prepare(lab: Lab) -> None:
    for folder in ("one", "two"):
        (lab.work / folder / "in").mkdir(parents=True)
        for name in ("a", "b", "in/c"):
            (lab.work / folder / name).write_bytes(f"{folder}/{name} ".encode() * 900)
    (lab.folder / "seen").mkdir()


ISOLATED = ["exchanged", "in a later interval", "open over both", "three times round"]


ALL: list[tuple[str, list[str]]] = [(case, []) for case in CASES] + [(case, ["--isolate"]) for case in ISOLATED]


@pytest.mark.in_turn("case")
@pytest.mark.parametrize(("case", "options"), ALL, ids=lambda it: it if isinstance(it, str) else "".join(it))
def test_every_index_comes_back(lab: Lab, case: str, options: list[str]) -> None:
    prepare(lab)
    before = lab.state()
    done = lab.run([sys.executable, "-c", BEGIN + CASES[case]], *options, "--exclude", f"{lab.folder}/seen/*")
    assert (done.returncode, done.stderr) == (0, b"")
    end, last = lab.state(), max(lab.messages())
    seen = {int(path.name): picture(path) for path in (lab.folder / "seen").iterdir()}
    assert seen[1] == before
    for index in (*sorted(seen, reverse=True), 0, last):
        lab.restore(index)
        lab.assert_state(before if index == 0 else end if index == last else seen[index], f"restore {index}")
    lab.verb("verify")


@pytest.mark.parametrize("case", ["exchanged", "three times round"])
def test_inside_the_program(lab: Lab, native_lab: Lab, case: str) -> None:
    """Taken back, done again: what the second time leaves is what the first time left, and the native run."""
    for each in (lab, native_lab):
        prepare(each)
    steps = CASES[case].replace("checkpoint()", "pass")
    twice = f"{BEGIN}\nfor turn in 1, 2:\n    {steps}\n    turn == 2 or metamori.restore(1)\n"
    once = BEGIN.replace("number = metamori.checkpoint()", "number = 1") + steps
    done = lab.run([sys.executable, "-c", twice], "--exclude", f"{lab.folder}/seen/*")
    assert (done.returncode, done.stderr) == (0, b"")
    assert native_lab.run([sys.executable, "-c", once], native=True).returncode == 0
    lab.assert_state(native_lab.state(), "at the end")
    shutil.rmtree(lab.folder / "seen")


MADE_BESIDE = """
import metamori, os, subprocess
os.mkdir("e")
metamori.checkpoint()
os.rmdir("e")
metamori.checkpoint()
subprocess.run(["mkdir", "e"], env=os.environ | {"METAMORI_DISABLE": "1"})
with open("e/f", "w") as file:
    file.write("f")
metamori.checkpoint()
os.chmod("e", 0o700)
os.rename("e/f", "f")
CHANGE
metamori.checkpoint()
"""


@pytest.mark.parametrize("change", ["", "os.rename('e', 'd')"])
def test_a_folder_that_somebody_else_has_made(lab: Lab, change: str) -> None:
    """An index has a file in it and not the folder; later ones know that, and a restore would take it away."""
    done = lab.run([sys.executable, "-c", MADE_BESIDE.replace("CHANGE", change)])
    assert done.returncode == 0, done.stderr
    for index, want in ((3, "e/f"), (4, "f"), (3, "e/f"), (2, None), (4, "f"), (3, "e/f")):
        lab.restore(index)
        assert [name for name in ("e/f", "f") if (lab.work / name).exists()] == [want] * (want is not None), index
    lab.verb("verify")


NUMBER_AGAIN = """
import metamori, os, shutil
numbers = []
for turn in "123":
    os.mkdir(turn)
    numbers.append(os.stat(turn).st_ino)
    open(turn + "/in" + turn, "w").close()
    metamori.checkpoint()
    shutil.rmtree(turn)
print(len(set(numbers)))
"""


def test_a_removed_folder_is_not_the_one_that_has_its_number(lab: Lab) -> None:
    """Else all its names would be looked at and kept there too, and those too at the next: ever more, 80 MB an index
    where git's own tests removed and cloned repositories."""
    done = lab.run([sys.executable, "-c", NUMBER_AGAIN])
    assert done.returncode == 0, done.stderr
    if done.stdout != b"1\n":
        pytest.skip("this filesystem does not give a number again at once")
    with Store.open(str(lab.store)) as store:
        names = {os.path.relpath(os.fsdecode(path), lab.work) for path in store.state(max(lab.messages())).names}
    assert names == {name for turn in "123" for name in (turn, f"{turn}/in{turn}")}


def test_moved_out_of_the_scope_which_a_later_run_widens(lab: Lab) -> None:
    """Index 0 has one folder by two names: as the first run found it, and as the second one did."""
    del lab.env["METAMORI_TRACK"]
    (lab.work / "in").mkdir()
    (lab.work / "in" / "a").write_text("a")
    lab.run(["sh", "-c", "echo 1 >> a; mv ../in ../new"], cwd=lab.work / "in")
    first = lab.log()["head"]
    lab.run(["sh", "-c", "echo 2 >> new/a; chmod 700 new"], cwd=lab.work)
    last = lab.log()["head"]
    for index in (last, 0, last, first, 0, first, last):
        lab.restore(index)
        if index == last:
            assert (lab.work / "new" / "a").read_text() == "a1\n2\n" and not (lab.work / "in").exists()
    lab.verb("verify")


def test_a_file_where_a_folder_was(lab: Lab) -> None:
    """In an isolated run that is killed: the folder is back in its place, as private as it was."""
    (lab.work / "in").mkdir(0o700)
    (lab.work / "in" / "a").write_text("a")
    lab.run(["sh", "-c", "mv in there; mv there in"])
    before = lab.state()
    lab.run(["sh", "-c", "mv in there; echo file > in; kill -9 $$"], "--isolate")
    lab.assert_state(before, "after the kill")
