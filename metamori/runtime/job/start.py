"""run --job: one of the runs of a job. It has a store of its own in the job's, and the job's checkpoints are of all."""

from __future__ import annotations

import argparse
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from metamori.config import Config
from metamori.errors import MetamoriError, StoreBusy, Usage
from metamori.runtime.area import launch_record
from metamori.runtime.job import disks, finish, folder, places
from metamori.runtime.job.elsewhere import VARIABLE, Elsewhere, Over, text
from metamori.runtime.job.places import Place
from metamori.runtime.lifecycle import child_loop
from metamori.runtime.lifecycle.start_run import begin_area
from metamori.store.io import commit
from metamori.store.read import scope as recorded
from metamori.store.read.store import Store
from metamori.store.restore import external_changes
from metamori.tables.record import record, replace

if TYPE_CHECKING:
    from metamori.runtime.checkpoint.session import Session
    from metamori.runtime.job import member
    from metamori.runtime.job.counter import Counter

_REFUSED = ("memory", "isolate", "strict", "keep_last", "max_bytes", "on_checkpoint", "each_command")
JOIN_S = 60.0                              # while nobody can be seen at work
FILES = 1 << 16                            # more than one machine can have connections to one port
SAY_S = 5.0                                # of waiting
SWITCH_S = 0.0002                          # programs stand still while one thread waits for another (5 ms by default)


@record
class Verb:
    """What the verb `run` does for any run."""

    complete: Callable[[Store], None]
    files_back: Callable[[Store, Config, bool], int | None]
    looked_at: Callable[[list[str], Config], tuple[list[str], str, bool, bool]]
    environment: Callable[[Config], dict[str, str]]
    own_part: Callable[[dict[str, str]], dict[str, str]]


def require_possible(arguments: argparse.Namespace) -> None:
    """Usage."""
    import zmq  # noqa: F401  (that it is not there is said before anything is done)

    for option in _REFUSED:
        if getattr(arguments, option):
            raise Usage(f"--{option.replace('_', '-')} is not possible with --job")
    if arguments.mode == "single":
        raise Usage(f"--mode {arguments.mode} is not possible with --job")


@record
class Begun:
    """A run that has joined its job; its command is not started yet. own: the settings of its own store."""

    own: Config
    session: Session
    one: member.Member
    environ: dict[str, str]
    ours: dict[str, str]


def run(config: Config, command: list[str], resumes: bool, stdio: bool, verb: Verb) -> int:
    """The exit status. MetamoriError; CannotStart."""
    command, _, refuses, shown = verb.looked_at(command, config)
    if shown:
        raise MetamoriError(f"{command[0]}: programs without the library are not tracked with --job")
    begun = begin(config, command, verb, resumes, stdio)
    if refuses:
        del begun.environ["LD_PRELOAD"]
    return follow(begun, command)


def begin(config: Config, command: list[str], verb: Verb, resumes: bool = False, stdio: bool = False,
          elsewhere: Elsewhere | None = None) -> Begun:
    """MetamoriError, OSError. elsewhere: of a process of the job that is on another machine than its run."""
    from metamori.runtime.job import member

    child_loop.hold_all()
    sys.setswitchinterval(SWITCH_S)
    host = socket.gethostname()
    one = elsewhere or Elsewhere(member.identity(config.job or "", dict(os.environ)), os.getcwd())
    while True:
        store = Store.open(config.store) if elsewhere else Store.create_or_open(config.store)
        place = _place(store, config, host)
        counter = None
        if _is_first(store, one.identity):
            counter = _begin(store, config, one.identity, resumes, stdio, None if elsewhere else verb)
        number = _number(store)
        if counter is None and (folder.read_counter(store) or {}).get("job") != one.identity:
            continue                       # that job has ended meanwhile, and this number may be another's
        try:
            return _joined(store, number, config, command, verb, place, one, counter)
        except BaseException as error:
            if counter is not None and counter.store.is_locked:
                counter.stop()
                with suppress(StoreBusy):  # others have joined: one of them counts from now on
                    finish.finish(counter.store)
                counter.store.close()
            elif counter is None and isinstance(error, Exception) and _is_over(store, number):
                continue                   # its other runs have ended, or its first could not begin
            raise


