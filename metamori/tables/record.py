"""Records with slots, of which nothing is compiled and nothing imported before one is made.

`metamori run` knows forty of them before the user's command starts. The module `dataclasses` imports `inspect` and
with it the parser of Python (16 ms of CPU time), and compiles the methods of each class (22 ms more): of 100 ms that a
run of /bin/true took. Here `__init__` is compiled when some records of a class were made, and the rest is shared.
Whoever asks `dataclasses` about a record (`fields`, `replace`, `asdict`) gets the answers of a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

TYPE_CHECKING = False                      # what checks types takes it for true; `typing` and `re` are 8 ms of CPU time
if TYPE_CHECKING:
    from typing import Any, NamedTuple, TypeVar, dataclass_transform

    Class = TypeVar("Class")
else:
    def dataclass_transform(**_):
        return lambda decorator: decorator

    from collections import _tuplegetter

    class _Tuple(tuple):
        """What those of all classes share."""

        __slots__ = ()

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{len(made)} values for the fields {cls._fields}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, /, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise TypeError(f"it has no fields {list(changes)}")
            return made

        def __repr__(self):
            shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{self.__class__.__name__}({shown})"

        def __getnewargs__(self):
            return tuple(self)

    class _Tuples(type):
        """Makes what `typing.NamedTuple` makes of a class; `__new__` is compiled when the first is made."""

        def __new__(cls, name, bases, body):
            fields = tuple(body.get("__annotations__", ()))
            defaults = {each: body.pop(each) for each in fields if each in body}

            def first(_cls, *given, **named):
                names = ", ".join(fields)
                new = eval(f"lambda _cls, {names}: _new(_cls, ({names},))", {"_new": tuple.__new__})
                new.__defaults__ = tuple(defaults.values())
                made.__new__ = staticmethod(new)
                return new(_cls, *given, **named)

            getters = {each: _tuplegetter(at, each) for at, each in enumerate(fields)}
            made = type(name, (_Tuple,), {"__new__": first, **getters, **body, "__slots__": (), "_fields": fields,
                                          "_field_defaults": defaults, "__match_args__": fields})
            return made

    NamedTuple = type.__new__(_Tuples, "NamedTuple", (), {})

_ABSENT: Any = object()
_ONE_BY_ONE = 32  # records of a class that are filled without it: to compile `__init__` takes as long as 50 of them


class _Made(NamedTuple):
    """A field's value where none is given: a new one each time."""

    factory: Callable[[], Any]
    compare: bool


def field(*, default_factory: Callable[[], Any], compare: bool = True) -> Any:
    """compare: whether records that differ here only are unequal."""
    return _Made(default_factory, compare)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[Class]) -> type[Class]:
    """What `dataclass(frozen=True, slots=True)` makes of a class: equal by type and fields, hashable, printable."""
    made, values = _slotted(cls)

    def hashed(self: Any) -> int:
        return hash(values(self))

    def reduced(self: Any) -> Any:
        return made, tuple(getattr(self, name) for name in made._fields)

    made.__hash__, made.__reduce__ = hashed, reduced
    made.__setattr__ = made.__delattr__ = _refused
    found: type[Class] = made
    return found


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[Class]) -> type[Class]:
    """What `dataclass(slots=True)` makes of a class."""
    found: type[Class] = _slotted(cls)[0]
    return found


def names_of(cls: Any) -> tuple[str, ...]:
    """The fields of a class of records, in order."""
    found: tuple[str, ...] = cls._fields
    return found


def replace(value: Class, /, **changes: Any) -> Class:
    """The same record with other values in some fields. TypeError for a field that it does not have."""
    cls: Any = value.__class__
    found: Class = cls(**{**{name: getattr(value, name) for name in cls._fields}, **changes})
    return found


def _slotted(cls: type[Any]) -> tuple[Any, Callable[[Any], Any]]:
    """The class with slots and everything that both kinds share, and what its records are compared by."""
    names = tuple(cls.__annotations__)
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    body = {name: value for name, value in cls.__dict__.items()
            if name not in defaults and name not in ("__dict__", "__weakref__")}
    body |= {"__slots__": names, "__match_args__": names, "_fields": names, "__dataclass_fields__": _Fields(defaults)}
    made: Any = type(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    # of one field: its value, of more: a tuple
    values = attrgetter(*[name for name in names if getattr(defaults.get(name), "compare", True)])

    left = [_ONE_BY_ONE]

    def begun(self: Any, *given: Any, **named: Any) -> None:
        left[0] -= 1
        if left[0] < 0 or not _filled(self, defaults, given, named):
            made.__init__ = _compiled(made, defaults)
            made.__init__(self, *given, **named)

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def shown(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    made.__init__, made.__eq__, made.__repr__, made.__hash__ = begun, equal, shown, None
    return made, values


def _filled(value: Any, defaults: dict[str, Any], given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether these arguments fit; then the record is filled with them."""
    names = value._fields
    values = {**dict(zip(names, given)), **named}
    if len(values) != len(given) + len(named) or not values.keys() <= set(names):
        return False
    for name in names:
        default = defaults.get(name, _ABSENT)
        found = values.get(name, default)
        if found is _ABSENT and default is _ABSENT:
            return False
        object.__setattr__(value, name, default.factory() if found is default and isinstance(default, _Made) else found)
    if hasattr(value, "__post_init__"):
        value.__post_init__()
    return True


def _compiled(made: Any, defaults: dict[str, Any]) -> Any:
    """__init__, which fills the slots past a record's own __setattr__."""
    scope: dict[str, Any] = {"_ABSENT": _ABSENT}
    parameters, lines = ["self"], []
    for name in made._fields:
        scope[f"_set_{name}"] = made.__dict__[name].__set__
        parameter, value, default = name, name, defaults.get(name, _ABSENT)
        if isinstance(default, _Made):
            scope[f"_new_{name}"] = default.factory
            parameter, value = f"{name}=_ABSENT", f"_new_{name}() if {name} is _ABSENT else {name}"
        elif default is not _ABSENT:
            scope[f"_default_{name}"] = default
            parameter = f"{name}=_default_{name}"
        parameters.append(parameter)
        lines.append(f"    _set_{name}(self, {value})")
    if hasattr(made, "__post_init__"):
        lines.append("    self.__post_init__()")
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *lines]), scope)
    return scope["__init__"]


def _refused(self: Any, name: str, value: object = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r}")


class _Fields:
    """`__dataclass_fields__`, made when somebody looks at it."""

    def __init__(self, defaults: dict[str, Any]) -> None:
        self._defaults = defaults

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses

        asked: list[Any] = []
        for name in owner._fields:
            default, kind = self._defaults.get(name, dataclasses.MISSING), owner.__annotations__[name]
            asked.append((name, kind, dataclasses.field(default_factory=default.factory, compare=default.compare)
                          if isinstance(default, _Made) else dataclasses.field(default=default)))
        shadow: Any = dataclasses.make_dataclass(owner.__name__, asked)
        owner.__dataclass_fields__ = shadow.__dataclass_fields__
        return owner.__dataclass_fields__
