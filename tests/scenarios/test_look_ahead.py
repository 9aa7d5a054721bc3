"""What was looked at ahead of an instant, and caught up with, is what one look at all of it finds (adr/0063)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from lab import Lab, Tree, difference
from stops import Stops
from test_static_programs import BUSYBOX, is_static

from metamori.cli.checkpoint import take
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint import cut as cuts
from metamori.runtime.checkpoint import session, snapshot

PICTURE = """
import json, os, stat
def picture(top):
    found = {}
    for at, folders, files in os.walk(top):
        for path in (os.path.join(at, name) for name in (*folders, *files) if name != "store"):
            st = os.lstat(path)
            what = os.readlink(path) if stat.S_ISLNK(st.st_mode) else ""
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as file: what = (st.st_nlink, st.st_mtime_ns, hash_of(file.read()))
            found[os.path.relpath(path, top)] = (st.st_mode, what)
    return json.dumps(found, sort_keys=True)
def hash_of(data):
    import zlib
    return len(data), zlib.crc32(data)
"""

PROGRAM = PICTURE + """
import ctypes, mmap, random, sys
from contextlib import suppress
rename2 = ctypes.CDLL(None).renameat2
chance, opened = random.Random(int(sys.argv[1])), []
def any_folder():
    return chance.choice(["", "a/", "b/", "a/c/", "b/c/", "a/b/", "b/a/"])
def any_name():
    return any_folder() + chance.choice("fghijklmnopq")
def write():
    with open(any_name(), chance.choice(["w", "a", "r+"])) as file:
        file.write("x" * chance.randrange(9000))
def keep_open():
    opened.append(os.open(any_name(), os.O_RDWR | os.O_CREAT, 0o644))
def write_opened(): os.pwrite(chance.choice(opened), b"y" * chance.randrange(9000), chance.randrange(5000))
def cut_opened(): os.ftruncate(chance.choice(opened), chance.randrange(9000))
def mode_opened(): os.fchmod(chance.choice(opened), chance.choice([0o600, 0o640, 0o644]))
def shut(): os.close(opened.pop(chance.randrange(len(opened))))
def mode(): os.chmod(any_name(), chance.choice([0o600, 0o640, 0o644]))
def times(): os.utime(any_name(), (1, chance.randrange(10**6)))
def cut(): os.truncate(any_name(), chance.randrange(9000))
def gone(): os.unlink(any_name())
def link(): os.link(any_name(), any_name())
def symlink(): os.symlink(any_name(), any_name())
def attribute(): os.setxattr(any_name(), "user.a", b"%d" % chance.randrange(9))
def move(): os.rename(any_name(), any_name())
def folder(): os.mkdir(any_folder()[:-1])
def no_folder(): os.rmdir(any_folder()[:-1])
def move_folder(): os.rename(any_folder()[:-1], any_folder()[:-1])
def file_for_folder():
    name = any_folder()[:-1]
    os.rmdir(name)
    with open(name, "w") as file: file.write("z" * chance.randrange(9000))
def folder_for_file():
    name = any_folder()[:-1]
    os.unlink(name)
    os.mkdir(name)
def exchange():
    rename2(-100, (any_folder()[:-1] or any_name()).encode(), -100, (any_folder()[:-1] or any_name()).encode(), 2)
def replace():
    name = any_name()
    there = os.stat(name)
    with open(any_folder() + "new", "w") as file: file.write("r" * there.st_size)
    os.utime(file.name, ns=(there.st_atime_ns, there.st_mtime_ns))
    os.rename(file.name, name)
def shared():
    with open(any_name(), "r+b") as file, mmap.mmap(file.fileno(), 0) as bytes_of:
        bytes_of[0] = 90
calls = [write, write, write, write, keep_open, write_opened, cut_opened, mode_opened, shut, mode, times, cut, gone,
         link, symlink, attribute, move, move, folder, folder, no_folder, move_folder, exchange, shared,
         file_for_folder, folder_for_file, replace]
for line in sys.stdin:
    if line == "picture\\n":
        print(picture("."), flush=True)
        continue
    for _ in range(int(line)):
        with suppress(OSError, ValueError, IndexError):
            chance.choice(calls)()
    print("done", flush=True)
