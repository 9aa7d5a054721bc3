"""A metamori verb started by a script of the run is no part of the run: it leaves it before it does anything."""

from __future__ import annotations

import os


def step_out() -> None:
    """Nothing to do, and nothing imported, unless the preload library is in this process."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    if "libmetamori.so" not in preloaded:
        return
    import ctypes

    try:
        ctypes.CDLL(None).metamori_step_out()
    except AttributeError:
        return
