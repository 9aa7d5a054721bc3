"""A metamori verb started by a script of the run is no part of the run: it leaves it before it does anything."""

from __future__ import annotations

import os


def given() -> dict[str, str]:
    """The environment that this process was started with: the preload library hides its variables from a program
    whose parent had taken them away."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [os.fsdecode(each).partition("=") for each in file.read().split(b"\0") if b"=" in each]
    except OSError:
        return dict(os.environ)
    return {name: value for name, _, value in pairs}


_around = ""                               # the store of the run that was left


def step_out(begins: bool) -> None:
    """Nothing to do, and nothing imported, unless the preload library is in this process. begins: the verb starts a
    run; the programs of one with another store find their files in place."""
    global _around
    if "/libmetamori" not in given().get("LD_PRELOAD", ""):
        return
    import ctypes

    try:
        if ctypes.CDLL(None).metamori_step_out(begins):
            _around = given().get("METAMORI_STORE", "")
    except AttributeError:
        return


def around() -> str:
    """A line for a person, if the run that begins is not tracked by one around it."""
    return f"the run around this one, in {_around}, does not track it" if _around else ""
