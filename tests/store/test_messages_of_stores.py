"""What is said of a store whose records, buffers or images are not what they should be."""

from __future__ import annotations

import os
import random
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, Snapshot
from test_move_faults import no_space

from metamori.cli import main
from metamori.errors import ChangedOutside, Damaged, MetamoriError, StoreBusy
from metamori.store.format import files
from metamori.store.format.codec import Choice, FormatError, Name, Reader
from metamori.store.format.layout import format_line
from metamori.store.format.records import Intent, NameEntry, NameOp, Pruning
from metamori.store.io.os_io import REAL, Door
from metamori.store.prune import merge, prune
from metamori.store.read import image, reader, scope
from metamori.store.read.checksums import Checked, all_signed
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import export, name_plan, redo
from metamori.tables.aml import AML, AddressMap
from metamori.tables.record import replace
from metamori.tables.retention import Rules


class Laboratory:
    """A folder, and a store of three checkpoints: redirected bytes at 1 and 2, a file that is removed."""

    def __init__(self, folder: Path) -> None:
        self.files, self.folder = folder / "files", folder / "store"
        self.files.mkdir()
        (self.files / "old").write_bytes(b"o" * 9000)
        (self.files / "gone").write_bytes(b"gone\n")
        models: dict[int, Snapshot] = {}
        with Store.create_or_open(os.fsencode(self.folder)) as store:
            run = Run(store, self.files, models, random.Random(4))
            run.write(self.files / "old", 100, b"CHANGED")
            run.checkpoint()
            run.write(self.files / "old", 4000, b"CHANGED")
            run.unlink(self.files / "gone")
            run.checkpoint()
            run.write(self.files / "old", 8000, b"CHANGED")
            run.end()

    def store(self, door: Any = REAL) -> Store:
        return Store.open(os.fsencode(self.folder), door=door)

    def record(self, name: str) -> Path:
        return self.folder / "checkpoints" / name

    def problems(self) -> str:
        with self.store() as store:
            return "\n".join(verify(store).problems)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    yield Laboratory(tmp_path)


def test_a_scope_that_is_none(lab: Laboratory) -> None:
    with lab.store() as store:
        scope.write(store.door, store.layout, scope.EVERYTHING)
        path = lab.folder / "scope"
        text = path.read_bytes()
        for damaged in (text.replace(b"track", b"trakc"), text[:-1], b"", b"metamori scope 2\n"):
            path.write_bytes(damaged)
            with pytest.raises(Damaged, match="scope is not the scope of a store"):
                scope.read(store.door, store.layout)
        path.write_bytes(text)
        assert scope.read(store.door, store.layout) == scope.EVERYTHING


# -- records ---------------------------------------------------------------------------------------


def swapped(one: str, other: str) -> Callable[[Laboratory], None]:
    """A record that is whole, under the name of another."""
    def swap(lab: Laboratory) -> None:
        shutil.copy(lab.record(one), lab.record(other))
    return swap


def without(name: str) -> Callable[[Laboratory], None]:
    return lambda lab: lab.record(name).unlink()


def flipped(lab: Laboratory) -> None:
    path = lab.folder / "buffer" / "1"
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))


def at_a_strange_index(lab: Laboratory) -> None:
    path = lab.folder / "head"
    with lab.store() as store:
        path.write_bytes(files.encode_head(replace(store.head, index=9), store.layout.id))


@pytest.mark.parametrize(("damage", "said"), [
    (swapped("2.meta.1", "3.meta.1"), "3.meta.1 is the record of checkpoint 2"),
    (swapped("1.offset.1", "3.offset.1"), "3.offset.1 is the offset file of checkpoint 1, process 1, run 1"),
    (swapped("1.undo.1", "1.undo.2"), "1.undo.2 is the undo record 1.undo.1"),
    (without("1.meta.1"), "checkpoint 2 grew from 1, which is not there"),
    (flipped, "buffer/1: checksum mismatch at bytes 0-"),
    (at_a_strange_index, "head is at checkpoint 9, which is not there"),
    (lambda lab: shutil.rmtree(lab.folder / "kept"), "u2, the only copy of a file, is missing"),
    (lambda lab: shutil.rmtree(lab.folder / "kept"), "the folder of kept files is missing"),
])
def test_verify_names_it(damage: Callable[[Laboratory], None], said: str, lab: Laboratory) -> None:
    assert lab.problems() == ""
    damage(lab)
    assert said in lab.problems()


def test_an_offset_file_with_too_few_ranges(lab: Laboratory) -> None:
    with lab.store() as store:
        meta = store.meta(1)
        lab.record("1.meta.1").write_bytes(files.encode_meta(replace(meta, offset_entries=2), store.layout.id))
    assert "checkpoint 1 has 1 redirected ranges, not 2" in lab.problems()


def test_a_format_file_that_is_none(lab: Laboratory) -> None:
    path = lab.folder / "format"
    path.write_text("words\n")
    with pytest.raises(Damaged, match=r"format: not the format file of a store \(at byte 0\)"):
        lab.store()
    path.write_bytes(format_line(0x1234, 9))
    with pytest.raises(MetamoriError, match="is a store of format version 9; this Metamori knows 2"):
        lab.store()


