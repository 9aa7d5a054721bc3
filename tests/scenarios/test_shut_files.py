"""Files that their own owner may not read, and files of somebody else that he may write to, an ordinary user: the
program notices nothing, and every index comes back."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, picture
from stops import Stops

NOBODY = 65534
AS_NOBODY = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--"]
BEGIN = """
import errno, os
os.umask(0o022)
checkpoint = (lambda: 0) if os.environ.get("NATIVE") else __import__("metamori").checkpoint

def put(path, text, flags=os.O_CREAT | os.O_TRUNC, at=0):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    os.pwrite(fd, text.encode(), at)
    os.close(fd)

def fails(call, *words):
    try:
        call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
"""


@pytest.fixture
def lab(installed: None) -> Iterator[Lab]:
    """Where nobody may go: pytest's own folders are private."""
    if os.geteuid() != 0:
        pytest.skip("it becomes another user")
    with tempfile.TemporaryDirectory(prefix="shut-") as name:
        os.chmod(name, 0o755)
        lab = Lab(Path(name), Path(sys.executable))
        for path in (lab.folder, lab.work):
            os.chown(path, NOBODY, NOBODY)
        yield lab


def act(lab: Lab, *words: object, code: int = 0, native: bool = False) -> str:
    """Of nobody, in the working folder; what it says."""
    env = lab.env | {"HOME": "/tmp"} | ({"NATIVE": "1"} if native else {})
    done = subprocess.run([*AS_NOBODY, *map(str, words)], cwd=lab.work, env=env, capture_output=True, text=True,
                          check=False, timeout=240)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def seen(lab: Lab) -> dict[str, tuple[object, ...]]:
    found = {}
    for name, each in picture(lab.work).items():
        path = lab.work / name
        known = [key for key in os.listxattr(path, follow_symlinks=False) if key.startswith("user.")]
        found[name] = (each.kind, each.mode, each.content, path.lstat().st_uid,
                       [(key, os.getxattr(path, key)) for key in known])
    return found


def followed(lab: Lab, first: str, *steps: str, options: Sequence[str] = ()) -> list[dict[str, tuple[object, ...]]]:
    """What the files are before a run, and after each of its steps, as they are natively."""
    act(lab, sys.executable, "-c", BEGIN + first, native=True)
    states = [seen(lab)]
    copy = lab.folder / "as it was"
    subprocess.run(["cp", "-a", lab.work, copy], check=True)
    for step in steps:
        act(lab, sys.executable, "-c", BEGIN + step, native=True)
        states.append(seen(lab))
    subprocess.run(["rm", "-rf", lab.work], check=True)
    copy.rename(lab.work)
    program = BEGIN + "".join(step + "\ncheckpoint()\n" for step in steps)
    assert act(lab, *lab.argv("run"), *options, "--", sys.executable, "-c", program) == ""
    assert seen(lab) == states[-1]
    return states


def every_index(lab: Lab, states: list[dict[str, tuple[object, ...]]]) -> None:
    last = len(states) - 1
    for index in (0, last, *range(last + 1), *range(last, -1, -1)):
        act(lab, *lab.argv("restore", index))
        assert seen(lab) == states[index], index
    act(lab, *lab.argv("verify"))


def test_own_files_that_may_not_be_read(lab: Lab) -> None:
    states = followed(lab, """
for name in "abcde":
    put(name, name * 9000)
    os.chmod(name, 0o222 if name < "d" else 0)
""", """
put("a", "over", 0, 5000); put("b", "cut"); os.truncate("c", 5); os.unlink("d"); os.rename("e", "f")
""", """
put("a", "once more", 0, 100); os.chmod("a", 0o644); os.chmod("b", 0); put("d", "another"); os.unlink("f")
""", """
put("a", "and more", os.O_APPEND); os.chmod("b", 0o600); put("b", "b again"); os.unlink("c")
""")
    every_index(lab, states)


def test_kept_files_that_may_not_be_read(lab: Lab) -> None:
    """What was appended to a removed file is in the store only, and goes when an older index comes back."""
    states = followed(lab, 'put("a", "a" * 90000)', 'put("a", "more" * 900, os.O_APPEND)', 'os.chmod("a", 0)',
                      'os.unlink("a")', 'put("a", "another")')
    every_index(lab, states)


