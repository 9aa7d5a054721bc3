"""metamori VERB: finds the verb, and turns every error into one line on stderr and its exit code.

Only argparse is imported before the verb is known, and then only that verb's module: `metamori run` must not
pay for what other verbs need, and neither must `metamori --help`.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from metamori.errors import RUN_FAILED, MetamoriError, Usage, missing

VERBS = {
    "run": "run a command and track its files",
    "checkpoint": "take a checkpoint of the live run",
    "log": "the tree of checkpoints",
    "show": "what a checkpoint's records say",
    "diff": "which files, names and ranges differ between two checkpoints",
    "cat": "a file's content as it was at a checkpoint",
    "restore": "restore the files to a checkpoint",
    "undo": "take back the last changes of the files",
    "redo": "make undone changes again",
    "restart": "continue from a checkpoint: files, and the program's memory if it was saved",
    "report": "pictures of the history: timeline, heatmap, space, or one HTML page",
    "status": "what a live run is doing",
    "verify": "check every byte of the store",
    "prune": "free space: drop checkpoints that no rule keeps",
    "doctor": "what can and cannot be tracked here",
    "config": "compiler and linker flags for the C API",
}
ABOUT = "Takes incremental checkpoints of the files that a program writes, and restores any of them."
_WITHOUT_STORE = ("run", "config")  # run has its own
_INTERRUPTED = 130
_COLLECT_AFTER = 100_000  # objects: a start makes many that stay, and looked through every 700 they were a tenth of it


class Parser(argparse.ArgumentParser):
    """Says a usage error in one line."""

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


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status.

    Without words it is the program itself, which ends here: to take the interpreter apart is a tenth of a short run."""
    if argv is not None:
        return _status(list(argv))
    try:
        return _as_program()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)


def _as_program() -> int:
    sys.unraisablehook = _unraisable
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.stdout is None:                 # closed: what verbs print goes nowhere
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    status = _status(sys.argv[1:])
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except OSError:
        return status                      # said at the interpreter's own end, with the status that it has for it
    os._exit(status)


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Ctrl-C in what Python calls by itself, where no exception can leave."""
    if what.exc_type is KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    sys.__unraisablehook__(what)


def _status(words: list[str]) -> int:
    """The exit status. `run` has one for all its errors."""
    gc.set_threshold(_COLLECT_AFTER)
    verb = words[0] if words and words[0] in VERBS else ""
    try:
        _step_out()
        if not verb:
            _top(words)
            return 0
        module = importlib.import_module(f"metamori.cli.{verb}")
        status: int = module.run(_parsed(verb_parser(verb, module), words[1:]))
        sys.stdout.flush()
        return status
    except MetamoriError as error:
        _say(str(error))
        return RUN_FAILED if verb == "run" and not isinstance(error, Usage) else error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read us has seen enough
        return 1
    except ImportError as error:
        if not missing(error):
            raise
        _say(missing(error))
        return RUN_FAILED if verb == "run" else 1
    except OSError as error:
        _say(_sentence(error))
        return RUN_FAILED if verb == "run" else 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _sentence(error: OSError) -> str:
    if error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the folder that you are in was removed; change to another one"
    if not error.strerror or not isinstance(error.filename, (str, bytes)):
        return error.strerror or str(error)
    from metamori.printed import name_text

    return f"{name_text(error.filename)}: {error.strerror}"


def _top(words: list[str]) -> None:
    """--help and --version, or the usage error that the words are."""
    parser = Parser(prog="metamori", description=ABOUT, epilog="Run metamori VERB --help for the options of a verb.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", title="verbs")
    for name, line in VERBS.items():
        verbs.add_parser(name, help=line)
    if parser.parse_args(words).version:
        from importlib.metadata import PackageNotFoundError, version
        try:
            print("metamori", version("metamori"))
        except PackageNotFoundError:
            print("metamori, not installed")
        return
    raise Usage("a verb is missing (see metamori --help)")


def verb_parser(verb: str, module: Any) -> Parser:
    """The parser of a verb, whose module is given."""
    parser = Parser(prog=f"metamori {verb}", description=(module.__doc__ or "").strip())
    if verb not in _WITHOUT_STORE:
        parser.add_argument("--store", metavar="DIR", default=os.environ.get("METAMORI_STORE") or ".metamori",
                            help="where the checkpoints are (default: $METAMORI_STORE, else .metamori)")
    if verb not in ("run", "restart"):
        parser.add_argument("--json", action="store_true", help="print one JSON value")
    module.add_arguments(parser)
    return parser


def _parsed(parser: Parser, words: list[str]) -> argparse.Namespace:
    """Options may stand between other words, but not where the words after them are a command of their own."""
    if any(action.nargs == argparse.REMAINDER for action in parser._actions):
        return parser.parse_args(words)
    return parser.parse_intermixed_args(words)


def _step_out() -> None:
    """A verb started by a script of a live run is no part of the run."""
    from metamori.runtime.lifecycle import leave_run

    leave_run.step_out()


def _say(message: str) -> None:
    from metamori.printed import clear_progress, line_text

    clear_progress()
    sys.stderr.write(f"metamori: {line_text(message)}\n")


if __name__ == "__main__":
    raise SystemExit(main())
