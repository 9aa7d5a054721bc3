"""Run a command and track the files that it writes. Ends with its exit status, or 125 if Metamori failed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping

from metamori.config import LIBRARY, Config, parse_count, parse_duration, parse_room, parse_size
from metamori.errors import RUN_FAILED, MetamoriError, StoreBusy, Usage, sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

CANNOT_EXECUTE, NOT_FOUND = 126, 127
_TO_BEGIN = "4 MiB"    # what the files of a run area take, and a little more
OLDEST_LIBC = (2, 17)  # what the preload library is linked for (shim_c/src/base/old_names.h, old_libc.c)


def signal_number(text: str) -> int:
    """USR1, SIGUSR1 or 10."""
    import signal

    name = text.upper()
    try:
        number = int(name) if name.isdigit() else int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
        if number in signal.valid_signals() and number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            return number
    except KeyError:
        pass
    raise Usage(f"'{text}' is not a signal that can be handled; write USR1 or TERM")


def add_on_term(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--on-term", metavar="ACTION", choices=("checkpoint",),
                        help="checkpoint: hold SIGTERM back until a checkpoint is complete (preemption by Slurm, spot "
                             "machines, systemd). With --memory also a SIGTERM to the program or its process group")


def add_outside(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--outside", metavar="POLICY", choices=("refuse", "close", "stdio"),
                        help="with --memory, while a descriptor leads out of the run (connections, terminals, "
                             "devices, pipes to other processes). refuse: no checkpoint, and it is named (default). "
                             "close: after a restart connections are reset (ECONNRESET, then end of file and EPIPE), "
                             "terminals hung up, pipes closed at the other end, devices closed (EBADF; the number "
                             "stays taken); the running program notices nothing. stdio: the same, but a terminal "
                             "comes back as standard input of metamori restart, or as its output if it was opened for"
                             " writing only")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="DIR", help="where the checkpoints go (default .metamori)")
    _what_is_kept(parser)
    _when_checkpoints_come(parser)
    _how_it_resumes(parser)
    parser.add_argument("--keep-last", metavar="N",
                        help="keep only the newest N of the run's own checkpoints. Earlier runs' checkpoints, "
                             "and checkpoint 0, are dropped by metamori prune; a resumed run is a new one")
    parser.add_argument("--max-bytes", metavar="SIZE",
                        help="keep the newest of the run's own checkpoints that fit into a store of SIZE. With this "
                             "or --keep-last a full disk prunes the oldest, never below --keep-last, and the write "
                             "succeeds")
    parser.add_argument("--durability", choices=("power", "process"),
                        help="what a checkpoint survives: a power failure (default), or only the end of any process, "
                             "which is faster. fsync works either way")
    parser.add_argument("command", metavar="COMMAND", nargs="...", help="the program and its arguments")


def _what_is_kept(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mode", choices=("incremental", "single"),
                        help="whether any checkpoint can be restored (default), or only the last: each commits")
    parser.add_argument("--isolate", action="store_const", const=True,
                        help="write to the files only at the end of the run (single mode: at checkpoints)")
    parser.add_argument("--memory", action="store_const", const=True,
                        help="save the program's memory too, incrementally, for metamori restart. io_uring is refused "
                             "(EPERM)")
    add_outside(parser)
    parser.add_argument("--strict", action="store_const", const=True,
                        help="track every program by its system calls, as static ones are: also what dynamic programs "
                             "do by system call instructions of their own. io_uring is refused (EPERM); programs cannot"
                             " take checkpoints by the C or Python interface; opening for writing is slower. 125 where "
                             "the kernel does not allow it")
    parser.add_argument("--cache-size", metavar="SIZE", help="buffered data kept in memory per file (default 1M)")
    parser.add_argument("--track", metavar="DIR", action="append",
                        help="track the files of this folder too; / is everything (default: the present folder). "
                             "Repeatable; the store remembers it")
    parser.add_argument("--exclude", metavar="GLOB", action="append",
                        help="do not track these files or folders; as a line of .metamoriignore. Repeatable; the store "
                             "remembers it")


def _when_checkpoints_come(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", metavar="DURATION", help="take a checkpoint this often: 30s, 10m")
    parser.add_argument("--on-signal", metavar="SIG",
                        help="take a checkpoint when metamori run receives this signal, then pass it on")
    add_on_term(parser)
    parser.add_argument("--on-checkpoint", metavar="COMMAND",
                        help="after each checkpoint, the end's too, run this shell command. It has METAMORI_INDEX and"
                             " METAMORI_STORE, runs beside the program, one at a time, and is not tracked; its output"
                             " goes to standard error, a failure is reported. run waits for the last")
    parser.add_argument("--each-command", action="store_true",
                        help="COMMAND is bash or zsh: take a checkpoint before each command line, named by it. Then "
                             "metamori undo takes back the last line that changed a file. In a script, bash -c or a "
                             "pipe each command counts; lines that begin with metamori do not, nor shells that it "
                             "starts")


def _how_it_resumes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", metavar="NAME", nargs="?", const="",
                        help="this is one of several runs, on any nodes, with one store on a filesystem that they "
                             "share: their checkpoints are one. Which runs belong together is told by NAME, else by "
                             "Slurm, PMIx or MPI. Nothing is redirected; needs pyzmq")
    parser.add_argument("--resume", action="store_true",
                        help="first restore the last checkpoint of an interrupted run, or its beginning. Interrupted "
                             "is the last run on this branch if it was killed, requeued, or ended with a status other"
                             " than 0. With --memory the program itself continues. Files modified outside Metamori "
                             "are not overwritten: 125")
    parser.add_argument("--requeue", action="store_true",
                        help="in a Slurm job: on the signal (default USR1) take a checkpoint and queue the job again."
                             " The command does not get the signal. With --on-term checkpoint also at SIGTERM, unless"
                             " the job is cancelled or at its time limit. Started again (SLURM_RESTART_COUNT), it "
                             "resumes")
    parser.add_argument("--resume-at", metavar="GLOB",
                        help="resume only from checkpoints whose message matches (metamori checkpoint -m restart). For "
                             "programs that restart from files of their own")
    parser.add_argument("--stdio", action="store_true",
                        help="with --resume or --requeue: also truncate inherited regular files (run ... >> out.log) "
                             "to their size at that checkpoint")


def run(arguments: argparse.Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise Usage("run needs a command: metamori run -- COMMAND [ARG...]")
    from metamori.runtime.lifecycle import child_loop

    os.getcwd()                            # FileNotFoundError where that was removed (cli/main.py)
    if not command[0]:                     # as env says it
        child_loop.say(f"'': {os.strerror(errno.ENOENT)}")
        return NOT_FOUND
    was_restarted = False
    if arguments.requeue:
        from metamori.runtime.lifecycle import slurm

        slurm.job()
        was_restarted = slurm.was_restarted()
    for option in ("stdio", "resume_at"):
        if getattr(arguments, option) and not (arguments.resume or arguments.requeue):
            raise Usage(f"--{option.replace('_', '-')} needs --resume or --requeue")
    if arguments.each_command:
        from metamori.cli import shells

        command, more = shells.prepared(command)
        os.environ.update(more)
    if arguments.strict and arguments.memory:
        raise Usage("--strict and --memory exclude each other: memory is saved by the library in the program")
    if arguments.job is not None:
        from metamori.runtime.job import start as job

        job.require_possible(arguments)
    config = _asked(arguments)
    if arguments.outside and not config.memory:
        raise Usage("--outside needs --memory")
    resumes = arguments.resume or was_restarted
    try:
        path = os.path.abspath(config.store)
        if {os.path.basename(path), os.path.basename(os.path.dirname(path))} & {"nodes", "disks"}:
            from metamori.runtime.job import folder

            folder.require_no_part(config.store, "nodes", "disks")
        if config.job is not None:
            from metamori.cli import opening, resume

            verb = job.Verb(opening.complete, resume.files_back, looked_at, environment, own_part)
            return job.run(config, command, resumes, arguments.stdio, verb)
        return _run(config, command, resumes, arguments.stdio)
    except child_loop.CannotStart as error:
        return _not_started(command, error, _for_a_shell(command))
    except OSError as error:
        from metamori.runtime.lifecycle.start_run import NoRoom

        needs = f"; a run needs {_TO_BEGIN} there to begin" if isinstance(error, NoRoom) else ""
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        if os.path.isabs(name) and not name.startswith(path):
            child_loop.say(sentence(error))
        else:
            child_loop.say(f"the store {config.store} cannot be used: {error.strerror or error}{needs}")
        return RUN_FAILED
    except MetamoriError as error:
        child_loop.say(str(error))
        return RUN_FAILED


def _asked(arguments: argparse.Namespace) -> Config:
    """Options, over the environment."""
    on_signal = arguments.on_signal or ("USR1" if arguments.requeue else None)
    return Config.make({
        "store": arguments.store, "mode": arguments.mode, "isolate": arguments.isolate,
        "memory": arguments.memory, "job": arguments.job, "outside": arguments.outside, "strict": arguments.strict,
        "cache_size": parse_size(arguments.cache_size) if arguments.cache_size else None,
        "track": tuple(arguments.track) if arguments.track else None,
        "exclude": tuple(arguments.exclude) if arguments.exclude else None,
        "every": parse_duration(arguments.every) if arguments.every else None,
        "on_signal": signal_number(on_signal) if on_signal else None,
        "on_term": arguments.on_term == "checkpoint", "requeue": arguments.requeue,
        "on_checkpoint": arguments.on_checkpoint, "resume_at": arguments.resume_at,
        "keep_last": parse_count(arguments.keep_last) if arguments.keep_last else None,
        "max_bytes": parse_room(arguments.max_bytes) if arguments.max_bytes else None,
        "durability": arguments.durability,
    })


OURS = ("LD_PRELOAD", "METAMORI_STORE", "METAMORI_SUPERVISED", "METAMORI_PYTHON", "METAMORI_LIBPYTHON",
        "METAMORI_MEMORY")


def own_part(environ: dict[str, str]) -> dict[str, str]:
    """What of a command's environment is Metamori's."""
    return {name: environ[name] for name in OURS if name in environ}


def environment(config: Config, before: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The command's: ours is added to what was preloaded before, never put in its place."""
    env = dict(before)
    preloaded = [each for each in env.get("LD_PRELOAD", "").replace(":", " ").split() if each != LIBRARY]
    for name in ("METAMORI_MEMORY", "METAMORI_LIBPYTHON", "METAMORI_ELSEWHERE"):
        env.pop(name, None)
    env.update(LD_PRELOAD=":".join([LIBRARY, *preloaded]), METAMORI_STORE=config.store, METAMORI_SUPERVISED="1",
               METAMORI_PYTHON=sys.executable)
    beside = "{}/lib/libpython{}.{}.so.1.0".format(sys.base_prefix, *sys.version_info)
    if os.path.exists(beside):
        env["METAMORI_LIBPYTHON"] = beside
    if config.memory:
        env["METAMORI_MEMORY"] = "1"
    return env


