"""FTI's C functions for types, groups and datasets."""

from __future__ import annotations

from typing import Any

from metamori.levels.api.capi_table import NSCS, SCES, bound, exported, text
from metamori.levels.setup.variables import Field, Type


def _add(size: int, name: str = "", fields: tuple[Field, ...] = (), group: int = 0) -> int:
    types = bound.types
    types.append(Type(len(types), size, "V", name or f"Type{len(types)}", fields, group))
    return len(types) - 1


@exported()
def FTI_InitType(into: Any, size: int) -> int:
    if size < 0:
        return NSCS
    into[0] = _add(size)
    return SCES


@exported()
def FTI_InitComplexType(into: Any, description: Any, length: int, size: int, name: Any, group: Any) -> int:
    fields = []
    for i in range(length):
        each = description.field[i]
        fields.append(Field(text(each.name) or f"Field{i}", each.type, each.offset,
                            tuple(each.dimLength[j] for j in range(each.rank))))
    description.length, description.size = length, size
    into[0] = _add(size, text(name), tuple(fields), 0 if group == bound.ffi.NULL else group.id)
    return SCES


def _field(description: Any, number: int, kind: Any, offset: int, dimensions: list[int], name: Any) -> None:
    each = description.field[number]
    each.type, each.offset, each.rank = kind[0], offset, len(dimensions)
    for i, length in enumerate(dimensions):
        each.dimLength[i] = length
    encoded = (text(name) or f"Field{number}").encode()[:255] + b"\0"
    bound.ffi.memmove(each.name, encoded, len(encoded))


@exported(None)
def FTI_AddSimpleField(description: Any, kind: Any, offset: int, number: int, name: Any) -> None:
    _field(description, number, kind, offset, [], name)


@exported(None)
def FTI_AddComplexField(description: Any, kind: Any, offset: int, rank: int, lengths: Any, number: int,
                        name: Any) -> None:
    _field(description, number, kind, offset, [lengths[i] for i in range(rank)], name)


@exported()
def FTI_InitCompositeType(name: Any, size: int, group: Any) -> int:
    return _add(size, text(name), (), 0 if group == bound.ffi.NULL else group.id)


def _grow(number: int, field: Field) -> None:
    types = bound.types
    old = types[number]
    types[number] = Type(old.number, old.size, old.kind, old.name, old.fields + (field,), old.group)


@exported()
def FTI_AddScalarField(number: int, name: Any, kind: int, offset: int) -> int:
    _grow(number, Field(text(name), kind, offset))
    return SCES


@exported()
def FTI_AddVectorField(number: int, name: Any, kind: int, offset: int, rank: int, lengths: Any) -> int:
    _grow(number, Field(text(name), kind, offset, tuple(lengths[i] for i in range(rank))))
    return SCES


@exported()
def FTI_InitGroup(group: Any, name: Any, parent: Any) -> int:
    above = 0 if parent == bound.ffi.NULL else parent.id
    if not 0 <= above < len(bound.groups) or not text(name):
        return NSCS
    bound.groups.append((text(name), above))
    group.id = len(bound.groups) - 1
    return SCES


@exported()
def FTI_RenameGroup(group: Any, name: Any) -> int:
    bound.groups[group.id] = (text(name), bound.groups[group.id][1])
    return SCES


@exported()
def FTI_DefineDataset(number: int, rank: int, lengths: Any, name: Any, group: Any) -> int:
    variable = bound.levels.variables[number]
    dimensions = tuple(lengths[i] for i in range(rank))
    count = 1
    for each in dimensions:
        count *= each
    if rank and count != variable.count:
        return NSCS
    variable.dimensions = dimensions
    variable.group = 0 if group == bound.ffi.NULL else group.id
    if text(name):
        variable.name = text(name)
    return SCES


@exported()
def fti_set_attribute_(number: int, name: Any, rank: int, lengths: Any, flag: int) -> int:
    variable = bound.levels.variables[number]
    if flag & 1:
        variable.name = text(name)
    if flag & 2:
        variable.dimensions = tuple(lengths[i] for i in range(rank))
    return SCES
