"""Which codec a configuration asks for (ckpt_io)."""

from __future__ import annotations

from typing import Any

from metamori.levels.formats.fti_ff import FtiFF
from metamori.levels.formats.hdf5_file import Hdf5
from metamori.levels.formats.posix_format import Plain
from metamori.levels.setup import settings
from metamori.levels.setup.settings import Settings


def choose(chosen: Settings) -> Any:
    """The format's writer and reader."""
    if chosen.ckpt_io == settings.FTIFF:
        return FtiFF(chosen.ftiff_version)
    if chosen.ckpt_io == settings.HDF5:
        return Hdf5()
    return Plain()                         # also what an MPI-IO file holds of each rank
