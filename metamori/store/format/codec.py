"""The building blocks of files.py: little-endian fields, lists, and the envelope with its checksum.

A codec has `put(out, value)`, which appends bytes to the list `out`; `get(reader)`, which takes a value off;
and `least`, the fewest bytes that a value takes, so that no count read from a file can make us allocate
more than a small multiple of that file's size.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable
from itertools import chain
from operator import ge, ne, sub

from metamori.store.format.row_table import Table
from metamori.tables.pif import nearest_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol
else:
    Protocol = object

VERSION = 2                                # 1: no path is relative
ORDER_MARK = 0x01020304
_ENVELOPE = struct.Struct("<8sIIQ")
_CRC = struct.Struct("<I")
COUNT = struct.Struct("<I")
_ONE_BY_ONE = 200                          # records of a kind, before there is code for them (quick.py)
_ROWS = struct.Struct("<Q")


class FormatError(ValueError):
    """The bytes are not what the format says; `offset` is the byte of the file where that shows."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.offset = offset


class StoreNumber(int):
    """A store's own number. anchor: the folder that its paths are relative to, absolute; empty: all are absolute."""

    anchor = b""


class Output(list[bytes]):
    """The pieces of a file. anchor: as in StoreNumber."""

    anchor = b""


class Reader:
    """Takes values off `data` from `pos` on; never past `end`."""

    __slots__ = ("anchor", "data", "end", "pos")

    def __init__(self, data: bytes, pos: int, end: int, anchor: bytes = b"") -> None:
        self.data, self.pos, self.end, self.anchor = data, pos, end, anchor

    def advance(self, nbytes: int) -> int:
        """Step over `nbytes`; returns where they begin. FormatError when there are not so many."""
        start = self.pos
        if nbytes > self.end - start:
            raise FormatError(f"{nbytes} bytes announced, {self.end - start} there", start)
        self.pos = start + nbytes
        return start

    def count(self, form: struct.Struct, least: int) -> int:
        """A number of items that take at least `least` bytes each, checked against what is left."""
        number: int = form.unpack_from(self.data, self.advance(form.size))[0]
        if number * least > self.end - self.pos:
            raise FormatError(f"{number} items announced, {self.end - self.pos} bytes there", self.pos)
        return number


class Codec(Protocol):
    least: int

    def put(self, out: list[bytes], value: Any) -> None: ...

    def get(self, reader: Reader) -> Any: ...


class Bytes:
    """u32 length, then that many bytes."""

    least = 4
    quick = "bytes"                        # how quick.py reads and writes it

    def put(self, out: list[bytes], value: bytes) -> None:
        out.append(COUNT.pack(len(value)))
        out.append(value)

    def get(self, reader: Reader) -> bytes:
        length = reader.count(COUNT, 1)
        return reader.data[reader.advance(length):reader.pos]


class Text(Bytes):
    """Bytes that are UTF-8; what is not comes and goes as surrogate escapes, as in file names."""

    def put(self, out: list[bytes], value: str) -> None:  # type: ignore[override]
        super().put(out, value.encode("utf-8", "surrogateescape"))

    def get(self, reader: Reader) -> str:  # type: ignore[override]
        return super().get(reader).decode("utf-8", "surrogateescape")


class Place(Bytes):
    """An absolute path, or what was given for one. One at or below the anchor is "./" and the rest; what begins
    with "./" itself is ".//" and the rest."""

    def put(self, out: list[bytes], value: bytes) -> None:
        anchor = getattr(out, "anchor", b"")
        if anchor and value.startswith(anchor) and value[len(anchor):len(anchor) + 1] in (b"", b"/"):
            value = b"." + (value[len(anchor):] or b"/")
        elif anchor and value.startswith(b"./"):
            value = b".//" + value[2:]
        super().put(out, value)

    def get(self, reader: Reader) -> bytes:
        path = super().get(reader)
        if not reader.anchor or not path.startswith(b"./"):
            return path
        return b"./" + path[3:] if path.startswith(b".//") else reader.anchor + (path[1:] if len(path) > 2 else b"")


class Path(Place):
    """As the kernel gives it: no empty part, no "." and no "..". Or nothing at all."""

    quick = "path"

    def get(self, reader: Reader) -> bytes:
        at = reader.pos
        path = super().get(reader)
        if path and path != b"/":
            parts = path.split(b"/")
            if parts[0] or b"" in parts[1:] or b"." in parts or b".." in parts or b"\0" in path:
                raise FormatError("not a path", at)
        return path


