"""The formats as they are written down: a file put together by hand, refusals, and speed."""

import re
import struct
import time
import zlib

import pytest

from metamori.store.format import files
from metamori.store.format.files import FormatError
from metamori.store.format.records import (
    Head,
    Identity,
    Intent,
    Launch,
    Meta,
    NameEntry,
    OffsetEntry,
    Offsets,
    Undo,
    UndoEntry,
)


def by_hand(magic: bytes, payload: bytes, *, version: int = 1, mark: int = 0x01020304, store: int = 0) -> bytes:
    """A file from the specification's words, without the codecs."""
    body = magic + struct.pack("<IIQ", version, mark, len(payload)) + payload
    return body + struct.pack("<I", zlib.crc32(body, store))


HEAD = Head(7, (Identity(b"/a", 1, 2, 3, -4, 5),), (), 9, 3)
HEAD_PAYLOAD = struct.pack("<QI", 7, 1) + struct.pack("<I", 2) + b"/a" + struct.pack("<QQQqq", 1, 2, 3, -4, 5)
HEAD_PAYLOAD += struct.pack("<I", 0)  # no kept files
HEAD_PAYLOAD += struct.pack("<QQ", 9, 3)  # the newest index and undo record then


def test_head_is_the_bytes_that_the_specification_says():
    assert files.encode_head(HEAD) == by_hand(b"mtmrHEAD", HEAD_PAYLOAD)
    assert files.decode_head(by_hand(b"mtmrHEAD", HEAD_PAYLOAD)) == HEAD
    assert files.encode_head(HEAD, 0x1234) == by_hand(b"mtmrHEAD", HEAD_PAYLOAD, store=0x1234)
    with pytest.raises(FormatError, match="not this store's"):
        files.decode_head(files.encode_head(HEAD, 0x1234), 0x1235)


def test_an_intent_from_before_steps_were_counted_has_done_none():
    payload = struct.pack("<Q", 7) + bytes(4 * 5)  # five empty lists
    assert files.decode_intent(by_hand(b"mtmrMOVE", payload), 0) == Intent(7)
    assert files.encode_intent(Intent(7, done=3), 0) == by_hand(b"mtmrMOVE", payload + struct.pack("<Q", 3))


def test_a_record_with_nothing_new_in_it_is_one_that_older_programs_read():
    payload = struct.pack("<Q", 7) + bytes(4 * 5)
    assert [files.encode_intent(Intent(7), 0) for _ in range(300)] == [by_hand(b"mtmrMOVE", payload)] * 300
    launch = Launch(b"/a", (), (), b"/")
    plain, launched = (files.encode_meta(Meta(1, 0, 0, "", "", 1, 1, launch=each))[24:-4] for each in ((), (launch,)))
    assert launched == plain + struct.pack("<I", 1) + files.encode_launch(launch)[24:-4]


@pytest.mark.parametrize("path", [b"a", b"/a/../b", b"/..", b"//a", b"/a/", b"/a/./b", b"/a\0"])
def test_a_path_that_leads_elsewhere_is_refused(path):
    with pytest.raises(FormatError, match="not a path"):
        files.decode_head(files.encode_head(Head(1, (Identity(path, 1, 2, 3, 4, 5),))))


def test_rows_are_u64_columns_in_order():
    entry = OffsetEntry(5, 1, 4096, 8192, 0, 4096)
    payload = struct.pack("<QQQQ", 1, 2, 3, 1) + struct.pack(f"<{len(entry)}Q", *entry)
    assert files.encode_offsets(Offsets(1, 2, 3, (entry,))) == by_hand(b"mtmrOFFS", payload)
    assert f"{8 * len(entry)} bytes" in files.__doc__
    undo = UndoEntry(5, 0, 9, 0, 0)
    payload = struct.pack("<QQQ", 1, 2, 1) + struct.pack(f"<{len(undo)}Q", *undo)
    assert files.encode_undo(Undo(1, 2, (undo,))) == by_hand(b"mtmrUNDO", payload)
    assert f"{8 * len(undo)} bytes" in files.__doc__


