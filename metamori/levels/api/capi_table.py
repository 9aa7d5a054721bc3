"""FTI's C functions by name, and what they need beside their arguments: `bound`, this process's Levels."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from metamori.errors import MetamoriError, missing
from metamori.levels.setup.variables import BUILT_IN, EMPTY

DONE, SCES, NSCS, NREC, HEAD, ENDW = 1, 0, -1, -2, 2, 995
_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_Function = TypeVar("_Function", bound=Callable[..., Any])
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
    """One line on stderr, of one process of the job; all of it when something is wrong with us."""
    known = missing(error) if isinstance(error, ImportError) else str(error)
    if known and isinstance(error, MetamoriError | OSError | ImportError) and "METAMORI_DEBUG" not in os.environ:
        if _speaks():
            os.write(2, f"metamori: FTI: {known}\n".encode(errors="replace"))
    else:
        traceback.print_exception(error, file=sys.stderr)


def _speaks() -> bool:
    """Whether this is the job's first process. Before it has joined the job only its starter's environment knows."""
    if bound.levels is not None:
        world = bound.levels.crew.world
        return bool(world.rank == 0 or world.size == 1)
    return next((os.environ[name] for name in _RANK if name in os.environ), "0") == "0"


def exported(wrong: Any = NSCS) -> Callable[[_Function], _Function]:
    """The decorated function is a function of fti.h; `wrong` is its answer when it fails."""
    def note(function: _Function) -> _Function:
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


def tie(ffi: Any, lib: Any) -> None:
    """Each function of the table to its C symbol."""
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
    if size <= 0 or pointer == bound.ffi.NULL:
        return EMPTY
    return memoryview(bound.ffi.buffer(pointer, size)).cast("B")
