"""What a program that calls the C API is built with. The header needs no library: see metamori.h."""

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
    parser.add_argument("--libs", action="store_true", help="what the linker needs: nothing")


def run(arguments: argparse.Namespace) -> int:
    if not (arguments.cflags or arguments.libs or arguments.json):
        raise Usage("say --cflags, --libs or both")
    folder = next((place for place in _PLACES if (place / "metamori.h").exists()), None)
    if folder is None:
        raise MetamoriError("metamori.h is not installed; build it with: make build")
    cflags, libs = f"-I{shlex.quote(str(folder))}", ""
    words = [cflags] * arguments.cflags + [libs] * arguments.libs
    output.result(arguments, {"cflags": cflags, "libs": libs}, " ".join(filter(None, words)))
    return 0
