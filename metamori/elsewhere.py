"""What the preload library executes in place of a program that a job's run has on another machine: a run there, and the
program in it. Not a verb: words are the program's file and its arguments (shim_c/src/start/elsewhere.c)."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:    # as in __main__
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if __name__ == "__main__":                 # executed by its path: the package may be on nobody's list
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(file: str, command: list[str]) -> int:
    """The exit status. Where there can be no run, the program is executed without."""
    from metamori.cli import opening, resume, run
    from metamori.cli.main import stand_in
    from metamori.errors import RUN_FAILED, MetamoriError, missing, sentence
    from metamori.runtime.job import elsewhere, start
    from metamori.runtime.lifecycle import child_loop

    stand_in()
    there = os.open(".", os.O_PATH | os.O_CLOEXEC)
    config, one = elsewhere.read(os.environ.pop(elsewhere.VARIABLE), file)
    try:
        os.chdir(one.folder)               # the scope is that of the job
        verb = start.Verb(opening.complete, resume.files_back, run.looked_at, run.environment, run.own_part)
        begun = start.begin(config, command, verb, elsewhere=one)
    except (Exception, KeyboardInterrupt) as error:    # whatever it is: the program runs, and has that signal
        if not isinstance(error, elsewhere.Over | KeyboardInterrupt):
            why = missing(error) if isinstance(error, ImportError) else ""
            child_loop.say(f"{file} is not tracked on this machine: {why or sentence(error)}")
        os.fchdir(there)
        child_loop.become(command, dict(os.environ), file)
    try:
        return start.follow(begun, command, file, there)
    except child_loop.CannotStart as error:
        child_loop.say(f"{file}: {error.strerror}")
        return run.CANNOT_EXECUTE
    except (MetamoriError, OSError) as error:
        child_loop.say(sentence(error))
        return RUN_FAILED


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2:]))
