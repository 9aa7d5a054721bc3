"""The description of the formats (docs/reference/store.md shows it) and the codecs have the same fields, in order."""

from __future__ import annotations

import re
from typing import Any

import pytest

from metamori.store.format import files
from metamori.store.format.codec import Bytes, Choice, Number, Record, Text

RECORDS = {"process": files._PROCESS, "name": files._NAME, "pif": files._PIF, "fit": files._FIT,
           "launch": files._LAUNCH, "memory": files._MEMORY, "mapped": files._MAPPED,
           "descriptor": files._DESCRIPTOR, "inherited": files._INHERITED, "identity": files._IDENTITY,
           "kept": files._KEPT, "write": files._WRITE, "size": files._SIZE, "change": files._CHANGE,
           "attributes": files._ATTRIBUTES, "mtmrMETA": files._META, "mtmrHEAD": files._HEAD,
           "mtmrNUMS": files._NUMBERS, "mtmrMOVE": files._INTENT}
TYPES = {"u32": "I", "u64": "Q", "i32": "i", "i64": "q"}
OTHER = ("initial_names", "initial_pifs", "names", "xattrs", "identities")    # described by the type of their items


def described(what: str) -> list[tuple[str, str]]:
    """(type, field) in order; a list that is given its type only has an empty field."""
    text = files.__doc__ or ""
    if what.startswith("mtmr"):
        found = re.search(rf'^"{what}".*\n((?:    .*\n)+)', text, re.MULTILINE)
    else:
        found = re.search(rf"^  {what} +(.*\n(?: {{8,}}.*\n)*)", text, re.MULTILINE)
    assert found, what
    body = re.sub(r"\([^()]*\)", "", found[1].split(";")[0].split(": 64")[0].replace("\n", " "))
    parts = [part.split() for part in body.split(",") if part.strip()]
    return [(words[0], words[1] if len(words) > 1 else "") for words in parts]


def fields(record: Record) -> list[tuple[str, str]]:
    """(the description's word for its type, name) of each field; "list" for what is made of others."""
    letters = {letter: word for word, letter in TYPES.items()}
    found = []
    for form, names, codec in record.steps:
        if form is not None:
            found += [(letters[letter], name) for letter, name in zip(form.format.strip("<"), names)]
        else:
            found.append((kind(codec), names[0]))
    return found


def kind(codec: Any) -> str:
    if isinstance(codec, Choice):
        return "bool" if codec.words == (False, True) else "u8"
    if isinstance(codec, Text):
        return "text"
    if isinstance(codec, Number):
        return {letter: word for word, letter in TYPES.items()}[codec.form.format.strip("<")]
    return "bytes" if isinstance(codec, Bytes) else "list"


@pytest.mark.parametrize("what", RECORDS)
def test_the_description_has_the_codec_s_fields(what: str) -> None:
    real, written = fields(RECORDS[what]), described(what)
    assert len(written) == len(real), (written, real)
    for (word, field), (codec, name) in zip(written, real):
        if codec == "list":
            assert word.endswith("[]") or word in RECORDS or word == "numbers", (word, name)
        else:
            assert word == codec, (word, name)
        said = (field or word.rstrip("[]")).rstrip("s")
        alike = name.rstrip("s").startswith(said) or said.startswith("xattr") or name in OTHER
        assert name == field or alike, (field, name)
