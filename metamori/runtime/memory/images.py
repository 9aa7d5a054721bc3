"""The memory of the run's one process, at the instant of a checkpoint: asked for here, done in shim_c/src/memory.

States: asked -> stopped (every thread of the program is parked; files are cut in the same pause) -> let go (the image
is being written behind the running program) -> written (durable, under its own name; the meta file may name it).
A stop before the last leaves a file that nothing names, and makes the next image a complete one.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from metamori._area import ffi, lib
from metamori.errors import Damaged
from metamori.runtime.area import launch_record
from metamori.runtime.area.run_area import Area, NotAtRest
from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.proc_inspect import Refused
from metamori.store.format import layout
from metamori.store.format.records import Launch, MemoryEntry
from metamori.store.read import image
from metamori.store.read.store import Store
from metamori.tables.record import replace

if TYPE_CHECKING:
    from metamori._area import mm_fit

_PATIENCE_S = 10.0
_SIGNAL = 32                               # MM_MEMORY_SIGNAL of shim_c/src/memory/engine.h


def wanted(area: Area) -> bool:
    return bool(area.head.flags & lib.MM_MEMORY)


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


class NotBegun(Refused):
    """The loader is still at work: the preload library has not come to its turn."""


class Image:
    """One image, from the stop of its process to the entry in the meta file."""

    def __init__(self, store: Store, area: Area, index: int, durable: bool, outside: str) -> None:
        self.store, self.area, self.index, self.outside = store, area, index, outside
        self.memory = area.head.memory
        self.slot, self.pid = self._one_process()
        self.number = area.process(self.slot).number
        self.final = store.layout.memory(index, self.number)
        self.path = layout.temporary(self.final)
        m = self.memory
        m.index, m.base, m.durable = index, self._base(), durable
        ffi.memmove(m.path, self.path + b"\0", len(self.path) + 1)

    def _one_process(self) -> tuple[int, int]:
        slots = list(self.area.processes())
        if not slots and self.area.head.process_high == 1:
            raise NotBegun("the program has not begun yet, or cannot be tracked")
        if not slots:
            raise Refused("the run's process has ended, or cannot be tracked")
        pids = [self.area.process(slot).pid for slot in slots]
        if len(slots) > 1:
            raise Refused(f"several processes are alive: {_named(pids)}")
        others = proc_inspect.children(pids[0], (self.memory.writer,))
        if others:
            raise Refused(f"the program has live children: {_named(others)}")
        return slots[0], pids[0]

    def _base(self) -> int:
        """The image that this one may count from; the engine makes a complete one unless it is this process's last."""
        parent = self.area.head.parent
        return parent if parent and self.store.meta(parent).memory else 0

    def stop(self) -> None:
        """Every thread parked. Refused, NotAtRest; NotBegun: the library is not there, and the signal would end the
        program (what becomes another holds it back: shim_c/src/memory/memory_glue.c)."""
        process = self.area.process(self.slot)
        if process.outside:
            raise Refused("the program has become one that cannot be tracked")
        if process.executing or not proc_inspect.catches(self.pid, _SIGNAL):
            raise NotBegun("the program is becoming another one")
        result = lib.mm_memory_stop(self.area.pointer, self.pid, int(_PATIENCE_S * 1000))
        if result == 0:
            return
        why = ffi.string(self.memory.message).decode(errors="replace")
        if why:
            raise Refused(why)
        if result == -errno.ESRCH:
            raise Refused("the program has ended")
        if result == -errno.EINPROGRESS:
            raise NotBegun("the program is becoming another one")
        if result == -errno.EAGAIN:
            raise NotAtRest("a thread of the program does not stop: no checkpoint was taken")
        raise Refused(f"the program's memory cannot be saved: {os.strerror(-result)}")

    def look(self) -> None:
        """While it is parked: what the kernel keeps for the process."""
        descriptors = self.area.descriptors(self.slot)
        fits = {fit: self.area.fit(fit) for fit in set(descriptors.values())}
        positions = {slot: fit.position for slot, fit in fits.items() if fit.owned}
        own = set()
        for fd in self.memory.own:
            if fd < 0:
                break
            own.add(fd)
        files = {fd: self._files(fits[slot]) for fd, slot in descriptors.items()}
        self.descriptors = proc_inspect.descriptors(self.pid, own, descriptors, positions, files, self.outside)
        self.launch = self._launch()
        self.owner = proc_inspect.owner(self.pid)
        self.mapped = tuple(proc_inspect.mapped(self.pid))

    def _files(self, fit: mm_fit) -> set[tuple[int, int]]:
        """What a tracked descriptor may lead to: the file that was opened, or that stands for it since."""
        pif = self.area.pif(fit.slot) if fit.slot else fit
        return {(fit.dev, fit.ino), (pif.dev, pif.ino)}

    def _launch(self) -> Launch:
        """How the program was started; /proc does not know it of one that came back."""
        now = proc_inspect.launch(self.pid)
        if not self.memory.come_from or self.pid != self.area.head.first_pid:
            return now
        before = launch_record.of_process(self.area)
        return replace(now, argv=before.argv, env=before.env)

    def go(self) -> None:
        lib.mm_memory_go(self.area.pointer)

    def written(self) -> MemoryEntry:
        """Waits for the writer. OSError as the disk gave it."""
        m = self.memory
        while (result := lib.mm_memory_wait(self.area.pointer, 1000)) == -errno.EAGAIN:
            pass
        _reap(m.writer)
        if result < 0:
            raise OSError(-result, f"the program's memory could not be written: {os.strerror(-result)}")
        how = self.launch
        entry = MemoryEntry(
            self.number, m.base, m.file_bytes, m.crc, m.known_pid, m.threads, how.exe, how.argv, how.env, how.cwd,
            how.umask, how.limits, *self.owner, proc_inspect.machine(), self.mapped, tuple(self.descriptors))
        self._read_back(entry)
        self.store.door.rename(self.path, self.final)
        return entry

    def _read_back(self, entry: MemoryEntry) -> None:
        """Nothing is acknowledged that could not be continued from. In the tests' build every byte is read."""
        door, base = self.store.door, entry.base
        below = self.store.layout.memory(base, self.store.meta(base).memory[0].process) if base else b""
        try:
            wrong = image.lacks(image.read(door, self.path), image.read(door, below) if base else None, entry.size)
        except Damaged as error:
            wrong = str(error)
        if not wrong and "METAMORI_CHECKED" in os.environ:
            wrong = image.check(door, self.path, entry)
        if wrong:
            os.unlink(self.path)
            raise Refused(f"the program's memory was not saved as a whole: {wrong}")

    def give_up(self) -> None:
        """The instant could not be had after all: nothing will name the image."""
        self.go()
        while lib.mm_memory_wait(self.area.pointer, 1000) == -errno.EAGAIN:
            pass
        _reap(self.memory.writer)
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def _reap(pid: int) -> None:
    """The writer is a child of `metamori run` when that is the program's parent."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def _named(pids: list[int]) -> str:
    return ", ".join(f"{proc_inspect.name_of(pid)} ({pid})" for pid in pids[:5])


