"""The verbs that read and move a store, as processes, on a store that a synthetic run has filled."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import served
from lab import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "store"))

from synthetic import Run, Snapshot, take_snapshot  # noqa: E402

from metamori.store.format.records import InheritedEntry  # noqa: E402
from metamori.store.read.store import Store  # noqa: E402

OLD = b"".join(b"line %d\n" % number for number in range(2000))


class Bench:
    """A folder with files, a store beside it, and the verbs. Indexes: 1, 2, 3 (end of run)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.store = folder, folder / "files", folder / "store"
        self.files.mkdir()
        (self.files / "old").write_bytes(OLD)
        (self.files / "gone").write_bytes(b"to be removed\n")
        store = Store.create_or_open(os.fsencode(self.store))
        self.models: dict[int, Snapshot] = {0: take_snapshot(self.files)}
        run = Run(store, self.files, self.models, random.Random(1))
        run.write(self.files / "old", 100, b"CHANGED")
        run.checkpoint()
        run.create(self.files / "new")
        run.write(self.files / "new", 0, b"one\ntwo\n")
        run.unlink(self.files / "gone")
        run.checkpoint()
        run.write(self.files / "old", len(OLD), b"appended\n")
        run.end()
        store.close()

    def verb(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[bytes]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("METAMORI_")}
        env["PYTHONPATH"] = str(ROOT)
        verb, *rest = map(str, words)
        done = served.run([*served.METAMORI, verb, "--store", str(self.store), *rest], self.folder, env, PATIENCE)
        assert done.returncode == code, done.stderr.decode()
        if code:
            lines = done.stderr.splitlines()  # one, but verify says all that it finds
            assert all(line.startswith(b"metamori: ") for line in lines), done.stderr
            assert len(lines) == 1 or (lines and verb == "verify") or "--force" in rest, done.stderr
        return done

    def json(self, *words: object, code: int = 0) -> dict:
        value = json.loads(self.verb(words[0], "--json", *words[1:], code=code).stdout)
        assert value.pop("schema") == 1
        return value

    def is_at(self, index: int) -> bool:
        return take_snapshot(self.files) == self.models[index]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_log(bench: Bench) -> None:
    log = bench.json("log")
    assert log["head"] == 3
    assert [(e["index"], e["parent"]) for e in log["checkpoints"]] == [(0, None), (1, 0), (2, 1), (3, 2)]
    assert log["checkpoints"][1]["message"] == "step 1" and log["checkpoints"][1]["time"].endswith("Z")
    assert len(bench.verb("log").stdout.splitlines()) == 4


def test_log_draws_branches(bench: Bench) -> None:
    bench.verb("restore", 1)
    store = Store.open(os.fsencode(bench.store))
    Run(store, bench.files, bench.models, random.Random(2)).end()
    printed = bench.verb("log").stdout.decode().splitlines()
    lines = [line.lstrip("* ").split()[0] for line in printed]
    assert lines == ["0", "1", "├─2", "│", "4"]


def test_restore_everywhere(bench: Bench) -> None:
    for index in (1, 0, 3, 2, 0, 3):
        answer = bench.json("restore", index)
        assert answer["index"] == index and answer["recorded"] is None
        assert bench.is_at(index)
        assert bench.json("log")["head"] == index
    assert bench.json("verify")["ok"]


def test_dry_run_touches_nothing(bench: Bench) -> None:
    plan = bench.json("restore", "--dry-run", 0)
    changes = {os.path.basename(each["path"]): each["change"] for each in plan["changes"]}
    assert changes == {"old": "M", "new": "D", "gone": "A"}
    assert bench.is_at(3) and bench.json("log")["head"] == 3
    assert b"gone" in bench.verb("restore", "--dry-run", 0).stdout


def test_copy_elsewhere(bench: Bench) -> None:
    bench.verb("restore", "--to", bench.folder / "copy", 0)
    assert (bench.folder / "copy/files/old").read_bytes() == OLD
    assert sorted(os.listdir(bench.folder / "copy/files")) == ["gone", "old"]
    assert bench.is_at(3)
    assert b"not empty" in bench.verb("restore", "--to", bench.folder / "copy", 1, code=1).stderr


def test_report_and_steps_after_0_was_pruned(bench: Bench) -> None:
    bench.verb("prune", "--keep-last", 2)
    for picture in ("timeline", "heatmap", "space"):
        assert b"<svg" in bench.verb("report", picture).stdout
    bench.verb("report", bench.folder / "page.html")
    bench.verb("undo")
    assert bench.is_at(2)
    bench.verb("redo")
    assert bench.is_at(3)
    bench.verb("undo", 2, code=13)


