"""Programs that the soak found and `player.py` made small."""

from __future__ import annotations

import pytest
from honest import assert_honest
from lab import Lab
from player import play

FOUND = {
    "a file where a folder was": ["mkdir d1", "checkpoint", "rename d1 d0", "open d1 rw,creat", "checkpoint"],
    "mode of a file without a name": [
        "mkdir d0", "open l1 rw,creat", "open d0/b rw,creat 600", "remove d0/b", "checkpoint", "checkpoint",
        "fchmod 4 755", "restore @1", "fsize 4", "checkpoint"],
    # opened again by the store's name for it, which is no path that a run follows
    "mode of a file without a name that was gone back to": [
        "open f2 rw,creat 600", "checkpoint", "unlink f2", "checkpoint", "restore @1", "checkpoint", "fchmod 3 755",
        "checkpoint", "write 3 7 1", "restore @3", "fsize 3"],
    # nothing had gone to the buffer before the first checkpoint: what was noted then counted as saved after it
    "a mapped file that was written before its first checkpoint": [
        "open a rw,creat 600", "ftruncate 3 44069", "mapwrite 3 2907 5044 1", "write 3 40000 2", "checkpoint",
        "mapwrite 3 8542 12051 3", "restore @0", "pread 3 467 20480", "mapwrite 3 8542 12051 4", "checkpoint"],
    # the runtime has descriptors of its own: in the program's table their numbers led to other files, or nowhere
    "mode of a folder": [
        "mkdir d1", "checkpoint", "chmod d1 740", "restore @0", "tree", "open f0 rw,creat 644", "open f1 rw,creat 644",
        "open f2 rw,creat 644", "checkpoint", "chmod d1 640", "restore @1", "tree", "checkpoint"],
    "a removed folder that is still open": [
        "mkdir d1", "open d1 r", "checkpoint", "rmdir d1", "open f0 rw,creat", "checkpoint", "mkdir d1", "checkpoint",
        "restore @1", "write 4 20 1", "tree", "restore @0", "tree", "restore @2", "read 3 1", "write 4 20 1", "tree",
        "close 3", "rmdir d1", "checkpoint"],
    # the file went along with its folder, and what stands at its old path is no sign that it did not
    # the folder that lost its names is made durable, and is none any more
    "a file where a folder with a file was": [
        "mkdir l0", "openat l0/b rw,creat 644", "write 3 5000 1", "checkpoint", "unlink l0/b", "rmdir l0",
        "open l0 rw,creat", "write 4 100 2", "checkpoint", "unlink l0", "symlink l0 l0", "checkpoint"],
    # the kernel's answers, which the model had wrong: `read` asks a folder for nothing, `readv` does not
    "nothing read from a folder": ["mkdir d0", "open d0 r", "readv 3 0", "preadv 3 0 100", "read 3 0", "readv 3 1"],
    # by its descriptor: names are not looked up as long as no index knows the file
    "mode of a file made in the interval, and in the next": [
        "mkdir d0", "open f0 rw,creat 640", "fchmod 3 600", "link f0 d0/a", "rename f0 f1", "fchmod 3 755",
        "rename d0 d1", "fchmod 3 751", "checkpoint", "fchmod 3 700", "rename d1/a f3", "fchmod 3 711", "checkpoint",
        "unlink f1", "fchmod 3 644", "checkpoint", "restore @1", "tree", "fchmod 3 604", "restore @2", "tree",
        "restore @0", "tree"],
    "a folder in the place of one that was renamed": [
        "mkdir d0", "openat d0/b rw,creat 644", "write 3 5000 1", "chmod d0/b 640", "checkpoint", "pwrite 3 300 10 2",
        "close 3", "rename d0 d1", "mkdir d0", "checkpoint", "restore @0", "tree", "restore @1", "tree"],
}


def test_a_killed_run_keeps_the_homes_that_another_branch_knows(lab: Lab) -> None:
    """Mapped, and so in place also in isolation; then gone back from, and killed."""
    session = lab.start("--isolate")
    lines = ["mkdir d0", "checkpoint", "openat d0/a rw,creat 644", "write 3 18978 131", "mapwrite 3 294 13787 708",
             "checkpoint", "restore @0"]
    played = play(session, lines)
    session.kill_all()
    assert_honest(lab.store, lab.work, dict(played.checkpoints))


@pytest.mark.in_turn("name")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("name", FOUND)
def test_found(lab: Lab, name: str, options: list[str]) -> None:
    session = lab.start(*options)
    played = play(session, FOUND[name])
    assert session.end() == 0, session.stderr()
    assert_honest(lab.store, lab.work, dict(played.checkpoints))


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolate", "single"])
@pytest.mark.parametrize("rest", [[], ["close 3"], ["close 3", "checkpoint"]], ids=["open", "closed", "seen"])
def test_a_file_without_a_name_changed_after_a_commit(lab: Lab, options: list[str], rest: list[str]) -> None:
    """Single mode commits at the checkpoint: `verify` took the program's own chmod after it for damage."""
    session = lab.start(*options)
    session.must(["open f0 rw,creat 640", "write 3 50 1", "unlink f0", "checkpoint", "fchmod 3 755", *rest])
    assert session.end() == 0, session.stderr()
    lab.verb("verify")


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_file_opened_for_reading_then_unlinked(lab: Lab, options: list[str]) -> None:
    """It was there before the run; the run knows it from the unlink on."""
    (lab.work / "f0").write_bytes(b"x" * 5000)
    session = lab.start(*options)
    session.must(["open f0 r", "unlink f0", "checkpoint"])
    have = session.ask("pread 3 5000 0")
    session.must(["open f0 rw,creat", "write 4 100 1", "checkpoint", "close 3"])
    for index in (1, 2, 1):
        assert session.ask(f"restore {index}") == "0", index
        assert session.ask("pread 3 5000 0") == have, index
    assert session.end() == 0, session.stderr()
    lab.verb("verify")
