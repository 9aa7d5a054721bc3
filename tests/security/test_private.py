"""Nobody but the owner gets at a store, and a store leads nobody anywhere: as docs/security.md promises."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import ROOT, Lab

from metamori.errors import MetamoriError
from metamori.store.io.os_io import Door
from metamori.store.io.owner import NotOurs
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.store.restore.redo import copy_file

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
SCRIPT = """
import os, sys
def say(name, do):
    try: print(name, do(), flush=True)
    except OSError as error: print(name, error.strerror, flush=True)
fd = os.open("f", os.O_WRONLY)
for at, data in ((10, b"part"), (4096, b"x" * 4096), (20990, b"longer than it was")):
    say("pwrite", lambda: os.pwrite(fd, data, at))
say("ftruncate", lambda: os.ftruncate(fd, 5000))
say("open", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)))
say("truncate", lambda: os.truncate("f", 70))
say("rename", lambda: os.rename("f", "g"))
say("write", lambda: open("new", "w").write("x"))
say("replace", lambda: os.rename("new", "g"))
say("unlink", lambda: os.unlink("h"))
"""


def tree(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_a_store_is_private_whatever_the_umask(lab: Lab, umask: int) -> None:
    (lab.work / "f0").write_bytes(bytes(20000))
    old = os.umask(umask)
    try:
        session = lab.start("--keep-last", 2)
    finally:
        os.umask(old)
    session.must(["open f0 rw", "pwrite 3 5000 100 1", "checkpoint", "pwrite 3 5000 100 2", "checkpoint"])
    seen = _modes(lab)
    session.must(["pwrite 3 5000 100 3", "checkpoint"])
    assert session.end() == 0, session.stderr()
    lab.restore(3)
    lab.verb("prune", "--keep-last", 1)
    seen |= _modes(lab)
    assert seen == {("folder", 0o700), ("file", 0o600)}


def _modes(lab: Lab) -> set[tuple[str, int]]:
    """Of all in the store but the kept files, which are the user's own files in a folder that nobody else may enter."""
    return {("folder" if path.is_dir() else "file", stat.S_IMODE(path.lstat().st_mode)) for path in tree(lab.store)
            if path.parent.name != "kept"}


def anybody(command: list[str], cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As an ordinary user, by Debian's setpriv."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return subprocess.run([*become, *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that both root and nobody may enter and write to: pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="metamori-shared-") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def python_for_nobody() -> None:
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    if anybody([sys.executable, "-c", "import metamori.store.read.store"], Path("/"), env).returncode:
        pytest.skip("nobody cannot read this folder")


@as_root
@pytest.mark.parametrize("verb", ["log", "run", "restore", "verify", "cat", "prune", "checkpoint"])
@pytest.mark.parametrize("owner", ["root", "nobody"])
def test_two_users_in_one_folder_do_not_meet(lab: Lab, shared: Path, verb: str, owner: str, installed: None) -> None:
    python_for_nobody()
    env = lab.env | {"HOME": "/tmp"}
    metamori = [sys.executable, "-m", "metamori"]

    def act(user: str, *words: str) -> subprocess.CompletedProcess[str]:
        if user == "nobody":
            return anybody([*metamori, *words], shared, env)
        return subprocess.run([*metamori, *words], cwd=shared, env=env, capture_output=True, text=True, check=False)

    assert act(owner, "run", "--", "sh", "-c", "echo mine > file").returncode == 0
    words = {"run": ["--", "sh", "-c", "echo other > other"], "restore": ["0"], "cat": ["0", "file"],
             "prune": ["--keep-last", "1"]}.get(verb, [])
    other = "root" if owner == "nobody" else "nobody"
    done = act(other, verb, *words)
    assert done.returncode == (125 if verb == "run" else 1)
    assert f"belongs to user {owner}" in done.stderr and "--store" in done.stderr
    assert (shared / "file").read_text() == "mine\n" and not (shared / "other").exists()


@as_root
def test_what_may_not_be_read_is_not_in_the_store(lab: Lab, shared: Path) -> None:
    """Files of root that others may write but not read: the program goes on as natively, and hears of it."""
    python_for_nobody()
    answers, left = [], []
    for native in (True, False):
        folder = shared / str(native)
        folder.mkdir()
        folder.chmod(0o777)
        for name in "fh":
            (folder / name).write_text("a secret of root, " * 1200)
            (folder / name).chmod(0o622)
        (folder.parent / "script.py").write_text(SCRIPT)
        run = [] if native else [sys.executable, "-m", "metamori", "run", "--"]
        done = anybody([*run, sys.executable, str(folder.parent / "script.py")], folder, lab.env | {"HOME": "/tmp"})
        assert done.returncode == 0, done.stderr
        assert native or "it may not be read, so its old" in done.stderr
        answers.append(done.stdout)
        left.append({path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})
    assert answers[0] == answers[1] and left[0] == left[1]
    for path in tree(shared / "False" / ".metamori"):
        assert path.is_dir() or b"a secret of root" not in path.read_bytes(), path


class Watching(Door):
    """Looks at every file that is written to: who may read it then."""

    def __init__(self, secrets: set[int]) -> None:
        self.secrets, self.seen = secrets, 0

    def _look(self, fd: int) -> None:
        found = os.fstat(fd)
        if found.st_ino in self.secrets:
            self.seen += 1
            assert not found.st_mode & 0o077, oct(found.st_mode)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._look(fd)
        super().pwrite(fd, data, offset)

    def copy_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> int:
        self._look(target)
        return super().copy_range(source, source_at, target, target_at, length)


def test_no_instant_in_which_a_restored_secret_can_be_read(lab: Lab) -> None:
    """Secret at 1, the same file public at 2: on the way back its mode comes before its bytes."""
    secret = lab.work / "f0"
    secret.write_bytes(bytes(20000))
    secret.chmod(0o600)
    session = lab.start()
    session.must(["open f0 rw", "pwrite 3 20000 0 1", "checkpoint", "pwrite 3 20000 0 2", "fchmod 3 644", "checkpoint"])
    assert session.end() == 0
    assert stat.S_IMODE(secret.stat().st_mode) == 0o644
    door = Watching({secret.stat().st_ino})
    store = Store.open(str(lab.store), write=True, door=door)
    restore.move_home(store, 1)
    store.close()
    assert door.seen and stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_copy_is_private_until_it_is_complete(lab: Lab) -> None:
    session = lab.start()
    session.must(["mkdir d0", "chmod d0 700", "open d0/a rw,creat 644", "write 3 5000 1", "checkpoint"])
    assert session.end() == 0
    lab.restore(1, "--to", lab.folder / "copy")
    modes = {str(path.relative_to(lab.folder / "copy")): stat.S_IMODE(path.stat().st_mode)
             for path in tree(lab.folder / "copy")}
    inside = next(name for name in modes if name.endswith("d0"))
    assert modes["."] == 0o700 and modes[inside] == 0o700 and modes[f"{inside}/a"] == 0o644


PLANTED = ["buffer", "checkpoints", "kept", "head", "lock", "format", "run", "intent", "prune", "counters"]


@pytest.mark.parametrize("name", PLANTED)
def test_a_link_in_a_store_is_not_followed(lab: Lab, name: str) -> None:
    session = lab.start()
    session.must(["open f0 rw,creat", "write 3 5000 1", "checkpoint"])
    assert session.end() == 0
    elsewhere = lab.folder / "elsewhere"
    place = lab.store / name
    if place.exists():
        shutil.move(place, elsewhere)
    else:
        elsewhere.mkdir()
    place.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in tree(elsewhere) if path.is_file()}
    for verb in (["log"], ["restore", 0], ["verify"], ["prune", "--keep-last", 1]):
        done = lab.verb(*verb, code=1)
        assert "is not what it should be in a store" in done.stderr
    done = lab.run("true")
    assert done.returncode == 125
    assert {path: path.read_bytes() for path in tree(elsewhere) if path.is_file()} == before


