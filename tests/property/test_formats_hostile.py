"""Codecs: what is encoded comes back; no damaged or hostile file is taken for a record or does harm."""

import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metamori.store.format import codec, files, records
from metamori.store.format.files import FormatError
from metamori.tables import fit, pif

BOUNDS = {"mode": (0, 2**32 - 1), "uid": (0, 2**32 - 1), "gid": (0, 2**32 - 1), "descriptor": (-1, 2**31 - 1),
          "attributes": (-2**63, 2**63 - 1), "seek_pointer": (-1, 2**63 - 1), "flags": (-2**63, 2**63 - 1),
          "buffering": (-1, 2**63 - 1), "time_ns": (-2**63, 2**63 - 1), "mtime_ns": (-2**63, 2**63 - 1),
          "ctime_ns": (-2**63, 2**63 - 1), "btime_ns": (-2**63, 2**63 - 1), "umask": (0, 2**32 - 1),
          "size": (0, 2**63 - 1), "crc": (0, 2**32 - 1), "threads": (0, 2**32 - 1), "same_as": (-2**31, 2**31 - 1),
          "position": (-2**63, 2**63 - 1), "limits": (-2**63, 2**63 - 1),
          "status": (-1, 2**63 - 1), "other": (-1, 2**31 - 1), "seals": (0, 2**32 - 1), "kind": (0, 2**32 - 1)}
