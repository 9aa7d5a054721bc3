"""What exists: one commit record per index, and per group what its files are. Both lie in meta_dir.

A checkpoint exists when its record has been renamed into place, after every file of every rank was made durable. The
group's file has FTI's layout (an ini section per member with ckpt_file_name, ckpt_file_size, ckpt_file_maxs,
ckpt_checksum).
"""

from __future__ import annotations

import configparser
import io
import json
import os
import re
from dataclasses import asdict, dataclass, field
from typing import Any

import xxhash

from metamori.levels.formats import checksummed_file
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.setup.paths import Paths


@dataclass(frozen=True, slots=True)
class Record:
    """A checkpoint of the whole job."""

    index: int
    id: int                                # the program's own number for it
    level: int
    parent: int
    io: int
    time: str                              # ISO 8601, UTC
    ranks: int
    needs: tuple[int, ...]                 # indexes of the same level whose files it reads
    files: dict[str, int] = field(default_factory=dict)   # index of the file checkpoint in each store
    stores: dict[str, str] = field(default_factory=dict)  # the number of each, by which a new one of its name is told
    carried: dict[str, int] = field(default_factory=dict)   # which rank's part has the store's files
    places: tuple[int, ...] = ()           # MPI-IO: where each rank's bytes begin in the one file, and the end


@dataclass(frozen=True, slots=True)
class Member:
    """One rank's file of a checkpoint."""

    name: str
    size: int
    checksum: str


def place(paths: Paths, each: Record, rank: int) -> tuple[str, int, int | None]:
    """Where a rank's file of a checkpoint is: path, start, size (None: to its end)."""
    if each.places:
        return paths.together(each.index, each.id), each.places[rank], each.places[rank + 1] - each.places[rank]
    return paths.data(each.level, each.index, each.id, rank), 0, None


def _seal(values: dict[str, Any]) -> str:
    """Of everything that a record says: it decides which files go with which memory."""
    digest: str = xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())
    return digest


def write_record(paths: Paths, record: Record) -> None:
    values = {"schema": 1, **asdict(record)}
    text = json.dumps({**values, "seal": _seal(values)}, indent=1) + "\n"
    checksummed_file.put(paths.record(record.index), text.encode())


def read_records(paths: Paths) -> dict[int, Record]:
    """Every checkpoint of this execution, by index. One that is damaged is no record; early ones have no seal."""
    found = {}
    try:
        names = os.listdir(paths.meta)
    except FileNotFoundError:
        return {}
    for name in names:
        if not re.fullmatch(r"ckpt\d+\.json", name):
            continue
        try:
            with open(os.path.join(paths.meta, name), encoding="utf-8") as file:
                values = json.load(file)
            seal = values.pop("seal", None)
            if seal is not None and seal != _seal(values):
                continue
            values.pop("schema")
            values["needs"], values["places"] = tuple(values["needs"]), tuple(values.get("places", ()))
            record = Record(**values)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
        found[record.index] = record
    return dict(sorted(found.items()))


def write_members(path: str, members: list[Member]) -> None:
    """By the first member of a group."""
    ini = configparser.ConfigParser(interpolation=None)
    largest = max(each.size for each in members)
    for i, each in enumerate(members):
        ini[str(i)] = {"ckpt_file_name": each.name, "ckpt_file_size": str(each.size), "ckpt_file_maxs": str(largest),
                       "ckpt_checksum": each.checksum}
    text = io.StringIO()
    ini.write(text)
    checksummed_file.put(path, text.getvalue().encode())


def read_members(path: str) -> list[Member]:
    """Broken when they are not there."""
    ini = configparser.ConfigParser(interpolation=None)
    try:
        with open(path, encoding="utf-8") as file:
            ini.read_file(file)
        return [Member(ini[str(i)]["ckpt_file_name"], int(ini[str(i)]["ckpt_file_size"]),
                       ini[str(i)]["ckpt_checksum"]) for i in range(len(ini.sections()))]
    except (OSError, configparser.Error, KeyError, ValueError) as error:
        raise Broken(f"{path}: {error}") from None
