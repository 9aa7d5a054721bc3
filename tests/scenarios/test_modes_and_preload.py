"""Looking without touching, and the library put into LD_PRELOAD by hand, without `metamori run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Compile
from lab import ROOT, Lab, Session

from metamori.runtime.area.run_area import Area
from metamori.runtime.area.unwritten import beside_runs
from metamori.store.read.store import Store


def test_copy_elsewhere_and_dry_run(lab: Lab) -> None:
    (lab.work / "old").write_bytes(b"o" * 6000)
    program = lab.start()
    program.must(["open old rw", "pwrite 3 50 100 1", "mkdir d", "open d/new w,creat", "write 4 9 1"])
    program.must(["checkpoint", "pwrite 3 50 5000 2", "unlink d/new", "rmdir d"])
    content = program.ask("hex old 0 200")
    assert program.end() == 0
    before, head = lab.state(), lab.log()["head"]
    assert lab.verb("restore", "--dry-run", 1).stdout.strip()
    lab.verb("restore", "--to", lab.folder / "copy", 1)
    lab.assert_state(before, "--dry-run and --to leave the files alone")
    assert lab.log()["head"] == head
    copies = {path.name: path for path in (lab.folder / "copy").rglob("*") if path.is_file()}
    assert copies["new"].stat().st_size == 9
    assert copies["old"].read_bytes()[:200].hex() == content.split()[1]
    assert copies["old"].read_bytes()[5000:5050] == b"o" * 50
    difference = json.loads(lab.verb("diff", "--json", 1, head).stdout)
    assert difference["schema"] == 1
    assert "old" in json.dumps(difference)
    assert json.loads(lab.verb("show", "--json", 1).stdout)["schema"] == 1
    assert json.loads(lab.verb("verify", "--json").stdout)["schema"] == 1


def by_hand(lab: Lab) -> dict[str, str]:
    """METAMORI_PYTHON: where the packages are, as this tree is not installed beside them."""
    library = {"LD_PRELOAD": str(ROOT / "metamori" / "libmetamori.so"), "METAMORI_PYTHON": sys.executable}
    return lab.env | library | {"METAMORI_STORE": str(lab.store)}


@pytest.mark.parametrize("kill", [False, True])
def test_library_by_hand(lab: Lab, kill: bool) -> None:
    """LD_PRELOAD and METAMORI_STORE without `metamori run`: the last process out commits."""
    (lab.work / "file").write_bytes(b"a" * 5000)
    env = by_hand(lab)
    script = b"open file rw\npwrite 3 100 0 1\ncheckpoint\npwrite 3 100 2000 2\nactive\n"
    script += b"raise 9\n" if kill else b""
    done = subprocess.run(
        [lab.driver], cwd=lab.work, env=env, input=script, capture_output=True, check=False
    )  # fmt: skip
    assert done.returncode == (-9 if kill else 0), done.stderr
    assert done.stdout.split() == [b"3", b"100", b"1", b"100", b"1"]
    last = lab.log()["checkpoints"][-1]
    end = (lab.work / "file").read_bytes()
    assert end[:100] != b"a" * 100
    assert end[2000:2100] != b"a" * 100, "committed, by the last one out or by the next verb"
    lab.restore(1)
    now = (lab.work / "file").read_bytes()
    assert now[:100] == end[:100]
    assert now[2000:2100] == b"a" * 100
    lab.restore(0)
    assert (lab.work / "file").read_bytes() == b"a" * 5000
    lab.restore(last["index"])
    assert (lab.work / "file").read_bytes() == end


def test_the_library_of_python_may_lie_beside_it(lab: Lab, tmp_path: Path) -> None:
    """METAMORI_LIBPYTHON is the one that the runtime embeds: not the one of its name that the loader would find."""
    def embedded(**more: str) -> str:
        asked = "while read -r line; do case $line in */libpython*) echo \"${line##* }\"; break;; esac; done"
        done = subprocess.run(["sh", "-c", f"echo a > file; {asked} < /proc/$$/maps"], cwd=lab.work,
                              env=by_hand(lab) | more, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    usual = embedded()
    beside = tmp_path / "beside" / Path(usual).name
    beside.parent.mkdir()
    beside.write_bytes(Path(usual).read_bytes())
    assert embedded(METAMORI_LIBPYTHON=str(beside)) == str(beside) != usual
    assert embedded(METAMORI_LIBPYTHON=str(tmp_path / "nothing")) == usual
    assert lab.log()["checkpoints"]


def test_a_child_does_not_print_what_its_parent_did(lab: Lab) -> None:
    """`_exit` flushes nothing, the run's last process or not."""
    code = "import ctypes, os; open('file', 'w').close(); c = ctypes.CDLL(None); c.printf(b'once\\n'); " \
           "child = os.fork(); child or c._exit(0); os.waitpid(child, 0)"
    env = {name: value for name, value in by_hand(lab).items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], cwd=lab.work, env=env, capture_output=True, check=True)
    assert done.stdout == b"once\n"