def test_globs(bench: Bench) -> None:
    assert bench.verb("cat", 0, "files/*").stdout == b"to be removed\n" + OLD
    assert bench.verb("cat", 0, "*/gon?").stdout == b"to be removed\n"
    assert bench.json("cat", 0, "files/g*")["path"] == str(bench.files / "gone")
    bench.verb("cat", "--json", 0, "files/*", code=2)
    bench.verb("cat", 0, "files/x*", code=1)
    said = bench.verb("diff", 0, 3, "files/*").stdout.decode()
    assert "--- files/gone at 0" in said and "+two" in said and "+appended" in said
    assert [each["path"] for each in bench.json("diff", 0, 3, "files/n*")["changes"]] == [str(bench.files / "new")]
    assert bench.verb("diff", 0, 1, "files/n*").stdout == b""


def test_cat(bench: Bench) -> None:
    assert bench.verb("cat", 0, "files/old").stdout == OLD
    assert bench.verb("cat", 0, bench.files / "gone").stdout == b"to be removed\n"
    content = bench.json("cat", 2, "files/new")
    assert base64.b64decode(content["content_b64"]) == b"one\ntwo\n"
    assert b"was not there" in bench.verb("cat", 3, "files/gone", code=1).stderr


def test_diff(bench: Bench) -> None:
    changes = {os.path.basename(each["path"]): each for each in bench.json("diff", 0, 3)["changes"]}
    assert {name: each["change"] for name, each in changes.items()} == {"old": "M", "new": "A", "gone": "D"}
    assert changes["old"]["ranges"] == [[100, 107], [len(OLD), len(OLD) + 9]]
    assert bench.json("diff", 3, 3)["changes"] == []
    text = bench.verb("diff", 0, 3, "files/old").stdout.decode()
    assert "+appended" in text and "--- files/old at 0" in text


def test_diff_of_line_ends(bench: Bench) -> None:
    with Store.open(os.fsencode(bench.store), write=True) as store:
        run = Run(store, bench.files, bench.models, random.Random(2))
        run.write(bench.files / "new", 0, b"one\r\ntwo")
        run.end()
    said = bench.verb("diff", 3, 4, "files/new").stdout
    assert said.endswith(b"\n-one\n-two\n+one\r\n+two\n\\ No newline at end of file\n")
    assert b"No newline" not in bench.verb("diff", 2, 3, "files/new").stdout


def test_diff_of_a_folder(bench: Bench) -> None:
    with Store.open(os.fsencode(bench.store), write=True) as store:
        run = Run(store, bench.files, bench.models, random.Random(2))
        run.mkdir(bench.files / "made")
        run.create(bench.files / "made/in")
        run.write(bench.files / "made/in", 0, b"text\n")
        run.end()
    assert b"+text" in bench.verb("diff", 3, 4, "files/made").stdout
    assert bench.verb("diff", 0, 4, "files").stdout == bench.verb("diff", 0, 4, "files/*").stdout
    assert b"not there" in bench.verb("diff", 0, 4, "files/none", code=1).stderr


