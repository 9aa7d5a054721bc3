"""metamori VERB: finds the verb, and turns every error into one line on stderr and its exit code.

Only the verb's own module is imported, and argparse (options/parser.py) where its options are not plain
(options/plain.py): `metamori run` must not pay for what other verbs need, and neither must `metamori --help`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from metamori.cli.options import VERBS
from metamori.errors import RUN_FAILED, MetamoriError, Usage, missing, sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal  # numbers are enough, and `enum` takes 3 ms

_INTERRUPTED = 130
_COLLECT_AFTER = 100_000  # objects: a start makes many that stay, and looked through every 700 they were a tenth of it


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
    stand_in()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:    # nobody could wait for a child
        signal.signal(signal.SIGCHLD, _child_ended)
    stream: Any
    for stream in (sys.stdout, sys.stderr):
        if stream.encoding.lower() != "utf-8":     # ISO-8859-1 cannot write every name
            stream.reconfigure(errors="backslashreplace")
    status = _status(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass                           # said; the interpreter's own end would say it again, and make the status 120
    os._exit(status)


def stand_in() -> None:
    """For standard input, output and error that are closed: else a file of the store had their number, and messages
    were written into it. A command finds them closed."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)             # the lowest that is free
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _child_ended(_number: int, _frame: object) -> None:
    """Stands for SIG_IGN, which the command gets again (runtime/lifecycle/child_loop.py)."""


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
        _step_out(begins=verb in ("run", "restart"))
        status = 0
        if not verb:
            from metamori.cli.options import parser

            parser.top(words)
        else:
            module = __import__(f"metamori.cli.{verb}", fromlist=["run"])   # `importlib` brings `warnings` along
            status = module.run(_options(verb, module, words[1:]))
        sys.stdout.flush()
        return status
    except MetamoriError as error:
        _say(str(error))
        return RUN_FAILED if verb == "run" else error.exit_code
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
    except MemoryError:                    # ulimit -v
        _say("Cannot allocate memory")
        return RUN_FAILED if verb == "run" else 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _options(verb: str, module: Any, words: list[str]) -> Any:
    found = _read(verb, module, words)
    if getattr(found, "store", None) == "":     # of an unset variable: it would be the present folder
        raise Usage("--store needs the name of a folder")
    return found


def _read(verb: str, module: Any, words: list[str]) -> Any:
    if verb == "run":
        from metamori.cli.options import plain

        if found := plain.read(module, words):
            return found
    from metamori.cli.options import parser

    return parser.parsed(parser.verb_parser(verb, module), words)


def _sentence(error: OSError) -> str:
    if not error.filename:
        try:
            os.getcwd()
        except FileNotFoundError:
            return "the folder that you are in was removed; change to another one"
    return sentence(error)


def _step_out(begins: bool) -> None:
    """A verb started by a script of a live run is no part of the run."""
    from metamori.runtime.lifecycle import leave_run

    leave_run.step_out(begins)


def _say(message: str) -> None:
    from metamori.printed import say

    say(message)


if __name__ == "__main__":
    raise SystemExit(main())
