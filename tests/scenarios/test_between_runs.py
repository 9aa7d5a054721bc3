"""What people do between runs to what is not a file's content: folders, names in folders that went, copies, globs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab

from metamori.store.format import files
from metamori.store.read.store import Store
from metamori.tables.record import replace


def looks(path: Path) -> tuple[int, list[str]]:
    return path.stat().st_mode & 0o7777, os.listxattr(path)


def another_mode(path: Path) -> None:
    path.chmod(0o700)


def an_attribute(path: Path) -> None:
    os.setxattr(path, "user.a", b"1")


WAYS = pytest.mark.parametrize("way", [another_mode, an_attribute], ids=lambda way: way.__name__)


@WAYS
def test_a_folder_that_somebody_changed(lab: Lab, way: Callable[[Path], None]) -> None:
    """It is a state of its own, as that of a file is; before, each later checkpoint had the folder as it was before."""
    folder = lab.work / "d"
    lab.run(["sh", "-c", "mkdir d; echo 1 > f"])
    before = looks(folder)
    way(folder)
    after = looks(folder)
    assert f"modified outside Metamori: {lab.work.name}/d" in lab.restore(1, code=14).stderr
    assert looks(folder) == after
    lab.run(["sh", "-c", "echo 2 > f"])
    assert lab.messages()[2] == "start of run"
    for index, want in ((1, before), (3, after), (0, None), (2, after), (1, before)):
        lab.restore(index)
        assert (looks(folder) if folder.exists() else None) == want, index
    lab.verb("verify")


def test_what_is_done_in_a_folder_is_not_done_to_it(lab: Lab) -> None:
    lab.run(["sh", "-c", "mkdir d; mkfifo d/p; echo 1 > f"])
    (lab.work / "d" / "untracked").write_text("theirs")
    os.utime(lab.work / "d" / "p", (1, 1))
    lab.restore(1)
    lab.run(["true"])
    assert lab.log()["head"] == 2 and lab.messages()[2] == "end of run"


@WAYS
def test_a_changed_folder_goes_where_it_went(lab: Lab, way: Callable[[Path], None]) -> None:
    """It keeps its number: what is untracked in it moves with it."""
    lab.run(["mkdir", "d"])
    lab.run(["mv", "d", "e"])
    way(lab.work / "e")
    (lab.work / "e" / "untracked").write_text("theirs")
    lab.restore(1, "--force")
    assert (lab.work / "d" / "untracked").exists() and not (lab.work / "e").exists()


def test_a_head_that_knows_folders_by_number_only(lab: Lab) -> None:
    """As stores of earlier versions have it."""
    lab.run(["sh", "-c", "mkdir d; echo 1 > f"])
    lab.run(["sh", "-c", "echo 2 > f"])
    with Store.open(os.fsencode(lab.store)) as store:
        old = tuple(replace(each, size=each.size if each.ctime_ns else 0) for each in store.head.identities)
        assert old != store.head.identities
        data = files.encode_head(replace(store.head, identities=old), store.layout.id)
    (lab.store / "head").write_bytes(data)
    lab.restore(1)
    lab.restore(2)


def test_a_name_in_a_folder_that_a_run_removed(lab: Lab) -> None:
    """First seen in another folder of that name, made later by hand: where the folder is not, it is not either."""
    (lab.work / "d").mkdir()
    lab.run(["sh", "-c", "chmod 700 d; echo 1 > f"])
    lab.run(["sh", "-c", "rmdir d; echo 2 > f"])
    (lab.work / "d").mkdir()
    (lab.work / "d" / "x").write_text("theirs")
    lab.run(["sh", "-c", "echo more >> d/x"])
    lab.restore(2, "--to", lab.folder / "copy")
    assert sorted(each.name for each in (lab.folder / "copy").rglob("*") if not each.is_dir()) == ["f"]
    assert not any(each.name == "d" for each in (lab.folder / "copy").rglob("*"))
    lab.restore(2)
    assert sorted(each.name for each in lab.work.iterdir()) == ["f"]
    lab.restore(4)
    assert (lab.work / "d" / "x").read_text() == "theirsmore\n"


@pytest.mark.parametrize("how", ["by a run", "before a run", "before a restore", "left by one"])
def test_another_folder_of_that_name(lab: Lab, how: str) -> None:
    """What was first seen in one that was made by hand is not in each that has its name."""
    folder = lab.work / "d"
    folder.mkdir()
    lab.run(["sh", "-c", "chmod 700 d; echo 1 > f"])
    lab.run(["sh", "-c", "rmdir d; echo 2 > f"])
    folder.mkdir()
    (folder / "x").write_text("theirs")
    lab.run(["sh", "-c", "echo more >> d/x"])
    if how == "left by one":
        (folder / "y").write_text("theirs")
    lab.restore(2)
    if how == "left by one":
        assert folder.exists()
    elif how != "by a run":
        folder.mkdir()
    if how == "before a restore":
        lab.restore(1, "--force")
    else:
        lab.run(["sh", "-c", "mkdir -p d; echo 3 > f"])
    made, want = max(lab.messages()), ["y"] * (how == "left by one")
    for index in 1, 2, made, 4, made:
        lab.restore(index, "--force")
    assert sorted(each.name for each in folder.iterdir()) == want
    lab.restore(2, "--force")
    lab.restore(made, folder)              # that folder alone
    assert sorted(each.name for each in folder.iterdir()) == want
    lab.restore(2)
    lab.verb("verify")


def test_a_folder_in_place_of_a_lost_file(lab: Lab) -> None:
    """It is what is there now, without what was in it once."""
    there = lab.work / "p"
    there.write_bytes(bytes(100000))
    lab.run(["sh", "-c", "echo 1 >> p"])
    there.unlink()
    there.mkdir()
    (there / "x").write_text("theirs")
    lab.run(["sh", "-c", "echo more >> p/x"])
    lab.run(["rm", "p/x"])
    assert "p is lost" in lab.restore(1, "--force", code=12).stderr
    assert [*there.iterdir()] == []
    lab.restore(4)
    assert [*there.iterdir()] == []


def test_links_of_a_copy_have_their_times(lab: Lab) -> None:
    lab.run(["sh", "-c", "echo 1 > f; ln -s f link; touch -h -d 2001-02-03 link"])
    lab.restore(1, "--to", lab.folder / "copy")
    [link] = [each for each in (lab.folder / "copy").rglob("*") if each.is_symlink()]
    assert link.lstat().st_mtime_ns == (lab.work / "link").lstat().st_mtime_ns


def test_globs_where_the_folder_s_own_name_looks_like_one(lab: Lab) -> None:
    folder = lab.folder / "case [1]*"
    folder.mkdir()
    lab.store = folder / ".metamori"
    lab.run(["sh", "-c", "echo 1 > a.txt; echo 1 > b"], cwd=folder)
    lab.run(["sh", "-c", "echo 2 > a.txt; echo 2 > b"], cwd=folder)
    assert lab.verb("cat", 1, "*.txt", cwd=folder).stdout == "1\n"
    lab.verb("restore", 1, "*.txt", cwd=folder)
    assert ((folder / "a.txt").read_text(), (folder / "b").read_text()) == ("1\n", "2\n")


def test_copied_without_attributes(lab: Lab) -> None:
    """By `tar` or `rsync -aH`: a restore gives them back, also where both checkpoints say the same of them."""
    folder = lab.folder / "p"
    folder.mkdir()
    lab.store = folder / ".metamori"
    change = "import os; os.mkdir('d'); open('a', 'w').close(); [os.setxattr(each, 'user.a', b'1') for each in 'ad']"
    lab.run(["python3", "-c", change], cwd=folder)
    lab.run(["sh", "-c", "echo 2 >> a"], cwd=folder)
    copy = lab.folder / "q"
    copy.mkdir()
    subprocess.run(f"tar cf - -C {folder} . | tar xpf - -C {copy}", shell=True, check=True)
    assert os.listxattr(copy / "a") == []
    store = copy / ".metamori"
    lab.verb("restore", 1, store=store)
    assert [os.listxattr(copy / each) for each in "ad"] == [["user.a"], ["user.a"]]
    lab.verb("restore", 2, store=store)
    assert [os.listxattr(copy / each) for each in "ad"] == [["user.a"], ["user.a"]]
    assert json.loads(lab.verb("log", "--json", store=store).stdout)["head"] == 2
    shutil.rmtree(copy)


def test_after_a_job_of_short_files_nothing_is_lost(lab: Lab) -> None:
    """As after any run: their second copies are in the job's store, the runs' own are gone."""
    pytest.importorskip("zmq")
    lab.run(["sh", "-c", "echo 1 > a; echo 1 > b"], "--job", "j")
    lab.run(["sh", "-c", "echo 2 >> a; echo 2 >> b"], "--job", "j")
    before = lab.state()
    (lab.work / "a").write_text("theirs")
    (lab.work / "b").unlink()
    assert "lost" not in lab.verb("log").stdout
    lab.restore(1, "--force")
    assert [(lab.work / each).read_text() for each in "ab"] == ["1\n", "1\n"]
    lab.restore(2)
    lab.assert_state(before, "checkpoint 2")
    lab.verb("verify")


def test_a_copy_that_was_made_while_a_run_lives(lab: Lab) -> None:
    """Its run area speaks of the original's processes and files: nothing is done to these by way of it."""
    folder, copy = lab.folder / "p", lab.folder / "q"
    folder.mkdir()
    (folder / "a").write_bytes(b"a" * 100_000)
    lab.store = folder / ".metamori"
    session = lab.start(cwd=folder)
    session.must(["open a rw", "checkpoint", "pwrite 3 5000 30000 1"])
    subprocess.run(["cp", "-a", folder, copy], check=True)
    lab.verb("restore", 1, "--force", store=copy / ".metamori", code=11)
    lab.verb("checkpoint", store=copy / ".metamori", code=15)
    session.must(["pwrite 3 5000 60000 2"])
    assert session.end() == 0
    last = (folder / "a").read_bytes()
    lab.restore(1)
    assert (folder / "a").read_bytes() == b"a" * 100_000
    lab.restore(2)
    assert (folder / "a").read_bytes() == last
    lab.verb("verify")


