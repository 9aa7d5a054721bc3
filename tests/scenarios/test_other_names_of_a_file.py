"""What happens to names that the run is not told of: a file's other name, and what a folder takes along."""

from __future__ import annotations

import os
import sys
from operator import eq

import pytest
from lab import Lab

MODES = [[], ["--isolate"], ["--mode=single"]]

OTHER_NAME = """
import os, metamori
fd = os.open("used", os.O_RDWR)
os.pwrite(fd, b"A" * 3000, 0)
os.unlink("used")
print(metamori.checkpoint())
os.pwrite(fd, b"B" * 2000, 1000)
os.ftruncate(fd, 8000)
os.close(fd)
"""
FIRST, LAST = b"A" * 3000 + b"o" * 6000, b"A" * 1000 + b"B" * 2000 + b"o" * 5000


def written_by_one_of_two_names(lab: Lab, options: list[str]) -> int:
    """OTHER_NAME's run, whose bytes must be in the file by the name that is left; the index of its checkpoint."""
    (lab.work / "used").write_bytes(b"o" * 9000)
    os.link(lab.work / "used", lab.work / "other")
    done = lab.run([sys.executable, "-c", OTHER_NAME], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "other").read_bytes() == LAST
    return int(done.stdout)


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_file_goes_on_by_a_name_that_the_run_never_used(lab: Lab, options: list[str]) -> None:
    """Its old bytes were overwritten, then the name that the program knew was taken away."""
    end = written_by_one_of_two_names(lab, options) + 1
    if "--mode=single" in options or os.stat(lab.work).st_dev != os.stat(lab.store).st_dev:
        return  # nothing in a store elsewhere leads to the name that is left (docs/limits.md)
    for index, want in [(end - 1, FIRST), (0, b"o" * 9000), (end - 1, FIRST), (end, LAST), (0, b"o" * 9000)]:
        lab.restore(index)
        assert (lab.work / "other").read_bytes() == want, f"at {index}"
        assert (lab.work / "used").exists() == (index == 0)
    lab.verb("verify")


IN_VAIN = """
import os, metamori
os.unlink("used")
print(metamori.checkpoint())
try:
    os.link("third", "other")
except FileExistsError:
    pass
"""


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_what_is_written_appears_by_the_other_name(elsewhere: Lab, options: list[str]) -> None:
    """The store cannot link the file that loses a name, and the program has it open."""
    taken = written_by_one_of_two_names(elsewhere, options)
    if "--mode=single" not in options:
        for index, there in [(taken, False), (0, True)]:
            elsewhere.restore(index)
            assert (elsewhere.work / "used").exists() == there
    elsewhere.verb("verify")


def test_what_is_appended_by_the_other_name_is_in_place(elsewhere: Lab) -> None:
    """By default, as with a file that has lost no name: others read it while the run goes on."""
    (elsewhere.work / "used").write_bytes(b"o" * 9000)
    os.link(elsewhere.work / "used", elsewhere.work / "other")
    session = elsewhere.start()
    session.must(["unlink used", "open other w,append", "write 3 100 5"])
    assert (elsewhere.work / "other").stat().st_size == 9100
    assert session.end() == 0


def test_the_other_name_keeps_its_time(elsewhere: Lab) -> None:
    """A name is taken away of a file that nobody has open; a call in vain tells the run of the one that is left."""
    (elsewhere.work / "used").write_bytes(b"o" * 9000)
    os.utime(elsewhere.work / "used", ns=(10**18, 10**18))
    os.link(elsewhere.work / "used", elsewhere.work / "other")
    (elsewhere.work / "third").touch()
    done = elsewhere.run([sys.executable, "-c", IN_VAIN])
    assert (done.returncode, done.stderr) == (0, b"")
    for index in (int(done.stdout), 0, int(done.stdout) + 1):
        elsewhere.restore(index)
        assert (elsewhere.work / "other").stat().st_mtime_ns == 10**18, index


