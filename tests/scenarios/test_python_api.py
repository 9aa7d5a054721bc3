"""The Python API: reading a store, and trials inside a run."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from lab import ROOT, Lab

import metamori
from metamori.cli import output
from metamori.errors import NoStore, NoSuchCheckpoint

WRITES = f"""
echo one > a; mkdir d; printf '%0100000d' 7 > d/b
{sys.executable} -m metamori checkpoint -m first >/dev/null
echo two >> a; printf x | dd of=d/b bs=1 seek=50000 conv=notrunc 2>/dev/null; rm -f gone; ln -s a link
{sys.executable} -m metamori checkpoint >/dev/null
rm a
"""


@pytest.fixture
def written(lab: Lab) -> Lab:
    (lab.work / "gone").write_text("was here before\n")
    assert lab.run(["sh", "-c", WRITES]).returncode == 0
    return lab


def test_a_store_is_read(written: Lab) -> None:
    a, b = written.work / "a", written.work / "d" / "b"
    with metamori.open_store(written.store) as history:
        assert [(each.index, each.parent) for each in history] == [(0, None), (1, 0), (2, 1), (3, 2)]
        assert history[1].message == "first" and history[3].message == "end of run" and len(history) == 4
        assert abs((datetime.now(UTC) - history[2].time).total_seconds()) < 3600
        assert history.head == 3 and history.children(1) == (2,) and 3 in history and 4 not in history
        assert [change.what + change.path.decode()[len(str(written.work)):] for change in history.diff(1, 2)] == [
            "M/a", "M/d/b", "D/gone", "A/link"]
        assert history.diff(1, 2)[1].ranges == ((50000, 50001),)
        assert history.paths(2) == [str(a), str(b)]
        assert history.open(1, a).read() == b"one\n" and history.open(2, a, "utf-8").read() == "one\ntwo\n"
        assert history.open(0, written.work / "gone").read() == b"was here before\n"
        with history.open(2, b) as file:
            assert isinstance(file, io.BufferedReader) and file.seek(-3, io.SEEK_END) == 99997
            assert file.read() == b"007" and file.seek(49999) == 49999 and file.read(3) == b"0x0"
            assert file.seek(200000) and file.read() == b""
        for index, path in ((3, a), (1, written.work / "link"), (0, a), (2, "elsewhere")):
            with pytest.raises(FileNotFoundError):
                history.open(index, path)
        with pytest.raises(NoSuchCheckpoint):
            history.open(4, a)
        with pytest.raises(metamori.errors.MetamoriError, match="not a regular file"):
            history.open(2, written.work / "link")
    with pytest.raises(NoStore):
        metamori.open_store(written.folder / "none")


TRIALS = """
import metamori, os
log = open("log", "a", buffering=1)
log.write("before\\n")
with metamori.trial("kept") as attempt:
    log.write("kept\\n")
assert attempt.index == 1
with metamori.trial() as attempt:
    log.write("undone\\n")
    open("new", "w").write("x")
    try:
        attempt.undo()
    except Exception:
        raise SystemExit("caught")
log.write("after\\n")
assert not os.path.exists("new")
try:
    with metamori.trial():
        os.unlink("log")
        raise KeyError("what went wrong")
except KeyError:
    pass
with metamori.trial() as outer:
    open("one", "w").close()
    with metamori.trial() as inner:
        open("two", "w").close()
        outer.undo()
    raise SystemExit("the inner block swallowed it")
assert sorted(os.listdir(".")) == ["log", "p.py"], os.listdir(".")
print(open("log").read(), end="")
"""


def test_trials(lab: Lab) -> None:
    (lab.work / "p.py").write_text(TRIALS)
    if os.stat(lab.work).st_dev != os.stat(lab.store.parent).st_dev:
        pytest.skip("what was removed since does not come back from a store on another filesystem (docs/limits.md)")
    done = lab.run([sys.executable, "p.py"])
    assert (done.returncode, done.stdout) == (0, b"before\nkept\nafter\n"), done.stderr
    native = lab.run([sys.executable, "p.py"], native=True)
    assert native.returncode == 1 and b"does not run under metamori" in native.stderr


MESSAGE = """
import ctypes, metamori
assert metamori.checkpoint("a" * 4095) == 1
here = ctypes.CDLL(None, use_errno=True)
assert here.metamori_checkpoint_message(b"b" * 4094 + b"\\xff") == 2
try:
    metamori.checkpoint("c" * 4096)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("options", [[], ["--memory"]])
def test_messages_are_whole(lab: Lab, options: list[str]) -> None:
    """Or they are refused: none is cut, or changed."""
    (lab.work / "p.py").write_text(MESSAGE)
    done = lab.run([sys.executable, "p.py"], *options)
    assert (done.returncode, done.stdout) == (0, b"Invalid argument\n"), done.stderr
    shown = [json.loads(lab.run(lab.argv("show", index, "--json"), native=True).stdout) for index in (1, 2)]
    assert shown[0]["message"] == "a" * 4095
    assert output.path_bytes(shown[1], "message") == b"b" * 4094 + b"\xff"


def test_a_trial_whose_program_has_another_environment(lab: Lab) -> None:
    """With --memory there is none: its end without success would have taken the whole program back."""
    (lab.work / "p.py").write_text("import metamori\nwith metamori.trial():\n    raise KeyError\n")
    done = lab.run(["env", "-i", sys.executable, "p.py"], "--memory")
    assert done.returncode == 1 and b"a trial undoes files only" in done.stderr, done.stderr


CELLS = """
import os, types
import metamori

class Shell:                                   # what the magic uses of IPython's
    magics = {}
    def register_magic_function(self, function, magic_kind, magic_name):
        self.magics[magic_kind, magic_name] = function
    def run_cell(self, cell):
        try:
            exec(cell)
        except Exception as error:
            print("shown:", error)
            return types.SimpleNamespace(success=False)
        return types.SimpleNamespace(success=True)

metamori.load_ipython_extension(Shell())
cell = Shell.magics["cell", "trial"]
cell(" a good one ", "open('kept', 'w').write('kept')")
cell("", "open('gone', 'w').write('gone'); os.remove('kept'); raise ValueError('did not converge')")
print(sorted(os.listdir(".")), open("kept").read())
"""


def test_cells_of_a_notebook(lab: Lab) -> None:
    (lab.work / "p.py").write_text(CELLS)
    done = lab.run([sys.executable, "p.py"])
    assert done.stdout == b"shown: did not converge\n['kept', 'p.py'] kept\n", done
    assert "a good one" in lab.messages().values()
    lab.verb("verify")


def test_the_example_of_a_fixture(lab: Lab) -> None:
    for name in ("conftest.py", "test_undone.py"):
        (lab.work / name).write_bytes((ROOT / "examples" / "pytest" / name).read_bytes())
    (lab.work / "data.txt").write_text("the original\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=no"]
    done = lab.run(words, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert b"2 passed" in done.stdout, done.stdout + done.stderr
    assert (lab.work / "data.txt").read_text() == "the original\n" and not (lab.work / "new.txt").exists()
    plain = subprocess.run(words, cwd=lab.work, env=lab.env, capture_output=True, check=False)
    assert b"1 failed, 1 passed" in plain.stdout
