"""The memory of a program at four safety levels, for Python programs alone or under MPI.

    from metamori.levels import Levels
    with Levels("config.fti", comm) as levels:
        levels.protect("field", array)
        if levels.status:
            levels.recover()
        for step in range(...):
            ...
            levels.checkpoint(level=2)

C and Fortran programs call the same through FTI's interface (fti.h, module FTI).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metamori.errors import MetamoriError, missing

if TYPE_CHECKING:
    from metamori.levels.api.levels import Levels
    from metamori.levels.setup.settings import Settings

__all__ = ["Levels", "Settings"]


def __getattr__(name: str) -> Any:
    try:
        if name == "Levels":
            from metamori.levels.api.levels import Levels
            return Levels
        if name == "Settings":
            from metamori.levels.setup.settings import Settings
            return Settings
    except ImportError as error:
        if not missing(error):
            raise
        raise MetamoriError(missing(error)) from None
    raise AttributeError(name)