def test_attributes_of_what_may_not_be_read(lab: Lab) -> None:
    states = followed(lab, """
put("file", "text"); os.mkdir("folder")
for name in ("file", "folder"):
    os.setxattr(name, "user.first", b"1"); os.setxattr(name, "user.second", b"2"); os.chmod(name, 0)
""", """
for name in ("file", "folder"):
    os.chmod(name, 0o700); os.setxattr(name, "user.first", b"one"); os.removexattr(name, "user.second")
    os.chmod(name, 0o100)
""", """
for name in ("file", "folder"):
    os.chmod(name, 0o700); os.setxattr(name, "user.first", b"eins"); os.chmod(name, 0)
os.rename("file", "moved")
""")
    every_index(lab, states)


def test_folders_that_may_be_listed_but_not_entered(lab: Lab) -> None:
    states = followed(lab, """
os.makedirs("folder/in"); put("folder/file", "text"); put("folder/in/file", "deep"); os.chmod("folder", 0o400)
""", """
os.rename("folder", "folder"); os.rename("folder", "away")
assert fails(os.link, "none", "away/new") == "ENOENT" and fails(os.link, "/bin/sh", "away/new") == "EACCES"
""", """
os.chmod("away", 0o700); put("away/file", "other text"); os.rename("away/in", "in"); os.chmod("away", 0o400)
""")
    every_index(lab, states)


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_somebody_elses_files(lab: Lab, options: list[str]) -> None:
    """Their times are their owner's to set; the run ends, and their content comes back."""
    for name in "ab":
        path = lab.work / name
        path.write_text(name * 9000)
        path.chmod(0o666)
        os.utime(path, (1e9, 1e9))
    states = [seen(lab)]
    program = BEGIN + """
put("a", "over", 0, 5000); put("b", "cut"); checkpoint(); put("a", "twice", 0, 9); os.truncate("b", 1)
"""
    assert act(lab, *lab.argv("run", *options), "--", sys.executable, "-c", program) == ""
    states += [{}, seen(lab)]
    assert states[2]["a"][2][:14] == b"aaaaaaaaatwice" and states[2]["b"][2] == b"c"
    act(lab, *lab.argv("restore", 1))
    states[1] = seen(lab)
    assert states[1]["a"][2] == b"a" * 5000 + b"over" + b"a" * 3996 and states[1]["b"][2] == b"cut"
    every_index(lab, states)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666], ids="{:o}".format)
def test_somebody_elses_files_that_lose_their_names(lab: Lab, mode: int) -> None:
    """No link may be made of them. In one's own folder one may remove, replace, rename them; they come back as his."""
    for name in "abcdef":
        (lab.work / name).write_text(name * 9000)
        (lab.work / name).chmod(mode)
        os.utime(lab.work / name, (1e9, 1e9))
    steps = ["""
put("new", "new"); os.unlink("a"); os.rename("new", "b"); os.rename("c", "moved")
os.mkdir("folder"); put("folder/new", "newer"); os.rename("folder/new", "d")
assert fails(os.rename, "folder", "e") == "ENOTDIR" and fails(os.rename, "none", "e") == "ENOENT"
assert fails(os.unlink, "e/") == "ENOTDIR"
""", """
os.rename("moved", "folder/c"); os.rename("e", "f"); put("a", "mine")
"""]
    every_index(lab, followed(lab, "", *steps))


def test_names_of_somebody_elses_files_in_the_program(lab: Lab) -> None:
    for name in "abc":
        (lab.work / name).write_text(name * 9000)
        (lab.work / name).chmod(0o600)
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", BEGIN + """
import metamori
look = lambda: {name: os.lstat(name).st_uid for name in os.listdir(".")}
first, then = checkpoint(), look()
put("new", "new"); os.unlink("a"); os.rename("new", "b"); os.rename("c", "moved")
last, now = checkpoint(), look()
for index, state in (first, then), (last, now), (first, then), (last, now):
    metamori.restore(index)
    assert look() == state, index
