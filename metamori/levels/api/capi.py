"""FTI's C functions: converts, catches, answers with FTI's codes; decides nothing.

`register` ties each to its C symbol: those here, and those of capi_more and capi_types.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from metamori.errors import MetamoriError
from metamori.levels.api import capi_more, capi_types  # noqa: F401  they fill the table
from metamori.levels.api.capi_table import DONE, ENDW, HEAD, NREC, NSCS, SCES, bound, exported, memory, say, text, tie


def register(ffi: Any, lib: Any) -> None:
    """Called once, when Python starts inside the program."""
    tie(ffi, lib)


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
        if error.app.rank == 0:
            os.write(2, f"metamori: FTI: {error}\n".encode())
        error.app.barrier()                # it is said before another's MPI_Abort ends them all
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