def _joined(store: Store, number: int, config: Config, command: list[str], verb: Verb, place: Place, one: Elsewhere,
            counter: Counter | None) -> Begun:
    """In the job of this number. Its end waits for who has joined, not for who is about to: any call on what is the
    job's may fail meanwhile, or make it anew. MetamoriError, OSError."""
    from metamori.runtime.checkpoint.session import Session
    from metamori.runtime.job import member

    _bring_disk(config.store, place)
    node, name = _own_store(store, member.name_of(dict(os.environ), place.host), place)
    own = replace(config, store=node.path, exclude=(*config.exclude, store.path))
    try:
        area, _ = begin_area(node, own, os.getpid(), launch_record.present(command))
        node.door.link(node.layout.buffer(area.head.run), store.layout.buffer(area.head.run))
    except BaseException:
        node.close()
        raise
    session = Session(node, area)
    environ = verb.environment(own)
    environ[VARIABLE] = text(config, replace(one, file=""))
    begun = Begun(own, session, member.Member(store.path, name, session, one.identity, child_loop.say, counter),
                  environ, verb.own_part(environ))
    begun.one.start()
    try:
        _wait_for_answer(begun.one, store, number)
    except BaseException:
        _give_up(begun)
        raise
    return begun


def _wait_for_answer(one: member.Member, store: Store, number: int) -> None:
    """MetamoriError."""
    patience = _Patience(store)
    while not one.joined.wait(0.2):
        if _is_over(store, number) or patience.is_over(one.is_taking if one.counts else store.is_busy()):
            raise MetamoriError(f"no answer from the run that counts; {store.path}/job says where it is")
    if _is_over(store, number):
        raise MetamoriError(f"the job in {store.path} ended, and another began")


def follow(begun: Begun, command: list[str], file: str = "", folder: int = -1) -> int:
    """The exit status. CannotStart. file: what is executed; else the command says it. folder: in which, likewise."""
    from metamori.runtime.lifecycle.run_controller import Live
    from metamori.runtime.lifecycle.run_controller import follow as follow_run

    def first() -> None:
        if folder >= 0:
            os.fchdir(folder)
        begun.session.area.is_first()

    try:
        pid = child_loop.spawn(command, begun.environ, first, file)
    except child_loop.CannotStart:
        _give_up(begun)
        raise
    _allow_files()
    live = Live(begun.session, begun.own, pid, begun.ours)
    live.job = begun.one
    status = follow_run(live)
    begun.one.end()
    return status


