"""Code that reads or writes one kind of record, made when there are many of them: no call for each field.

It takes what is in order. Everything else it leaves to `Record.read` and `Record.write`, which it stands for, from the
record's beginning: these say what is wrong. So whatever it gives is what they give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_AGAIN = "return again(reader, start)"
_LENGTH = f"""
stop = pos + 4
if stop > end: {_AGAIN}
length, = count(data, pos)
pos = stop + length
if pos > end: {_AGAIN}
{{0}} = data[stop:pos]"""
# a path that begins with "./" is one below the anchor, what has a part that begins with "." is looked at
_PATH = _LENGTH + """
if anchor and {0}[:2] == b"./" and {0}[2:3] != b"/" and len({0}) > 2: {0} = anchor + {0}[1:]
if {0}[:1] != b"/" or {0}[-1:] == b"/" or b"//" in {0} or b"/." in {0} or b"\\0" in {0}:
    reader.pos = stop - 4
    {0} = {0}_codec(reader)"""
_CHOICE = f"""
if pos >= end or data[pos] >= len({{0}}_words): {_AGAIN}
{{0}} = {{0}}_words[data[pos]]
pos += 1"""
_MANY = """
if data[pos:pos + 4] == b"\\0\\0\\0\\0" and pos + 4 <= end:
    pos, {0} = pos + 4, ()
else:
    reader.pos = pos
    {0} = {0}_codec(reader)
    pos = reader.pos"""
_OTHER = """
reader.pos = pos
{0} = {0}_codec(reader)
pos = reader.pos"""
_KINDS = {"bytes": _LENGTH, "path": _PATH, "choice": _CHOICE, "many": _MANY}


def _kind(codec: Any) -> str:
    """What the class of a codec itself says; one that only inherits it reads in another way."""
    kind: str = vars(type(codec)).get("quick", "other")
    return kind


def reader_of(record: Any, count: Callable[[bytes, int], tuple[int]]) -> Callable[[Any], Any]:
    """What gives the same as the `read` of a Record, which has no optional fields. count: unpacks a length."""
    assert not record.optional

    def again(reader: Any, start: int) -> Any:
        reader.pos = start
        return record.read(reader)

    scope: dict[str, Any] = {"again": again, "count": count, "cls": record.cls}
    lines = ["data, end, anchor, start = reader.data, reader.end, reader.anchor, reader.pos", "pos = start"]
    for number, (form, names, codec) in enumerate(record.steps):
        if form is not None:
            scope[f"form{number}"] = form.unpack_from
            lines += [f"stop = pos + {form.size}", f"if stop > end: {_AGAIN}",
                      f"{', '.join(f'v_{name}' for name in names)}, = form{number}(data, pos)", "pos = stop"]
            continue
        scope[f"v_{names[0]}_codec"] = codec.get
        if _kind(codec) == "choice":
            scope[f"v_{names[0]}_words"] = codec.words
        lines += _KINDS.get(_kind(codec), _OTHER).format(f"v_{names[0]}").split("\n")
    fields = [f"v_{name}" for _, names, _ in record.steps for name in names]
    lines += ["reader.pos = pos", f"return cls({', '.join(fields)})"]
    exec("\n    ".join(["def read(reader):", *lines]), scope)
    read: Callable[[Any], Any] = scope["read"]
    return read


# what has to be worked out of a field's value {0} first, and the pieces of the file that it becomes
_PUT_LENGTH = "", "count(len({0})), {0}"
_PUT_PATH = """
if anchor and {0}.startswith(anchor) and {0}[size:size + 1] == b"/": {0} = b"." + {0}[size:]
elif anchor and ({0} == anchor or {0}[:2] == b"./"): raise ValueError""", "count(len({0})), {0}"
_PUT_CHOICE = "", "{0}_codes[{0}]"
_PUT_MANY = "", "made({0}_codec, {0}, anchor) if {0} else count(0)"
_PUT_OTHER = "", "made({0}_codec, {0}, anchor)"
_PUTS = {"bytes": _PUT_LENGTH, "path": _PUT_PATH, "choice": _PUT_CHOICE, "many": _PUT_MANY}


def writer_of(record: Any, count: Callable[[int], bytes], output: Callable[[], Any]
              ) -> Callable[[list[bytes], Any], None]:
    """What does the same as the `write` of a Record. count: packs a length; output: what a file's pieces gather in."""
    def made(put: Callable[[list[bytes], Any], None], value: Any, anchor: bytes) -> bytes:
        out = output()
        out.anchor = anchor
        put(out, value)
        return b"".join(out)

    scope: dict[str, Any] = {"again": record.write, "count": count, "made": made}
    lines, pieces = list[str](), list[str]()
    for number, (form, names, codec) in enumerate(record.steps):
        if form is not None:
            scope[f"form{number}"] = form.pack
            pieces.append(f"form{number}({', '.join(f'value.{name}' for name in names)})")
            continue
        name = f"v_{names[0]}"
        scope[f"{name}_codec"] = codec.put
        if _kind(codec) == "choice":
            scope[f"{name}_codes"] = codec.codes
        before, become = _PUTS.get(_kind(codec), _PUT_OTHER)
        lines += [f"{name} = value.{names[0]}", *before.format(name).split("\n")]
        pieces.append(become.format(name))
    body = "\n        ".join([*lines, f"found = ({', '.join(pieces)},)"])
    exec(f"""
def put(out, value):
    anchor = getattr(out, "anchor", b"")
    size = len(anchor)
    try:
        {body}
    except Exception:
        return again(out, value)
    out += found""", scope)
    put: Callable[[list[bytes], Any], None] = scope["put"]
    return put