TOOK_ITS_PLACE = """
import os, metamori
try:
    os.link("third", "other")
except FileExistsError:
    pass
metamori.checkpoint()
os.rename("third", "used")
metamori.checkpoint()
"""


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_the_other_name_does_not_get_the_time_of_what_took_its_place(elsewhere: Lab, options: list[str]) -> None:
    """A call in vain told the run of a name; then another file takes the file's first one, which nobody had used."""
    (elsewhere.work / "used").write_bytes(b"o" * 9000)
    os.utime(elsewhere.work / "used", ns=(10**18, 10**18))
    os.link(elsewhere.work / "used", elsewhere.work / "other")
    (elsewhere.work / "third").write_bytes(b"another")
    done = elsewhere.run([sys.executable, "-c", TOOK_ITS_PLACE], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (elsewhere.work / "other").stat().st_mtime_ns == 10**18
    assert (elsewhere.work / "used").read_bytes() == b"another"
    elsewhere.verb("verify")


USED_AGAIN = """
import os, sys, metamori
if "before" in sys.argv:                   # closed: the bytes are redirected
    with open("used", "r+") as f:
        f.write("before")
os.unlink("used")
print(metamori.checkpoint())
with open("other", "w" if "cut" in sys.argv else "r+") as f:
    f.write("by the other name")
print(metamori.checkpoint())
"""


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
@pytest.mark.parametrize("how", [[], ["cut"], ["before"], ["before", "cut"]], ids="-".join)
def test_written_by_the_other_name_afterwards(elsewhere: Lab, how: list[str], options: list[str]) -> None:
    """The store has a copy of a file that nobody had open when it lost a name; the file is the one that is left."""
    old, other = b"o" * 9000, elsewhere.work / "other"
    (elsewhere.work / "used").write_bytes(old)
    os.utime(elsewhere.work / "used", ns=(10**18, 10**18))
    os.link(elsewhere.work / "used", other)
    done = elsewhere.run([sys.executable, "-c", USED_AGAIN, *how], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    first = b"before" + old[6:] if "before" in how else old
    last = b"by the other name" + (b"" if "cut" in how else first[17:])
    assert other.read_bytes() == last
    if "--mode=single" not in options:
        taken, end = map(int, done.stdout.split())
        for index, want in [(taken, first), (0, old), (end, last), (taken, first), (end + 1, last)]:
            elsewhere.restore(index)
            assert other.read_bytes() == want, f"at {index}"
            assert (elsewhere.work / "used").exists() == (index == 0)
            assert index or (elsewhere.work / "used").read_bytes() == old
    elsewhere.verb("verify")


JOURNALS = """
import os, metamori
def made(n):
    with open("journal", "w") as f:
        f.write(f"{n:5}" * 1000)
made(0)
ended, end = os.pipe()
if os.fork() == 0:
    os.close(end)
    os.set_blocking(ended, False)
    n = 0
    while True:                            # what a database does
        try:
            os.read(ended, 1)
            os._exit(0)
        except BlockingIOError:
            pass
        n += 1
        os.unlink("journal")
        made(n)
for turn in range(4):
    for n in range(700):                   # names that a checkpoint writes down while the other goes on
        os.close(os.open(f"new{turn}.{n}", os.O_CREAT | os.O_WRONLY))
    print(metamori.checkpoint())
os.close(end)
os.wait()
"""


@pytest.mark.parametrize("options", MODES[:2], ids=lambda words: "".join(words) or "default")
def test_a_new_file_with_the_number_of_one_that_the_checkpoint_saw(elsewhere: Lab, options: list[str]) -> None:
    """It came while the checkpoint was written: what is in the index is the one that was there at its instant."""
    done = elsewhere.run([sys.executable, "-c", JOURNALS], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    for index in map(int, done.stdout.split()):
        elsewhere.restore(index)
        journal = elsewhere.work / "journal"
        have = journal.read_bytes() if journal.exists() else b""
        assert len(have) in (0, 5000)
        assert have == have[:5] * (len(have) // 5)
    elsewhere.verb("verify")


ONE_AFTER_ANOTHER = """
import os, metamori
for n in range(400):
    os.chmod(f"old{n}", 0o600)             # noted, nothing else is known of it
begin, begun = os.pipe()
if os.fork() == 0:
    os.read(begin, 1)
    for n in reversed(range(400)):
        os.unlink(f"old{n}")
        with open(f"old{n}", "w") as f:
            f.write(f"new{n:5}" * 1000)
    os._exit(0)
os.write(begun, b"x")
print(metamori.checkpoint())
os.wait()
print(metamori.checkpoint())
"""


@pytest.mark.parametrize("options", MODES[:2], ids=lambda words: "".join(words) or "default")
def test_a_file_that_nobody_wrote_is_replaced_while_a_checkpoint_is_written(elsewhere: Lab, options: list[str]) -> None:
    """The new one has the number of the one that the checkpoint saw, of which it knows nothing else."""
    for n in range(400):
        (elsewhere.work / f"old{n}").write_bytes(f"old{n:5}".encode() * 1000)
    done = elsewhere.run([sys.executable, "-c", ONE_AFTER_ANOTHER], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    first, last = map(int, done.stdout.split())
    old, new = ([f"{kind}{n:5}".encode() * 1000 for n in range(400)] for kind in ("old", "new"))
    for index in (first, last, 0, first):
        elsewhere.restore(index)
        paths = [elsewhere.work / f"old{n}" for n in range(400)]
        have = [path.read_bytes() if path.exists() else b"" for path in paths]
        replaced = 400 if index == last else 0 if index == 0 else have.count(b"") + sum(map(eq, have, new))
        assert have.count(b"") <= (index == first)     # between its removal and its bytes
        want = [*old[:400 - replaced], *new[400 - replaced:]]
        assert [n for n in range(400) if have[n] and have[n] != want[n]] == [], index
    elsewhere.verb("verify")


ANOTHER_WITH_ITS_NUMBER = """
import os, metamori
fd = os.open("old", os.O_RDONLY)
os.utime(fd)
os.close(fd)
number = os.stat("old").st_ino
print(metamori.checkpoint())
os.unlink("old")
for n in range(50):                        # ext4 hands out the lowest free one
    if os.fstat(os.open(f"new{n}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)).st_ino == number:
        break
"""


@pytest.mark.parametrize("options", MODES[:2], ids=lambda words: "".join(words) or "default")
def test_a_new_file_has_the_number_of_one_that_was_removed(elsewhere: Lab, options: list[str]) -> None:
    """The removed one was closed by the checkpoint: it is found again by its number and birth."""
    (elsewhere.work / "old").write_bytes(b"o" * 9000)
    done = elsewhere.run([sys.executable, "-c", ANOTHER_WITH_ITS_NUMBER], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    elsewhere.restore(int(done.stdout))
    assert [(path.name, path.read_bytes()) for path in elsewhere.work.iterdir()] == [("old", b"o" * 9000)]
    elsewhere.verb("verify")


REPLACED = """
import os
number = os.stat("old").st_ino
with open("new", "w") as file:
    file.write("x")
os.rename("new", "old")
for n in range(50):
    os.mknod(f"node{n}")
    found = os.stat(f"node{n}")
    assert (found.st_size, found.st_blocks, found.st_nlink) == (0, 0, 1) and found.st_mtime > 2000, found
    if found.st_ino == number:
        print("met")
        break
"""


@pytest.mark.parametrize("options", MODES[:2], ids=lambda words: "".join(words) or "default")
def test_a_number_says_nothing_of_a_file_that_has_gone(elsewhere: Lab, options: list[str]) -> None:
    """Whoever asks for a file's size by its name has no birth to tell the new one from the old one by."""
    (elsewhere.work / "old").write_bytes(b"o" * 9000)
    os.utime(elsewhere.work / "old", (2000, 2000))
    done = elsewhere.run([sys.executable, "-c", REPLACED], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    elsewhere.restore(0)
    assert [(path.name, path.read_bytes()) for path in elsewhere.work.iterdir()] == [("old", b"o" * 9000)]


EXCHANGE = """
import ctypes, os, metamori
os.mkdir("folder/inner")
print(metamori.checkpoint())
AT_FDCWD, RENAME_EXCHANGE = -100, 2
assert ctypes.CDLL(None).renameat2(AT_FDCWD, b"folder", AT_FDCWD, b"other", RENAME_EXCHANGE) == 0
"""


@pytest.mark.parametrize("other", ["file", "folder"])
def test_folder_exchanged_takes_along_what_is_in_it(lab: Lab, other: str) -> None:
    (lab.work / "folder").mkdir()
    if other == "file":
        (lab.work / "other").write_text("other")
    else:
        (lab.work / "other").mkdir()
    done = lab.run([sys.executable, "-c", EXCHANGE])
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "other" / "inner").is_dir()
    lab.restore(int(done.stdout))
    assert sorted(path.relative_to(lab.work).as_posix() for path in lab.work.rglob("*")) == [
        "folder", "folder/inner", "other"]
    assert (lab.work / "other").is_file() == (other == "file")
    lab.restore(0)
    assert not (lab.work / "folder" / "inner").exists()


FEW = """
import os, resource
os.makedirs("top/" + "d/" * 30)
taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.rename("top", "moved")
"""


def test_folder_moves_where_few_descriptors_are_left(lab: Lab) -> None:
    """It is deeper than that: what is in it is looked through all the same."""
    done = lab.run([sys.executable, "-c", FEW])
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "moved" / ("d/" * 30)).is_dir()


SOCKET = """
import ctypes, os, socket, struct, metamori
os.mkdir("new")
for place in ("old", "new"):
    one = socket.socket(socket.AF_UNIX)
    one.bind(place + "/socket")
    one.close()
    two = socket.socket(socket.AF_UNIX)
    address = struct.pack("H", socket.AF_UNIX) + f"{place}/{'n' * 104}".encode()   # no zero byte at its end
    assert ctypes.CDLL(None).bind(two.fileno(), address, len(address)) == 0
    two.close()
print(metamori.checkpoint())
for place in ("old", "new"):
    for name in os.listdir(place):
        os.unlink(place + "/" + name)
os.rmdir("new")
metamori.checkpoint()
"""


def test_a_socket_is_there_from_bind_on(lab: Lab) -> None:
    (lab.work / "old").mkdir()
    done = lab.run([sys.executable, "-c", SOCKET])
    assert (done.returncode, done.stderr) == (0, b"")
    there = int(done.stdout)
    both = ["new", "old"]
    for index, folders, sockets in [(0, ["old"], 0), (there, both, 4), (0, ["old"], 0), (there + 1, ["old"], 0)]:
        restored = lab.run([*lab.argv("restore"), str(index)], native=True)
        assert (restored.returncode, restored.stderr.count(b"was a socket")) == (0, sockets), restored.stderr
        assert sorted(path.name for path in lab.work.iterdir()) == folders


def by_somebody_else(path: str) -> str:
    """A program that leaves the run makes a file."""
    outside = "env=dict(os.environ, METAMORI_DISABLE='1')"
    return f"subprocess.run(['sh', '-c', 'echo theirs > {path}'], {outside}, check=True)"


FOLDERS_OF_THE_RUN = f"""
import os, shutil, subprocess, metamori
os.mkdir("new")
os.rename("old", "moved")
print(metamori.checkpoint())
{by_somebody_else("new/theirs")}
{by_somebody_else("moved/theirs")}
os.mkdir("new/in")
os.mkdir("new/in/side")
{by_somebody_else("new/in/side/theirs")}
print(metamori.checkpoint())
if DELETES:
    shutil.rmtree("new")
    os.unlink("moved/theirs")
else:
    for path in ("new/theirs", "new/in/side/theirs", "moved/theirs"):
        with open(path, "a") as file:
            file.write("ours\\n")
print(metamori.checkpoint())
"""


@pytest.mark.parametrize("options", MODES[:2], ids=lambda words: "".join(words) or "default")
@pytest.mark.parametrize("deletes", [True, False], ids=["deleted", "written"])
def test_a_file_of_somebody_else_is_not_older_than_its_folder(lab: Lab, deletes: bool, options: list[str]) -> None:
    """First seen when the run changes it: it was there before, but not where its folder was not there either."""
    (lab.work / "old").mkdir()
    done = lab.run([sys.executable, "-c", f"DELETES = {deletes}" + FOLDERS_OF_THE_RUN], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    made, theirs, ours = map(int, done.stdout.split())
    first = {"moved", "new", "moved/theirs", "new/theirs"}     # where its folder was, it counts as there
    both = {*first, "new/in", "new/in/side", "new/in/side/theirs"}
    want = {0: {"old"}, made: first, theirs: both, ours: {"moved"} if deletes else both}
    for index in (ours, 0, theirs, made, 0, ours, made, theirs, 0):
        lab.restore(index)
        found = {str(path.relative_to(lab.work)) for path in lab.work.rglob("*")}
        assert found == want[index], f"at {index}"
        if "moved/theirs" in found:
            tail = "" if index != ours else "ours\n"
            assert (lab.work / "moved/theirs").read_text() == "theirs\n" + tail
    lab.verb("verify")


TO_WHAT_A_LINK_LEADS = """
import os, sys, metamori
metamori.checkpoint()
os.setxattr("link/", "user.given", b"later", follow_symlinks=False)
os.chown("link/", *map(int, sys.argv[1:]), follow_symlinks=False)
"""


def test_attributes_by_a_link_with_a_slash_behind_it(lab: Lab) -> None:
    """The kernel goes through it, even where it is told not to: it is the folder that changes."""
    folder = lab.work / "folder"
    folder.mkdir()
    (lab.work / "link").symlink_to("folder")
    owner = (1, 2) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    try:
        os.setxattr(folder, "user.there", b"before")
    except OSError:
        pytest.skip("no extended attributes here")
    was = folder.stat()
    done = lab.run([sys.executable, "-c", TO_WHAT_A_LINK_LEADS, *map(str, owner)])
    assert (done.returncode, done.stderr) == (0, b"")
    there, given = (was.st_uid, was.st_gid, ["user.there"]), (*owner, ["user.given", "user.there"])
    for index, want in [(2, given), (1, there), (2, given), (0, there)]:
        lab.restore(index)
        now = folder.stat()
        assert (now.st_uid, now.st_gid, sorted(os.listxattr(folder))) == want, index
    lab.verb("verify")


OUT_THERE = {
    "removed": os.unlink,
    "renamed": lambda path: os.rename(path, path.with_name("another")),
    "linked": lambda path: os.link(path, path.with_name("another")),
    "mode": lambda path: path.chmod(0o600),
}


@pytest.mark.parametrize("what", OUT_THERE)
def test_a_file_in_the_store_keeps_its_bytes_when_its_outer_name_goes(lab: Lab, what: str) -> None:
    """The store's name and the one out there are of one file: its change time is another then, and nothing is lost."""
    del lab.env["METAMORI_TRACK"]          # only the work folder
    outer = lab.folder / "out" / "file"
    outer.parent.mkdir()
    outer.write_bytes(b"o" * 9000)
    os.link(outer, lab.work / "used")
    mode = outer.stat().st_mode
    done = lab.run(["rm", "used"])
    assert (done.returncode, done.stderr) == (0, b"")
    OUT_THERE[what](outer)
    lab.verb("verify")
    assert lab.run("true").returncode == 0
    assert [entry["lost"] for entry in lab.log()["checkpoints"]] == [[]] * 3
    lab.restore(0)
    assert (lab.work / "used").read_bytes() == b"o" * 9000 and (lab.work / "used").stat().st_mode == mode
    assert lab.run("true").returncode == 0


PIPES_AND_LINKS = """
import os, sys, metamori
def made(name, time):
    os.mkfifo(name) if sys.argv[1] == "fifo" else os.symlink("nowhere", name)
    os.utime(name, (time, time), follow_symlinks=False)
def times():
    return [int(os.lstat(name).st_mtime) for name in ("one", "two")]
made("one", 1)
made("two", 2)
indexes = [metamori.checkpoint()]
os.unlink("one")
os.link("two", "one", follow_symlinks=False)
indexes.append(metamori.checkpoint())
os.utime("one", (3, 3), follow_symlinks=False)
indexes.append(metamori.checkpoint())
for at in (0, 2, 1, 0, 1, 2):
    metamori.restore(indexes[at])
    assert times() == [[1, 2], [2, 2], [3, 3]][at], (at, times())
"""


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_fifo_or_link_that_gets_a_second_name_is_as_it_was(lab: Lab, kind: str) -> None:
    """The one that had this name before had a time of its own, and both names have what one of them was given."""
    done = lab.run([sys.executable, "-c", PIPES_AND_LINKS, kind])
    assert (done.returncode, done.stderr) == (0, b"")
    for index, want in [(3, [3, 3]), (1, [1, 2]), (2, [2, 2]), (3, [3, 3]), (2, [2, 2]), (1, [1, 2])]:
        lab.restore(index)
        assert [int((lab.work / name).lstat().st_mtime) for name in ("one", "two")] == want, f"at {index}"