def test_ones_own_link_to_a_store_is_fine(lab: Lab, tmp_path: Path) -> None:
    lab.run("true")
    (tmp_path / "link").symlink_to(lab.store)
    lab.verb("log", store=tmp_path / "link")


def test_a_copy_is_not_written_into_a_file_of_somebody_else(lab: Lab) -> None:
    """The temporary name that the copy to another filesystem uses, made before by another: it is not opened."""
    lab.run("true")
    source, target = lab.work / "source", lab.work / "target"
    source.write_bytes(b"secret")
    planted = lab.work / ".target.metamori-new"
    planted.write_bytes(b"")
    watched = os.open(planted, os.O_RDONLY)
    copy_file(Store.open(str(lab.store)), os.fsencode(source), os.fsencode(target))
    assert target.read_bytes() == b"secret" and os.pread(watched, 10, 0) == b""
    os.close(watched)


def test_modes_are_never_changed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic"):
        Door().chmod(os.fsencode(tmp_path / "link"), 0o777)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_nothing_in_a_store_is_executed_or_unpickled() -> None:
    forbidden = re.compile(r"\b(pickle|marshal|shelve|yaml)\b|(?<![\w.])(eval|exec|compile)\(|os\.system|shell=True")
    between_ranks = ROOT / "metamori" / "levels" / "protect" / "comm.py"
    # code for our own classes, from the names and kinds of their fields
    generated = {ROOT / "metamori" / "tables" / "record.py", ROOT / "metamori" / "store" / "format" / "quick.py"}
    for path in set((ROOT / "metamori").rglob("*.py")) - {between_ranks} - generated:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not forbidden.search(line.split("#")[0]), f"{path}:{number}: {line}"


def test_the_refusal_is_one_of_ours() -> None:
    assert issubclass(NotOurs, MetamoriError) and NotOurs.exit_code == 1


def test_looking_at_a_copy_carries_nothing_out(lab: Lab, tmp_path: Path) -> None:
    """A store from elsewhere says that a run was killed: that is data, until its user restores or runs with it."""
    (lab.work / "f0").write_bytes(b"old" * 3000)
    session = lab.start()
    session.must(["open f0 rw", "write 3 5000 1", "checkpoint", "write 3 300 2"])
    session.kill_all()
    before = (lab.work / "f0").read_bytes()    # what the run redirected is not in place yet
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", lab.store, copy], check=True)
    for verb in (["log"], ["show", 1], ["diff", 0, 1], ["verify"], ["cat", 0, lab.work / "f0"],
                 ["restore", 0, "--to", tmp_path / "to"]):
        lab.verb(*verb, store=copy, code=None)
        assert (lab.work / "f0").read_bytes() == before, verb
        assert (copy / "run").exists()
    assert "is a copy" in lab.verb("log", store=copy).stderr
    lab.verb("restore", 1, store=copy)
    assert (lab.work / "f0").read_bytes() != before
    lab.verb("restore", 0, store=copy)
    assert not (copy / "run").exists() and (lab.work / "f0").read_bytes() == b"old" * 3000
    assert lab.verb("log", store=copy).stderr == ""
