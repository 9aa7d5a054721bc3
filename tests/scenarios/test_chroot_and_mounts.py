"""A process with another root directory, or with mounts of its own: a name there is not what the run knows by it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the root directory, and mounts")
MODES = pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]],
                                ids=lambda words: "".join(words) or "default")
SAID = b"other mounts: files whose names lead elsewhere there are not tracked"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def prepare(lab: Lab) -> None:
    """Each name outside stands inside too."""
    inside = lab.work / "jail" / str(lab.work)[1:]
    inside.mkdir(parents=True)
    for name in ("old", "gone"):
        (lab.work / name).write_bytes(b"outside " * 700)
        (inside / name).write_bytes(b"inside  " * 700)
    (lab.work / "jail" / "shared").write_bytes(b"before  " * 700)


@MODES
def test_chroot(lab: Lab, native_lab: Lab, compiled: Compile, options: list[str]) -> None:
    """Without /proc there, opening a file to write to it said ENOENT."""
    program = compiled("rooted")
    for each in (lab, native_lab):
        prepare(each)
    native = native_lab.run([program, native_lab.work], native=True)
    assert native.stdout == b"changed before  \nwritten\n"
    done = lab.run([program, lab.work], *options)
    assert (done.returncode, done.stdout) == (native.returncode, native.stdout)
    assert done.stderr.count(SAID) == 1
    after = tree(lab.work)
    assert sorted(after.values()) == sorted(tree(native_lab.work).values())
    if options != ["--mode=single"]:
        lab.restore(0)
        assert tree(lab.work) == {**after, "jail/shared": b"before  " * 700}    # it was known before


@MODES
def test_mounted_over(lab: Lab, options: list[str]) -> None:
    """A restore put the file that had been written to in the place of the one that the mount had covered."""
    for name in ("one", "two"):
        (lab.work / name).mkdir()
        (lab.work / name / "b").write_text(name)
    (lab.work / "old").write_text("before")
    script = "mount --bind two one && echo bound > one/b && echo after > old && echo new > new && cat one/b old"
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mounts of one's own here")
    done = lab.run(["unshare", "-m", "sh", "-c", script], *options)
    assert (done.returncode, done.stdout) == (0, b"bound\nafter\n")
    assert done.stderr.count(SAID) == 1
    assert tree(lab.work) == {"one/b": b"one", "two/b": b"bound\n", "old": b"after\n", "new": b"new\n"}
    if options != ["--mode=single"]:
        lab.restore(0)                     # what leads the same way is tracked
        assert tree(lab.work) == {"one/b": b"one", "two/b": b"bound\n", "old": b"before"}


def test_a_store_in_another_mount_of_the_same_disk(lab: Lab) -> None:
    """No link leads there, though both have the same number: two names of one file came back as two files."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mounts of one's own here")
    disk = lab.folder / "disk"
    disk.mkdir()
    lab.store = disk / "store"
    (lab.work / "a").write_text("one")
    os.link(lab.work / "a", lab.work / "b")
    verbs = [lab.argv("run", "--", "rm", "a", "b"), lab.argv("restore", "0"), lab.argv("restore", "1"),
             lab.argv("restore", "0")]
    script = " && ".join([f"mount --bind {shlex.quote(str(disk))} {shlex.quote(str(disk))}", *map(shlex.join, verbs)])
    subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=lab.work, env=lab.env, check=True, capture_output=True)
    assert (lab.work / "a").read_text() == "one" and (lab.work / "a").samefile(lab.work / "b")
    assert (lab.work / "a").stat().st_nlink == 2