"""


def told(area: Area, looks: cuts.Looks) -> dict[str, Any]:
    """Of what was looked at, without places in a table."""
    found = looks.found()
    return {
        "names": {path: None if there is None else (tuple(there.st) if there.st else None, there.slot)
                  for at, path, there in found if at},
        "noted": {path: at for at, path, _ in found if at},
        "files": {slot: pif and (pif.path, pif.size, pif.cut, pif.refs, pif.flags, pif.mtime_ns, pif.old, pif.created,
                               pif.st and tuple(pif.st))
                  for slot, pif in looks.files(found)},
        "other notes": sorted(touch.path for touch in looks.other_notes()),
        "other files": sorted(looks.other_files()),
        "saved": [each.start for each in looks.preimages()],
        "whole": {path: looks.have_all_in(path, set()) for at, path, _ in found if at},
    }


def differing(have: dict[str, Any], want: dict[str, Any]) -> list[Any]:
    """What each says of it, where they do not say the same."""
    found = list[Any]()
    for what in want:
        one, other = have[what], want[what]
        if isinstance(other, list):
            one, other = dict.fromkeys(map(str, one), ""), dict.fromkeys(map(str, other), "")
        found += [(what, each, one.get(each, "-"), other.get(each, "-")) for each in {*one, *other}
                  if one.get(each, "-") != other.get(each, "-")]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_as_by_one_look(lab: Lab, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "fgh":
        (lab.work / name).write_bytes(b"old" * 3000)
    of = dict[str, Any]()
    exec(PICTURE, of)
    used, states = [], {0: of["picture"](lab.work)}
    command = [*lab.argv("run"), "--", sys.executable, "-c", PROGRAM, str(seed)]
    with subprocess.Popen(command, cwd=lab.work, env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        def asked(line: str) -> str:
            assert run.stdin and run.stdout
            run.stdin.write(line.encode() + b"\n")
            run.stdin.flush()
            return run.stdout.readline().decode().rstrip()

        def go(calls: int) -> None:
            assert asked(str(calls)) == "done"

        def ahead(area: Area) -> Any:
            found = cuts.look_ahead(area)
            assert found is not None
            go(4 + 3 * (seed % 2))
            return found

        def both(area: Area, seen: Any) -> cuts.Looks:
            one, two = cuts.Looks(area), cuts.Looks(area, seen)
            used.append(two.raw == seen)
            have, want = told(area, two), told(area, one)
            assert not differing(have, want)
            return two

        monkeypatch.setattr(cuts, "AHEAD_BYTES", 0)
        monkeypatch.setattr(session, "look_ahead", ahead)
        monkeypatch.setattr(snapshot, "Looks", both)
        for index in range(1, 13):
            go(40)
            take(str(lab.store), "")
            states[index] = asked("picture")
        monkeypatch.undo()
        assert run.stdin
        run.stdin.close()
    assert run.returncode == 0 and all(used) and len(used) == 12
    states[13] = of["picture"](lab.work)
    for index in (*states, 5):
        lab.restore(index)
        assert of["picture"](lab.work) == states[index], index


IN_PLACE_OF_A_FOLDER = """
import os, metamori
os.mkdir("d")
metamori.checkpoint()
os.rmdir("d")
with open("d", "w") as file: file.write("a file")
metamori.checkpoint()
with open("d", "r+") as file: file.write("A FILE")
metamori.checkpoint()
"""


def test_a_file_in_place_of_a_folder(lab: Lab) -> None:
    assert lab.run([sys.executable, "-c", IN_PLACE_OF_A_FOLDER]).returncode == 0
    for index, there in (2, b"a file"), (1, None), (3, b"A FILE"), (2, b"a file"):
        lab.restore(index)
        found = lab.work / "d"
        assert found.is_dir() if there is None else found.read_bytes() == there, index


ASKED = """
import ctypes, mmap, os, signal, sys
libc, child, fd = ctypes.CDLL(None), 0, {}
def put(name, text="x" * 9000):
    with open(name, "w") as file: file.write(text)
