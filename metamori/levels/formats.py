"""Which codec a configuration asks for (ckpt_io)."""

from __future__ import annotations

from typing import Any

from metamori.errors import Usage
from metamori.levels import settings
from metamori.levels.fti_ff import FtiFF
from metamori.levels.plain import Plain
from metamori.levels.settings import Settings


def choose(chosen: Settings) -> Any:
    """The format's writer and reader."""
    if chosen.ckpt_io in (settings.POSIX,):
        return Plain()
    if chosen.ckpt_io == settings.FTIFF:
        return FtiFF(chosen.ftiff_version)
    raise Usage(f"ckpt_io = {chosen.ckpt_io} is not there yet; use 1 (POSIX) or 3 (FTI-FF)")