def test_a_run_on_a_store_with_a_damaged_record(lab: Laboratory, capfd: pytest.CaptureFixture[str],
                                                installed: None) -> None:
    lab.record("1.undo.1").write_bytes(b"words")
    assert main.main(["run", "--store", str(lab.folder), "--", "true"]) == 125
    assert "metamori: the store is damaged: " in capfd.readouterr().err


# -- what codecs refuse ----------------------------------------------------------------------------


def test_bytes_that_are_no_name_or_choice() -> None:
    with pytest.raises(FormatError, match="not a name"):
        Name().get(Reader(b"\3\0\0\0a/b", 0, 7))
    with pytest.raises(FormatError, match="code 9, the highest known is 1"):
        Choice("one", "two").get(Reader(b"\x09", 0, 1))


def test_a_size_that_no_file_has(lab: Laboratory) -> None:
    with lab.store() as store:
        meta = store.meta(1)
        wrong = replace(meta, pifs=tuple(replace(pif, size=1 << 63) for pif in meta.pifs))
        with pytest.raises(FormatError, match="an impossible file size"):
            files.decode_meta(files.encode_meta(wrong, store.layout.id), store.layout.id)


def test_a_mapping_of_nothing() -> None:
    with pytest.raises(ValueError, match="not a mapping of at least one byte: "):
        AddressMap().insert(AML(5, 5, 1, 0))


# -- buffers ---------------------------------------------------------------------------------------


class Short(Door):
    """A file ends while it is copied."""

    def clone_range(self, *_: int) -> bool:
        return False

    def copy_range(self, *_: int) -> int:
        return 0


def test_a_file_that_becomes_shorter_while_it_is_saved(lab: Laboratory) -> None:
    (lab.files / "long").write_bytes(b"x" * 100_000)
    fd = os.open(lab.files / "long", os.O_RDONLY)
    try:
        with lab.store(Short()) as store, pytest.raises(
                Damaged, match="a file became shorter while bytes 0-100000 of it were saved"):
            store.buffers.save(1, fd, [(0, 100_000)])
    finally:
        os.close(fd)


def test_parts_of_a_range_that_is_damaged(lab: Laboratory) -> None:
    with lab.store() as store:
        entry = store.offsets(1).entries[0]
        whole = (entry.buffer_start, entry.buffer_end, entry.crc ^ 1)
        with pytest.raises(Damaged, match="checksum mismatch at bytes 0-7 of buffer 1; nothing was pruned"):
            list(merge.Checksums(store.buffers, lambda: all_signed(store)).of(1, whole, 0, 3))
        checked = Checked(store.buffers, store.layout, [(1, *whole)])
        with pytest.raises(Damaged, match="buffer/1: checksum mismatch at bytes 0-7"):
            checked.require(1, 0, 3)


# -- prune -----------------------------------------------------------------------------------------


