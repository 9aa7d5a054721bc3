"""Files that are renamed or linked across the border of the scope: the program notices nothing, every index comes back,
and a restore touches nothing out there."""

from __future__ import annotations

import os
import signal
import sys

import honest
import pytest
from lab import Lab, difference, picture

BEGIN = """
import ctypes, mmap, os, signal, shutil, sys
sys.path.insert(0, os.environ["PYTHONPATH"])
try:
    import metamori
    metamori.active()
except Exception:
    metamori = None
OUT = os.path.realpath("../out")
libc = ctypes.CDLL(None, use_errno=True)
native = "native" in sys.argv

def put(path, text=b"PUT ", at=2):
    with open(path, "r+b", 0) as file:
        os.pwrite(file.fileno(), text + path.encode()[-2:], at)

def append(path, text=b" and more"):
    with open(path, "ab", 0) as file:
        file.write(text)

def make(path, size=9000):
    with open(path, "wb", 0) as file:
        file.write(path.encode()[-2:] * (size // 2))

def exchange(one, other):
    assert libc.renameat2(-100, one.encode(), -100, other.encode(), 2) == 0

def unnamed(folder):
    return os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o644)

def name(fd, path):
    assert libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, path.encode(), 0x400) == 0, ctypes.get_errno()

def checkpoint():
    if not native:
        number = metamori.checkpoint()
        os.makedirs("../seen", exist_ok=True)
        shutil.copytree(".", f"../seen/{number}", symlinks=True)

def die():
    native or os.kill(os.getpid(), signal.SIGKILL)

rename, unlink, link, mkdir, pwrite = os.rename, os.unlink, os.link, os.mkdir, os.pwrite
checkpoint()
"""