""")
    act(lab, *lab.argv("restore", 1))
    assert {name: each[2:4] for name, each in seen(lab).items()} == {name: (name.encode() * 9000, 0) for name in "abc"}


@pytest.mark.parametrize("point", ["unlink.kept", "take.taken"])
def test_killed_before_somebody_elses_file_has_gone(lab: Lab, point: str) -> None:
    (lab.work / "theirs").write_text("text")
    (lab.work / "theirs").chmod(0o600)
    stops = Stops(lab.folder / "stops")
    stops.arm(point)
    lab.env |= stops.env
    for path in (stops.folder, stops.folder / point):
        os.chown(path, NOBODY, NOBODY)
    before, call = seen(lab), 'os.unlink("theirs")' if point == "unlink.kept" else 'os.rename("folder/new", "theirs")'
    program = BEGIN + 'os.mkdir("folder"); put("folder/new", "new")\n' + call
    words = [*AS_NOBODY, *lab.argv("run"), "--", sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=lab.work, env=lab.env | {"HOME": "/tmp"}, process_group=0) as run:
        stops.wait(point)
        os.killpg(run.pid, signal.SIGKILL)
    assert "the last run was killed" in act(lab, *lab.argv("log"))
    end = seen(lab)
    for index, state in ((0, before), (1, end)):
        act(lab, *lab.argv("restore", index))
        assert seen(lab) == state
    act(lab, *lab.argv("verify"))


def test_an_owner_that_cannot_be_given_back_is_said(lab: Lab) -> None:
    if os.stat("/dev/shm").st_dev == os.stat(lab.work).st_dev:
        pytest.skip("the store is to be on another filesystem")
    (lab.work / "theirs").write_text("text")
    with tempfile.TemporaryDirectory(prefix="shut-", dir="/dev/shm") as folder:
        os.chown(folder, NOBODY, NOBODY)
        lab.store = Path(folder) / "store"
        act(lab, *lab.argv("run"), "--", "rm", "-f", "theirs")
        assert "theirs is yours now: only root can" in act(lab, *lab.argv("restore", 0))
        assert "theirs is yours now" not in act(lab, *lab.argv("restore", 1))


def test_somebody_elses_file_that_more_may_read_now(lab: Lab) -> None:
    """Its mode is not ours to tighten before old bytes are written."""
    path = lab.work / "theirs"
    path.write_text("secret")
    os.chown(path, 0, NOBODY)
    path.chmod(0o660)
    write = [*lab.argv("run"), "--", "dd", "of=theirs", "status=none"]
    act(lab, "sh", "-c", 'echo "no secret" | "$@"', "sh", *write)
    path.chmod(0o664)
    act(lab, "sh", "-c", 'echo "nor this" | "$@"', "sh", *write)
    said = act(lab, *lab.argv("restore", 0), code=14)
    assert "may be read by others than at checkpoint 0" in said and path.read_text() == "nor this\n"
    act(lab, *lab.argv("restore", "--force", 0))
    assert path.read_text() == "secret"
    path.chmod(0o660)
    act(lab, *lab.argv("restore", "--force", "last"))
    act(lab, *lab.argv("restore", 0))


def test_a_set_group_id_bit_that_would_not_come_back(lab: Lab) -> None:
    """The kernel takes it away when a mode is changed by somebody who is not in the group."""
    folder = lab.work / "folder"
    folder.mkdir()
    (folder / "file").write_text("text")
    for path in (folder, folder / "file"):
        os.chown(path, NOBODY, 0)
    os.setxattr(folder, "user.note", b"text")
    folder.chmod(0o2300)
    assert "1" in act(lab, sys.executable, "-c", BEGIN + """
from metamori.store.io import os_io, xattrs
print(fails(os_io.REAL.listdir, b"folder"), len(xattrs.read(b"folder", b"?")), xattrs.read(b"folder"))
""") and stat.S_IMODE(folder.stat().st_mode) == 0o2300


def test_a_set_group_id_bit_of_a_file_that_may_not_be_read(lab: Lab) -> None:
    """What somebody else made of it is to be saved before the next run, and cannot be: the bit was gone afterwards."""
    file = lab.work / "file"
    act(lab, *lab.argv("run"), "--", "sh", "-c", "echo text > file")
    file.write_text("other")
    os.chown(file, NOBODY, 0)
    file.chmod(0o2020)
    assert "Permission denied" in act(lab, *lab.argv("run"), "--", "true", code=125)
    assert stat.S_IMODE(file.stat().st_mode) == 0o2020 and file.read_text() == "other"


def test_a_mapped_file_that_was_shut_goes_back(lab: Lab) -> None:
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", BEGIN + """
import metamori, mmap
put("file", "first" * 1000)
fd = os.open("file", os.O_RDWR)
memory = mmap.mmap(fd, 5000)
first = checkpoint()
memory[:5] = b"other"
os.chmod("file", 0o444)
checkpoint()
metamori.restore(first)
assert memory[:5] == b"first"
""")


@pytest.mark.parametrize("shuts", ["made so", "later"])
def test_a_descriptor_of_a_shut_file_comes_back_in_the_program(lab: Lab, shuts: str) -> None:
    """The files had gone back, and the descriptor was closed."""
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", BEGIN + """
import metamori, sys
made = sys.argv[1] == "made so"
fd = os.open("file", os.O_CREAT | os.O_RDWR, 0o400 if made else 0o600)
os.write(fd, b"first")
if not made:
    os.chmod("file", 0)