def replace(name):
    there = os.stat(name)
    put("other", "r" * there.st_size)
    os.utime("other", ns=(there.st_atime_ns, there.st_mtime_ns))
    os.rename("other", name)
def name_by_descriptor(fd, name):
    assert libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, name.encode(), 0x400) == 0
def exchange(one, other): assert libc.renameat2(-100, one.encode(), -100, other.encode(), 2) == 0
def mapped(name):
    with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as there: there[0] = 90
def out(): return "../../out" + os.path.basename(os.getcwd())
def folder_outside():
    os.mkdir(out())
    put(out() + "/e", "other")
    put(out() + "/g")
def begin(does):
    global child
    child = os.fork()
    if child == 0:
        exec(does)
        os._exit(0)
def kill():
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""

OLD = "os.mkdir({at!r}); os.chdir({at!r}); os.mkdir('k'); put('o'); put('k/e'); os.symlink('k', 's'); os.chdir('..')"
NEW = """os.chdir({at!r}); put('n'); put('m'); os.mkdir('d'); put('d/e'); put('k/f'); put('l'); os.link('l', 'l2')
fd['n'] = os.open('n', os.O_RDWR); fd['o'] = os.open('o', os.O_RDWR | os.O_APPEND); os.write(fd['o'], b'more')"""

CHANGES = """replace('n')
replace('o')
os.unlink('n'); put('n')
os.chmod('n', 0o600); os.chmod('o', 0o600)
os.fchmod(fd['n'], 0o600); os.fchmod(fd['o'], 0o600)
os.chown('n', os.getuid(), os.getgid()); os.fchown(fd['o'], os.getuid(), os.getgid())
os.setxattr('n', 'user.a', b'1'); os.setxattr(fd['o'], 'user.a', b'1')
os.utime('n', (1, 1)); os.utime(fd['o'], (1, 1))
os.pwrite(fd['n'], b'new', 5); os.pwrite(fd['o'], b'new', 5)
os.pwrite(fd['n'], b'long', 20000)
os.truncate('n', 100); os.ftruncate(fd['o'], 100)
os.close(fd.pop('n')); put('n', 'short')
os.link('n', 'n2'); os.link('o', 'o2')
name_by_descriptor(fd['n'], 'n2'); name_by_descriptor(fd['o'], 'o2')
os.chmod('l2', 0o600)
os.truncate('l2', 7)
os.unlink('l2')
os.unlink('n'); os.unlink('o')
os.close(fd.pop('n')); os.unlink('n'); os.symlink('m', 'n')
os.rename('n', 'n2'); os.rename('o', 'o2'); put('n', 'short')
os.rename('n', 'o'); os.rename('m', 'n')
exchange('n', 'o'); exchange('m', 'd')
os.rename('d', 'd2'); os.rename('k', 'k2')
os.rename('d', 'd2'); os.rename('k', 'd'); os.mkdir('k'); put('k/e', 'short')
os.unlink('d/e'); os.rmdir('d'); put('d')
os.unlink('d/e'); os.rmdir('d'); os.symlink('k', 'd')
os.unlink('s'); os.mkdir('s'); put('s/e')
os.chmod('d', 0o700); put('d/g'); os.chmod('k', 0o700)
mapped('n'); mapped('o')
os.mkdir('d/d'); put('d/d/e'); os.mkfifo('d/p')
exchange('s', 'k')
os.unlink('s'); os.rename('k', 's'); os.symlink('s', 'k')
folder_outside(); os.unlink('d/e'); os.rmdir('d'); os.rename(out(), 'd')
folder_outside(); exchange(out(), 'd')
os.rename('d', out()); os.chmod(out() + '/e', 0o600); os.rename(out(), 'd')
os.link('n', out()); os.chmod(out(), 0o600)
os.mkfifo('p'); os.rename('p', 'n')
os.posix_fallocate(fd['n'], 0, 30000); os.copy_file_range(fd['o'], fd['n'], 5000, 0, 100)
os.sendfile(fd['n'], fd['o'], 0, 5000)
fd['t'] = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600); name_by_descriptor(fd['t'], 't')
os.chmod('/proc/self/fd/%d' % fd['n'], 0o600)
fd['r'] = os.open('n', os.O_RDONLY)"""