def test_library_by_hand_with_several_processes(lab: Lab) -> None:
    env = by_hand(lab)
    script = "echo one > file; (echo two >> file); sh -c 'echo three >> file; rm -f gone'; "
    script += "sort -r -o file file"
    (lab.work / "gone").write_text("to be removed\n")
    subprocess.run(["sh", "-c", script], cwd=lab.work, env=env, check=True)
    assert (lab.work / "file").read_text() == "two\nthree\none\n"
    lab.restore(0)
    assert not (lab.work / "file").exists()
    assert (lab.work / "gone").read_text() == "to be removed\n"


def test_config_gives_flags_that_build(lab: Lab, compiled: Compile) -> None:
    """A program that calls the C API, built with what `config` says, runs with and without Metamori."""
    config = [lab.argv("config")[0], "-m", "metamori", "config"]
    flags = [
        subprocess.run([*config, flag], env=lab.env, capture_output=True, text=True, check=True).stdout
        for flag in ("--cflags", "--libs")
    ]
    (lab.work / "api.c").write_text(
        "#include <metamori.h>\n#include <stdio.h>\nint main(void) { return metamori_active() ? 11 : 12; }\n"
    )
    command = ["gcc", *flags[0].split(), "api.c", "-o", "api", *flags[1].split()]
    subprocess.run(command, cwd=lab.work, check=True)
    assert lab.run("./api", native=True).returncode in (11, 12)
    assert lab.run("./api").returncode == 11


def test_attributes_of_a_name_that_is_seen_late(lab: Lab) -> None:
    """One of a file's two names is first used after the file was given an attribute by the other."""
    one, other = lab.work / "one", lab.work / "other"
    one.write_bytes(b"both")
    other.hardlink_to(one)
    try:
        os.setxattr(one, "user.probe", b"x")
        os.removexattr(one, "user.probe")
    except OSError:
        pytest.skip("no extended attributes here")
    program = lab.start()
    program.must(["checkpoint", "chmod one 600"])
    os.setxattr(one, "user.given", b"later")
    program.must(["checkpoint", "open f0 w,creat", "rename f0 other", "checkpoint", "unlink one"])
    assert program.end() == 0
    for index, want in [(1, []), (2, ["user.given"]), (1, [])]:
        lab.restore(index)
        assert [os.listxattr(path) for path in (one, other)] == [want, want], index
        copy = lab.folder / f"copy{index}-{len(list(lab.folder.glob('copy*')))}"
        lab.verb("restore", "--to", copy, index)
        assert [os.listxattr(path) for path in copy.rglob("o*") if path.is_file()] == [want, want], index


@pytest.mark.parametrize("later", ["open f0 w,creat", "symlink f1 f0"])
def test_a_folder_that_was_something_else(lab: Lab, later: str) -> None:
    """What was in it goes, then the folder, and its name is a file's (or a link's) again."""
    program = lab.start()
    program.must([later, "checkpoint", "unlink f0", "mkdir f0", "open f0/a w,creat", "checkpoint"])
    assert program.end() == 0
    end = lab.state()
    lab.restore(1)
    assert lab.state().keys() == {"f0"}
    lab.restore(2)
    lab.assert_state(end, "forward again")


