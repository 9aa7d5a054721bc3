"""Wherever Metamori copies a file of the user's, its holes take no room there, as `cp` has it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from lab import Lab

LONG = 1 << 28
FEW = 1 << 21
CHANGES = {
    "over": "printf here | dd of=over conv=notrunc status=none",
    "middle": f"printf here | dd of=middle bs=1 seek={LONG // 3} conv=notrunc status=none",
    "cut": ": > cut",
    "removed": "rm removed",
    "replaced": "echo new > new; mv new replaced",
    "moved": "mv moved ../moved",
    "same": "true",
}
MAKES = (f"for f in {' '.join(CHANGES)}; do truncate -s {LONG} $f; "
         f"printf there | dd of=$f bs=1 seek={LONG // 2} conv=notrunc status=none; echo end >> $f; done")
WAYS = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])


def room(folder: Path) -> int:
    return sum(each.lstat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


def whole(folder: Path) -> None:
    """All of them are there and take little."""
    for path in (folder / name for name in CHANGES):
        assert path.stat().st_size == LONG + 4
        with path.open("rb") as file:
            for at in (0, 100, LONG // 3):
                file.seek(at)
                assert file.read(4) == bytes(4)
            file.seek(LONG // 2)
            assert file.read(7) == b"there\0\0"
            file.seek(LONG)
            assert file.read() == b"end\n"
    assert room(folder) < FEW


def changed(folder: Path) -> None:
    """By the second run."""
    assert not (folder / "removed").exists() and not (folder / "moved").exists()
    assert (folder / "cut").read_bytes() == b"" and (folder / "replaced").read_bytes() == b"new\n"
    for path, at in ((folder / "over", 0), (folder / "middle", LONG // 3), (folder.parent / "moved", -1)):
        assert path.stat().st_size == LONG + 4
        with path.open("rb") as file:
            for place, there in ((0, bytes(7)), (LONG // 3, bytes(7)), (LONG // 2, b"there\0\0"), (LONG, b"end\n")):
                file.seek(place)
                assert file.read(7) == (b"here\0\0\0" if place == at else there)


def goes_through(lab: Lab, options: list[str]) -> None:
    del lab.env["METAMORI_TRACK"]
    for script in (MAKES, "; ".join(CHANGES.values())):
        done = lab.run(["sh", "-ec", script], *options)
        assert (done.returncode, done.stderr) == (0, b"")
    assert room(lab.store) < FEW
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        for copy in (lab.folder / "copy", Path(other, "copy")):
            lab.restore(1, "--to", copy)
            whole(next(copy.rglob("over")).parent)
    lab.restore(1)
    whole(lab.work)
    assert room(lab.store) < FEW
    lab.restore(2)
    changed(lab.work)
    assert room(lab.store) < FEW
    lab.verb("verify")


@WAYS
def test_restored(lab: Lab, options: list[str]) -> None:
    goes_through(lab, options)


@WAYS
def test_restored_from_a_store_elsewhere(elsewhere: Lab, options: list[str]) -> None:
    goes_through(elsewhere, options)


def test_one_of_two_names_in_the_run(lab: Lab) -> None:
    """The other one keeps the file: this one gets a copy, from the buffer."""
    assert lab.run(["sh", "-ec", MAKES + "; ln over also"]).returncode == 0
    driver = lab.start()
    driver.must(["open over rw", "pwrite 3 100 100 1", "close 3", "checkpoint"])
    lab.restore(1, lab.work / "over")
    assert (lab.work / "over").stat().st_ino != (lab.work / "also").stat().st_ino
    driver.must(["checkpoint"])
    assert room(lab.store) < 4 * FEW, "the run area among it"
    assert driver.end() == 0
    whole(lab.work)


@pytest.mark.parametrize("mapped", [False, True], ids=["opened", "mapped"])
def test_cut_off_by_a_restore_in_the_program(lab: Lab, mapped: bool) -> None:
    """What it cuts off is kept for the index that has it."""
    size = LONG
    driver = lab.start()
    driver.must(["open f rw,creat", "pwrite 3 8192 0 1", *(["map 3 8192 rw shared 0"] if mapped else []), "checkpoint",
                 f"ftruncate 3 {size}", f"pwrite 3 5000 {size // 2} 2", "checkpoint"])
    seen = (lab.work / "f").open("rb")
    seen.seek(size // 2)
    middle = seen.read(5000)
    seen.close()
    assert driver.ask("restore 1") == "0"
    assert (lab.work / "f").stat().st_size == 8192
    assert room(lab.store) < 8 * FEW, "the run area among it"
    assert driver.end() == 0
    assert room(lab.store) < FEW
    lab.restore(2)
    with (lab.work / "f").open("rb") as file:
        file.seek(size // 2)
        assert file.read(5001) == middle + b"\0"
    assert (lab.work / "f").stat().st_size == size and room(lab.work) < FEW
    lab.verb("verify")
