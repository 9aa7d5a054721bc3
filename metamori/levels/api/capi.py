"""FTI's C functions: converts, catches, answers with FTI's codes; decides nothing.

One table of functions by name; `register` ties each to its C symbol. `bound` holds this process's Levels.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from metamori.errors import MetamoriError

DONE, SCES, NSCS, NREC, HEAD, ENDW = 1, 0, -1, -2, 2, 995
_table: dict[str, tuple[Callable[..., Any], Any]] = {}


class Bound:
    """What the functions need beside their arguments."""

    ffi: Any = None
    lib: Any = None
    levels: Any = None
    types: list[Any] = []                  # also those made before FTI_Init, as the manual's Fortran example does
    groups: list[tuple[str, int]] = [("", 0)]   # HDF5 groups: name and parent; 0 is the root


bound = Bound()


def say(error: BaseException) -> None:
    """One line on stderr; all of it when something is wrong with us."""
    if isinstance(error, MetamoriError | OSError) and "METAMORI_DEBUG" not in os.environ:
        levels = bound.levels
        if levels is None or levels.crew.world.rank == 0 or levels.crew.world.size == 1:
            os.write(2, f"metamori: FTI: {error}\n".encode(errors="replace"))
    else:
        traceback.print_exception(error, file=sys.stderr)


def exported(wrong: Any = NSCS) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function is a function of fti.h; `wrong` is its answer when it fails."""
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        _table[function.__name__] = (function, wrong)
        return function
    return note


_BEFORE_INIT = {"fti_init_", "fti_get_config_", "FTI_InitType", "FTI_InitComplexType", "FTI_AddSimpleField",
                "FTI_AddComplexField", "FTI_InitCompositeType", "FTI_AddScalarField", "FTI_AddVectorField",
                "FTI_InitGroup", "FTI_RenameGroup", "FTI_Finalize"}


def _guarded(function: Callable[..., Any], wrong: Any) -> Callable[..., Any]:
    early = function.__name__ in _BEFORE_INIT

    def call(*arguments: Any) -> Any:
        if bound.levels is None and not early:
            return wrong                   # FTI_Init failed, and has said why
        try:
            return function(*arguments)
        except BaseException as error:     # nothing of ours may end the program
            say(error)
            return wrong
    return call


def register(ffi: Any, lib: Any) -> None:
    """Called once, when Python starts inside the program."""
    from metamori.levels.api import capi_more, capi_types  # noqa: F401  they fill the table
    from metamori.levels.setup.variables import BUILT_IN

    bound.ffi, bound.lib, bound.types = ffi, lib, list(BUILT_IN)
    for name, (function, wrong) in _table.items():
        if wrong is None:
            ffi.def_extern(name=name)(_guarded(function, None))
        else:
            ffi.def_extern(name=name, error=wrong if wrong != "null" else ffi.NULL)(
                _guarded(function, wrong if wrong != "null" else ffi.NULL))


def text(pointer: Any) -> str:
    return "" if pointer == bound.ffi.NULL else bytes(bound.ffi.string(pointer)).decode(errors="replace")


def memory(pointer: Any, size: int) -> Any:
    """Bytes of the program, in place."""
    from metamori.levels.setup.variables import EMPTY

    if size <= 0 or pointer == bound.ffi.NULL:
        return EMPTY
    return memoryview(bound.ffi.buffer(pointer, size)).cast("B")


def _mpi_version() -> str:
    """Of the library in this process; Fortran's FTI_Init does not ask for it."""
    into, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL(None).MPI_Get_library_version(into, ctypes.byref(length))
    return into.value.decode(errors="replace")


@exported()
def fti_init_(config: Any, comm: int, mpi: Any, fti_comm: Any) -> int:
    if "mpi4py" not in sys.modules:        # its extension for the MPI that the program has loaded
        os.environ["MPI4PY_MPIABI"] = "openmpi" if "Open MPI" in (text(mpi) or _mpi_version()) else "mpich"
    from metamori.levels.api.levels import Levels
    from metamori.levels.protect.comm import Job, finalize
    from metamori.levels.protect.recover import NothingLeft

    world = Job.from_handle(comm).duplicate()
    try:
        bound.levels = Levels(text(config), world)
    except NothingLeft as error:
        if world.rank == 0:
            os.write(2, f"metamori: FTI: {error}\n".encode())
        return NREC
    except MetamoriError as error:
        if world.rank == 0:
            os.write(2, f"metamori: FTI: {error}\n".encode())
        return NSCS
    bound.levels.use_types(bound.types, bound.groups)
    crew = bound.levels.crew
    if crew.head:
        bound.levels.serve()
        if crew.settings.keep_heads_alive:
            return HEAD
        finalize()
        return ENDW
    fti_comm[0] = crew.app.handle
    return SCES


@exported()
def FTI_Status() -> int:
    return int(bound.levels.status)


@exported()
def FTI_Protect(number: int, pointer: Any, count: int, kind: int) -> int:
    return FTI_ProtectWithName(number, pointer, count, kind, bound.ffi.NULL)


@exported()
def FTI_ProtectWithName(number: int, pointer: Any, count: int, kind: int, name: Any) -> int:
    levels = bound.levels
    found = levels.types[kind]
    levels.variables.protect(number, memory(pointer, count * found.size), found, text(name) or levels.reserved(number))
    return SCES


@exported(0)
def FTI_GetStoredSize(number: int) -> int:
    return int(bound.levels.stored_size(number))


@exported("null")
def FTI_Realloc(number: int, pointer: Any) -> Any:
    levels = bound.levels
    size, variable = levels.stored_size(number), levels.variables[number]
    if size:
        pointer = bound.lib.mm_fti_realloc(pointer, size)
        if pointer == bound.ffi.NULL:
            return pointer
    levels.variables.protect(number, memory(pointer, size), variable.type)
    return pointer


@exported()
def FTI_Checkpoint(number: int, level: int) -> int:
    if number == 0:
        raise MetamoriError("the id of a checkpoint must not be 0")
    bound.levels.checkpoint(level, number)
    return DONE


@exported()
def FTI_Recover() -> int:
    bound.levels.recover()
    return SCES


@exported()
def FTI_Snapshot() -> int:
    levels = bound.levels
    if levels.status and levels.saved is not None:
        try:
            levels.recover()
        except MetamoriError as error:
            say(error)
            return NREC
        return SCES
    return SCES if levels.snapshot() is None else DONE


@exported()
def FTI_Finalize() -> int:
    if bound.levels is None or bound.levels.crew.head:
        return SCES                        # after an FTI_Init that failed
    bound.levels.finish()
    return SCES


@exported()
def FTIM_Index() -> int:
    return int(bound.levels.parent)


@exported()
def FTIM_RecoverIndex(index: int) -> int:
    bound.levels.recover(index)
    return SCES