first = checkpoint()
os.write(fd, b"second")
metamori.restore(first)
os.write(fd, b" again")
assert os.pread(fd, 20, 0) == b"first again" and os.lseek(fd, 0, 1) == 11
assert os.stat("file").st_mode & 0o777 == (0o400 if made else 0)
""", shuts)


def test_a_shut_file_that_was_cut_comes_back_in_the_program(lab: Lab) -> None:
    """A block is put together of what is in place and what was cut off: the former could not be read, and names had
    moved."""
    act(lab, sys.executable, "-c", BEGIN + 'put("file", "first")', native=True)
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", BEGIN + """
import metamori
fd = os.open("file", os.O_RDWR)
os.chmod("file", 0)
first = checkpoint()
os.ftruncate(fd, 2)
os.rename("file", "moved")
metamori.restore(first)
assert os.pread(fd, 9, 0) == b"first" and os.listdir(".") == ["file"] and os.stat("file").st_mode & 0o777 == 0
""")


def test_a_verb_that_only_looks_opens_nothing_up(lab: Lab) -> None:
    """It could be killed then."""
    act(lab, *lab.argv("run"), "--", sys.executable, "-c", BEGIN + """
os.mkdir("folder"); os.setxattr("folder", "user.note", b"text"); os.chmod("folder", 0o300)
""")
    before = (lab.work / "folder").stat().st_ctime_ns
    assert "metamori" not in act(lab, *lab.argv("log")) + act(lab, *lab.argv("verify"))
    assert (lab.work / "folder").stat().st_ctime_ns == before
    act(lab, *lab.argv("restore", 0))
    act(lab, *lab.argv("restore", 1))
    assert os.getxattr(lab.work / "folder", "user.note") == b"text"


def test_a_restore_in_the_program_that_fails_half_way(lab: Lab) -> None:
    """For good: somebody else's file may not be written to any more. The next index knows which names had moved."""
    (lab.work / "theirs").write_text("text")
    (lab.work / "theirs").chmod(0o666)
    for name in ("old", "gone"):
        (lab.work / name).write_text(name)
    program = BEGIN + """
import metamori, sys
first = checkpoint()
put("theirs", "more", os.O_APPEND, 4); put("new", "new"); os.rename("old", "moved"); os.unlink("gone")
checkpoint()
print("ready", flush=True)
sys.stdin.readline()
print(fails(metamori.restore, first), sorted(os.listdir(".")), fails(metamori.restore, first))
"""
    words = [*AS_NOBODY, *lab.argv("run"), "--", sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=lab.work, env=lab.env | {"HOME": "/tmp"}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout and run.stdout.readline() == "ready\n"
        then = seen(lab)
        (lab.work / "theirs").chmod(0o644)
        said = run.communicate("\n", timeout=240)[0]
    assert said == "EACCES ['gone', 'old', 'theirs'] EACCES\n" and run.returncode == 0
    (lab.work / "theirs").chmod(0o666)
    act(lab, *lab.argv("verify"))
    end = seen(lab)
    for index, state in ((2, then), (3, end), (1, end | {"theirs": (*end["theirs"][:2], b"text", *end["theirs"][3:])})):
        act(lab, *lab.argv("restore", "--force", index))
        assert seen(lab) == state, index
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolated", "single"])
def test_set_user_id_bits_of_files_that_are_written(lab: Lab, options: list[str]) -> None:
    """The kernel takes them away."""
    states = followed(lab, """
for name in "abc":
    put(name, name * 9000)
    os.chmod(name, 0o6755)
""", """
put("a", "over", 0, 5000); put("b", "cut"); os.truncate("c", 5)
""", """
os.chmod("a", 0o4711); os.chmod("b", 0o2755)
""", """
put("a", "once more", 0, 100); put("b", "longer", os.O_APPEND)
""", options=options)
    if "--mode=single" not in options:
        every_index(lab, states)


def test_a_program_that_was_shut_while_it_was_written(lab: Lab) -> None:
    """It is executed as it was written, though its owner may not open it for writing any more."""
    followed(lab, """
put("program", "#!/bin/false\\n" + "#" * 9000)
os.chmod("program", 0o755)
""", """
fd = os.open("program", os.O_WRONLY)
os.fchmod(fd, 0o555)
os.pwrite(fd, b"#!/bin/true\\n#", 0)
os.close(fd)
assert os.spawnl(os.P_WAIT, "./program", "program") == 0
""")


def test_a_rename_with_flags_that_no_kernel_takes_looks_at_no_folder(lab: Lab) -> None:
    """Who may not search the folder hears of the flags first, as natively; without them of the folder."""
    program = BEGIN + """
import ctypes
os.mkdir("shut"); put("shut/f", "text"); os.chmod("shut", 0)
libc, said = ctypes.CDLL(None, use_errno=True), []
for flags in (0, 1, 3, 6, 8, 1 << 31):
    assert libc.renameat2(-100, b"shut/f", -100, b"shut/g", ctypes.c_uint(flags)) == -1
    said.append(errno.errorcode[ctypes.get_errno()])
print(*said)
"""
    natively = act(lab, sys.executable, "-c", program, native=True)
    assert natively == "EACCES EACCES EINVAL EINVAL EINVAL EINVAL\n"
    (lab.work / "shut").rename(lab.folder / "aside")
    assert act(lab, *lab.argv("run"), "--", sys.executable, "-c", program) == natively


@pytest.mark.parametrize("options", [(), ("--isolate",), ("--mode", "single")], ids=["default", "isolated", "single"])
def test_what_is_refused_in_a_shut_folder(lab: Lab, compiled: Compile, options: tuple[str, ...]) -> None:
    program = Path(shutil.copy(compiled("refused_early"), lab.folder))
    program.chmod(0o755)
    (lab.folder / "out").mkdir()
    os.chown(lab.folder / "out", NOBODY, NOBODY)
    lab.env.pop("METAMORI_TRACK", None)    # out/ is not in the scope
    act(lab, sys.executable, "-c", BEGIN + """
os.mkdir("../out/fixed")
for folder in ("shut", "fixed"):
    os.mkdir(folder)
    put(folder + "/old", "old")
put("file", "text"); put("other", "text"); put("two", "text"); os.link("two", "fixed/two"); put("../out/there", "text")
for folder in ("shut", "fixed", "../out/fixed"):
    os.chmod(folder, 0 if folder == "shut" else 0o555)
""", native=True)
    natively = act(lab, program, native=True)
    assert "as before, as before, as before" in natively
    assert act(lab, *lab.argv("run"), *options, "--", program) == natively


TWICE = BEGIN + """
before = os.stat("one/old").st_ctime_ns
print(fails(os.rename, "two/new", "one/old"), fails(os.rename, "one/new", "two/old"))
print(os.stat("one/old").st_ctime_ns == before)
"""


def test_what_is_refused_between_two_mounts_of_one_filesystem(lab: Lab) -> None:
    """The kernel says so before it looks at a folder's mode."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mounts of one's own here")
    act(lab, sys.executable, "-c", BEGIN + """
for folder in ("one", "two"):
    os.mkdir(folder)
    put(folder + "/old", "old"); put(folder + "/new", "new")
os.chmod("two", 0o555)
""", native=True)
    mounted = ["unshare", "-m", "sh", "-c", 'mount --bind one one && cd . && exec "$@"', "-", *AS_NOBODY]
    said = []
    for words in [], [*lab.argv("run"), "--"]:
        done = subprocess.run([*mounted, *map(str, words), sys.executable, "-c", TWICE], cwd=lab.work,
                              env=lab.env | {"HOME": "/tmp"}, capture_output=True, text=True, check=True, timeout=100)
        said.append(done.stdout)
    assert said == ["EXDEV EXDEV\nTrue\n"] * 2


def test_a_filter_that_does_not_know_how_folders_are_asked(lab: Lab, compiled: Compile) -> None:
    """Those of old containers answer an unknown faccessat2 with EPERM: no file could be removed."""
    (lab.work / "file").write_text("text")
    refuse = Path(shutil.copy(compiled("refuse"), lab.folder))
    refuse.chmod(0o755)
    act(lab, refuse, 439, errno.EPERM, 0, 0, 0, *lab.argv("run"), "--", "rm", "-f", "file")
    assert seen(lab) == {}