def _run(config: Config, command: list[str], resumes: bool = False, stdio: bool = False) -> int:
    from metamori.cli import progress
    from metamori.runtime.area import launch_record
    from metamori.runtime.lifecycle import child_loop
    from metamori.runtime.lifecycle.start_run import begin_area
    from metamori.store.read.store import Store

    _require_possible(config)
    store = Store.create_or_open(config.store, progress.door(shown=resumes))
    if os.path.exists(store.layout.nodes):
        from metamori.cli import opening

        with store:
            store.lock()
            opening.complete(store)
    try:
        if resumes:
            from metamori.cli import resume

            resume.wait_for(store)
        store.lock()
    except StoreBusy:
        from metamori.runtime.lifecycle import leave_run

        given = leave_run.given()
        if given.get("METAMORI_STORE") == config.store and "METAMORI_SUPERVISED" in given:
            return _join(command, {name: given[name] for name in given if name.startswith("METAMORI_")})
        raise
    command, file, refuses, shown = looked_at(command, config)
    if config.memory:
        _require_memory()
    index = resume.files_back(store, config, stdio) if resumes else None
    if index and config.memory and store.meta(index).memory:
        return resume.go_on(store, config, index, own_part(environment(config)), stdio, said=False)
    store.door.show(False)
    if config.on_term:
        child_loop.hold_term()
    area, said = begin_area(store, config, os.getpid(), launch_record.present(command))
    if said:
        child_loop.say(said)
    environ = environment(config)
    if shown:
        environ["METAMORI_BECOME"] = file
    elif refuses:
        del environ["LD_PRELOAD"]
        environ |= {name: value for name, value in os.environ.items() if name == "LD_PRELOAD"}
    try:
        pid = child_loop.spawn(command, environ, area.is_first, sys.executable if shown else "")
    except child_loop.CannotStart:
        area.remove()
        raise
    from metamori.runtime.checkpoint.session import Session
    from metamori.runtime.lifecycle.run_controller import Live, follow  # while the command already runs

    return follow(Live(Session(store, area), config, pid, own_part(environ)))