CASES = {
    "out": "rename('a', OUT + '/a')",
    "out, written before": "put('a'); append('a'); rename('a', OUT + '/a')",
    "out, written after": "rename('a', OUT + '/a'); put(OUT + '/a'); append(OUT + '/a')",
    "out, later written": "put('a'); checkpoint(); rename('a', OUT + '/a'); checkpoint(); put(OUT + '/a'); "
                          "checkpoint()",
    "out, removed there": "put('a'); checkpoint(); rename('a', OUT + '/a'); unlink(OUT + '/a')",
    "out, over one": "rename('a', OUT + '/o'); checkpoint(); append(OUT + '/o')",
    "out, a new one": "make('n'); put('n'); rename('n', OUT + '/n')",
    "out, a new one of an index": "make('n'); checkpoint(); put('n'); rename('n', OUT + '/n')",
    "out, a long one": "make('n', 3 << 20); checkpoint(); put('n', at=2 << 20); rename('n', OUT + '/n'); "
                       "checkpoint(); put(OUT + '/n', at=1 << 20)",
    "out, open": "f = os.open('a', os.O_RDWR); pwrite(f, b'before', 5); rename('a', OUT + '/a'); "
                 "pwrite(f, b'after', 9); checkpoint(); pwrite(f, b'later', 4500); os.write(f, b'start')",
    "out, open for append": "f = open('a', 'ab', 0); f.write(b'1'); rename('a', OUT + '/a'); f.write(b'2'); "
                            "checkpoint(); f.write(b'3'); checkpoint(); os.ftruncate(f.fileno(), 4000); f.write(b'4')",
    "out, mapped": "f = os.open('a', os.O_RDWR); m = mmap.mmap(f, 0); m[5:9] = b'MMMM'; rename('a', OUT + '/a'); "
                   "m[10:14] = b'NNNN'; checkpoint(); m[15:19] = b'OOOO'",
    "out, one of two names": "link('a', 'a2'); put('a'); rename('a', OUT + '/a'); put('a2'); checkpoint(); "
                             "append('a2')",
    "out and back": "put('a'); rename('a', OUT + '/a'); put(OUT + '/a', at=99); rename(OUT + '/a', 'a'); "
                    "put('a', at=200)",
    "out and back later": "put('a'); checkpoint(); rename('a', OUT + '/a'); append(OUT + '/a'); checkpoint(); "
                          "rename(OUT + '/a', 'back'); checkpoint(); put('back')",
    "out and back, open": "f = os.open('a', os.O_RDWR); pwrite(f, b'1', 1); checkpoint(); rename('a', OUT + '/a'); "
                          "pwrite(f, b'2', 2); checkpoint(); pwrite(f, b'3', 3); rename(OUT + '/a', 'a'); "
                          "pwrite(f, b'4', 4); checkpoint(); pwrite(f, b'5', 5)",
    "out, another in its place": "rename('a', OUT + '/a'); make('a'); checkpoint(); put('a'); put(OUT + '/a')",
    "out by another program": "os.system('mv a ' + OUT); os.system('echo x >> ' + OUT + '/a')",
    "in": "rename(OUT + '/o', 'o')",
    "in, written after": "rename(OUT + '/o', 'o'); checkpoint(); put('o'); append('o')",
    "in, over one": "put('a'); rename(OUT + '/o', 'a'); checkpoint(); put('a')",
    "in, made there": "make(OUT + '/t'); append(OUT + '/t'); rename(OUT + '/t', 'a'); append('a'); checkpoint(); "
                      "put('a')",
    "in, open": "f = os.open(OUT + '/o', os.O_RDWR); pwrite(f, b'1', 1); rename(OUT + '/o', 'o'); pwrite(f, b'2', 2); "
                "checkpoint(); pwrite(f, b'3', 3); checkpoint(); os.ftruncate(f, 100)",
    "in, mapped": "f = os.open(OUT + '/o', os.O_RDWR); m = mmap.mmap(f, 0); m[1:3] = b'MM'; rename(OUT + '/o', 'o'); "
                  "m[5:7] = b'NN'; checkpoint(); m[9:11] = b'OO'; checkpoint(); m[0:2] = b'PP'",
    "in and out": "rename(OUT + '/o', 'o'); put('o'); rename('o', OUT + '/o2')",
    "in and out later": "rename(OUT + '/o', 'o'); put('o'); checkpoint(); rename('o', OUT + '/o2'); checkpoint(); "
                        "put(OUT + '/o2')",
    "exchanged": "put('a'); exchange('a', OUT + '/o'); put('a'); put(OUT + '/o'); checkpoint(); put('a', at=40)",
    "exchanged the other way": "put('a'); exchange(OUT + '/o', 'a'); checkpoint(); put('a', at=40); put(OUT + '/o')",
    "a folder out": "put('d/x'); rename('d', OUT + '/d'); put(OUT + '/d/y'); checkpoint(); put(OUT + '/d/e/z')",
    "a folder out, open": "f = os.open('d/e/z', os.O_RDWR); checkpoint(); pwrite(f, b'1', 1); rename('d', OUT + '/d'); "
                          "pwrite(f, b'2', 2); checkpoint(); pwrite(f, b'3', 3)",
    "a folder in": "rename(OUT + '/p', 'p'); put('p/q'); checkpoint(); put('p/r/s')",
    "a folder in, open": "f = os.open(OUT + '/p/r/s', os.O_RDWR); rename(OUT + '/p', 'p'); pwrite(f, b'1', 1); "
                         "checkpoint(); pwrite(f, b'2', 2)",
    "a folder out and back": "put('d/x'); checkpoint(); rename('d', OUT + '/d'); put(OUT + '/d/x', at=90); "
                             "checkpoint(); "
                             "rename(OUT + '/d', 'd2'); put('d2/y'); checkpoint(); put('d2/x')",
    "folders exchanged": "put('d/x'); exchange('d', OUT + '/p'); put('d/q'); put(OUT + '/p/x'); checkpoint(); "
                         "put('d/r/s')",
    "a link out": "link('a', OUT + '/l'); put(OUT + '/l'); checkpoint(); put(OUT + '/l', at=50); put('a', at=70)",
    "a link in": "link(OUT + '/o', 'l'); put(OUT + '/o'); checkpoint(); put(OUT + '/o', at=50); put('l', at=70)",
    "a link in, open": "f = os.open(OUT + '/o', os.O_RDWR); link(OUT + '/o', 'l'); checkpoint(); pwrite(f, b'2', 2)",
    "unnamed, in": "f = unnamed(OUT); os.write(f, b'new' * 99); name(f, 'u'); os.write(f, b'more'); checkpoint(); "
                   "pwrite(f, b'2', 2)",
    "unnamed, out": "f = unnamed('.'); os.write(f, b'new' * 99); checkpoint(); os.write(f, b'then'); "
                    "name(f, OUT + '/u'); "
                    "os.write(f, b'more'); checkpoint(); pwrite(f, b'2', 2)",
    "by a symbolic link": "os.symlink('../out/o', 's'); put('s'); checkpoint(); put('s', at=30)",
    "moved by copy": "shutil.move('a', OUT); shutil.move(OUT + '/o', '.'); checkpoint(); put('o')",
    "in vain": "checkpoint(); assert libc.rename(b'a', (OUT + '/p').encode()) == -1; put('a'); checkpoint(); "
               "put('a', at=70)",
    "noreplace": "put('a'); assert libc.renameat2(-100, b'a', -100, (OUT + '/o').encode(), 1) == -1; checkpoint(); "
                 "put('a')",
}
MODES: dict[str, list[str]] = {"default": [], "isolated": ["--isolate"], "single": ["--mode", "single"],
                               "process": ["--durability", "process"]}