def test_a_prune_without_room(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise no_space()

    monkeypatch.setattr(prune, "_write_records", full)
    with Store.open(os.fsencode(lab.folder), write=True) as store, \
            pytest.raises(MetamoriError, match="No space left on device; checkpoints pruned: 0"):
        prune.prune(store, Rules(keep_last=1))


def test_names_in_a_prune_file_that_lead_elsewhere(lab: Laboratory) -> None:
    with lab.store() as store, pytest.raises(files.FormatError, match=r"b'../x' is not a name"):
        prune._checked(Pruning(store.numbers(), kept=(b"../x",)))


# -- images of memory ------------------------------------------------------------------------------


def checked(tmp_path: Path, data: bytes, size: int, crc: int) -> str:
    (tmp_path / "image").write_bytes(data)
    entry: Any = SimpleNamespace(size=size, crc=crc)
    return image.check(REAL, os.fsencode(tmp_path / "image"), entry)


def test_images_that_are_not_what_was_written(tmp_path: Path) -> None:
    data = b"x" * 100
    whole = data + struct.pack("<I", zlib.crc32(data))
    assert checked(tmp_path, whole, 104, zlib.crc32(data)) == ""
    assert checked(tmp_path, whole[:50], 104, 0).endswith("image has 50 bytes, not 104")
    assert checked(tmp_path, b"y" + whole[1:], 104, zlib.crc32(data)).endswith("image does not match its checksum")
    with pytest.raises(Damaged, match="image is not an image that this version knows"):
        image.read(REAL, os.fsencode(tmp_path / "image"))


def picture(tmp_path: Path, start: int, end: int, pages: int = 1) -> bytes:
    """An image of one span and of as many pages as it may have; its path."""
    before = 24 + image._FIXED
    data = before + 2 * image._SPAN
    data += -data % image.PAGE
    counts = (1, 0, data, 0, 0, 0, 0, 1, 1, 0)
    head = image._ENVELOPE.pack(b"mtmrMEMO", 3, 0x01020304, 0) + image._COUNTS.pack(*counts)
    spans = struct.pack("<QQ", start, end) * 2
    path = tmp_path / "image"
    path.write_bytes((head.ljust(before, b"\0") + spans).ljust(data, b"\0") + b"x" * image.PAGE * pages)
    return os.fsencode(path)


def test_an_image_of_half_a_page(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="image: its spans are not whole pages"):
        image.read(REAL, picture(tmp_path, 0, 100))


def test_an_image_that_ends_before_its_pages(tmp_path: Path) -> None:
    whole = image.read(REAL, picture(tmp_path, 0, 8192))
    with pytest.raises(Damaged, match="image is cut short"):
        image.merge(REAL, [whole], 0, os.fsencode(tmp_path / "merged"))


def test_a_prune_over_a_damaged_image(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SimpleNamespace(base=1, process=1, pid=1)
    store: Any = SimpleNamespace(door=REAL, layout=SimpleNamespace(memory=lambda index, process: b"%d" % index),
                                 meta=lambda index: SimpleNamespace(memory=[entry] if index == 2 else
                                                                    [SimpleNamespace(base=0, process=1, pid=1)]))
    monkeypatch.setattr(image, "check", lambda *_: "1.memory.1 does not match its checksum")
    with pytest.raises(Damaged, match=r"1.memory.1 does not match its checksum; nothing was pruned"):
        prune._images(store, SimpleNamespace(keep=[2], stays=[2]), [])  # type: ignore[arg-type]


# -- reading ---------------------------------------------------------------------------------------


def test_a_file_that_a_restore_moves(lab: Laboratory) -> None:
    """Read by one process while another, which has the lock, has it elsewhere."""
    with lab.store() as store, Store.open(os.fsencode(lab.folder), write=True):
        inode = store.state(3).names[os.fsencode(lab.files / "old")].inode
        (lab.files / "old").rename(lab.files / "elsewhere")
        with pytest.raises(StoreBusy, match="old is being moved; it can be read afterwards"):
            reader.find_home(store, inode)


def test_a_file_that_ends_before_its_checkpoint_does(lab: Laboratory) -> None:
    with lab.store() as store:
        inode = store.state(3).names[os.fsencode(lab.files / "old")].inode
        with reader.Reader(store, 3, inode) as opened:
            assert opened.read(0, 10) == b"o" * 10
            os.truncate(lab.files / "old", 50)
            with pytest.raises(Damaged, match="old: the file ends at byte 50, before checkpoint 3 does"):
                opened.read(0, 9000)


# -- copies ----------------------------------------------------------------------------------------


def test_a_copy_without_a_record(lab: Laboratory) -> None:
    lab.record("2.meta.1").write_bytes(b"words")
    with lab.store() as store, pytest.raises(Damaged, match="; --force copies the files that are known without it"):
        export.export(store, 1, lab.files.parent / "copy")


def test_entries_that_lead_out_of_a_copy() -> None:
    assert export._not_inside([NameEntry(b"/a/link", "symlink"), NameEntry(b"/a/link/b", "file", 1)]) == {
        b"/a/link/b": "/a/link/b cannot be below /a/link, which is not a folder"}


def test_a_file_that_no_record_describes() -> None:
    state: Any = SimpleNamespace(pifs={}, index=3)
    with pytest.raises(Damaged, match="there: no record of checkpoint 3 describes this file"):
        export._copy(None, state, 7, b"there")  # type: ignore[arg-type]


# -- moves -----------------------------------------------------------------------------------------


def applied(lab: Laboratory, name: NameOp) -> None:
    with lab.store() as store:
        redo.Applier(store, False, store.layout.intent).run(Intent(1, names=(name,)))


def test_what_is_in_the_way(lab: Laboratory) -> None:
    """Found before, when the move was planned; here somebody was faster."""
    taken, other = os.fsencode(lab.files / "taken"), os.fsencode(lab.files / "old")
    Path(os.fsdecode(taken)).write_text("mine")
    with pytest.raises(ChangedOutside, match="taken is in the way: it is not a folder"):
        applied(lab, NameOp("mkdir", taken))
    with pytest.raises(ChangedOutside, match=r"taken is in the way$"):
        applied(lab, NameOp("link", taken, other))
    with lab.store() as store, pytest.raises(ChangedOutside, match="files is not a regular file any more"):
        redo.Applier(store, False, store.layout.intent)._open(os.fsencode(lab.files))


def test_a_socket_is_not_made_again(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    state: Any = SimpleNamespace(names={}, existing=lambda: [], paths=lambda inode: [])
    entry = NameEntry(folder + b"/socket", "other", 0, 0o140600)
    there: Any = SimpleNamespace(names={entry.path: entry}, existing=lambda: [entry], paths=lambda inode: [])
    plan = name_plan.NamesPlan(REAL, SimpleNamespace(kept_folder=folder), state, there, [])  # type: ignore[arg-type]
    assert plan.notes == [f"{tmp_path}/socket was a socket; it is not restored"]
