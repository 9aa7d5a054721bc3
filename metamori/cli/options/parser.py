"""The words of a command line as argparse takes them: --help, usage errors, and every verb's options."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NoReturn

from metamori.cli.options import VERBS
from metamori.errors import Usage

ABOUT = "Takes incremental checkpoints of the files that a program writes, and restores any of them."
_WITHOUT_STORE = ("run", "config")         # run has its own


class Parser(argparse.ArgumentParser):
    """Says a usage error in one line."""

    def print_help(self, file: Any = None) -> None:
        """Where argparse would be silent about a full device."""
        print(self.format_help(), end="", file=file or sys.stdout, flush=True)

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{message}{self._meant(message)} (see {self.prog} --help)")

    def _meant(self, message: str) -> str:
        """What an unknown verb or option was probably meant to be."""
        import re

        found = re.search(r"invalid choice: '([^']*)'|unrecognized arguments: (--[^\s=]+)", message)
        if not found:
            return ""
        import difflib

        known = list(VERBS) if found[1] else [name for name in self._option_string_actions if name.startswith("--")]
        near = difflib.get_close_matches(found[1] or found[2], known, 1)
        return f"; did you mean {near[0]}?" if near else ""


def top(words: list[str]) -> None:
    """--help and --version, or the usage error that the words are."""
    parser = Parser(prog="metamori", description=ABOUT, epilog="Run metamori VERB --help for the options of a verb.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", title="verbs")
    for name, line in VERBS.items():
        verbs.add_parser(name, help=line)
    verb = next((word for word in words if word in VERBS), None)
    if verb and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        raise Usage(f"the verb comes first: metamori {verb} {' '.join(words[:words.index(verb)])}")
    if parser.parse_args(words).version:
        from importlib.metadata import PackageNotFoundError, version
        try:
            print("metamori", version("metamori"))
        except PackageNotFoundError:
            print("metamori, not installed")
        return
    raise Usage("a verb is missing (see metamori --help)")


def _given_store() -> str:
    """The run's; of one of a job the job's (runtime/job/folder.py)."""
    path = os.environ.get("METAMORI_STORE") or ""
    nodes, above = os.path.dirname(path), os.path.dirname(os.path.dirname(path))
    is_one = os.path.basename(nodes) == "nodes" and os.path.exists(os.path.join(above, "format"))
    return above if is_one else path


def verb_parser(verb: str, module: Any) -> Parser:
    """The parser of a verb, whose module is given."""
    parser = Parser(prog=f"metamori {verb}", description=(module.__doc__ or "").strip())
    if verb not in _WITHOUT_STORE:
        parser.add_argument("--store", metavar="DIR", default=_given_store() or ".metamori",
                            help="where the checkpoints are (default: $METAMORI_STORE, else .metamori)")
    if verb not in ("run", "restart"):
        parser.add_argument("--json", action="store_true", help="print one JSON value")
    module.add_arguments(parser)
    return parser


def parsed(parser: Parser, words: list[str]) -> argparse.Namespace:
    """Options may stand between other words, but not where the words after them are a command of their own."""
    if any(action.nargs == argparse.REMAINDER for action in parser._actions):
        return parser.parse_args(words)
    return parser.parse_intermixed_args(words)