EVERY_MODE = {"out, written before", "out, later written", "out, open", "out and back, open", "in, open",
              "in, over one",
              "exchanged", "a folder out, open", "a folder out and back", "a link in", "unnamed, out"}
BOTH_SIDES = {"a link out", "a link in", "a link in, open", "out, one of two names"}
ALL = [(case, mode) for case in CASES for mode in MODES if mode == "default" or case in EVERY_MODE]
TOLD = "metamori: written outside of the scope, and not tracked: "


def prepare(lab: Lab) -> None:
    del lab.env["METAMORI_TRACK"]
    out = lab.folder / "out"
    for folder in (lab.work / "d/e", out / "p/r"):
        folder.mkdir(parents=True)
    for path in (lab.work / "a", lab.work / "b", lab.work / "d/x", lab.work / "d/y", lab.work / "d/e/z", out / "o",
                 out / "p/q", out / "p/r/s"):
        path.write_bytes(path.name.encode() * 9000)


def run(lab: Lab, case: str, *options: str, native: bool = False, end: str = "") -> int:
    words = [sys.executable, "-c", f"{BEGIN}\n{CASES[case]}\n{end}", *(["native"] if native else [])]
    done = lab.run(words, *options, native=native)
    err = [line for line in done.stderr.decode().splitlines() if not line.startswith(TOLD)]
    assert end or not err, err
    return done.returncode


def trees(lab: Lab, before: str) -> dict[int, str]:
    found = {int(path.name): honest.tree_of(path) for path in (lab.folder / "seen").iterdir()}
    assert found[1] == before
    return found | {0: before}


@pytest.mark.in_turn("case")
@pytest.mark.parametrize(("case", "mode"), ALL)
def test_every_index_comes_back(lab: Lab, native_lab: Lab, case: str, mode: str) -> None:
    for each in (lab, native_lab):
        prepare(each)
    before, out = honest.tree_of(lab.work), lab.folder / "out"
    assert run(lab, case, *MODES[mode]) == run(native_lab, case, native=True) == 0
    assert not difference(picture(lab.work), picture(native_lab.work)), "the program left another state than natively"
    assert not difference(picture(out), picture(native_lab.folder / "out")), "it did so out of the scope"
    known = trees(lab, before) | {max(lab.messages()): honest.tree_of(lab.work)}
    outside = picture(out)
    if case in BOTH_SIDES:                 # a name out there is one that a restore neither takes away nor gives back
        contents_come_back(lab, known)
    else:
        honest.assert_honest(lab.store, lab.work, known, gone=mode == "single", untracked=before)
    assert {name: entry.content for name, entry in picture(out).items()} == \
        {name: entry.content for name, entry in outside.items()}, "a restore has touched what is out of the scope"


def contents_come_back(lab: Lab, known: dict[int, str]) -> None:
    lab.verb("verify")
    for index in (*sorted(known, reverse=True), max(known)):
        if lab.verb("restore", index, code=None).returncode == 13:    # single mode
            continue
        assert honest._unlinked(honest.tree_of(lab.work)) == honest._unlinked(known[index]), f"restore {index}"


KILLED = ["out, written before", "out, later written", "out, open", "in, over one", "in, open", "exchanged",
          "a folder out", "out and back later", "a folder in"]


@pytest.mark.in_turn("case")
@pytest.mark.parametrize(("case", "mode"), [(case, mode) for case in KILLED for mode in ("default", "isolated")])
def test_killed_afterwards(lab: Lab, case: str, mode: str) -> None:
    prepare(lab)
    before = honest.tree_of(lab.work)
    assert run(lab, case, *MODES[mode], end="die()") == 128 + signal.SIGKILL
    outside = picture(lab.folder / "out")
    known = trees(lab, before)
    if mode == "isolated":
        assert honest.tree_of(lab.work) == before
    else:
        known |= {max(lab.messages()): honest.tree_of(lab.work)}
    honest.assert_honest(lab.store, lab.work, known, untracked=before)
    assert picture(lab.folder / "out") == outside


