"""What is fuzzed: everything that reads foreign bytes. A target may answer, or refuse with
one of Metamori's own errors.

What it must never do: raise anything else, allocate far more than it was given, touch a file outside its folder.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import io
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import killed

from metamori.cli import main as command_line
from metamori.config import Config, parse_count, parse_duration, parse_size
from metamori.errors import MetamoriError, Usage
from metamori.levels.setup import settings as fti_settings
from metamori.runtime.area import name_journal
from metamori.runtime.area import wal as run_log
from metamori.runtime.lifecycle import elf
from metamori.store.format import files as formats
from metamori.store.format.layout import format_line
from metamori.store.io.os_io import REAL
from metamori.store.read import image as memory_image
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import export, restore

DECODERS = [formats.decode_meta, formats.decode_offsets, formats.decode_undo, formats.decode_head,
            formats.decode_intent, formats.decode_numbers, formats.decode_pruning]
MAGIC = [b"mtmrMETA", b"mtmrOFFS", b"mtmrUNDO", b"mtmrHEAD", b"mtmrMOVE", b"mtmrNUMS", b"mtmrPRUN"]
NAMES = ["checkpoints/1.meta.1", "checkpoints/1.offset.1", "checkpoints/1.undo.1", "head", "intent", "counters",
         "prune", "checkpoints/2.meta.1", "checkpoints/2.offset.1", "buffer/1", "kept/1", "format"]
WORDS = ["run", "log", "show", "diff", "cat", "restore", "verify", "prune", "config", "checkpoint", "--json", "--to",
         "0", "1", "--help", "--force", "--", "--store", "-m", "--every", "--cache-size"]


def sealed(magic: bytes, payload: bytes) -> bytes:
    """With an envelope that fits, so that the fuzzer reaches the fields."""
    body = magic + struct.pack("<IIQ", 1, 0x01020304, len(payload)) + payload
    return body + struct.pack("<I", zlib.crc32(body, 1))


def decode(data: bytes) -> None:
    """One store file."""
    which = data[0] % len(DECODERS) if data else 0
    try:
        DECODERS[which](sealed(MAGIC[which], data[1:]), 1)
    except formats.FormatError as error:
        assert 0 <= error.offset <= len(data) + 28
    with contextlib.suppress(formats.FormatError):
        DECODERS[which](data)


# in memory where that is possible: making and removing files is most of what a target does
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
ROOT = Path(tempfile.mkdtemp(prefix="metamori-fuzz-", dir=_MEMORY))
atexit.register(shutil.rmtree, ROOT, ignore_errors=True)
_outside = ROOT / "outside"


def _emptied(folder: Path) -> None:
    """The store's folders stay: only files and copies go."""
    for path in (*folder.glob("store/*"), *folder.glob("store/*/*")):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
    for copy in folder.glob("copy*"):
        shutil.rmtree(copy, ignore_errors=True)


def _plant(data: bytes) -> Path:
    """A whole store: pieces of the data, each at a name, with envelopes that fit."""
    base = ROOT / "base"
    _emptied(base)
    for folder in ("checkpoints", "buffer", "kept"):
        (base / "store" / folder).mkdir(parents=True, exist_ok=True)
    files = {"format": format_line(1), "head": sealed(b"mtmrHEAD", struct.pack("<QIIQQ", 0, 0, 0, 0, 0))}
    while len(data) > 3:
        which, length = data[0] % len(NAMES), data[1] + 256 * data[2]
        payload, data = data[3:3 + length], data[3 + length:]
        name = NAMES[which]
        kind = {"meta": 0, "offset": 1, "undo": 2}.get(name.split(".")[1] if "." in name else "", which)
        files[name] = sealed(MAGIC[kind], payload) if which < 9 else payload
    for name, raw in files.items():
        (base / "store" / name).write_bytes(raw)
    return base


def store(data: bytes) -> None:
    """A store from a stranger: looked at, copied out, checked. Nothing outside the folder changes."""
    base = _plant(data)
    _outside.mkdir(exist_ok=True)
    (_outside / "mine").write_bytes(b"mine")
    try:
        with Store.open(str(base / "store")) as opened:
            verify(opened)
            for index in (0, 1, 2):
                with contextlib.suppress(MetamoriError, OSError):
                    export.export(opened, index, str(base / f"copy{index}"))
                with contextlib.suppress(MetamoriError):
                    restore.plan(opened, index)
    except MetamoriError:
        pass
    assert set(os.listdir(ROOT)) <= {"base", "outside", "image", "program", "run", "killed"}, os.listdir(ROOT)
    assert sorted(os.listdir(_outside)) == ["mine"] and (_outside / "mine").read_bytes() == b"mine"


