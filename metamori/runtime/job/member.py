"""A run of a job: it freezes and cuts when the one that counts says so, and counts itself when that one is gone."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from metamori.errors import MetamoriError, NoStore, StoreBusy, sentence
from metamori.runtime.area.run_area import NotAtRest
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.job import finish, folder
from metamori.runtime.job.clock import Clock, now_ns
from metamori.runtime.job.counter import FREEZE_S, READY_S, Counter, text_of
from metamori.runtime.job.lines import Lines
from metamori.runtime.job.relays import COUNTER, TOLD, Share
from metamori.runtime.job.wire import Client, Message, NoAnswer
from metamori.runtime.lifecycle.slurm import PATIENCE_S
from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.store.restore import resume_point

ANSWER_S = 180.0
HUNG_S = 30.0                              # without any sign; it gives none while it writes the job's record
_ALIVE_S, _LOOK_S = 1.0, 0.5
_CLOCK_S, _TIMES = 10.0, 6                 # between notes of the time; questions when a line is new
_END_S, _DIAL_S = 30.0, 10.0
_ENDED = "a run ended meanwhile"


class Member(threading.Thread):
    """`session` is this thread's until `leave`. identity: of the job."""

    def __init__(self, path: str, name: str, session: Session, identity: str, say: Callable[[str], None],
                 counter: Counter | None) -> None:
        super().__init__(name="metamori member", daemon=True)
        self.path, self.name_, self.session, self.identity, self.say = path, name, session, identity, say
        self.counter = counter
        self.joined = threading.Event()
        self._client: Client | None = None
        self._lines: Lines | None = None   # that one, and those to other runs
        self._over = threading.Event()
        self._told: tuple[list[tuple[int, int]], bool] = [], False
        self._heard, self._asked, self._began, self._said = 0.0, 0.0, time.monotonic(), ""
        self._clock, self._clock_written = Clock(), 0.0
        self._store = Store(path)          # to look whether somebody counts
        self._requeued = os.path.join(self._store.layout.nodes, b"requeued")

    # -- for the thread of the command ---------------------------------------------------------------

    @property
    def counts(self) -> bool:
        return self.counter is not None and not self.counter.has_failed

    @property
    def is_taking(self) -> bool:
        """A checkpoint, as the one that counts: it answers when that is there."""
        return self.counter is not None and self.counter.is_taking

    def checkpoint(self, message: str) -> int:
        """Of the whole job; its index. MetamoriError."""
        return ask(self.path, message)

    def requeue(self, request: Callable[[], None]) -> None:
        """By one of the job's runs: the signal comes to all of them, or to any, and its program may end by it. While
        one asks the others wait, and ask themselves if it is refused, or killed meanwhile. As `request` raises."""
        try:
            fd = os.open(self._requeued, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:                    # twice is better than never
            return request()
        try:
            self._wait_for(fd)
            if not os.read(fd, 1):
                request()
                with suppress(OSError):    # the next one asks too
                    os.write(fd, b"1")
        finally:
            os.close(fd)

    @staticmethod
    def _wait_for(fd: int) -> None:
        """Its lock, as long as whoever has it may be asking."""
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:                # the filesystem has none
                return

    def has_checkpoint(self, named: str) -> bool:
        """To continue the job from; those of its earlier lives count."""
        with closing(Store.open(self.path)) as store:
            parent = finish.parent_of(store, finish.job_run(store))
            return any(resume_point.is_checkpoint(store, index, named=named)
                       for index in store.history.chain(parent) if index)

    def leave(self) -> None:
        """The command has ended: what it did is recorded by its own run, and then the job's."""
        self._over.set()
        self.join()

    def outlives(self, files: list[tuple[int, int]], is_over: bool) -> None:
        """The others took this run for dead, and completed it, while a filesystem had given its lock away. They are
        told what its program has written over since then (folder.note_unseen); when it has ended, once more."""
        session = self.session
        session.store.unlock()             # nobody is to wait for it
        if (files, is_over) == self._told or not (files or self._told[0]):
            return
        with suppress(MetamoriError, OSError):         # or the job is over
            if _is_still(session.store):   # else it is another's
                folder.note_unseen(self._store, os.fsencode(self.name_), files, is_over)
                self._told = files, is_over

    def end(self) -> None:
        """The run's own store is complete and let go of. The last of all completes the job."""
        if self.counter is not None:
            self.counter.stop()
            if not self.counter.has_failed:
                self._complete(self.counter.store)
                self.counter.store.close()
                return
        limit = time.monotonic() + _END_S
        store = Store.open(self.path)
        try:
            while time.monotonic() < limit and folder.is_there(store):
                try:
                    store.lock()
                except StoreBusy:
                    if any(folder.is_alive(store, name) for name in folder.names(store)):
                        return             # it comes to this after us
                    time.sleep(0.02)
                    continue
                self._complete(store)
                return
        finally:
            store.close()

    def _complete(self, store: Store) -> None:
        try:
            for text in finish.finish(store):
                self.say(text)
        except StoreBusy:
            return                         # others are alive: one of them counts from now on
        except (MetamoriError, OSError) as error:
            self.say(f"the job's end could not be recorded: {sentence(error)}; 'metamori log' completes it")

    # -- the thread ----------------------------------------------------------------------------------

    def run(self) -> None:
        while not self._over.is_set():
            try:
                if self._client is None and not self._reach():
                    self._over.wait(0.1)
                    continue
                self._go_on()
            except Exception as error:     # a mistake of ours must not end the checkpoints of all
                self._hang_up()
                self._say_once(error)
                self._over.wait(0.1)
        self._note_clock()
        if self._client is not None:
            with suppress(Exception):      # else it is found to have ended
                self._client.send({"what": "leave"})
            self._hang_up()

    def _go_on(self) -> None:
        assert self._client is not None and self._lines is not None
        if time.monotonic() - self._asked > _ALIVE_S:
            self._client.send({"what": "alive?", "sent": now_ns()})
            self._asked = time.monotonic()
            if self._asked - self._clock_written > min(_CLOCK_S, (self._asked - self._began) / 10):
                self._keep_lock()
                self._note_clock()
        got = self._lines.receive(0.1)
        if got is not None and got[0] == COUNTER:
            self._take(got[1])
            self._heard = time.monotonic()         # while it takes one it hears nothing
        if not self.counts and self._nobody_answers():
            self._hang_up()

    def _hang_up(self) -> None:
        line, self._lines, self._client = self._lines or self._client, None, None
        if line:
            with suppress(Exception):
                line.close()

    def _say_once(self, error: Exception) -> None:
        """What is wrong, a full disk say, may pass: it is tried again."""
        text = text_of(error)
        if text != self._said and not isinstance(error, NoStore):      # which whoever watches the run says
            self.say(f"the job's checkpoints cannot go on: {text}")
        self._said = text

    def _keep_lock(self) -> None:
        """By which others know that the run lives: a filesystem may take it from a machine that hangs. Where they have
        completed the run by then, it is no part of the job any more; nor of the next one, whose run has its name."""
        store = self.session.store
        with suppress(MetamoriError, OSError):
            store.retake()
            if not (commit.exists(store.door, store.layout.run_area) and _is_still(store)):
                store.unlock()

    def _note_clock(self) -> None:
        """Where it fails what is in doubt is lost, and said."""
        self._clock_written = time.monotonic()
        with suppress(OSError):
            self._clock.write(self.session.store.door, os.path.join(self.session.store.layout.root, b"clock"))

    def _ask_time(self, times: int) -> None:
        """More than once where a line is new: the first answers come late. What else comes is for nobody by now."""
        assert self._client is not None
        for _ in range(times):
            self._client.send({"what": "alive?", "sent": now_ns()})
            while (answer := self._client.receive(_LOOK_S)) is not None:
                self._hear_time(answer)
                if answer["what"] not in TOLD:     # said again, for a relay was late
                    break

    def _hear_time(self, answer: Message) -> None:
        if answer.get("clock") and answer.get("sent") and self._client is not None:
            self._clock.heard(answer["sent"], now_ns(), answer, self._client.is_same_machine)

    def _nobody_answers(self) -> bool:
        """The one that counts has died, or does not speak to us any more."""
        silent = time.monotonic() - self._heard
        with suppress(OSError):            # the filesystem does not say
            return silent > 3 * _ALIVE_S or (silent > _ALIVE_S + _LOOK_S and not self._store.is_busy())
        return False

    def _reach(self) -> bool:
        """A line to the one that counts; that may be this one from now on."""
        self._count_if_nobody_does()
        store = Store(self.path)
        reached = folder.read_counter(store)
        if reached is None or reached["job"] != self.identity:
            return False
        try:
            self._client = Client(reached)
        except NoAnswer:
            return False
        self._lines = Lines(self._client)
        self._heard = time.monotonic()
        self._keep_lock()
        self._ask_time(_TIMES)
        self._note_clock()
        self._client.send({"what": "join", "name": self.name_})
        return True

    def _count_if_nobody_does(self) -> None:
        if self.counts:
            return
        store = Store.open(self.path)
        try:
            store.lock()
            if (folder.read_counter(store) or {}).get("job", self.identity) != self.identity:
                raise StoreBusy(f"the store {self.path} is in use by another job")
            counter = Counter(store, self.identity, finish.job_run(store), self.session.durable, self.say,
                              self._clock.base)
            counter.why = self.counter.why if self.counter else ""
            counter.start()
        except BaseException as error:
            store.close()                  # else nobody could count while this run lives
            if not isinstance(error, StoreBusy | FileNotFoundError):
                raise
            return
        self.counter = counter

    def _take(self, message: Message) -> None:
        self._hear_time(message)
        if message["what"] == "joined":
            self.joined.set()
        elif message["what"] == "prepare":
            self._cut(Share(message))
        elif message["what"] in ("relay?", "through"):
            self._be_linked(message)
        elif message["what"] == "complete":
            self._complete_others([os.fsencode(name) for name in message["names"]])
        elif message["what"] == "who?" and self._client is not None:
            self._client.send({"what": "join", "name": self.name_})

    def _be_linked(self, message: Message) -> None:
        """To others that it is a relay of, or to one."""
        assert self._client is not None and self._lines is not None
        if message["what"] == "relay?":
            self._client.send({"what": "relay", "at": self._lines.serve()})
        else:
            self._lines.link(message)

    def _complete_others(self, names: list[bytes]) -> None:
        """Killed ones of this machine, for the one that counts, who does not see its disk."""
        assert self._client is not None
        begun = threading.Event()
        begun.set()
        answer: Message = {"what": "completed"}
        try:
            with self._beating(begun), closing(Store.open(self.path)) as store:
                answer["said"] = finish.complete_here(store, names)
        except Exception as error:         # whatever it is, who counts must not wait for us
            answer["why"] = f"{self.name_}: {text_of(error)}"
        self._client.send(answer)

    def _cut(self, share: Share) -> None:
        assert self._client is not None and self._lines is not None
        lines, number, session = self._lines, share.number, self.session
        begun, ready = threading.Event(), threading.Event()
        ends = 0.0

        def about_to_freeze() -> None:
            if not ready.is_set():         # a full disk has it begin again
                lines.send(share.ready())
                _wait(lines, share, lambda: share.is_cut, READY_S)
            ready.set()

        def frozen() -> None:
            nonlocal ends
            if share.may_look:             # this is not the instant of the others
                raise Aborted(_ENDED)
            ends = time.monotonic() + FREEZE_S
            lines.send(share.frozen())
            _wait(lines, share, lambda: share.may_look, FREEZE_S)
            session.place = share.place

        def cut() -> None:
            lines.send(share.looked())
            _wait(lines, share, lambda: share.goes_on, ends - time.monotonic())
            begun.set()

        session.when_ready, session.when_frozen, session.when_cut = about_to_freeze, frozen, cut
        try:
            with self._beating(begun):
                index = session.checkpoint()
            self._ask_time(1)
            self._note_clock()
            self._client.send({"what": "written", "round": number, "index": index})
        except Exception as error:         # whatever it is, the others must not wait for us
            self._client.send({"what": "failed", "round": number, "why": f"{self.name_}: {text_of(error)}"})
        finally:
            session.when_ready = session.when_frozen = session.when_cut = None

    @contextmanager
    def _beating(self, begun: threading.Event) -> Iterator[None]:
        """While it works on what a slow disk makes long, from `begun` on."""
        over = threading.Event()
        beat = threading.Thread(target=self._beat, args=(begun, over), daemon=True)
        beat.start()
        try:
            yield
        finally:
            over.set()
            beat.join()

    def _beat(self, begun: threading.Event, over: threading.Event) -> None:
        """The line is this thread's meanwhile."""
        assert self._client is not None
        while not over.wait(_ALIVE_S):
            if begun.is_set():             # not waited for: who sets it still holds all others up
                self._client.send({"what": "alive?", "sent": now_ns()})


def _wait(lines: Lines, share: Share, is_told: Callable[[], bool], limit_s: float) -> None:
    """Until all have said so; what others are to hear is passed on. Aborted."""
    limit = time.monotonic() + limit_s + 1
    while not (is_told() or share.is_off) and (left := limit - time.monotonic()) > 0:
        if (got := lines.receive(left)) is not None:
            lines.send(share.hear(*got))
    if not is_told() or share.is_off:
        raise Aborted(_ENDED)


class Aborted(NotAtRest):
    """The checkpoint is none; what was cut is taken along by the next."""

    errno = errno.EAGAIN


def _is_still(store: Store) -> bool:
    """Whether it is what its path leads to. NoStore, OSError."""
    now = Store(store.path, store.door)
    now.read_format()
    return now.layout.id == store.layout.id


def ask(path: str, message: str) -> int:
    """A checkpoint of the live job in this store. NoAnswer, MetamoriError. When the one that counts dies meanwhile, the
    next one is asked again."""
    limit = time.monotonic() + ANSWER_S
    while (answer := _ask_once(path, message, limit)) is None:
        pass
    if answer["what"] != "taken":
        raise MetamoriError(f"no checkpoint was taken: {answer['why']}")
    index: int = answer["index"]
    return index


def _ask_once(path: str, message: str, limit: float) -> Message | None:
    """None: nobody answers, for somebody else counts from now on. NoAnswer."""
    client, store = dial(path), Store(path)
    try:
        client.send({"what": "checkpoint", "message": message})
        heard = time.monotonic()
        while time.monotonic() < min(limit, heard + HUNG_S):
            answer = client.receive(_LOOK_S)
            if answer is not None and answer["what"] in ("taken", "refused"):
                return answer
            if answer is not None:
                heard = time.monotonic()
                continue
            reached = folder.read_counter(store)
            if reached is None or reached["server"] != client.server or not store.is_busy():
                return None
            client.send({"what": "alive?"})
        raise NoAnswer("no answer from the run that counts: 'metamori log' says whether there is a checkpoint")
    finally:
        client.close()


def runs(path: str) -> list[str]:
    """The names of those that have joined. NoAnswer."""
    client = dial(path)
    try:
        client.send({"what": "status"})
        answer = client.receive(ANSWER_S)
        return list(answer["runs"]) if answer else []
    finally:
        client.close()


def dial(path: str) -> Client:
    """NoAnswer. Who counts may just be dying: the next one does within a second or two."""
    limit = time.monotonic() + _DIAL_S
    store = Store(path)
    while True:
        try:
            reached = folder.read_counter(store)
            if reached is None:
                raise NoAnswer(f"no job is alive in {path}")
            return Client(reached)
        except NoAnswer:
            if time.monotonic() > limit or not any(folder.is_alive(store, each) for each in folder.names(store)):
                raise
        time.sleep(0.1)


def identity(given: str, environ: dict[str, str]) -> str:
    """Which job this is: its name, or that of who started its runs, and how often it was queued again."""
    started = (environ.get(variable) for variable in
               ("SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"))
    name = given or next(filter(None, started), "by hand")
    return f"{name} {environ.get('SLURM_RESTART_COUNT', '')}"


def is_same_job(one: str, other: str) -> bool:
    """However often it was queued again."""
    return one.rpartition(" ")[0] == other.rpartition(" ")[0]


def name_of(environ: dict[str, str], host: str) -> str:
    """What this run is called in messages: its rank, and its machine."""
    for variable in ("SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if environ.get(variable, "").isdigit():
            return f"{environ[variable]}.{host}"
    return f"{host}.{os.getpid()}"