SAID = {
    "empty": "the file is too short for its envelope",
    "magic": "this file begins with b'mtmrHEAx', not b'mtmrHEAD'",
    "version": "format version 3; this program knows 2",
    "byte-order": "byte order mark",
    "length": "bytes announced, the file has",
    "checksum": "the checksum is not this store's",
    "bytes-left-over": "1 bytes after the last field",
    "count": "2147483648 items announced, 0 bytes there",
    "field": "16 bytes announced, 15 there",
}


@pytest.mark.parametrize(("raw", "offset", "what"), [
    (b"", 0, "empty"),
    (by_hand(b"mtmrHEAx", HEAD_PAYLOAD), 0, "magic"),
    (by_hand(b"mtmrHEAD", HEAD_PAYLOAD, version=3), 8, "version"),
    (by_hand(b"mtmrHEAD", HEAD_PAYLOAD, mark=0x04030201), 12, "byte-order"),
    (by_hand(b"mtmrHEAD", HEAD_PAYLOAD) + b"x", 16, "length"),
    (by_hand(b"mtmrHEAD", HEAD_PAYLOAD)[:-1] + b"x", 24 + len(HEAD_PAYLOAD), "checksum"),
    (by_hand(b"mtmrHEAD", HEAD_PAYLOAD + b"x"), 24 + len(HEAD_PAYLOAD), "bytes-left-over"),
    (by_hand(b"mtmrHEAD", struct.pack("<QI", 7, 2**31)), 36, "count"),
    (by_hand(b"mtmrHEAD", HEAD_PAYLOAD[:-1]), 24 + len(HEAD_PAYLOAD) - 16, "field"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_refusal_says_what_and_where(raw, offset, what):
    with pytest.raises(FormatError) as caught:
        files.decode_head(raw)
    assert caught.value.offset == offset
    assert f"byte {offset}" in str(caught.value) and SAID[what] in str(caught.value)


@pytest.mark.parametrize("bad", [
    pytest.param(Offsets(1, 1, 1, (OffsetEntry(1, 1, 5, 5, 0, 0),)), id="empty-range"),
    pytest.param(Offsets(1, 1, 1, (OffsetEntry(1, 1, 5, 9, 0, 5),)), id="unequal-ranges"),
    pytest.param(Offsets(1, 1, 1, (OffsetEntry(-1, 1, 5, 9, 0, 4),)), id="negative"),
    pytest.param(Offsets(-1, 1, 1), id="negative-index"),
])
def test_what_does_not_fit_is_not_written(bad):
    with pytest.raises(ValueError, match=r"."):
        files.encode_offsets(bad)


def test_unknown_words_are_not_written():
    with pytest.raises(ValueError, match="door"):
        files.encode_meta(Meta(1, 0, 0, "", "", 1, 1, names=(NameEntry(b"/a", "door"),)))  # type: ignore


def test_ranges_are_checked_when_read():
    rows = [OffsetEntry(1, 1, 0, 4, 0, 4), OffsetEntry(1, 1, 9, 5, 0, 4)]
    payload = struct.pack("<QQQQ", 1, 1, 1, 2) + b"".join(struct.pack(f"<{len(r)}Q", *r) for r in rows)
    with pytest.raises(FormatError, match="a range that is empty or not as long as its other") as caught:
        files.decode_offsets(by_hand(b"mtmrOFFS", payload))
    assert caught.value.offset == 24 + 32 + 8 * len(rows[0])


def test_the_specification_names_every_magic():
    magics = set(re.findall(r'"(mtmr[A-Z]{4})"', files.__doc__))
    values = [files.encode_meta(Meta(1, 0, 0, "", "", 1, 1)), files.encode_offsets(Offsets(1, 1, 1)),
              files.encode_undo(Undo(1, 1)), files.encode_head(Head(1)),
              files.encode_launch(Launch(b"", (), (), b""))]
    assert magics == {raw[:8].decode() for raw in values} | {"mtmrMOVE", "mtmrMEMO", "mtmrNUMS", "mtmrPRUN"}


def test_a_million_entries_in_about_a_second():
    at = range(0, 4096 * 1_000_000, 4096)
    entries = tuple(OffsetEntry(1, 1, 2 * n, 2 * n + 4096, n, n + 4096) for n in at)
    begin = time.process_time()
    raw = files.encode_offsets(Offsets(1, 1, 1, entries))
    middle = time.process_time()
    assert files.decode_offsets(raw).entries[-1] == entries[-1]
    assert middle - begin < 3
    assert time.process_time() - middle < 4
