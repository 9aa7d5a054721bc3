"""HDF5 (ckpt_io = 5): one file per rank, a dataset per variable, readable with h5dump.

Types that the program described become compound types, committed under their names; groups are the program's. A type
of which only the size is known is opaque. Each dataset has an attribute fti_id. Source: FTI manual, FTI_InitComplexType
to FTI_ProtectWithName.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy
import xxhash

from metamori.errors import MetamoriError, missing
from metamori.levels.formats import checksummed_file, image
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.image import Digest
from metamori.levels.formats.posix_format import Written
from metamori.levels.formats.source import FileSource, MemorySource
from metamori.levels.setup.variables import Type, Variable


class NoHdf5(MetamoriError):
    """h5py is missing, or would meet another HDF5 library than its own."""


def _h5py() -> Any:
    """A program's own HDF5 would take the place of the one that a wheel of h5py brings, and be of another version."""
    found = importlib.util.find_spec("h5py")
    if "h5py" not in sys.modules and found is not None and hasattr(ctypes.CDLL(None), "H5get_libversion") \
            and os.path.isdir(os.path.join(os.path.dirname(os.path.dirname(found.origin or "")), "h5py.libs")):
        raise NoHdf5("ckpt_io = 5: this program has an HDF5 library of its own, and h5py has brought another; "
                     "pip install --no-binary h5py h5py builds one for the program's, or use ckpt_io = 1 or 3")
    try:
        import h5py
    except ImportError as error:
        raise NoHdf5("ckpt_io = 5: " + (missing(error) or str(error))) from None
    return h5py


def dtype(kind: Type, types: list[Type]) -> numpy.dtype:
    """numpy's description of an element type."""
    if kind.fields:
        names: list[str] = []
        formats: list[Any] = []
        offsets: list[int] = []
        for each in kind.fields:
            inner = dtype(types[each.type], types)
            names.append(each.name)
            formats.append((inner, each.dimensions) if each.dimensions else inner)
            offsets.append(each.offset)
        return numpy.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": kind.size})
    if kind.kind == "V":
        return numpy.dtype(f"V{kind.size}")
    return numpy.dtype(f"{kind.kind}{kind.size}")


class Hdf5:
    """Writes and reads. `types` and `groups` are the program's own, as far as it has described them."""

    increments, names = False, True

    def __init__(self) -> None:
        _h5py()                            # what is missing is said when a program begins
        self.types: list[Type] = []
        self.groups: list[tuple[str, int]] = [("", 0)]

    def path(self, group: int) -> str:
        """The name of a group in the file."""
        parts = []
        while group:
            name, group = self.groups[group]
            parts.append(name)
        return "/" + "/".join(reversed(parts))

    def prepare(self, variables: Iterable[Variable], before: None, index: int, block: int,
                suspects: image.Suspects = image.everything, detect: Digest | None = None) -> Written:
        written = Written(MemorySource([]), "", [index])
        written.plan = list(variables)
        return written

    def write(self, written: Written, path: str) -> None:
        """Write the file and make it durable."""
        h5py = _h5py()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with h5py.File(path, "w") as file:
                for each in written.plan:
                    self._dataset(file, each)
        except (RuntimeError, ValueError) as error:    # how h5py says that the disk is full, or a name is taken
            raise MetamoriError(f"{path}: {error}") from None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        checksummed_file.finish(fd)
        written.source = FileSource(path)
        written.checksum = _digest(written.source)

    def _dataset(self, file: Any, each: Variable) -> None:
        h5py = _h5py()
        group = file.require_group(self.path(each.group))
        kind = dtype(each.type, self.types)
        shape = each.dimensions or (each.count,)
        array = numpy.frombuffer(each.memory, kind).reshape(shape) if each.size else numpy.empty(shape, kind)
        stored: Any = kind
        if each.type.fields:
            stored = self._committed(file, each.type, kind)
        name = each.name if each.name not in group else f"{each.name}_{each.id}"
        made = group.create_dataset(name, shape, dtype=stored)
        if each.size:
            made.write_direct(numpy.ascontiguousarray(array)) if kind.kind != "V" or kind.fields else \
                made.id.write(h5py.h5s.ALL, h5py.h5s.ALL, numpy.ascontiguousarray(array), mtype=made.id.get_type())
        made.attrs["fti_id"] = each.id

    def _committed(self, file: Any, kind: Type, described: numpy.dtype) -> Any:
        """The named type, and those of its fields."""
        for each in kind.fields:
            inner = self.types[each.type]
            if inner.fields:
                self._committed(file, inner, dtype(inner, self.types))
        group = file.require_group(self.path(kind.group))
        if kind.name not in group:
            group[kind.name] = described
        return group[kind.name]

    def check(self, path: str, expected: str, start: int = 0, size: int | None = None) -> None:
        source = FileSource(path, start, size)
        try:
            if _digest(source) != expected:
                raise Broken(f"{path} does not have its checksum")
        finally:
            source.close()

    def load(self, index: int, place: Callable[[int], tuple[str, int, int | None]]) -> Any:
        return Saved(index, place(index)[0])


def _digest(source: FileSource) -> str:
    total = xxhash.xxh3_128()
    for at in range(0, source.size, 4 << 20):
        total.update(source.chunk(at, min(4 << 20, source.size - at)))
    digest: str = total.hexdigest()
    return digest


@dataclass(slots=True)
class Saved:
    """The memory of an HDF5 file, ready to be read."""

    image: Any
    path: str
    found: dict[int, tuple[str, int]] | None = None    # id: name and bytes

    def _look(self) -> dict[int, tuple[str, int]]:
        if self.found is None:
            h5py, found = _h5py(), {}

            def note(name: str, thing: Any) -> None:
                if isinstance(thing, h5py.Dataset) and "fti_id" in thing.attrs:
                    found[int(thing.attrs["fti_id"])] = name, int(thing.size) * thing.dtype.itemsize
            with h5py.File(self.path, "r") as file:
                file.visititems(note)
            self.found = found
        return self.found

    @property
    def sizes(self) -> dict[int, int]:
        return {number: size for number, (_, size) in self._look().items()}

    def about(self, number: int) -> dict[str, Any]:
        return {"name": self._look()[number][0].rpartition("/")[2]}

    def read(self, number: int, memory: memoryview) -> None:
        """Fill a variable's memory. Broken when it is too large."""
        h5py = _h5py()
        name, size = self._look()[number]
        if size > len(memory):
            raise Broken(f"variable {number} has room for {len(memory)} bytes, and its checkpoint {size}")
        if not size:
            return
        try:
            with h5py.File(self.path, "r") as file:
                data = file[name]
                into = numpy.frombuffer(memory[:size], numpy.uint8)
                whole = into.view(data.dtype).reshape(data.shape)
                data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, whole, mtype=data.id.get_type())
        except (OSError, RuntimeError, ValueError) as error:
            raise Broken(f"{self.path}: {error}") from None
