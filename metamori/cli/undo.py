"""Take back the last changes of the files, in a live run too. The state before is saved as a checkpoint."""

from __future__ import annotations

import argparse

from metamori.cli import stepping


def add_arguments(parser: argparse.ArgumentParser) -> None:
    stepping.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    return stepping.run(arguments, "back")
