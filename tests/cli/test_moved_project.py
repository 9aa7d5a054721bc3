"""A project that is moved or copied with its store: paths are kept relative to the folder that holds the store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import own_mounts
import pytest
from lab import Lab, difference, picture

JOB = """printf 'one one one' > a; mkdir d; seq 20000 > d/b; ln d/b d/hard; ln -s b d/soft; printf x > gone
metamori checkpoint > /dev/null
printf TWO | dd of=a bs=1 seek=4 conv=notrunc status=none; rm gone; mv d/b c; printf y > new
printf 0000 | dd of=c bs=1 seek=50000 conv=notrunc status=none
metamori checkpoint > /dev/null
printf end >> a; rm new; chmod 700 d"""


@pytest.fixture
def project(lab: Lab) -> Path:
    """A folder with its store in it, four indexes; each as `--to` gives it is in lab.folder."""
    folder = lab.folder / "p"
    folder.mkdir()
    store = folder / ".metamori"
    (folder / "old").write_text("from before\n" * 1000)
    job = JOB.replace("metamori checkpoint", " ".join(lab.argv("checkpoint", store=store))) + "\necho more >> old"
    done = subprocess.run([*lab.argv("run", store=store), "--", "sh", "-c", job], cwd=folder, env=lab.env,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for index in range(4):
        lab.verb("restore", index, "--to", lab.folder / f"was{index}", store=store)
    return folder


def is_whole(lab: Lab, folder: Path) -> None:
    """Every verb works there, by the present paths; every index comes back, and a run goes on."""
    store = folder / ".metamori"
    lab.verb("verify", store=store)
    assert json.loads(lab.verb("log", "--json", store=store).stdout)["head"] == 3
    assert lab.verb("cat", 2, "a", store=store, cwd=folder).stdout == "one TWO one"
    assert lab.verb("cat", 2, folder / "a", store=store).stdout == "one TWO one"
    assert str(folder / "c") in lab.verb("diff", 1, 2, "--json", store=store).stdout
    assert str(folder / "old") in lab.verb("show", 3, "--json", store=store).stdout
    for index in (1, 3, 0, 2):
        copy = lab.folder / f"{folder.name}.{index}"
        lab.verb("restore", index, "--to", copy, store=store)
        wrong = difference(picture(copy), picture(lab.folder / f"was{index}"))
        assert not wrong, (index, wrong)
        lab.verb("restore", index, store=store)
        now = {name: entry for name, entry in picture(folder).items() if name.split("/")[0] != ".metamori"}
        wrong = difference(now, picture(lab.folder / f"was{index}"))
        assert not wrong, (index, wrong)
    done = subprocess.run([*lab.argv("run", store=store), "--", "sh", "-c", "printf 5 >> a; metamori=1"], cwd=folder,
                          env=lab.env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "a").read_text() == "one TWO one5"
    lab.verb("verify", store=store)


def test_moved(lab: Lab, project: Path) -> None:
    other = lab.folder / "deep" / "q"
    other.parent.mkdir()
    project.rename(other)
    is_whole(lab, other)


def test_a_folder_around_it_is_renamed(lab: Lab, project: Path) -> None:
    (lab.folder / "around").mkdir()
    project.rename(lab.folder / "around" / "p")
    (lab.folder / "around").rename(lab.folder / "renamed")
    is_whole(lab, lab.folder / "renamed" / "p")


@pytest.mark.parametrize("how", [["cp", "-a"], ["rsync", "-aH"], ["tar"]], ids=lambda how: how[0])
def test_copied(lab: Lab, project: Path, how: list[str]) -> None:
    """Inode numbers and change times are others; the original is as good as before."""
    if not shutil.which(how[0]):
        pytest.skip(f"{how[0]} is not installed")
    copy = lab.folder / "copy"
    if how[0] == "rsync":                  # it leaves the time of what it made in the same second as the original
        time.sleep(1.1)
    if how[0] == "tar":
        copy.mkdir()
        subprocess.run(f"tar cf - -C {project} . | tar xpf - -C {copy}", shell=True, check=True)
    else:
        subprocess.run([*how, f"{project}/", f"{copy}/"] if how[0] == "rsync" else [*how, project, copy], check=True)
    is_whole(lab, copy)
    is_whole(lab, project)


def test_to_another_filesystem(lab: Lab, project: Path) -> None:
    other = Path("/dev/shm") / f"metamori-moved-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == project.stat().st_dev:
        pytest.skip("no other filesystem")
    try:
        subprocess.run(["mv", project, other], check=True)
        is_whole(lab, other)
    finally:
        shutil.rmtree(other)


def test_by_a_symbolic_link(lab: Lab, project: Path) -> None:
    (lab.folder / "link").symlink_to(project)
    store = lab.folder / "link" / ".metamori"
    lab.verb("restore", 2, store=store)
    assert (project / "a").read_text() == "one TWO one"
    assert lab.verb("cat", 3, lab.folder / "link" / "a", store=store).stdout == "one TWO oneend"


def test_the_store_alone_is_moved(lab: Lab, project: Path) -> None:
    """The files stay: it is about them as before."""
    (project / ".metamori").rename(lab.folder / "elsewhere")
    lab.verb("restore", 2, store=lab.folder / "elsewhere")
    lab.verb("restore", 1, store=lab.folder / "elsewhere")
    assert not difference(picture(project), picture(lab.folder / "was1"))


def test_the_scope_stays_with_the_files(lab: Lab) -> None:
    """A run with the store that was moved alone tracks what runs before it did: a file was overwritten untracked."""
    lab.env.pop("METAMORI_TRACK")
    folder, store = lab.folder / "p", lab.folder / "big" / "store"
    (folder / "sub").mkdir(parents=True)
    store.parent.mkdir()
    (folder / "data").write_bytes(b"long " * 50000)
    words = [*lab.argv("run", store=folder / ".metamori"), "--", "sh", "-c", "echo 1 > a"]
    subprocess.run(words, cwd=folder, env=lab.env, check=True)
    (folder / ".metamori").rename(store)
    for number in (1, 2):
        words = [*lab.argv("run", store=store), "--", "sh", "-c", f"echo {number} > ../data"]
        done = subprocess.run(words, cwd=folder / "sub", env=lab.env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert str(lab.folder / "big") not in (store / "scope").read_text()
    lab.verb("restore", 1, store=store)
    assert (folder / "data").read_bytes() == b"long " * 50000


def test_changed_after_it_was_copied(lab: Lab, project: Path) -> None:
    """What is not as it was is not overwritten, wherever the project is now."""
    copy = lab.folder / "copy"
    subprocess.run(["cp", "-a", project, copy], check=True)
    (copy / "a").write_text("somebody's")
    (project / "a").write_text("the same, o")
    for folder in (copy, project):
        done = lab.verb("restore", 2, store=folder / ".metamori", code=14)
        assert f"{folder.name}/a" in done.stderr
        lab.verb("restore", 2, "--force", store=folder / ".metamori")
        assert (folder / "a").read_text() == "one TWO one"
    lab.verb("restore", 4, store=copy / ".metamori")
    assert (copy / "a").read_text() == "somebody's"


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_moved_after_a_kill(lab: Lab, options: list[str]) -> None:
    """What the kill left is completed where the project is now."""
    folder = lab.folder / "p"
    folder.mkdir()
    (folder / "a").write_bytes(b"a" * 20000)
    (folder / "gone").write_text("kept")
    lab.store = folder / ".metamori"
    session = lab.start(*options, cwd=folder)
    session.must(["open a rw", "pwrite 3 5000 3000 1", "open new rw,creat", "pwrite 4 3000 0 2", "mkdir d",
                  "rename gone d/came", "checkpoint", "pwrite 3 9000 10000 3", "unlink d/came", "pwrite 4 100 2000 4"])
    session.kill_all()
    folder.rename(lab.folder / "q")
    folder, lab.store = lab.folder / "q", lab.folder / "q" / ".metamori"
    assert "the last run was killed" in lab.verb("log").stderr
    assert not (lab.folder / "p").exists()
    lab.verb("verify")
    assert lab.log()["head"] == (0 if options else 2)
    data = {0: b"a" * 20000, 1: (folder / "a").read_bytes()}
    for index, names in ((1, "a d d/came new"), (2, "a d new"), (0, "a gone"), (2, "a d new")):
        lab.restore(index)
        now = {name for name in picture(folder) if name.split("/")[0] != ".metamori"}
        assert " ".join(sorted(now)) == names
        copy = lab.folder / f"copy{index}{len(data)}"
        lab.restore(index, "--to", copy)
        assert (copy / "a").read_bytes() == (folder / "a").read_bytes()
        assert len((folder / "a").read_bytes()) == 20000 and (index or (folder / "a").read_bytes() == data[0])
        data[len(data)] = b""


@pytest.mark.skipif(not own_mounts.IS_ALONE, reason="mounts need root")
@pytest.mark.parametrize("lives", [True, False], ids=["alive", "killed"])
def test_where_nothing_can_be_written(lab: Lab, lives: bool) -> None:
    """On a medium, or by a mount that is for reading only, a run may be alive, or was killed: `log` and `verify`
    failed."""
    session = lab.start()
    session.must(["open a rw,creat", "write 3 3000 1", "checkpoint", "pwrite 3 1000 1000 2"])
    if not lives:
        session.kill_all()
    subprocess.run(["mount", "--bind", lab.store, lab.store], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", lab.store], check=True)
        said = "metamori: a run is alive\n" if lives else \
            "metamori: a run was killed; the next command that writes completes it\n"
        for verb, words, errors in (("log", (), ""), ("verify", (), said), ("status", (), ""),
                                    ("restore", (1, "--to", lab.folder / "copy"), "")):
            assert lab.verb(verb, *words).stderr == errors, verb
        assert "Read-only file system" in lab.verb("prune", "--keep-last", 1, code=1).stderr
    finally:
        subprocess.run(["umount", lab.store], check=True)
    if lives:
        assert session.end() == 0
    lab.verb("verify")
    assert lab.log()["head"] == 2