def _require_possible(config: Config) -> None:
    if not os.path.exists(LIBRARY):
        raise MetamoriError(f"the preload library {LIBRARY} is not there; build it with: make build")
    if libc := too_old(os.confstr("CS_GNU_LIBC_VERSION") or ""):
        raise MetamoriError(f"the C library is {libc}; programs can be tracked with glibc 2.17 or newer")
    if os.path.join(os.getcwd(), "").startswith(os.path.join(os.path.realpath(config.store), "")):
        raise MetamoriError(f"the store {config.store} cannot be the folder that the command runs in: nothing in a "
                            "store is tracked; --store names another place")


def _require_memory() -> None:
    """MetamoriError where no image could come back; what only costs more is said."""
    from metamori.runtime.lifecycle import child_loop
    from metamori.runtime.memory import images

    if why := images.no_return():
        raise MetamoriError(f"no checkpoint with --memory could be restarted here: {why}")
    if why := images.all_of_it():
        child_loop.say(f"no dirty-page tracking ({why}): every checkpoint will be a full image of the program's memory")


def _not_started(command: list[str], error: OSError, hint: str = "") -> int:
    from metamori.runtime.lifecycle import child_loop

    child_loop.say(f"{command[0]}: {error.strerror}{hint}")
    return NOT_FOUND if error.errno == errno.ENOENT else CANNOT_EXECUTE


