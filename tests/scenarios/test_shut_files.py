"""Files that their own owner may not read, and files of somebody else that he may write to, an ordinary user: the
program notices nothing, and every index comes back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, picture

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


def followed(lab: Lab, first: str, *steps: str) -> list[dict[str, tuple[object, ...]]]:
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
    assert act(lab, *lab.argv("run"), "--", sys.executable, "-c", program) == ""
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
