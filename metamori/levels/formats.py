"""Which codec a configuration asks for (ckpt_io)."""

from __future__ import annotations

from typing import Any

from metamori.levels import settings
from metamori.levels.plain import Plain
from metamori.levels.settings import Settings


def choose(chosen: Settings) -> Any:
    """The format's writer and reader."""
    if chosen.ckpt_io in (settings.POSIX, settings.MPIIO):
        return Plain()
    raise NotImplementedError(chosen.ckpt_io)