class Name(Bytes):
    """Bytes that are a name in a folder. Or nothing at all."""

    def get(self, reader: Reader) -> bytes:
        at = reader.pos
        name = super().get(reader)
        if b"/" in name or b"\0" in name or name in (b".", b".."):
            raise FormatError("not a name", at)
        return name


class Choice:
    """u8: position in a fixed list of words."""

    least = 1
    quick = "choice"

    def __init__(self, *words: Any) -> None:
        self.words = words
        self.codes = {word: bytes((code,)) for code, word in enumerate(words)}

    def put(self, out: list[bytes], value: Any) -> None:
        if value not in self.codes:
            raise ValueError(f"{value!r} is none of {self.words}")
        out.append(self.codes[value])

    def get(self, reader: Reader) -> Any:
        at = reader.advance(1)
        code = reader.data[at]
        if code >= len(self.words):
            raise FormatError(f"code {code}, the highest known is {len(self.words) - 1}", at)
        return self.words[code]


class Number:
    """One number, by its struct letter."""

    def __init__(self, letter: str) -> None:
        self.form = struct.Struct("<" + letter)
        self.least = self.form.size

    def put(self, out: list[bytes], value: int) -> None:
        try:
            out.append(self.form.pack(value))
        except struct.error as error:
            raise ValueError(f"{value!r}: {error}") from error

    def get(self, reader: Reader) -> int:
        number: int = self.form.unpack_from(reader.data, reader.advance(self.least))[0]
        return number


class Pair:
    """Two values, a plain tuple."""

    def __init__(self, first: Codec, second: Codec) -> None:
        self.first, self.second = first, second
        self.least = first.least + second.least

    def put(self, out: list[bytes], value: tuple[Any, Any]) -> None:
        first, second = value
        self.first.put(out, first)
        self.second.put(out, second)

    def get(self, reader: Reader) -> tuple[Any, Any]:
        return self.first.get(reader), self.second.get(reader)


class Many:
    """u32 number of items, then the items."""

    least = 4
    quick = "many"

    def __init__(self, item: Codec) -> None:
        self.item = item

    def put(self, out: list[bytes], value: Iterable[Any]) -> None:
        values = tuple(value)
        out.append(COUNT.pack(len(values)))
        item = self.item
        for each in values:
            item.put(out, each)

    def get(self, reader: Reader) -> tuple[Any, ...]:
        number, item = reader.count(COUNT, self.item.least), self.item
        return tuple([item.get(reader) for _ in range(number)])


class Rows:
    """u64 number of rows, then rows of u64 only, written and checked in bulk, made when they are looked at.

    `ranges` are pairs of columns (start, end), each with start < end; all of one row are equally long.
    """

    least = 8

    def __init__(self, cls: Any, *ranges: tuple[int, int]) -> None:
        self.width = len(cls._fields)
        self.row = struct.Struct(f"<{self.width}Q")
        self.cls = cls
        self.ranges = ranges

    def put(self, out: list[bytes], value: Any) -> None:
        try:
            cells = array("Q", chain.from_iterable(value))
        except OverflowError as error:
            raise ValueError(f"{self.cls.__name__}: {error}") from error
        bad = self.fault(cells)
        if bad >= 0:
            raise ValueError(f"a range that is empty or not as long as its other: {value[bad]}")
        if sys.byteorder == "big":
            cells.byteswap()
        out.append(_ROWS.pack(len(value)))
        out.append(cells.tobytes())

    def get(self, reader: Reader) -> Table:
        nbytes = reader.count(_ROWS, self.row.size) * self.row.size
        start = reader.advance(nbytes)
        body = reader.data[start:reader.pos]
        cells = array("Q", body)
        if sys.byteorder == "big":
            cells.byteswap()
        bad = self.fault(cells)
        if bad >= 0:
            at = start + bad * self.row.size
            raise FormatError("a range that is empty or not as long as its other", at)
        return Table(self.cls, body)

    def fault(self, cells: array[int]) -> int:
        """The first row that breaks the rule of `ranges`, or -1."""
        columns = [(cells[low::self.width], cells[high::self.width]) for low, high in self.ranges]
        low, high = columns[0]
        if any(map(ge, low, high)):
            return next(row for row, pair in enumerate(zip(low, high, strict=True)) if ge(*pair))
        for other, end in columns[1:]:
            if any(map(ne, map(sub, high, low), map(sub, end, other))):
                return next(row for row, (a, b, c, d) in enumerate(zip(low, high, other, end, strict=True))
                            if b - a != d - c)
        return -1