def _for_a_shell(command: list[str]) -> str:
    """A line that a shell would have understood was given as the name of a program."""
    if (len(command) == 1 and " " in command[0]) or command[0] in ("cd", "export", "source", "ulimit", "umask"):
        return "; a shell's line is run so: metamori run -- sh -c 'LINE'"
    return ""


def too_old(libc: str) -> str:
    """`libc`, such as "glibc 2.12", when its programs cannot load the preload library; else ""."""
    version = tuple(int(part) for part in libc.removeprefix("glibc ").split(".")[:2] if part.isdigit())
    return libc if version and version < OLDEST_LIBC else ""


def looked_at(command: list[str], config: Config) -> tuple[list[str], str, bool, bool]:
    """The command; its file; whether it must not even be offered the library; whether its calls are tracked without.

    One line when it cannot be tracked at all.
    """
    from metamori.runtime.area import launch_record
    from metamori.runtime.lifecycle import child_loop, elf

    if config.strict and (why := elf.calls_are_hidden()):
        raise MetamoriError(f"--strict is not possible here: {why}")
    path = launch_record.program(command[0])
    try:
        program = elf.look(path) if path else None
    except OSError:
        program = None
    if config.strict and program and program.why == elf.NO_PROGRAM:    # as execvp does
        command, path, program = ["/bin/sh", path, *command[1:]], "/bin/sh", None
    hidden = config.memory or os.environ.get("METAMORI_STATIC") == "untracked"
    shown = bool(path) if config.strict else bool(program and program.shows_calls) and not hidden
    if program and not shown and program.why not in ("", elf.NO_PROGRAM):
        child_loop.say(f"{path} cannot be tracked: {program.why}. Its files are not checkpointed")
    return command, os.path.abspath(path) if path else "", bool(program and program.refuses), shown


def _join(command: list[str], ours: dict[str, str]) -> int:
    """Inside a run: the command simply becomes part of it."""
    env = os.environ | ours
    if LIBRARY not in env.get("LD_PRELOAD", ""):
        env["LD_PRELOAD"] = ":".join(filter(None, [LIBRARY, env.get("LD_PRELOAD")]))
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        return _not_started(command, error)
