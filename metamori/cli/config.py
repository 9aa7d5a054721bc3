"""Compiler and linker flags for programs that call the C API (metamori.h) or FTI's interface."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from metamori.cli import output
from metamori.errors import MetamoriError, Usage

_PACKAGE = Path(__file__).resolve().parents[1]
_PLACES = (_PACKAGE / "include", _PACKAGE.parent / "shim_c" / "include")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cflags", action="store_true", help="what the compiler needs")
    parser.add_argument("--libs", action="store_true", help="what the linker needs")
    parser.add_argument("--fti", action="store_true", help="for programs that call FTI (fti.h, module FTI)")
    parser.add_argument("--fortran", action="store_true", help="with --fti: also what Fortran's module FTI needs")


def run(arguments: argparse.Namespace) -> int:
    if not (arguments.cflags or arguments.libs or arguments.json):
        raise Usage("say --cflags, --libs or both")
    header = "fti.h" if arguments.fti else "metamori.h"
    folder = next((place for place in _PLACES if (place / header).exists()), None)
    if folder is None:
        raise MetamoriError(f"{header} is not installed; build it with: make build")
    cflags, libs = f"-I{shlex.quote(str(folder))}", _libraries(arguments.fortran) if arguments.fti else "-ldl"
    words = [cflags] * arguments.cflags + [libs] * arguments.libs
    output.result(arguments, {"cflags": cflags, "libs": libs}, " ".join(filter(None, words)))
    return 0


def _libraries(fortran: bool) -> str:
    """The linker's words for the levels."""
    if not (_PACKAGE / "libmetamori_fti.so").exists():
        raise MetamoriError("libmetamori_fti.so is not built (it needs a shared libpython); try: make build")
    folder = shlex.quote(str(_PACKAGE))
    names = []
    if fortran:
        if not (_PACKAGE / "libmetamori_fti_f90.so").exists():
            raise MetamoriError("the module FTI is not built; on Debian: apt-get install gfortran, then make build")
        names.append("-lmetamori_fti_f90")
    return " ".join([f"-L{folder}", f"-Wl,-rpath,{folder}", *names, "-lmetamori_fti"])