class Record:
    """The fields of a class in their order. A field is a struct letter or a codec; letters go in one step."""

    def __init__(self, cls: Any, **parts: str | Codec) -> None:
        names = cls._fields
        assert tuple(parts) == names, (cls, parts, names)
        self.cls = cls
        self.steps: list[tuple[struct.Struct | None, tuple[str, ...], Any]] = []
        letters: list[tuple[str, str]] = []
        for name, part in [*parts.items(), ("", None)]:
            if isinstance(part, str):
                letters.append((name, part))
                continue
            if letters:
                form = struct.Struct("<" + "".join(letter for _, letter in letters))
                self.steps.append((form, tuple(each for each, _ in letters), None))
                letters = []
            if part is not None:
                self.steps.append((None, (name,), part))
        self.least = sum(form.size if form else codec.least for form, _, codec in self.steps)
        self.optional: frozenset[str] = frozenset()
        self._left = self._written = _ONE_BY_ONE

    def later(self, *names: str) -> Record:
        """The last fields, left out while they are empty or 0, which the class says too: older files end without
        them, and an older program reads what has nothing new in it. For a file's own record."""
        self.optional = frozenset(names)
        self.least -= sum(codec.least for form, given, codec in self.steps if not form and given[0] in self.optional)
        return self

    def put(self, out: list[bytes], value: Any) -> None:
        self._written -= 1
        if self._written < 0 and not self.optional:
            from metamori.store.format import quick

            self.put = quick.writer_of(self, COUNT.pack, Output)   # type: ignore[assignment,method-assign]
            return self.put(out, value)
        return self.write(out, value)

    def write(self, out: list[bytes], value: Any) -> None:
        """One field after the other."""
        steps = self.steps
        while steps[-1][1][0] in self.optional and not getattr(value, steps[-1][1][0]):
            steps = steps[:-1]
        for form, names, codec in steps:
            if form is None:
                codec.put(out, getattr(value, names[0]))
                continue
            given = [nearest_ns(getattr(value, name)) if name == "mtime_ns" else getattr(value, name) for name in names]
            try:
                out.append(form.pack(*given))
            except struct.error as error:
                raise ValueError(f"{self.cls.__name__} ({', '.join(names)}): {error}") from error

    def get(self, reader: Reader) -> Any:
        self._left -= 1
        if self._left < 0 and not self.optional:
            from metamori.store.format import quick

            self.get = quick.reader_of(self, COUNT.unpack_from)   # type: ignore[assignment,method-assign]
            return self.get(reader)
        return self.read(reader)

    def read(self, reader: Reader) -> Any:
        """One field after the other."""
        values: list[Any] = []
        for form, names, codec in self.steps:
            if form is None:
                if names[0] in self.optional and reader.pos == reader.end:
                    break
                values.append(codec.get(reader))
            else:
                values.extend(form.unpack_from(reader.data, reader.advance(form.size)))
        return self.cls(*values)


def seal(magic: bytes, codec: Codec, value: Any, store: int) -> bytes:
    """The bytes of a whole file of a store. ValueError when a field does not fit its place."""
    out = Output([b""])
    out.anchor = getattr(store, "anchor", b"")
    codec.put(out, value)
    out[0] = _ENVELOPE.pack(magic, VERSION if out.anchor else 1, ORDER_MARK, sum(map(len, out)))
    data = b"".join(out)
    return data + _CRC.pack(zlib.crc32(data, store))


def unseal(magic: bytes, codec: Codec, data: bytes, store: int) -> Any:
    """The value of a whole file's bytes; FormatError unless every byte is as it was written."""
    if len(data) < _ENVELOPE.size + _CRC.size:
        raise FormatError("the file is too short for its envelope", len(data))
    found, version, order, length = _ENVELOPE.unpack_from(data)
    if found != magic:
        raise FormatError(f"this file begins with {found!r}, not {magic!r}", 0)
    if order != ORDER_MARK:
        raise FormatError("byte order mark", 12)
    if not 0 < version <= VERSION:
        raise FormatError(f"format version {version}; this program knows {VERSION}", 8)
    end = _ENVELOPE.size + length
    if len(data) != end + _CRC.size:
        raise FormatError(f"{end + _CRC.size} bytes announced, the file has {len(data)}", 16)
    if zlib.crc32(memoryview(data)[:end], store) != _CRC.unpack_from(data, end)[0]:
        raise FormatError("the checksum is not this store's", end)
    reader = Reader(data, _ENVELOPE.size, end, getattr(store, "anchor", b"") if version > 1 else b"")
    value = codec.get(reader)
    if reader.pos != end:
        raise FormatError(f"{end - reader.pos} bytes after the last field", reader.pos)
    return value