KILLED = [("keep.linked", "os.unlink('n')"), ("unlink.kept", "os.unlink('o')"), ("rename.kept", "os.rename('m', 'n')"),
          ("rename.kept", "os.rename('d', 'd2')"), ("link.begun", "os.link('n', 'n2')"), ("pif.made", "put('q')"),
          ("keep.linked", "os.unlink('m')")]


def state(lab: Lab) -> Tree:
    """Without the links that the store has: one of them may be of a call that was killed."""
    return {path: replace(entry, links=0) for path, entry in lab.state().items()}


def doer(run: subprocess.Popen[bytes]) -> Callable[[str], None]:
    """What has the program do a line."""
    def does(line: str) -> None:
        assert run.stdin and run.stdout
        run.stdin.write(line.replace("\n", "; ").encode() + b"\n")
        run.stdin.flush()
        assert run.stdout.readline() == b"done\n", line

    return does


def test_what_changes_between_the_look_and_the_freeze(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the changes, and of the calls in which a process is killed, in lockstep."""
    stops = Stops(lab.folder / "stops")
    changes: list[tuple[str, str]] = [*(("", each) for each in CHANGES.splitlines()), *KILLED]
    states, between = {}, [*changes[0]]
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", ASKED], cwd=lab.work,
                          env=lab.env | stops.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        does = doer(run)

        def ahead(area: Area) -> Any:
            found = cuts.look_ahead(area)
            point, change = between
            if not point:
                does(change)
                return found
            stops.arm(point)
            does(f"begin({change!r})")
            stops.wait(point)
            does("kill()")
            stops.go(point)
            return found

        def both(area: Area, seen: Any) -> cuts.Looks:
            one, two = cuts.Looks(area), cuts.Looks(area, seen)
            assert two.raw == seen
            assert not differing(told(area, two), told(area, one)), between
            return two

        for at in range(len(changes)):
            does(OLD.format(at=str(at)))
        take(str(lab.store), "")
        monkeypatch.setattr(cuts, "AHEAD_BYTES", 0)
        monkeypatch.setattr(session, "look_ahead", ahead)
        monkeypatch.setattr(snapshot, "Looks", both)
        for at, change in enumerate(changes):
            between[:] = change
            does(NEW.format(at=str(at)))
            index = take(str(lab.store), "")
            states[index] = state(lab)
            does("[os.close(each) for each in fd.values()]; fd.clear(); os.chdir('..')")
        monkeypatch.undo()
        assert run.stdin
        run.stdin.close()
    assert run.returncode == 0
    for (index, want), change in zip(states.items(), changes, strict=True):
        lab.restore(index)
        assert not difference(state(lab), want), (index, change)


@pytest.mark.skipif(not is_static(BUSYBOX), reason="no static program")
def test_a_program_that_is_not_tracked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told what it does between the look and the freeze."""
    used = list[bool]()
    program = "import os, subprocess, sys; os.mkdir('d')\nfor line in sys.stdin: exec(line); print(flush=True)"
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", program], cwd=lab.work,
                          env=lab.env | {"METAMORI_STATIC": "untracked"}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        def does(line: str) -> None:
            assert run.stdin and run.stdout
            run.stdin.write(line.encode() + b"\n")
            run.stdin.flush()
            assert run.stdout.readline() == b"\n", line

        def ahead(area: Area) -> Any:
            found = cuts.look_ahead(area)
            assert found is not None
            does(f"subprocess.run([{BUSYBOX!r}, 'sh', '-c', 'echo more >> f; echo new > d/g'], check=True)")
            return found

        def both(area: Area, seen: Any) -> cuts.Looks:
            one, two = cuts.Looks(area), cuts.Looks(area, seen)
            used.append(two.raw == seen)
            assert not differing(told(area, two), told(area, one))
            return two

        does("open('f', 'w').write('some'); open('d/f', 'w').write('x')")
        monkeypatch.setattr(cuts, "AHEAD_BYTES", 0)
        monkeypatch.setattr(session, "look_ahead", ahead)
        monkeypatch.setattr(snapshot, "Looks", both)
        take(str(lab.store), "")
        monkeypatch.undo()
        assert run.stdin
        run.stdin.close()
    assert run.returncode == 0 and used == [False]


ORDERS = ["os.chmod('n', 0o600)", "os.unlink('n')", "os.rename('m', 'n')", "os.rename('d', 'd2')",
          "os.chmod('o', 0o600)", "os.symlink('k', 'new')", "os.link('n', 'n2')"]


class LookedFirst:
    """The C side, with something that happens just before it looks ahead."""

    def __init__(self, real: Any, before: Any) -> None:
        self.real, self.before = real, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def mm_looks_ahead(self, *words: Any) -> Any:
        self.before()
        return self.real.mm_looks_ahead(*words)


@pytest.mark.parametrize("call_first", [False, True])
def test_a_look_between_the_note_and_the_call(lab: Lab, call_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the new epoch a call has noted its name; the look comes before the kernel does it, or after."""
    stops, states, asked = Stops(lab.folder / "stops"), {}, [*ORDERS]
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", ASKED], cwd=lab.work,
                          env=lab.env | stops.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        does = doer(run)

        def finish() -> None:
            stops.go("touch.appended")
            does("assert os.waitpid(child, 0)[1] == 0")

        def before() -> None:
            stops.arm("touch.appended")
            does(f"begin({asked[0]!r})")
            stops.wait("touch.appended")
            if call_first:
                finish()

        def ahead(area: Area) -> Any:
            found = cuts.look_ahead(area)
            assert found is not None
            if not call_first:
                finish()
            return found

        def both(area: Area, seen: Any) -> cuts.Looks:
            one, two = cuts.Looks(area), cuts.Looks(area, seen)
            assert two.raw == seen
            assert not differing(told(area, two), told(area, one)), asked[0]
            return two

        for at in range(len(ORDERS)):
            does(OLD.format(at=str(at)))
        take(str(lab.store), "")
        monkeypatch.setattr(cuts, "AHEAD_BYTES", 0)
        monkeypatch.setattr(cuts, "lib", LookedFirst(cuts.lib, before))
        monkeypatch.setattr(session, "look_ahead", ahead)
        monkeypatch.setattr(snapshot, "Looks", both)
        for at in range(len(ORDERS)):
            does(NEW.format(at=str(at)))
            index = take(str(lab.store), "")
            states[index] = state(lab)
            does("[os.close(each) for each in fd.values()]; fd.clear(); os.chdir('..')")
            del asked[0]
        monkeypatch.undo()
        assert run.stdin
        run.stdin.close()
    assert run.returncode == 0
    for index, want in states.items():
        lab.restore(index)
        assert not difference(state(lab), want), (index, call_first)


def test_a_long_call_holds_up_the_others_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The freeze waits for it; the look ahead does not, and leaves all as it was."""
    stops = Stops(lab.folder / "stops")
    monkeypatch.setattr(cuts, "AHEAD_BYTES", 0)
    with subprocess.Popen([*lab.argv("run"), "--", sys.executable, "-c", ASKED], cwd=lab.work,
                          env=lab.env | stops.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        def does(line: str) -> None:
            assert run.stdin and run.stdout
            run.stdin.write(line.encode() + b"\n")
            run.stdin.flush()
            assert run.stdout.readline() == b"done\n", line

        does("put('n')")
        stops.arm("rename.kept")
        does("begin(\"os.rename('n', 'm')\")")
        stops.wait("rename.kept")
        with closing(Area(str(lab.store))) as area, area.session_lock():
            epoch = area.head.epoch
            assert cuts.look_ahead(area) is None
            assert (area.head.epoch, area.head.freeze, area.head.cut_pending) == (epoch, 0, 0)
            stops.go("rename.kept")
            does("os.waitpid(child, 0)")
            assert cuts.look_ahead(area) is not None
            assert (area.head.epoch, area.head.freeze, area.head.cut_pending) == (epoch + 1, 0, 1)
        assert run.stdin
        run.stdin.close()
    assert run.returncode == 0
    lab.restore(0)
    assert lab.state() == {}
