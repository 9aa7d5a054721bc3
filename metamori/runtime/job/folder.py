"""What a job keeps in its store besides the records: the stores of its runs, and how the one that counts is reached.

A job is over when `nodes` is gone; until then whoever opens the store completes it first (finish.py).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from metamori.errors import Damaged, MetamoriError, NoStore
from metamori.printed import word_text
from metamori.store.io import commit
from metamori.store.io.os_io import BOOT_ID, Door
from metamori.store.read.store import Store

Mapped = dict[int, set[bytes]]             # files of which these runs store what is in them


def names(store: Store) -> list[bytes]:
    """Of the runs of the job, ended ones too."""
    try:
        return sorted(name for name in store.door.listdir(store.layout.nodes)
                      if commit.exists(store.door, os.path.join(store.layout.node(name), b"format")))
    except (FileNotFoundError, PermissionError):
        return []


def is_there(store: Store) -> bool:
    try:
        return commit.exists(store.door, store.layout.nodes)
    except PermissionError:                # somebody else's store: whoever opens it is told
        return False


def job_of(path: str) -> str:
    """The job's store, of the store of one of its runs; any other is its own."""
    above = _above(os.path.dirname(os.path.abspath(path)), "nodes")
    return above if above and os.path.exists(os.path.join(path, "format")) else path


def require_no_part(path: str, *which: str) -> None:
    """MetamoriError for the store of one of a job's runs ("nodes"), or of a node's own disk ("disks"): what the job's
    indexes need, and what they are there, only its own store knows."""
    require_store(path)
    if above := _above(os.path.dirname(os.path.abspath(path)), *which):
        raise MetamoriError(f"{path} is part of the job's store {above}: --store {word_text(above)}")


def require_store(path: str) -> None:
    """NoStore for a folder in which a job keeps such stores."""
    if above := _above(os.path.abspath(path), "nodes", "disks"):
        raise NoStore(f"there is no store at {path}; the job's is {above}: --store {word_text(above)}")


def _above(path: str, *which: str) -> str:
    """The job's store that has this folder, if it has one of these names."""
    above, name = os.path.split(path)
    return above if name in which and os.path.exists(os.path.join(above, "format")) else ""


def write_note(door: Door, path: bytes, data: dict[str, Any], durable: bool) -> None:
    """A small file that many indexes may depend on."""
    text = json.dumps(data).encode()
    commit.write_file(door, path, b"%s\n%08x\n" % (text, zlib.crc32(text)), durable)


def read_note(door: Door, path: bytes) -> dict[str, Any]:
    """FileNotFoundError, Damaged."""
    text, _, checksum = commit.read_file(door, path).partition(b"\n")
    if checksum != b"%08x\n" % zlib.crc32(text):
        raise Damaged(f"{os.fsdecode(path)}: the checksum does not match")
    found: dict[str, Any] = json.loads(text)
    return found


def copy(store: bytes, to: bytes) -> None:
    """Of one of the job's runs; durable, for soon it is the only one. MetamoriError."""
    import subprocess

    for words in (("cp", "-a", "--sparse=always", store, to), ("sync", "-f", to)):
        done = subprocess.run(words, capture_output=True, check=False)
        if done.returncode:
            raise MetamoriError(os.fsdecode(done.stderr).strip())


def is_live(path: str) -> bool:
    """Whether some run of a job in this store is alive."""
    store = Store(path)
    return is_there(store) and any(is_alive(store, name) for name in names(store))


def write_counter(store: Store, data: dict[str, Any]) -> None:
    """Where the one that counts is reached, and by which keys: whoever may read this may take part."""
    commit.write_file(store.door, store.layout.job, json.dumps(data).encode(), durable=False)


def read_counter(store: Store) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(commit.read_file(store.door, store.layout.job))
    except (FileNotFoundError, ValueError):
        return None
    return found


def keeps_place(store: Store, mine: dict[str, Any]) -> bool:
    """Of the one that counts, whether no other is reached there: a filesystem may take the lock from a machine that
    hangs. Where nobody else has it, it has it again."""
    with suppress(OSError):                # the filesystem does not say
        reached = read_counter(store)
        if reached is None:                # the job is over
            return True
        if reached["server"] != mine["server"]:
            return False
        store.retake()
    return True


def note_folded(store: Store, index: int, upto: dict[bytes, int], mapped: Mapped, durable: bool) -> None:
    """Before the checkpoint `index` exists: which index of each run it holds. It counts if the checkpoint is there."""
    commit.make_folder(store.door, os.path.dirname(store.layout.folded(0)))
    data = {"upto": {os.fsdecode(name): number for name, number in upto.items()}, "mapped": packed(mapped)}
    write_note(store.door, store.layout.folded(index), data, durable)


def packed(mapped: Mapped) -> dict[str, list[str]]:
    return {str(inode): sorted(map(os.fsdecode, names)) for inode, names in mapped.items() if names}


def unpacked(data: dict[str, list[str]]) -> Mapped:
    return {int(inode): set(map(os.fsencode, names)) for inode, names in data.items()}


def folded(store: Store) -> tuple[dict[bytes, int], Mapped]:
    """Up to which index of each run the job's checkpoints have it; and which files runs have mapped."""
    try:
        found = store.door.listdir(os.path.dirname(store.layout.folded(0)))
    except FileNotFoundError:
        return {}, {}
    for index in sorted((int(name) for name in found if name.isdigit()), reverse=True):
        if index in store.history:
            data = read_note(store.door, store.layout.folded(index))
            return {os.fsencode(name): number for name, number in data["upto"].items()}, unpacked(data["mapped"])
    return {}, {}


def forget_folded(store: Store, before: int) -> None:
    """Those that a later one has replaced."""
    folder = os.path.dirname(store.layout.folded(0))
    for name in store.door.listdir(folder):
        if name.isdigit() and int(name) < before:
            commit.remove_file(store.door, os.path.join(folder, name), durable=False)


def note_unseen(store: Store, name: bytes, files: Iterable[tuple[int, int]], is_over: bool) -> None:
    """Of a run that was completed while it lived: what its program has written over since, and nobody has recorded.
    files: inode numbers and births, on the store's filesystem. is_over: that program has ended."""
    commit.make_folder(store.door, os.path.dirname(store.layout.unseen(name)))
    write_note(store.door, store.layout.unseen(name), {"files": list(files), "over": is_over}, durable=True)


def unseen(store: Store) -> dict[bytes, dict[str, Any]]:
    """By the names of their runs."""
    try:
        names = store.door.listdir(os.path.dirname(store.layout.unseen(b"")))
    except FileNotFoundError:
        return {}
    return {name: read_note(store.door, store.layout.unseen(name)) for name in names if not name.startswith(b".")}


def forget_unseen(store: Store, noted: dict[bytes, dict[str, Any]]) -> None:
    """Those that are over, and in an index."""
    for name in (name for name, note in noted.items() if note["over"]):
        commit.remove_file(store.door, store.layout.unseen(name), durable=False)


def is_alive(store: Store, name: bytes) -> bool:
    """Whether the run's own `metamori run` has its store. Where the store is gone, or goes meanwhile, another has
    completed the job."""
    try:
        node = Store.open(store.layout.node(name), door=store.door)
        try:
            return node.is_busy()
        finally:
            node.close()
    except (NoStore, FileNotFoundError):
        return False


def boot() -> str:
    """Which machine this is, since its last start."""
    with open(BOOT_ID) as file:
        return file.read().strip()


def clock(store: Store, name: bytes) -> bytes:
    """What a run knows of the job's time (clock.py)."""
    return os.path.join(store.layout.node(name), b"clock")
