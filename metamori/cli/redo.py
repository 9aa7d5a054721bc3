"""Make changes again that undo or restore took back; of several branches, the newest."""

from __future__ import annotations

import argparse

from metamori.cli import stepping


def add_arguments(parser: argparse.ArgumentParser) -> None:
    stepping.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    return stepping.run(arguments, "forward")
