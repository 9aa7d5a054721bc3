"""The memory of a process, at the instant of a checkpoint: asked for here, done in shim_c/src/memory.

States: asked -> held (every thread of it is parked) -> stopped (its image is taken; files are cut in the same pause)
-> let go (the image is being written behind the running program) -> written (durable, under its own name; the meta
file may name it). A stop before the last leaves a file that nothing names, and makes the next image a complete one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from metamori._area import ffi, lib
from metamori.errors import Damaged
from metamori.runtime.area import launch_record
from metamori.runtime.area.run_area import Area, NotAtRest
from metamori.runtime.memory import open_files, proc_inspect
from metamori.runtime.memory.proc_inspect import NotBegun, NotYet, Refused
from metamori.runtime.memory.proc_look import ProcLook
from metamori.runtime.memory.stopped import Stopped
from metamori.store.format import layout
from metamori.store.format.records import DescriptorEntry, Launch, MemoryEntry, SharedEntry
from metamori.store.read import image, image_chain
from metamori.store.read.store import Store
from metamori.tables.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_fit

_PATIENCE_S = 10.0


def all_of_it() -> str:
    """Why every image will be a complete one; "" when they count what changed."""
    if os.environ.get("METAMORI_MEMORY_CHANGES") == "off":
        return "it is switched off (METAMORI_MEMORY_CHANGES)"
    result: int = lib.mm_changes_possible()
    return os.strerror(-result) if result < 0 else ""


_ON_RETURN = {lib.MM_NO_PLACES: "to say where its heap and stack lie (the kernel lacks CONFIG_CHECKPOINT_RESTORE",
              lib.MM_NO_MOVE: "to move the kernel's pages (CONFIG_MSEAL_SYSTEM_MAPPINGS"}


def no_return() -> str:
    """Why no program could be restarted here with its memory; "" when it can."""
    start, end = proc_inspect.vdso()
    result: int = lib.mm_refused_on_return(start, end - start) if start else 0
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return f"a process is not allowed {_ON_RETURN[result]}, or a container's filter)" if result else ""


class Image:
    """One image, from the stop of its process to the entry in the meta file."""

    descriptors: Sequence[DescriptorEntry]
    gathers = is_written = False           # it is being made; a writer has it
    stopped: Stopped | None = None         # by job control
    is_held = False

    def __init__(self, store: Store, area: Area, index: int, durable: bool, slot: int,
                 saved: Mapping[int, MemoryEntry]) -> None:
        """saved: what the parent of the index has, by process as the run knows it."""
        self.store, self.area, self.index, self.slot = store, area, index, slot
        process = area.process(slot)
        self.pid, self.number = process.pid, process.number
        self.known: int = lib.mm_known_number(area.pointer, self.pid)
        self.final = store.layout.memory(index, self.number)
        self.path = layout.temporary(self.final)
        self.memory = lib.mm_memory_of(area.pointer, slot)
        self.does = lib.mm_proc_does(self.pid)
        self.before = saved.get(self.known)
        self.shared: tuple[SharedEntry, ...] = ()
        if self.memory != ffi.NULL:
            m = self.memory
            # the engine makes a complete one unless the base is this process's last
            m.index, m.base, m.durable = index, area.head.parent if self.before else 0, durable

    @property
    def named(self) -> str:
        """For people."""
        return f"{proc_inspect.name_of(self.pid)} ({self.known})"

    def require_ready(self) -> None:
        """Refused, NotBegun: the library is not there, and the signal would end the program (what becomes another holds
        it back: shim_c/src/memory/memory_glue.c)."""
        process = self.area.process(self.slot)
        if process.outside:
            raise Refused(f"{self.named} has become a program that cannot be tracked")
        if self.memory == ffi.NULL or process.executing or not self._catches(lib.MM_MEMORY_SIGNAL):
            raise NotBegun(f"{self.named} is becoming another program, or cannot be tracked")

    def _catches(self, number: int) -> int:
        return int(self.does.catches >> number - 1 & 1)

    def hold(self) -> None:
        """Every thread parked. Refused, NotAtRest, NotBegun."""
        while (held := lib.mm_memory_held(self.area.pointer, self.slot, int(_PATIENCE_S * 1000))) == -errno.EALREADY:
            self._run_stopped()
        self._require(held)
        self.is_held = True

    def meet_stopped(self) -> None:
        """Before it is asked. What was seen before may have changed: is_stopped tells."""
        if self.does.state == ord("T"):
            self.stopped = Stopped(self.pid, self.memory, self.named)
            if not self.stopped.is_stopped:
                self.stopped.leave()
                self.stopped = None

    def _run_stopped(self) -> None:
        if self.stopped is None:           # since then: its parent has not run either
            self.does = lib.mm_proc_does(self.pid)
            self.meet_stopped()
            self.memory.unseen = self.stopped is not None
        if self.stopped:
            self.stopped.run()

    def _gathered(self) -> int:
        while (made := int(lib.mm_memory_gathered(self.area.pointer, self.slot))) == -errno.EALREADY:
            self._run_stopped()
        return made

    def stop(self) -> None:
        """Waits until nothing more is taken from the process."""
        self.gathers = False
        self._require(self._gathered())
        self.is_written = True

    def _require(self, result: int) -> None:
        if result == 0:
            return
        why = ffi.string(self.memory.message).decode(errors="replace")
        if why:
            raise Refused(f"{self.named}: {why}")
        if result == -errno.ESRCH:
            raise NotBegun("a process of the program has just ended")
        if result == -errno.EINPROGRESS:
            raise NotBegun(f"{self.named} is becoming another program, or cannot be tracked")
        if result == -errno.EDEADLK:
            raise NotYet(f"{self.named} waits for a child that has not become another program yet (vfork, posix_spawn)")
        if result == -errno.EAGAIN:
            raise NotAtRest(f"a thread of {self.named} does not stop: no checkpoint was taken")
        raise Refused(f"the memory of {self.named} cannot be saved: {os.strerror(-result)}")

    def _followed(self) -> dict[int, open_files.Followed]:
        """Descriptors that the run knows."""
        descriptors = self.area.descriptors(self.slot)
        fits = {slot: self.area.fit(slot) for slot in set(descriptors.values())}
        return {fd: open_files.Followed(slot, fits[slot].slot != 0, self._is_named(fits[slot]), self._files(fits[slot]),
                                        fits[slot].position if fits[slot].owned else -1)
                for fd, slot in descriptors.items()}

    def look(self, seen: ProcLook) -> None:
        """While it is parked: what the kernel keeps for the process."""
        self.seen = seen
        self.opens = open_files.of_process(seen)
        self.followed = self._followed()
        self.was_started = not self.memory.come_from

    def look_on(self) -> None:
        """When the rest of it is there, too. Refused."""
        proc_inspect.require_no_more_confined(self.seen)
        self.owner = proc_inspect.owner(self.seen)
        self.program = proc_inspect.program(self.seen)

    def require_owner(self, first: tuple[int, int]) -> None:
        """That of the first process: all come back as who restarts them. Refused."""
        if self.owner != first:
            raise Refused("it runs as another user or group than the first process, which cannot come back with it")

    def recall(self, stats: Mapping[bytes, os.stat_result]) -> None:
        """What was seen, taken apart when the process runs again. stats: of mapped files."""
        self.launch = self._launch()
        self.mapped = tuple(proc_inspect.mapped(self.seen.files, stats))

    def _is_named(self, fit: mm_fit) -> bool:
        return bool(fit.slot) and not self.area.pif(fit.slot).flags & lib.MM_NAMELESS

    def _files(self, fit: mm_fit) -> set[tuple[int, int]]:
        """What a tracked descriptor may lead to: the file that was opened, or that stands for it since."""
        pif = self.area.pif(fit.slot) if fit.slot else fit
        return {(fit.dev, fit.ino), (pif.dev, pif.ino)}

    def _launch(self) -> Launch:
        """How the program was started; /proc does not know it of one that came back, and is asked once of others."""
        now = replace(self.seen.launch(), exe=self.program)
        if not self.was_started:
            before: Launch | MemoryEntry = launch_record.of_process(self.area, self.known)
        elif self.memory.same_program and self.before:
            before = self.before
        else:
            return now
        return replace(now, argv=before.argv, env=before.env)

    def stand(self, is_let_go: bool) -> None:
        """Where job control has stopped it, as before."""
        if self.stopped:
            self.stopped.leave(self.is_held and is_let_go)

    def written(self) -> MemoryEntry:
        """Waits for the writer. OSError as the disk gave it."""
        m = self.memory
        while (result := lib.mm_memory_wait(self.area.pointer, self.slot, 1000)) == -errno.EAGAIN:
            pass
        _reap(m.writer)
        if result < 0:
            raise OSError(-result, f"the program's memory could not be written: {os.strerror(-result)}")
        how = self.launch
        entry = MemoryEntry(
            self.number, m.base, m.file_bytes, m.crc, m.known_pid, m.threads, how.exe, how.argv, how.env, how.cwd,
            how.umask, how.limits, *self.owner, proc_inspect.machine(), self.mapped, tuple(self.descriptors))
        self._read_back(entry)
        return entry

    def keep(self) -> None:
        """Under its own name; the meta file is written next."""
        self.store.door.rename(self.path, self.final)

    def _read_back(self, entry: MemoryEntry) -> None:
        """Nothing is acknowledged that could not be continued from. In the tests' build every byte is read."""
        door, base = self.store.door, entry.base
        process = image_chain.entry_of(self.store, base, self.known).process if base else 0
        below = self.store.layout.memory(base, process) if base else b""
        try:
            wrong = image.lacks(image.read(door, self.path), image.read(door, below) if base else None, entry.size)
        except Damaged as error:
            wrong = str(error)
        if not wrong and "METAMORI_CHECKED" in os.environ:
            wrong = image.check(door, self.path, entry)
        if wrong:
            raise Refused(f"the program's memory was not saved as a whole: {wrong}")

    def settle(self) -> None:
        """The instant could not be had after all, and nothing more is taken from the process."""
        if self.gathers:
            self.gathers = False
            self.is_written = self._gathered() == 0

    def give_up(self) -> None:
        """Nothing will name the image."""
        while self.is_written and lib.mm_memory_wait(self.area.pointer, self.slot, 1000) == -errno.EAGAIN:
            pass
        if self.is_written:
            _reap(self.memory.writer)
        self.drop()

    def drop(self) -> None:
        for path in (self.path, self.final):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _reap(pid: int) -> None:
    """The writer is a child of `metamori run` when that is the program's parent."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return