def test_looking_at_a_run_that_nobody_supervises(lab: Lab) -> None:
    """It has no lock: looking works all the same, writing says 11, and neither completes what is not over."""
    program = Session([str(lab.driver)], lab.work, by_hand(lab), lab.folder / "stderr")
    lab.sessions.append(program)
    program.must(["open file rw,creat", "write 3 100 1", "checkpoint", "pwrite 3 50 10 2"])
    for verb in ("log", "verify"):
        lab.verb(verb)
    assert lab.run([*lab.argv("cat"), 1, lab.work / "file"], native=True).returncode == 0
    for words in (["restore", 0], ["prune", "--keep-last", 1]):
        assert "alive" in lab.verb(*words, code=11).stderr
    assert lab.run("true").returncode == 125
    assert lab.checkpoint() == 2
    program.must(["write 3 100 3"])
    assert program.end() == 0
    assert [entry["message"] for entry in lab.log()["checkpoints"]][-1] == "end of run"


def test_programs_by_hand_that_begin_at_once(lab: Lab) -> None:
    """One of them makes the run, the others join it; a verb that looks meanwhile keeps nobody out."""
    several = " & ".join(f"echo {number} > f{number}" for number in range(6))
    for attempt in range(3):
        shell = subprocess.Popen(["sh", "-c", f"{several} & wait"], cwd=lab.work, env=by_hand(lab), text=True,
                                 stderr=subprocess.PIPE)
        while shell.poll() is None:
            if (lab.store / "format").exists():
                lab.verb("log")
        assert shell.stderr and shell.stderr.read() == "", attempt
        shell.stderr.close()
    lab.restore(0)
    assert not lab.state()


def test_a_verb_that_looks_while_a_run_is_made(lab: Lab) -> None:
    """Its area is there, and says nothing yet."""
    lab.run("touch f")
    with closing(Area(str(lab.store), create=True)), beside_runs(Store.open(str(lab.store))) as store:
        assert store.undo_log.unwritten().entries == () and store.changed_beside() == set()


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolate", "single"])
def test_a_shared_library_just_built(lab: Lab, options: list[str]) -> None:
    """The dynamic loader opens it by calls that nobody sees: it is in place when its writer has closed it."""
    code = """
        import ctypes, subprocess, _ctypes
        for value in (41, 42):
            open("a.c", "w").write("int answer(void) { return %d; }" % value)
            subprocess.run(["gcc", "-shared", "-fPIC", "a.c", "-o", "built.so"], check=True)
            with open("built.so", "rb") as built, open("old.so", "r+b") as old:   # in place
                old.truncate(old.write(built.read()))
            library = ctypes.CDLL("./old.so")
            print(library.answer())
            _ctypes.dlclose(library._handle)
    """
    (lab.work / "old.so").write_bytes(b"no library" * 5000)
    done = lab.run([sys.executable, "-c", textwrap.dedent(code)], *options)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.split() == [b"41", b"42"]
    if "single" not in "".join(options):
        lab.restore(0)
        assert (lab.work / "old.so").read_bytes() == b"no library" * 5000


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolate", "single"])
def test_a_script_just_written_that_several_execute(lab: Lab, options: list[str]) -> None:
    """None of them meets it open for writing (ETXTBSY) while another process writes it back to execute it."""
    rounds = textwrap.dedent("""\
        for round in 1 2 3 4; do
            rm -f script; printf '#!/bin/sh\\necho done\\n' > script; chmod +x script
            for one in 1 2 3 4 5 6; do ./script & done; wait
        done""")
    done = lab.run(["bash", "-c", rounds], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n" * 24, b"")


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--strict"]], ids=lambda words: "".join(words) or "default")
def test_calls_before_the_c_library_has_begun(lab: Lab, compiled: Compile, options: list[str]) -> None:
    """DT_PREINIT_ARRAY: the C library knows no environment yet, and where the store is stands in that."""
    (lab.work / "old").write_bytes(b"o" * 6000)
    before = lab.state()
    done = lab.run([compiled("early")], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "old").read_bytes()[100:105] == b"early"
    lab.restore(0)
    lab.assert_state(before, "restore 0")