def test_a_folder_that_goes_where_one_was_left(lab: Lab) -> None:
    """A restore left it, for it holds somebody's file: what is in the other one goes into it."""
    lab.run(["sh", "-c", "mkdir d; echo x > d/x"])
    lab.run(["mv", "d", "e"])
    (lab.work / "e" / "mine").write_text("mine")
    for index, name in ((0, None), (1, "d"), (2, "e"), (0, None), (2, "e")):
        lab.restore(index)
        files = sorted(str(each.relative_to(lab.work)) for each in lab.work.rglob("*") if each.is_file())
        assert files == sorted([f"{name}/x"] * bool(name) + ["e/mine"]), index
    lab.verb("verify")


@pytest.mark.parametrize("depth", ["", "/in"])
def test_a_folder_that_goes_where_one_stays(lab: Lab, depth: str) -> None:
    """As above, of a folder that a run has made and that would go if it did not hold somebody's file."""
    lab.run(["sh", "-c", "mkdir a; echo x > a/x"])
    lab.run(["sh", "-c", f"mv a g; mkdir -p a{depth}; echo t > a{depth}/t"])
    (lab.work / f"a{depth}" / "mine").write_text("mine")
    for index, names in ((1, ["a/x"]), (2, ["g/x", f"a{depth}/t"]), (0, []), (1, ["a/x"])):
        lab.restore(index)
        files = sorted(str(each.relative_to(lab.work)) for each in lab.work.rglob("*") if each.is_file())
        assert [each for each in files if "mine" not in each] == sorted(names) and len(files) == len(names) + 1, index
    lab.verb("verify")
