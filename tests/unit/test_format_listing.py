"""The listing of the store's files, byte by byte, says of every record what its codec does: the fields, their types and
order, the codes of words, the bytes of a row. It is the head of store/format/files.py, which the manual shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from metamori.store.format import codec, files

FILES = {"mtmrMETA": files._META, "mtmrOFFS": files._OFFSETS, "mtmrUNDO": files._UNDO, "mtmrHEAD": files._HEAD,
         "mtmrMOVE": files._INTENT, "mtmrNUMS": files._NUMBERS, "mtmrPRUN": files._PRUNING}
WITHOUT_FIELDS = {"mtmrRUNS", "mtmrMEMO"}      # "a launch as in a meta file"; shim_c/src/memory/image.h
PARTS = {"process": files._PROCESS, "name": files._NAME, "pif": files._PIF, "fit": files._FIT, "launch": files._LAUNCH,
         "memory": files._MEMORY, "mapped": files._MAPPED, "descriptor": files._DESCRIPTOR,
         "family": files._FAMILY, "shared": files._SHARED, "segment": files._SEGMENT,
         "inherited": files._INHERITED, "identity": files._IDENTITY, "kept": files._KEPT, "write": files._WRITE,
         "size": files._SIZE, "change": files._CHANGE, "attributes": files._ATTRIBUTES,
         "offset": files._OFFSETS.steps[-1][2], "undo": files._UNDO.steps[-1][2], "hole": files._PRUNING.steps[-1][2]}
NUMBERS = {"I": "u32", "Q": "u64", "i": "i32", "q": "i64"}


def type_of(part: Any) -> str:
    """A codec, in the words of the listing."""
    if isinstance(part, codec.Many):
        return f"{type_of(part.item)}[]"
    if isinstance(part, codec.Pair):
        numbered = "piece" if isinstance(part.second, codec.Bytes) else "limit"
        return "xattr" if isinstance(part.first, codec.Bytes) else numbered
    if isinstance(part, codec.Number):
        return NUMBERS[part.form.format[1:]]
    if isinstance(part, codec.Choice):
        return "bool" if part.words == (False, True) else "u8"
    if isinstance(part, codec.Text):
        return "text"
    if isinstance(part, codec.Bytes):
        return "bytes"
    if part is files._NUMBERS:
        return "numbers"
    name = next(name for name, known in PARTS.items() if known is part)
    return f"{name}[[]]" if isinstance(part, codec.Rows) else name


def fields(part: Any) -> Iterator[str]:
    """Of a record or of the rows of one: `type name`, and the codes of a choice."""
    if isinstance(part, codec.Rows):
        yield from (f"u64 {name}" for name in part.cls._fields)
        return
    for form, names, inner in part.steps:
        if form is not None:
            yield from (f"{NUMBERS[letter]} {name}" for name, letter in zip(names, form.format[1:], strict=True))
            continue
        codes = getattr(inner, "words", (False, True))
        said = "" if codes == (False, True) else f" ({', '.join(f'{code} {word}' for code, word in enumerate(codes))})"
        yield f"{type_of(inner)} {names[0]}{said}"


def listed(text: str) -> dict[str, tuple[list[str], int]]:
    """Record -> its fields as they stand in the listing, and the bytes that it says a row has (0: nothing said)."""
    found = {}
    for section in re.split(r'\n(?="mtmr)', text)[1:]:
        magic, rest = section[1:9], section.partition("\n")[2].split("\n\n")[0]
        if magic in WITHOUT_FIELDS:
            continue
        for each in re.split(r"\n(?=  \w)", "\n" + rest):
            name, _, body = each.strip().partition(" ") if re.match(r"  \w", each) else (magic, "", each)
            flat = " ".join(body.split())
            nbytes = re.search(r": (\d+) bytes;", flat)
            kept = re.sub(r" ?\((?!0 \w+, 1 )[^()]*\) ?", " ", flat).strip()      # all remarks but codes
            until = re.split(r"[;:]", kept)[0].strip()
            found[name] = ([one.strip() for one in re.split(r", (?![^(]*\))", until)], int(nbytes[1]) if nbytes else 0)
    return found


def differences(text: str) -> list[str]:
    said, wrong = listed(text), []
    for name, part in {**FILES, **PARTS}.items():
        now, (given, nbytes) = list(fields(part)), said.get(name, ([], 0))
        # a list of records is often named by its type alone; what has two words in the listing has one in the code
        alike = len(now) == len(given) and all(
            one == other or one.split()[0] == other or one == re.sub(r"(\[\] \w+) ", r"\1_", other)
            for one, other in zip(now, given, strict=True))
        if not alike or (isinstance(part, codec.Rows) and nbytes != part.row.size):
            wrong.append(f"{name}: the codec has {now}, the listing {given}, {nbytes} bytes")
    return wrong + [f"{name}: no codec is known" for name in said.keys() - {*FILES, *PARTS}]


def test_the_listing_is_what_the_codec_does() -> None:
    assert differences(files.__doc__ or "") == []


@pytest.mark.parametrize(("old", "new"), [
    ("u64 pid, u64 start_time", "u64 start_time, u64 pid"), ("u32 umask, limit[]", "u64 umask, limit[]"),
    (", bytes kept", ""), ("1 file, 2 dir", "1 dir, 2 file"), ("48 bytes", "40 bytes"), ("hole[[]]", "hole[]"),
    ("mapped[], ", ""),
])
def test_what_differs_is_found(old: str, new: str) -> None:
    text = files.__doc__ or ""
    assert old in text
    assert len(differences(text.replace(old, new, 1))) == 1