def _allow_files() -> None:
    """In this process, not in its program: whoever is on the network may connect, and hold that until it is found that
    they have no key."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FILES:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES) if hard >= 0 else FILES, hard))


def _give_up(begun: Begun) -> None:
    begun.one.leave()
    with suppress(FileNotFoundError):      # the job was over, and all that was in it went
        begun.session.area.retire()
    begun.session.area.remove()
    begun.session.store.close()
    begun.one.end()


def _place(store: Store, config: Config, host: str) -> Place:
    """MetamoriError."""
    scope = recorded.read(store.door, store.layout) or recorded.Scope()
    tracked = (os.path.realpath(os.fsencode(each)) for each in config.track)
    return places.look(store, host, dict.fromkeys((os.getcwdb(), *tracked, *scope.folders)))


def _number(store: Store) -> int:
    """Of the job in this store, 0 where it is over."""
    try:
        return finish.job_run(store)
    except FileNotFoundError:
        return 0


def _is_over(store: Store, number: int) -> bool:
    return not number or _number(store) != number


class _Patience:
    """Of who waits for the job. The lock of its store proves that who has it lives; that may take as long as the files
    do to go back, or a killed run to be completed."""

    def __init__(self, store: Store) -> None:
        self._store, self._began, self._said = store, time.monotonic(), False
        self._limit = self._began + JOIN_S

    def is_over(self, is_at_work: bool) -> bool:
        child_loop.let_go()
        now = time.monotonic()
        if is_at_work:
            self._limit = now + JOIN_S
        if not self._said and now > self._began + SAY_S:
            self._said = True
            child_loop.say(f"waiting for the store {self._store.path}: who has it may be "
                           + ("restoring the files" if is_at_work else "about to end"))
        return now > self._limit


def _is_first(store: Store, identity: str) -> bool:
    """Whether this is the first run of the job: the store is locked then, else closed: another one counts."""
    from metamori.runtime.job import member, wire

    patience = _Patience(store)
    while True:
        try:
            store.lock()
        except StoreBusy:
            reached = folder.read_counter(store)
            other = wire.job_of(reached) if reached else ""
            if other == identity:
                store.close()
                return False
            if other:                      # one that was queued again has runs that are on their way out
                is_at_work, whose = False, f"job {other.strip()}"
            elif reached:                  # or one of a job that was killed, whose end somebody records
                is_at_work, whose = wire.is_reached(reached), f"a run that is not reached, on {reached['host']}"
            else:
                is_at_work, whose = not commit.exists(store.door, store.layout.run_area), "a live run"
            if patience.is_over(is_at_work) or (other and not member.is_same_job(other, identity)):
                raise StoreBusy(f"the store {store.path} is in use by {whose}") from None
            time.sleep(0.05)
            continue
        if not (folder.is_there(store) and folder.is_live(store.path)):
            commit.remove_file(store.door, store.layout.job, durable=False)    # nobody is reached there any more
            return True
        store.unlock()                     # its next one to count takes the lock
        time.sleep(0.2)
        if patience.is_over(False):
            raise StoreBusy(f"the store {store.path} is in use by a live job")


def _begin(store: Store, config: Config, identity: str, resumes: bool, stdio: bool, verb: Verb | None) -> Counter:
    """The job begins: its counter. verb: None where this run can only join."""
    from metamori.runtime.job.counter import Counter

    if verb is None:
        store.close()
        raise Over
    verb.complete(store)
    if resumes:
        verb.files_back(store, config, stdio)
    store.settle_in()
    if not store.is_recorded:
        from metamori.store.restore.resume_point import BEFORE_RUN

        external_changes.record(store, BEFORE_RUN)
    _note_scope(store)
    job_run = store.next_run()
    commit.make_folder(store.door, store.layout.nodes)
    fd = store.door.open(store.layout.buffer(job_run), os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
    store.door.ftruncate(fd, 4096)
    store.door.close(fd)
    commit.write_file(store.door, store.layout.order, b"", durable=False)
    commit.write_file(store.door, os.path.join(store.layout.nodes, b"run"), b"%d" % job_run)
    commit.write_file(store.door, store.layout.alive, b"%d\n" % job_run, durable=False)
    counter = Counter(store, identity, job_run, config.durability == "power", child_loop.say)
    counter.start()
    return counter


def _bring_disk(path: str, place: Place) -> None:
    """MetamoriError: this run does not take part then."""
    store = Store.open(path)               # the other belongs to the one that counts
    try:
        for said in disks.bring(store, place, finish.job_run(store)):
            child_loop.say(said)
    finally:
        store.close()


def _note_scope(store: Store) -> None:
    """As any run does, for those that come after the job."""
    before = recorded.read(store.door, store.layout)
    scope = (before or recorded.Scope()).plus([] if before and before.is_everything else [os.getcwdb()], ())
    if scope != before:
        recorded.write(store.door, store.layout, scope)


def _own_store(store: Store, name: str, place: Place) -> tuple[Store, str]:
    """A store of this run alone, locked, with a run number that no other run has had in the job's store."""
    taken, tried = name, 1
    while True:
        path = store.layout.node(os.fsencode(taken))
        try:
            os.mkdir(path, 0o700)
            break
        except FileExistsError:            # it has run before in this job
            tried += 1
            taken = f"{name}-{tried}"
    node = Store.create_or_open(os.fsdecode(path))
    _lock(node)
    try:
        places.note(store, os.fsencode(taken), place)
        places.require_alike(store, os.fsencode(taken), place)
        scope = recorded.read(store.door, store.layout)
        if scope is not None:
            recorded.write(node.door, node.layout, scope)
        number = _take_run_number(store)
        node.number_runs_from(number)
    except BaseException:
        node.close()
        raise
    return node, taken


def _lock(node: Store) -> None:
    """It is nobody else's, but who looks whether this run is alive has its lock for that moment."""
    limit = time.monotonic() + JOIN_S
    while True:
        try:
            return node.lock()
        except StoreBusy:
            if time.monotonic() > limit:
                raise
        time.sleep(0.002)


def _take_run_number(store: Store) -> int:
    """Who makes the file that the number names has it."""
    number = max(store.buffers.runs(), default=0)
    while True:
        number += 1
        try:
            fd = os.open(os.path.join(store.layout.nodes, b"number.%d" % number), os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                         0o600)
            os.close(fd)
            return number
        except FileExistsError:
            continue
