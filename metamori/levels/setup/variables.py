"""What a program protects: its variables, where they lie in memory, and of what type their elements are.

A variable's bytes are always looked at in place, through the buffer protocol. Source: FTI manual, FTI_Protect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from metamori.errors import Usage

EMPTY = memoryview(bytearray())


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a compound type."""

    name: str
    type: int
    offset: int
    dimensions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Type:
    """An element type: a number, an opaque block of bytes (kind 'V') or a compound with fields."""

    number: int
    size: int
    kind: str = "V"                        # numpy's letters: i, u, f, and V
    name: str = ""
    fields: tuple[Field, ...] = ()
    group: int = 0                         # HDF5 group of the type's name


BUILT_IN = (
    Type(0, 1, "i", "FTI_CHAR"), Type(1, 2, "i", "FTI_SHRT"), Type(2, 4, "i", "FTI_INTG"), Type(3, 8, "i", "FTI_LONG"),
    Type(4, 1, "u", "FTI_UCHR"), Type(5, 2, "u", "FTI_USHT"), Type(6, 4, "u", "FTI_UINT"), Type(7, 8, "u", "FTI_ULNG"),
    Type(8, 4, "f", "FTI_SFLT"), Type(9, 8, "f", "FTI_DBLE"), Type(10, 16, "f", "FTI_LDBE"),
)


@dataclass(slots=True)
class Variable:
    """One protected variable. `memory` is a writable view of its bytes."""

    id: int
    memory: memoryview
    type: Type
    count: int
    name: str = ""
    attributes: dict[int, str] = field(default_factory=dict)
    dimensions: tuple[int, ...] = ()       # of its HDF5 dataset
    group: int = 0
    stored: int = 0                        # bytes in the last checkpoint, or in the one to be recovered

    @property
    def size(self) -> int:
        return len(self.memory)

    def about(self) -> dict[str, Any]:
        """What a checkpoint says of it."""
        return {"id": self.id, "name": self.name, "type": self.type.number, "element": self.type.size,
                "bytes": self.size, "dimensions": list(self.dimensions), "attributes": self.attributes}


class Variables:
    """The protected variables, in the order in which they were protected first."""

    def __init__(self, largest_id: int = 102400) -> None:
        self._by_id: dict[int, Variable] = {}
        self._largest = largest_id

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, number: int) -> bool:
        return number in self._by_id

    def __getitem__(self, number: int) -> Variable:
        try:
            return self._by_id[number]
        except KeyError:
            raise Usage(f"no variable with id {number} is protected") from None

    def protect(self, number: int, memory: memoryview, kind: Type, name: str = "") -> Variable:
        """Protect memory, or say that the variable of this id has moved or changed its size."""
        if not 0 <= number <= self._largest:
            raise Usage(f"variable id {number} is not in 0 to {self._largest} (max_var_id)")
        if kind.size and len(memory) % kind.size:
            raise Usage(f"variable {number}: {len(memory)} bytes are no whole number of {kind.size}")
        count = len(memory) // kind.size if kind.size else 0
        found = self._by_id.get(number)
        if found is None:
            found = self._by_id[number] = Variable(number, memory, kind, count, name or f"Dataset_{number}")
        else:
            found.memory, found.type, found.count = memory, kind, count
            if name:
                found.name = name
        return found

    def forget(self, number: int) -> None:
        self._by_id.pop(number, None)

    def named(self, name: str) -> int:
        """The id of the variable with this name, -1 without one."""
        return next((each.id for each in self if each.name == name), -1)


def view(thing: Any) -> memoryview:
    """Writable bytes of a buffer, without a copy. Usage when it has none, is read-only or not contiguous."""
    try:
        found = memoryview(thing)
    except TypeError:
        raise Usage(f"{type(thing).__name__} has no buffer to protect") from None
    if found.readonly:
        raise Usage("a read-only buffer cannot be recovered")
    if found.nbytes == 0:
        return EMPTY
    if not found.contiguous:
        raise Usage("only contiguous memory can be protected without copies")
    if found.ndim != 1 and not found.c_contiguous:   # Fortran order: the same bytes, another walk through them
        return view(thing.T)
    return found.cast("B")
