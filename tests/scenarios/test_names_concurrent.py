"""Names that two take at once, and files that lose their name while others write to them.

Nothing of any index is lost, and nothing of the live program. The losing orders are played by stop points
(tests/stops.py), or by many tries where there are none.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, difference, picture
from stops import Stops

ELSEWHERE = "/dev/shm"


@pytest.fixture
def lab_elsewhere(lab: Lab) -> Iterator[Lab]:
    """Its store is on another filesystem."""
    with tempfile.TemporaryDirectory(dir=ELSEWHERE) as folder:
        if Path(folder).stat().st_dev == lab.work.stat().st_dev:
            pytest.skip("both are on one filesystem")
        lab.store = Path(folder, "store")
        yield lab


def many_files(lab: Lab, count: int) -> None:
    (lab.work / "d").mkdir()
    for i in range(count):
        (lab.work / "d" / f"{i}").write_text(f"this is file {i}\n" * 3)


def assert_index(lab: Lab, index: int, want: Path) -> None:
    lab.verb("verify")
    lab.restore(index)
    assert not difference(picture(lab.work / "d"), picture(want / "d"))


@pytest.mark.parametrize("count, second", [(2000, "rm -f d/*"), (150, "for f in d/*; do mv -f $f d/taken; done")])
def test_two_processes_take_the_same_names(lab: Lab, count: int, second: str) -> None:
    """Some tens of 2,000 files were lost: the loser of each race took away what the winner had kept."""
    many_files(lab, count)
    shutil.copytree(lab.work, lab.folder / "before")
    script = f"metamori checkpoint >index; (rm -f d/*) 2>/dev/null & ({second}) 2>/dev/null; wait"
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = lab.run(["sh", "-c", script], env=path)
    assert done.returncode == 0, done
    assert_index(lab, int((lab.work / "index").read_text()), lab.folder / "before")


TAKES = """
import errno, metamori, os, subprocess, sys, threading, time

def taken(call, *names):
    try:
        getattr(os, call)(*names)
        return "done"
    except FileNotFoundError:
        return "ENOENT"
"""


def stopped(lab: Lab, point: str, first: str, second: str) -> list[str]:
    """The first call stops at `point`, the second one is made meanwhile by another process. What both answered."""
    stops = Stops(lab.folder / "stops")
    many_files(lab, 3)
    shutil.copytree(lab.work, lab.folder / "before")
    program = lab.folder / "takes.py"
    program.write_text(TAKES + f"""
index = metamori.checkpoint()
child = os.fork()
if not child:
    open("../stops/{point}", "w").close()
    os.write(1, ("first " + {first} + "\\n").encode())
    os._exit(0)
while not os.path.exists("../stops/{point}.reached"):
    time.sleep(0.01)
other = os.fork()
if not other:
    os.write(1, ("second " + ({second}) + "\\n").encode())
    os._exit(0)
time.sleep(0.7)                            # it has come by, or waits: nothing tells
# by a program that is not tracked: the name's lock may be the one that is held
subprocess.run(["touch", "../stops/{point}.go"], env=os.environ | {{"METAMORI_DISABLE": "1"}}, check=True)
os.waitpid(child, 0)
os.waitpid(other, 0)
""")
    done = lab.run([sys.executable, program], env=stops.env)
    assert done.returncode == 0, done
    assert_index(lab, 1, lab.folder / "before")
    return sorted(done.stdout.decode().splitlines())


@pytest.mark.parametrize("first, second, answers", [
    ("taken('unlink', 'd/1')", "taken('unlink', 'd/1')", {"done", "ENOENT"}),
    ("taken('unlink', 'd/1')", "taken('rename', 'd/0', 'd/1')", {"done"}),
    ("taken('unlink', 'd/1')", "taken('rename', 'd/1', 'd/0')", {"done", "ENOENT"}),
])  # fmt: skip
@pytest.mark.parametrize("point", ["unlink.kept", "keep.linked"])
def test_one_takes_a_name_that_another_is_taking(
        lab: Lab, point: str, first: str, second: str, answers: set[str]) -> None:
    """Between what the first one kept and its call, or before it said so, the second one takes the same name."""
    said = stopped(lab, point, first, second)
    assert [line.split()[0] for line in said] == ["first", "second"] and {line.split()[1] for line in said} == answers


def test_a_new_file_where_one_is_being_removed(lab: Lab) -> None:
    """The name is another file's when the call comes, which somebody has open."""
    said = stopped(lab, "unlink.kept", "taken('unlink', 'd/1')",
                   "(taken('rename', 'd/1', 'd/9'), open('d/1', 'w').write('new')) and 'done'")
    assert said == ["first done", "second done"]


APPENDS = """
import metamori, os, sys, threading
file = os.open("big", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(file, b"begin\\n")
{before}
os.write(file, b"x" * (32 << 20))
reader = os.open("big", os.O_RDONLY)
over = []

def appends():
    i = 0
    while not over:
        os.write(file, b"%09d\\n" % i)
        i += 1
    over.append(i)

thread = threading.Thread(target=appends)
thread.start()
while os.fstat(reader).st_size < 6 + (32 << 20) + 10000:
    pass
{call}
size = os.fstat(reader).st_size
while os.fstat(reader).st_size < size + 10000:
    pass
over.append(0)
thread.join()
want = b"".join(b"%09d\\n" % i for i in range(over[-1]))
os.lseek(reader, 6 + (32 << 20), 0)
have = b""
while True:
    piece = os.read(reader, 1 << 20)
    have += piece
    if not piece:
        break
print("same" if have == want else f"{{len(have)}} of {{len(want)}} bytes")
"""


@pytest.mark.parametrize("before", ["", "metamori.checkpoint()"], ids=["new", "known"])
@pytest.mark.parametrize("call", ["os.unlink('big')", "os.rename('other', 'big')"], ids=["unlink", "rename"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_appended_while_the_name_goes(lab_elsewhere: Lab, before: str, call: str, options: list[str]) -> None:
    """With the store on another filesystem the file was copied meanwhile, and the program went on with the copy: what
    was appended in between was lost."""
    program = lab_elsewhere.folder / "appends.py"
    program.write_text(APPENDS.format(before=before, call=call))
    (lab_elsewhere.work / "other").write_text("another")
    done = lab_elsewhere.run([sys.executable, program], *options)
    assert (done.returncode, done.stdout) == (0, b"same\n"), done
