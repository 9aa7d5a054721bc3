"""A sealed file: bytes, then what they are, then a seal by which damage is found. Checkpoints and parity are kept so.

    data                     any length; a checkpoint's variables one after another, as FTI's POSIX format has them
    trailer                  JSON (UTF-8), then the arrays that its "arrays" names: [name, numpy dtype, length]
    seal (48 bytes, little endian)
        char   magic[8]      "MMLEVEL\\n"
        u32    version       1
        u32    JSON bytes
        u64    data bytes
        u64    trailer bytes
        u8     hash[16]      XXH3-128 of the trailer and the 32 bytes before

The trailer's arrays hold hashes of the data, so the seal covers every byte of the file.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import xxhash

_SEAL = struct.Struct("<8sIIQQ16s")
_MAGIC, _VERSION = b"MMLEVEL\n", 1
_AT_ONCE = 1 << 30                         # Linux writes at most 0x7ffff000 bytes in a call
_IOV = 512
Buffer = memoryview


class Broken(Exception):
    """A file that is not there, too short, or not what its seal says."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a sealed file says of itself."""

    path: str
    about: dict[str, Any]
    arrays: dict[str, numpy.ndarray]
    data_bytes: int
    digest: str                            # hex of the seal's hash: names this content


def trailer(data_bytes: int, about: dict[str, Any], arrays: dict[str, numpy.ndarray]) -> tuple[bytes, str]:
    """All that comes after the data, and its digest."""
    listed = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    text = json.dumps({**about, "arrays": listed}, separators=(",", ":")).encode()
    body = b"".join([text, *(array.tobytes() for array in arrays.values())])
    head = _SEAL.pack(_MAGIC, _VERSION, len(text), data_bytes, len(body), b"\0" * 16)[:32]
    digest = xxhash.xxh3_128_digest(body + head)
    return body + head + digest, digest.hex()


def read(path: str, start: int = 0, size: int | None = None) -> Sealed:
    """The trailer of a file, or of `size` bytes of one from `start`, checked. Broken."""
    try:
        with open(path, "rb", buffering=0) as file:
            if size is None:
                size = os.fstat(file.fileno()).st_size - start
            seal = os.pread(file.fileno(), _SEAL.size, start + max(0, size - _SEAL.size))
            if size < _SEAL.size or len(seal) < _SEAL.size:
                raise Broken(f"{path} is too short")
            magic, version, text_bytes, data_bytes, body_bytes, digest = _SEAL.unpack(seal)
            if magic != _MAGIC or version != _VERSION or data_bytes + body_bytes + _SEAL.size != size:
                raise Broken(f"{path} has no seal")
            body = os.pread(file.fileno(), body_bytes, start + data_bytes)
    except OSError as error:
        raise Broken(f"{path}: {error.strerror}") from None
    if xxhash.xxh3_128_digest(body + seal[:32]) != digest:
        raise Broken(f"{path}: checksum mismatch in the trailer")
    about = json.loads(body[:text_bytes])
    arrays, at = {}, text_bytes
    for name, dtype, length in about.pop("arrays"):
        arrays[name] = numpy.frombuffer(body, dtype, length, at)
        at += arrays[name].nbytes
    return Sealed(path, about, arrays, data_bytes, digest.hex())


def create(path: str) -> int:
    """A descriptor of a new empty file, whose name is durable with the file."""
    fresh = _folders_for(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    for each in fresh:
        sync_folder(each)
    return fd


def _folders_for(path: str) -> list[str]:
    """Made for a file. Those in which a name is new with it: to be synced once it is there."""
    fresh = [os.path.dirname(path)]
    while not os.path.isdir(fresh[-1]):
        fresh.append(os.path.dirname(fresh[-1]))
    os.makedirs(fresh[0], exist_ok=True)
    return fresh


def write(fd: int, pieces: Iterable[Buffer | bytes]) -> int:
    """Write all of `pieces` where the descriptor stands; how many bytes."""
    total = 0
    batch: list[Buffer] = []
    room = 0
    for piece in pieces:
        view = memoryview(piece).cast("B") if len(piece) else memoryview(b"")
        for start in range(0, len(view), _AT_ONCE):
            part = view[start:start + _AT_ONCE]
            batch.append(part)
            room += len(part)
            total += len(part)
            if room >= _AT_ONCE or len(batch) >= _IOV:
                _flush(fd, batch)
                batch, room = [], 0
    _flush(fd, batch)
    return total


def _flush(fd: int, batch: Sequence[Buffer]) -> None:
    waiting = list(batch)
    while waiting:
        done = os.writev(fd, waiting)
        while waiting and done >= len(waiting[0]):
            done -= len(waiting.pop(0))
        if waiting and done:
            waiting[0] = waiting[0][done:]


def finish(fd: int) -> None:
    """Make a file durable and close it."""
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def put(path: str, data: bytes) -> None:
    """A small file, in one step and durably."""
    fresh = _folders_for(path)
    partial = f"{path}.{os.getpid()}"
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write(fd, [data])
    finally:
        finish(fd)
    os.rename(partial, path)
    for each in fresh:
        sync_folder(each)