@pytest.mark.in_turn("case")
@pytest.mark.parametrize("case", ["out, written before", "out, open", "out and back later", "in, written after",
                                  "exchanged", "a folder out, open", "a folder in", "unnamed, out"])
@pytest.mark.parametrize("mode", ["default", "isolated"])
def test_inside_the_program(lab: Lab, case: str, mode: str) -> None:
    """Rolled back to its first checkpoint the program finds its files, and what it does then is tracked."""
    prepare(lab)
    before = honest.tree_of(lab.work)
    end = "metamori.restore(1)\nshutil.copytree('.', '../back')\nput('a', b'again'); append('d/x')"
    assert run(lab, case, *MODES[mode], end=end) == 0
    assert honest.tree_of(lab.folder / "back") == before
    outside = picture(lab.folder / "out")
    honest.assert_honest(lab.store, lab.work, {0: before, 1: before, max(lab.messages()): honest.tree_of(lab.work)},
                         untracked=before)
    assert picture(lab.folder / "out") == outside


def test_what_is_out_there_may_change_later(lab: Lab) -> None:
    """Nothing that somebody does to a file that left takes an index away."""
    prepare(lab)
    before = honest.tree_of(lab.work)
    assert run(lab, "out, later written") == 0
    known = trees(lab, before) | {max(lab.messages()): honest.tree_of(lab.work)}
    (lab.folder / "out" / "a").write_bytes(b"another")
    os.unlink(lab.folder / "out" / "o")
    honest.assert_honest(lab.store, lab.work, known, untracked=before)


ARRIVES = """
import metamori, os
{}
with open("arrived", "r+b", 0) as file:
    file.write(b"new")
print(metamori.checkpoint())
"""


@pytest.mark.parametrize("how", ["os.rename('../out/l', 'arrived')", "os.link('../out/l', 'arrived')"],
                         ids=["renamed", "linked"])
@pytest.mark.parametrize("mode", ["default", "isolated"])
def test_another_name_of_a_file_that_an_index_knows_arrives(lab: Lab, mode: str, how: str) -> None:
    prepare(lab)
    assert lab.run(["sh", "-c", "echo old > new; ln new ../out/l"]).returncode == 0
    done = lab.run([sys.executable, "-c", ARRIVES.format(how)], *MODES[mode])
    assert (done.returncode, done.stderr) == (0, b"")
    for index, want in ((1, b"old\n"), (int(done.stdout), b"new\n"), (1, b"old\n")):
        lab.restore(index)
        assert (lab.work / "new").read_bytes() == want, index
    lab.verb("verify")


FURTHER = {
    "later": "rename(OUT + '/b2', 'c'); checkpoint(); put('b'); append('c'); checkpoint(); put('c', at=60)",
    "at once": "rename(OUT + '/b2', 'c'); put('c'); checkpoint(); append('b'); checkpoint(); os.truncate('c', 50)",
    "a link": "link(OUT + '/b2', 'c'); put('c'); checkpoint(); append('b'); checkpoint(); put('c', at=60)",
    "mapped": "f = os.open(OUT + '/b2', os.O_RDWR); m = mmap.mmap(f, 0); rename(OUT + '/b2', 'c'); m[5:7] = b'NN'; "
              "checkpoint(); m[9:11] = b'OO'",
}