def test_diff_of_a_folder_with_one_tracked_file(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("a\n")
    for words in (["run", "--", "sh", "-c", "echo b > d/f"], ["diff", "0", "1", "d"]):
        command = [sys.executable, "-m", "metamori", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done
    assert b"d/f" in done.stdout, done


def test_show_has_the_records_of_the_thesis(bench: Bench) -> None:
    shown = bench.json("show", 1)
    names = [record["name"] for record in shown["records"]]
    assert names[0] == "1.meta.1" and "1.1.1" in names
    assert "checkpoint 2, from 1" in bench.verb("show", 2).stdout.decode()
    assert b"no record" in bench.verb("show", 0, code=13).stderr


@pytest.mark.parametrize("words", [["restore", 9], ["show", 9], ["diff", 1, 9], ["cat", 9, "old"]])
def test_no_such_checkpoint(bench: Bench, words: list) -> None:
    assert b"9" in bench.verb(*words, code=13).stderr


@pytest.mark.parametrize("words", [["restore"], ["restore", "x"], ["diff", 1], ["log", "--wrong"],
                                   ["restore", "--to", "d", "--stdio", 1]])
def test_usage(bench: Bench, words: list) -> None:
    bench.verb(*words, code=2)


def test_no_store(tmp_path: Path, bench: Bench) -> None:
    bench.store = tmp_path / "nothing"
    bench.verb("log", code=10)
    assert not bench.store.exists()


def test_store_in_use(bench: Bench) -> None:
    with Store.open(os.fsencode(bench.store), write=True):
        bench.verb("restore", 1, code=11)
        bench.verb("log")
        assert bench.verb("cat", 0, "files/old").stdout == OLD


@pytest.mark.parametrize("how", ["appended", "touched", "replaced", "removed", "folder", "created", "mode"])
def test_changes_from_outside(bench: Bench, how: str) -> None:
    old = bench.files / "old"
    if how == "appended":
        with old.open("ab") as file:
            file.write(b"by somebody else")
    elif how == "touched":
        os.utime(old, (1, 1))
    elif how == "mode":
        old.chmod(0o600)
    elif how == "created":
        (bench.files / "gone").write_bytes(b"another one of this name")
    else:
        old.unlink()
        if how == "replaced":
            old.write_bytes(b"quite another file")
        elif how == "folder":
            old.mkdir()
    found = take_snapshot(bench.files)
    assert (b"gone" if how == "created" else b"old") in bench.verb("restore", 2, code=14).stderr
    assert take_snapshot(bench.files) == found
    lost = how not in ("created", "mode")      # these runs end without second copies
    told = [entry["index"] for entry in bench.json("verify", code=12 if lost else 0)["lost"]]
    assert [entry["index"] for entry in bench.json("log")["checkpoints"] if entry["lost"]] == told
    assert lost == (1 in told)
    answer = bench.json("restore", "--force", 1, code=12 if lost else 0)
    assert answer["recorded"] == 4
    if not lost:
        assert bench.is_at(1)
    bench.verb("restore", 4)
    assert take_snapshot(bench.files) == found
    assert bench.json("verify", code=12 if lost else 0)["ok"] != lost
    assert bool(answer["lost"]) == lost
    bench.verb("restore", 1, code=12 if lost else 0)


def test_an_interrupted_restore_is_completed_by_the_next_verb(bench: Bench) -> None:
    from metamori.store.restore import restore
    from metamori.store.restore.redo import Applier

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    store = Store.open(os.fsencode(bench.store), write=True)
    original, Applier._size = Applier._size, stop  # type: ignore[method-assign]
    try:
        with pytest.raises(Stop):
            restore.move_home(store, 0)
    finally:
        Applier._size = original  # type: ignore[method-assign]
        store.close()
    assert bench.json("verify")["notes"], "unfinished work is named"
    assert b"completed" in bench.verb("log").stderr
    assert bench.is_at(0) and bench.json("verify")["notes"] == []


@pytest.mark.parametrize("what", ["buffer", "meta", "undo", "kept"])
def test_damage_is_found(bench: Bench, what: str) -> None:
    folder = {"buffer": "buffer", "kept": "kept"}.get(what, "checkpoints")
    found = sorted((bench.store / folder).iterdir())
    path = next(path for path in found if what in path.name or what == folder)
    if what == "kept":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2 if what != "buffer" else 2] ^= 0xFF
        path.write_bytes(data)
    assert not json.loads(bench.verb("verify", "--json", code=12).stdout)["ok"]


def test_single_mode_keeps_only_the_last(bench: Bench) -> None:
    from dataclasses import replace

    store = Store.open(os.fsencode(bench.store))
    meta = replace(store.meta(3), index=4, parent=3, mode="single", names=(), pifs=(), initial_names=(),
                   initial_pifs=(), reason="")
    store.commit_checkpoint(meta)
    store.set_head(4)
    assert b"single mode" in bench.verb("restore", 2, code=13).stderr
    bench.verb("restore", 4)


def test_stdio_is_truncated_on_request(bench: Bench) -> None:
    from dataclasses import replace

    out = bench.folder / "out.log"
    out.write_bytes(b"before|after")
    found = out.stat()
    store = Store.open(os.fsencode(bench.store))
    inherited = (InheritedEntry(1, 1, os.fsencode(out), 6, found.st_dev, found.st_ino),)
    meta = replace(store.meta(3), index=4, parent=3, names=(), pifs=(), initial_names=(), initial_pifs=(),
                   inherited=inherited)
    store.commit_checkpoint(meta)
    store.set_head(4)
    bench.verb("restore", 4)
    assert out.read_bytes() == b"before|after"
    answer = bench.json("restore", "--stdio", 4)
    assert out.read_bytes() == b"before" and len(answer["truncated"]) == 1


def test_store_is_private_whatever_the_umask(tmp_path: Path) -> None:
    for number, mask in enumerate((0o000, 0o077, 0o777)):
        before = os.umask(mask)
        try:
            store = Store.create_or_open(os.fsencode(tmp_path / f"store{number}"))
            store.lock()
            store.set_head(0)
            store.close()
        finally:
            os.umask(before)
        for path in [tmp_path / f"store{number}", *(tmp_path / f"store{number}").rglob("*")]:
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_names_that_are_not_utf8(tmp_path: Path, bench: Bench) -> None:
    store = Store.open(os.fsencode(bench.store))
    run = Run(store, bench.files, bench.models, random.Random(3))
    run.create(Path(os.fsdecode(os.fsencode(bench.files) + b"/\xff\xfe")))
    run.end()
    change = next(each for each in bench.json("diff", 3, 4)["changes"] if "path_b64" in each)
    assert base64.b64decode(change["path_b64"]).endswith(b"/\xff\xfe")
    bench.verb("diff", 3, 4)
    bench.verb("restore", 3)
    bench.verb("show", 4)