def words(data: bytes) -> None:
    """The command line, without a store to work on and without running anything."""
    text = data.decode("utf-8", "surrogateescape").split("\0")
    argv = [WORDS[ord(each[0]) % len(WORDS)] if len(each) == 1 else each for each in text if each]
    if argv[:1] in (["run"], ["doctor"]):
        argv = argv[:1] + ["--help"] if argv[0] == "run" else ["log"]
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        try:
            code = command_line.main([*argv[:1], "--store", str(ROOT / "none"), *argv[1:]] if argv else argv)
        except SystemExit as done:          # --help
            code = int(done.code or 0)
    assert code in (0, 1, 2, 10, 11, 12, 13, 14, 15), (argv, code)


def settings(data: bytes) -> None:
    """Sizes, durations, the environment."""
    text = data.decode("utf-8", "surrogateescape")
    for parse in (parse_size, parse_duration, parse_count):
        with contextlib.suppress(Usage):
            parse(text)
    with contextlib.suppress(MetamoriError):
        names = ("CACHE_SIZE", "EVERY", "MODE", "DURABILITY", "TRACK", "ISOLATE", "MAX_BYTES", "KEEP_LAST")
        Config.make({}, {f"METAMORI_{name}": text for name in names})


def fti(data: bytes) -> None:
    """The levels' configuration file, which is also written to: what is written says the same and no more."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        before = fti_settings.parse(text)
    except Usage:
        return
    after = fti_settings.parse(fti_settings.rewritten(text, 1, "2026-11-21"))
    assert (after.failure, after.exec_id) == (1, "2026-11-21")
    assert replace(after, failure=before.failure, exec_id=before.exec_id) == before


def image(data: bytes) -> None:
    """A process's memory: the tables of an image, two of which are merged."""
    ROOT.joinpath("image").mkdir(exist_ok=True)
    made = []
    for number, payload in enumerate((data[:len(data) // 2], data[len(data) // 2:])):
        path = ROOT / "image" / str(number)
        path.write_bytes(b"mtmrMEMO" + struct.pack("<IIQ", 2, 0x01020304, len(payload)) + payload)
        try:
            made.append(memory_image.read(REAL, os.fsencode(path)))
        except MetamoriError:
            return
    try:
        size, _ = memory_image.merge(REAL, made, 0, os.fsencode(ROOT / "image" / "merged"))
    except MetamoriError:
        return
    assert size <= 4096 + 2 * len(data) ** 2


def program(data: bytes) -> None:
    """What `run` and `doctor` look at before they start a program: ELF, or the line of its interpreter."""
    path = ROOT / "program"
    path.write_bytes(data)
    assert len(elf.look(str(path)).why) < 1000


def ahead(data: bytes) -> None:
    """What a power cut left of a run: its log with records that fit, torn ones between them, and notes of names."""
    folder = ROOT / "run"
    (folder / "notes").mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        if not path.is_dir():
            path.unlink()
    log, rest = b"", data
    while len(rest) > 2:
        kind, length = rest[0], min(rest[1] * 8, len(rest) - 2) // 8 * 8
        piece, rest = rest[2:2 + length], rest[2 + length:]
        if kind % 3 == 2:
            name = os.fsencode(f"{kind:x}.{kind % 2}.{kind % 5:x}.") + base64.urlsafe_b64encode(piece)[:200]
            (folder / "notes" / os.fsdecode(name)).touch()
            continue
        whole = struct.pack("=III", 0x6461654D, 12 + len(piece), zlib.crc32(piece)) + piece
        log += whole if kind % 3 else piece
    (folder / "ahead").write_bytes(log)
    assert len(run_log.read(str(folder))) <= len(log)
    assert len(name_journal.surviving(bytes(8) + data)) <= len(data)
    assert len(name_journal.named(str(folder / "notes"))) <= len(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decode": decode, "store": store, "words": words, "settings": settings, "fti": fti, "image": image,
    "program": program, "ahead": ahead, "killed": lambda data: killed.area(ROOT / "killed", data),
    "request": lambda data: killed.request(ROOT / "killed", data)}