@pytest.mark.in_turn("case")
@pytest.mark.parametrize("case", FURTHER)
@pytest.mark.parametrize("mode", ["default", "isolated"])
@pytest.mark.parametrize("known", [False, True], ids=["untouched", "known"])
def test_a_further_name_comes_in(lab: Lab, monkeypatch: pytest.MonkeyPatch, known: bool, mode: str, case: str) -> None:
    """Of a file that has one in the scope: it is no new one, whether an earlier run has written it or none."""
    prepare(lab)
    monkeypatch.setitem(CASES, case, FURTHER[case])
    os.link(lab.work / "b", lab.folder / "out" / "b2")
    assert not known or lab.run(["sh", "-c", "printf X | dd of=b conv=notrunc 2>/dev/null"]).returncode == 0
    before, first = honest.tree_of(lab.work), 2 if known else 1
    end = f"""
if not native:
    for index in ({first + 1}, {first}, {first + 1}):
        metamori.restore(index)
        shutil.copytree('.', f'../back/{{index}}', symlinks=True, dirs_exist_ok=True)
        assert index == {first} or os.path.samefile('b', 'c')
put('b', at=90)
"""
    assert run(lab, case, *MODES[mode], end=end) == 0
    seen = {int(path.name): honest.tree_of(path) for path in (lab.folder / "seen").iterdir()}
    for index in (first, first + 1):
        assert honest.tree_of(lab.folder / "back" / str(index)) == seen[index], index
    assert honest._unlinked(seen[first]) == honest._unlinked(before)
    contents_come_back(lab, seen | {max(lab.messages()): honest.tree_of(lab.work)})


BRANCHES = {
    "left by then": "make('n'); checkpoint(); rename('n', OUT + '/n'); checkpoint(); back(1); checkpoint(); back(3); "
                    "back(2); back(1)",
    "left by then, gone": "make('n'); checkpoint(); rename('n', OUT + '/n'); checkpoint(); unlink(OUT + '/n'); "
                          "back(1); checkpoint(); back(3); back(2); back(1)",
    "open without a name": "f = os.open('a', os.O_RDWR); checkpoint(); unlink('a'); checkpoint(); back(2); "
                           "rename('a', OUT + '/a'); put(OUT + '/a'); checkpoint(); back(3); "
                           "assert os.pread(f, 9001, 0) == b'a' * 9000; pwrite(f, b'again', 5); checkpoint(); back(4); "
                           "back(3); assert os.pread(f, 9001, 0) == b'a' * 9000; back(2)",
    "what it had been comes in": "rename('a', OUT + '/a'); link(OUT + '/a', OUT + '/a2'); checkpoint(); back(1); "
                                 "checkpoint(); rename(OUT + '/a', 'n'); checkpoint(); put('n'); checkpoint(); "
                                 "put('a', at=60); back(4); back(5); back(2); back(4)",
    "in a folder": "mkdir(OUT + '/f'); rename('a', OUT + '/f/a'); checkpoint(); back(1); checkpoint(); "
                   "rename(OUT + '/f', 'f'); checkpoint(); put('f/a'); checkpoint(); put('a', at=60); "
                   "back(4); back(5); back(2); back(4)",
}


@pytest.mark.in_turn("case")
@pytest.mark.parametrize("case", BRANCHES)
@pytest.mark.parametrize("mode", ["default", "isolated"])
def test_back_to_another_branch(lab: Lab, mode: str, case: str) -> None:
    """In the program, to where a file was out of the scope already, or had no name and has left it since."""
    prepare(lab)
    back = """
def back(index):
    index += 1                             # after the run before
    metamori.restore(index)
    shutil.rmtree('../back', ignore_errors=True)
    shutil.copytree('.', '../back', symlinks=True)
    assert os.system(f'diff -r ../back ../seen/{index}') == 0, index
"""
    assert lab.run(["sh", "-c", "printf aa | dd of=a conv=notrunc 2>/dev/null"]).returncode == 0
    words = [sys.executable, "-c", f"{BEGIN}{back}{BRANCHES[case]}"]
    done = lab.run(words, *MODES[mode])
    assert done.returncode == 0, done.stderr
    seen = {int(path.name): honest.tree_of(path) for path in (lab.folder / "seen").iterdir()}
    outside = picture(lab.folder / "out")
    contents_come_back(lab, seen | {max(lab.messages()): honest.tree_of(lab.work)})
    assert picture(lab.folder / "out") == outside


def test_a_folder_comes_in_beside_what_a_restore_made_of_it(lab: Lab) -> None:
    """By the number of its inode it is the one that the restored index has; that one is made anew."""
    prepare(lab)
    assert lab.run(["sh", "-c", "mkdir g; echo 1 >g/f"]).returncode == 0
    one = lab.state()
    assert lab.run(["mv", "g", "../out/g"]).returncode == 0
    lab.restore(1)
    assert lab.run(["mv", "../out/g", "b2"]).returncode == 0
    both = lab.state()
    assert both.keys() - one.keys() == {"b2", "b2/f"}
    for index, want in ((1, one), (3, both), (1, one), (3, both)):
        lab.restore(index)
        lab.assert_state(want, f"index {index}")