u64 = st.integers(0, 2**64 - 1)
names = st.binary(max_size=8)
parts = st.binary(min_size=1, max_size=4).filter(lambda raw: not {47, 0} & set(raw) and raw not in (b".", b".."))
PLACES = {"path": st.just(b"") | st.lists(parts, max_size=3).map(lambda found: b"/" + b"/".join(found)), "name": parts}
PLACES.update(filename=PLACES["path"], other=PLACES["path"], kept=parts | st.just(b""), put=parts, remove=parts)
texts = st.text(max_size=6) | st.binary(max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


def field(name: str, kind):
    """Any value of a field, from its name and its type."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        inner = [each for each in get_args(kind) if each is not ...]
        one = len(inner) == 1
        signed = "descriptor" if name == "dup_list" else ""
        item = field(signed or name, inner[0]) if one else st.tuples(*[field(name, each) for each in inner])
        return st.lists(item, max_size=2).map(tuple) if ... in get_args(kind) else item
    if kind is int:
        return st.integers(*BOUNDS.get(name, (0, 2**64 - 1)))
    simple = {bytes: PLACES.get(name, names), str: texts, bool: st.booleans()}
    return simple[kind] if kind in simple else any_of(kind)


def names_in(module):
    """What its annotations mean: some is imported for who checks types only."""
    source = Path(module.__file__).read_text().replace("TYPE_CHECKING = False", "TYPE_CHECKING = True")
    found = {"__name__": module.__name__}
    exec(compile(source, module.__file__, "exec"), found)
    return {name: value for name, value in found.items() if name not in vars(module)}


TYPES = {name: value for module in (fit, pif, records) for name, value in names_in(module).items()}


def any_of(cls):
    hints = get_type_hints(cls, localns=TYPES)
    return rows[cls] if cls in rows else st.builds(cls, **{name: field(name, kind) for name, kind in hints.items()})


length = st.integers(1, 2**40)
low = st.integers(0, 2**62)
rows = {
    records.OffsetEntry: st.builds(
        lambda inode, process, start, at, n, *rest: records.OffsetEntry(
            inode, process, start, start + n, at, at + n, *rest),
        u64, u64, low, low, length, *[u64] * (len(records.OffsetEntry._fields) - 6)),
    records.Hole: st.builds(lambda run, start, n: records.Hole(run, start, start + n), u64, low, length),
    records.UndoEntry: st.builds(
        lambda inode, start, n, run, at, *rest: records.UndoEntry(inode, start, start + n, run, at, *rest),
        u64, low, length, u64, u64, *[u64] * (len(records.UndoEntry._fields) - 5)),
}
FILES = {
    records.Meta: (files.encode_meta, files.decode_meta),
    records.Offsets: (files.encode_offsets, files.decode_offsets),
    records.Undo: (files.encode_undo, files.decode_undo),
    records.Head: (files.encode_head, files.decode_head),
    records.Intent: (files.encode_intent, files.decode_intent),
    records.Numbers: (files.encode_numbers, files.decode_numbers),
    records.Pruning: (files.encode_pruning, files.decode_pruning),
}
KINDS = pytest.mark.parametrize("cls", FILES, ids=lambda cls: cls.__name__)


def sealed_again(data: bytes) -> bytes:
    """The file with a checksum and a length that fit it: damage that only the fields can show."""
    body = data[:16] + struct.pack("<Q", len(data) - 28) + data[24:-4]
    return body + struct.pack("<I", zlib.crc32(body))


@KINDS
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_comes_back(cls, data):
    encode, decode = FILES[cls]
    value = data.draw(any_of(cls))
    raw = encode(value)
    assert decode(raw) == value
    assert encode(decode(raw)) == raw
    assert isinstance(decode(raw), cls)


@KINDS
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_every_flipped_bit_and_every_truncation_is_noticed(cls, data):
    encode, decode = FILES[cls]
    raw = encode(data.draw(any_of(cls)))
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << data.draw(st.integers(0, 7)) if at < 40 else 1 << at % 8
        with pytest.raises(FormatError):
            decode(bytes(damaged))
        with pytest.raises(FormatError):
            decode(raw[:at])
    with pytest.raises(FormatError):
        decode(raw + b"\0")


@KINDS
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_hostile_payloads_with_a_good_checksum_do_no_harm(cls, data):
    encode, decode = FILES[cls]
    raw = bytearray(encode(data.draw(any_of(cls))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(24, len(raw) - 4))
        raw[at:at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=9) | st.just(b"\xff" * 8))
    hostile = sealed_again(bytes(raw) + bytes(4))
    try:
        value = decode(hostile)
    except FormatError as error:
        assert 0 <= error.offset <= len(hostile)
    else:
        assert decode(encode(value)) == value


@KINDS
@given(junk=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_junk_is_refused(cls, junk):
    with pytest.raises(FormatError):
        FILES[cls][1](junk)


def test_a_file_of_one_kind_is_not_another():
    raw = files.encode_head(records.Head(1))
    for cls, (_, decode) in FILES.items():
        if cls is not records.Head:
            with pytest.raises(FormatError) as caught:
                decode(raw)
            assert caught.value.offset == 0


def test_a_huge_count_allocates_nothing():
    body = struct.pack("<8sIIQ", b"mtmrOFFS", 1, 0x01020304, 32) + struct.pack("<QQQQ", 1, 1, 1, 2**60)
    raw = body + struct.pack("<I", zlib.crc32(body))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="announced"):
            files.decode_offsets(raw)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


RECORDS = [each for each in vars(files).values() if isinstance(each, codec.Record)]


@contextmanager
def one_by_one(is_so: bool) -> Iterator[None]:
    """Records field by field, or by the code that is made where there are many of them."""
    def set_all(left: int) -> None:
        for each in RECORDS:
            each.__dict__.pop("get", None)
            each.__dict__.pop("put", None)
            each._left = each._written = left

    set_all(1 << 60 if is_so else 0)
    try:
        yield
    finally:
        set_all(codec._ONE_BY_ONE)


def outcome(record: codec.Record, payload: bytes, anchor: bytes) -> object:
    """What is read and up to where, or what is said of it."""
    reader = codec.Reader(payload, 0, len(payload), anchor)
    try:
        return record.get(reader), reader.pos
    except (FormatError, UnicodeDecodeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.cls.__name__)
@given(data=st.data(), anchor=st.sampled_from([b"", b"/", b"/a", b"/a/b"]))
@settings(max_examples=40, deadline=None)
def test_many_records_are_read_and_written_as_one_by_one(record, data, anchor):
    value = data.draw(any_of(record.cls))
    at, change = data.draw(st.integers(0, 2**16)), data.draw(st.integers(0, 255))
    said = []
    for is_so in (True, False):
        with one_by_one(is_so):
            out = codec.Output()
            out.anchor = anchor
            record.put(out, value)
            payload = bytearray(b"".join(out))
            said.append([bytes(payload), outcome(record, bytes(payload), anchor)])
            payload[at % len(payload)] = change
            said[-1] += [outcome(record, bytes(payload), anchor), outcome(record, bytes(payload[:-1]), anchor),
                         outcome(record, bytes(payload[:at % len(payload)]), anchor)]
    assert said[0] == said[1]


def test_what_does_not_fit_is_refused_alike():
    bad = [records.Identity(b"/a", -1, 2, 3, 4, 5), records.NameEntry(b"/", "no"),
           records.NameEntry(b"/", "file", 1, -1)]
    for value in bad:
        record = next(each for each in RECORDS if each.cls is type(value))
        said = []
        for is_so in (True, False):
            with one_by_one(is_so), pytest.raises((ValueError, AttributeError, TypeError)) as error:
                record.put(codec.Output(), value)
            said.append((error.type, str(error.value)))
        assert said[0] == said[1]
