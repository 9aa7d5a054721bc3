"""Levels: what a program calls, from Python or through the C API (FTI_*).

States: begun -> (resuming, until recover) -> running -> done. Every method but protect and the questions is collective.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy

from metamori.errors import MetamoriError, Usage
from metamori.levels.api.parts import Parts
from metamori.levels.api.schedule import Schedule
from metamori.levels.api.staging import Stage
from metamori.levels.formats import file_payload as carried
from metamori.levels.formats import registry
from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.fti_ff import FtiFF
from metamori.levels.formats.hdf5_file import Hdf5
from metamori.levels.formats.image import Image, everything
from metamori.levels.protect import async_post, clean, comm, job, record, recover
from metamori.levels.protect import checkpoint as take
from metamori.levels.protect.files import Files, Standing
from metamori.levels.protect.record import Record
from metamori.levels.setup.settings import MPIIO, Settings
from metamori.levels.setup.variables import BUILT_IN, Type, Variable, Variables, view


class Taken(NamedTuple):
    """What the job's stores have just taken: index and number of each, and who carries its files."""

    files: dict[str, int]
    stores: dict[str, str]
    carried: dict[str, int]


class Levels:
    """The protected memory of a job, and its checkpoints.

    config: path of a config.fti; or `settings` for a program without one. comm: an mpi4py communicator, None for a
    single process. Errors: Usage for what cannot be, NotTaken and NothingLeft for checkpoints.
    """

    def __init__(self, config: str = "", communicator: Any = None, settings: Settings | None = None) -> None:
        self.files = Files()
        self.crew = job.muster(comm.wrap(communicator), config, settings, self.files.leave_alone)
        self.settings = self.crew.settings
        self.form = registry.choose(self.settings)
        self.types: list[Type] = list(BUILT_IN)
        self.groups: list[tuple[str, int]] = [("", 0)]   # HDF5 groups: name and parent; 0 is the root
        self.stage = Stage(self.settings, self.crew.paths)
        self.parts: Parts | None = None
        self.names: dict[str, int] = {}        # reserved, not yet protected
        self.variables = Variables(self.settings.max_var_id)
        self.records: dict[int, Record] = {}
        self.images: dict[int, Any] = {}     # of the last checkpoint of each level
        self.parent = 0
        self.newest = 0                        # index given out, also for a checkpoint that never came to be
        self.status = 0
        self.saved: Any = None                 # what recover() reads
        self.reading: Record | None = None
        self.finished = False
        self.standing: dict[int, Standing] = {}    # of each store, by the rank that speaks for it
        self.carried: list[Variable] = []      # this store's files, while a checkpoint is taken
        self.noted = False                     # that the next start is a resumption
        self.second: async_post.Heads | async_post.Threads | None = None
        self.pending = 0                       # level whose second half is under way
        self.use_types(self.types, self.groups)
        if isinstance(self.form, FtiFF) and self.crew.app is not None:
            self.form.group = self.crew.group
        if not self.crew.head:
            self._begin()

    def use_types(self, types: list[Type], groups: list[tuple[str, int]]) -> None:
        """The lists in which the program's types and HDF5 groups are, now and later."""
        self.types, self.groups = types, groups
        if isinstance(self.form, Hdf5):
            self.form.types, self.form.groups = types, groups

    def serve(self) -> None:
        """A head's life: returns when the program is over."""
        async_post.serve(self.crew)

    def _begin(self) -> None:
        chosen = self.settings
        self.files.elect(self.crew.app, self.crew.topology.node_of(self.crew.world.rank))
        self.second = async_post.choose(self.crew)
        self.noted = chosen.failure == 1
        self.schedule = Schedule(chosen, self.crew.app.largest)
        job.together(self.crew.app, lambda: job.note_failure(self.crew, chosen.failure))
        if chosen.failure:
            self._look_back()

    def _look_back(self) -> None:
        """What the execution that is resumed has left. One that ended before its first checkpoint begins again."""
        chosen, app = self.settings, self.crew.app
        self.records = job.together(app, lambda: record.read_records(self.crew.paths))
        mine = (app.rank, self.files.standing()) if self.files.leader else None
        self.standing = dict(filter(None, app.allgather(mine)))
        if not self.records and self.crew.known and chosen.failure == 1 and not chosen.restart_index:
            if app.rank == 0:
                os.write(2, b"metamori: FTI: there was no checkpoint yet: the program begins again\n")
            return
        self._choose(chosen.restart_index)
        self.status = 2 if chosen.failure == 2 else 1

    def _choose(self, index: int) -> None:
        """Find the checkpoint to go back to and put its files in place. NothingLeft."""
        candidates = [each for each in reversed(self.records.values())
                      if index in (0, each.index) and (self.settings.failure != 2 or each.level == 4)
                      and self._fits_files(each)]
        self._read_from(recover.choose(self.crew, self.form, self.records, candidates))

    def _fits_files(self, each: Record) -> bool:
        """Whether the files of every store can be those of this checkpoint: by going back alone, or it carries them."""
        present = {each.key: each for each in self.standing.values()}
        for key, index in each.files.items():
            if key in present and each.stores.get(key, present[key].number) == present[key].number:
                if index not in present[key].reachable:
                    return False
            elif key in each.carried:
                if each.carried[key] not in self.standing:
                    return False
            elif key in present:           # another store has its name now
                return False
        return True

    def _read_from(self, chosen: Record) -> None:
        self.reading = chosen
        self.saved = self.form.load(chosen.index, lambda index: record.place(self.crew.paths, self.records[index],
                                                                             self.crew.rank))

    # -- what is protected -----------------------------------------------------------------------

    def protect(self, name: str | int, thing: Any, kind: Type | None = None) -> int:
        """Protect a buffer (a numpy array, a bytearray …) under a name or a number; its number.

        Its bytes are read and written in place. Called again, it tells that the variable has moved or grown.
        """
        number = name if isinstance(name, int) else self.named(name)
        if number < 0:
            number = self.reserve(str(name))
        self.variables.protect(number, view(thing), kind or self._kind(thing),
                               self.reserved(number) if isinstance(name, int) else name)
        return number

    def named(self, name: str) -> int:
        """The number of a variable, protected or in the checkpoint to be recovered; -1 without one."""
        found = self.variables.named(name)
        if found < 0:
            found = self.names.get(name, -1)
        if found < 0 and self.saved is not None:
            found = next((number for number in self.saved.sizes if self.saved.about(number)["name"] == name), -1)
        return found

    def reserve(self, name: str) -> int:
        """A number that no variable has, for this name. Usage when the format does not keep names."""
        if not self.form.names:
            raise Usage("FTI-FF keeps no names: protect by number, or use ckpt_io = 1")
        found = self.named(name)
        if found < 0:
            taken = {each.id for each in self.variables} | set(self.names.values())
            found = max(taken | set(self.saved.sizes if self.saved else ()), default=-1) + 1
        self.names[name] = found
        return found

    def reserved(self, number: int) -> str:
        """The name for which a number was reserved, "" without one."""
        return next((name for name, taken in self.names.items() if taken == number), "")

    def _kind(self, thing: Any) -> Type:
        array = numpy.asarray(thing)
        for each in BUILT_IN:
            if each.kind == array.dtype.kind and each.size == array.dtype.itemsize:
                return each
        return Type(-1, array.dtype.itemsize)

    def stored_size(self, number: int) -> int:
        """Bytes of a variable in the checkpoint to be recovered, else in the last one taken; 0 when unknown."""
        if self.saved is not None:
            return int(self.saved.sizes.get(number, 0))
        return self.variables[number].stored if number in self.variables else 0

    # -- checkpoints -----------------------------------------------------------------------------

    def checkpoint(self, level: int = 1, number: int | None = None) -> int:
        """Take a checkpoint of all protected variables, and of the run's files; its index.

        level: 1 to 4, or 5 to 8 for a differential one of level 1 to 4. number: the program's own id for it.
        """
        if not 1 <= level <= 8:
            raise Usage(f"there is no level {level}")
        dcp = level > 4 and bool(self.settings.enable_dcp)
        level = level - 4 if level > 4 else level
        self._collect()
        files, newest = self._checkpoint_files(level)
        index = self.newest = max([newest + 1, *files.files.values()])
        order = take.Order(index, number if number is not None else index, level, self.parent, self.crew.app.size,
                           files.files, files.stores, files.carried, dcp, self._later(level))
        variables, self.carried = [*self.variables, *self.carried], []
        try:
            order, written = take.write(self.crew, self.form, variables, self._before(level), order, everything)
            if not self.noted:             # said before the checkpoint exists: one that exists is always found
                job.together(self.crew.app, lambda: job.note_failure(self.crew, 1))
                self.noted = True
            part = take.Part(self.crew.rank, self.crew.paths, written.source.size, written.checksum, written.needs)
            if order.later:
                assert self.second is not None
                written.source.close()
                self.second.start(order, part)
                self.pending = level
                self._written(level, written)
                self.parent = index
                return index
            part.source = written.source
            try:
                made = take.post(self.crew.group, self.crew.app, [part], order, self.settings)
            finally:
                written.source.close()
        except take.NotTaken:
            clean.remove(self.crew.paths.folder(level, index))
            raise
        self._written(level, written)
        self._taken(made)
        return index

    def _later(self, level: int) -> bool:
        """Whether the second half of this level is a head's or a thread's work."""
        inline = (1, 1, self.settings.inline_l2, self.settings.inline_l3, self.settings.inline_l4)[level]
        together = level == 4 and self.settings.ckpt_io == MPIIO
        return self.second is not None and self.second.takes(level) and not inline and not together

    def _collect(self) -> None:
        """Wait for a second half that is under way. One that failed is said, and leaves the checkpoint before it."""
        answer = self.second.collect() if self.second is not None else None
        if isinstance(answer, Record):
            self._taken(answer)
        elif answer is not None:
            self.images.pop(self.pending, None)
            self.parent = max((each for each in self.records if each <= self.parent), default=0)
            os.write(2, f"metamori: FTI: a checkpoint of level {self.pending} was not completed: {answer}\n".encode())

    def _before(self, level: int) -> Any:
        """The image that the next checkpoint of a level is an increment of; None: it is full."""
        if not self.form.increments:
            return None
        before = self.images.get(level)
        keep, stack = self.settings.keep_ckpts, self.settings.dcp_stack_size
        if isinstance(before, Image) and keep and len(before.needs()) >= stack:
            return None                    # old indexes can only go when nothing reads them
        return before

    def _checkpoint_files(self, level: int) -> tuple[Taken, int]:
        """The file checkpoint of each store, and the newest index of the levels."""
        newest = max(self.newest, *self.records, 0)
        if not self.files.anywhere:
            return Taken({}, {}, {}), newest
        self.files.flush()
        self.crew.app.barrier()
        carries = bool(self.settings.node_stores) and level > 1
        index, number, wrong = 0, "", ""
        if self.files.leader:
            try:
                index = self.files.checkpoint(f"level {level}")
                store = self.files.opened()
                number = f"{store.layout.id:08x}"
                if carries:
                    self.carried = carried.take(store, index, self.crew.paths.local)
            except (OSError, MetamoriError) as error:
                wrong = f"the files: {error.strerror if isinstance(error, OSError) else error}"
        answers = self.crew.app.allgather((self.files.key if self.files.leader else "", index, number, wrong))
        if any(answer[3] for answer in answers):
            raise take.NotTaken(next(answer[3] for answer in answers if answer[3]))
        led = {key: (rank, index, number) for rank, (key, index, number, _) in enumerate(answers) if key}
        return Taken({key: index for key, (_, index, _) in led.items()},
                     {key: number for key, (_, _, number) in led.items()},
                     {key: rank for key, (rank, _, _) in led.items()} if carries else {}), newest

    def _written(self, level: int, written: Any) -> None:
        if written.image is not None:
            self.images[level] = written.image
        for each in self.variables:
            each.stored = each.size
        self.saved = None

    def _taken(self, made: Record) -> None:
        self.records[made.index] = made
        self.parent = made.index
        self.status = 1
        clean.prune(self.crew, self.records, self.settings.keep_ckpts)

    def recover(self, index: int | None = None) -> int:
        """Bring the protected variables and the run's files to a checkpoint; its index.

        Without `index`: the one that was found when the program was resumed, else the last one. All sizes are looked
        at before anything is changed. NothingLeft, Usage.
        """
        self._collect()
        if index is not None or self.saved is None:
            wanted = self.records.get(self.parent if index is None else index)
            if wanted is None:
                raise recover.NothingLeft(f"there is no checkpoint {index}")
            self._read_from(recover.choose(self.crew, self.form, self.records, [wanted]))
        assert self.reading is not None
        found = [each for each in self.variables if each.id in self.saved.sizes]
        self._fits(found)
        self._files_back(self.reading)
        wrong = ""
        try:
            for each in found:
                self.saved.read(each.id, each.memory)
                each.stored = self.saved.sizes[each.id]
        except Broken as error:
            wrong = str(error)
        take.agree(self.crew.app, wrong)
        self._recovered(self.reading)
        return self.reading.index

    def _fits(self, variables: list[Variable]) -> None:
        """Nothing is changed unless everything has room."""
        small = next((each for each in variables if each.size < self.saved.sizes[each.id]), None)
        take.agree(self.crew.app, "" if small is None else f"variable {small.id} has room for {small.size} bytes, "
                   f"and its checkpoint has {self.saved.sizes[small.id]}")

    def recover_begin(self) -> None:
        """The first part of recover(), for a program that takes its variables one at a time."""
        if self.saved is None:
            raise recover.NothingLeft("there is nothing to recover from")
        assert self.reading is not None
        self._files_back(self.reading)

    def recover_one(self, number: int) -> None:
        """One variable; not collective."""
        if self.saved is None:
            raise recover.NothingLeft("there is nothing to recover from")
        variable = self.variables[number]
        try:
            self.saved.read(number, variable.memory)
        except Broken as error:
            raise recover.NothingLeft(str(error)) from None
        variable.stored = self.saved.sizes[number]

    def recover_end(self) -> None:
        """All variables that are wanted have been taken."""
        if self.reading is not None and self.saved is not None:
            self._recovered(self.reading)

    def _recovered(self, done: Record) -> None:
        self.parent = done.index
        self.images = {}
        if self.form.increments:
            self.images[done.level] = self.saved.image
        self.saved, self.status = None, 0

    def _files_back(self, to: Record) -> None:
        self.files.flush()
        before = self.files.open_files()
        self.crew.app.barrier()
        wrong = ""
        try:
            if self.files.leader:
                self._mine_back(to)
        except (OSError, MetamoriError, Broken) as error:
            wrong = f"the files: {error}"
        take.agree(self.crew.app, wrong)
        self.files.follow(before)

    def _mine_back(self, to: Record) -> None:
        """The files of this store: by itself if it has the index, else as the checkpoint carries them."""
        mine = self.files.standing()
        if mine.key in to.files and to.stores.get(mine.key, mine.number) == mine.number:
            self.files.back(to.files[mine.key])
        elif self.crew.rank in to.carried.values():
            carried.put_back(self.saved)

    def begin_parts(self, level: int, number: int) -> None:
        """Begin a checkpoint whose variables come one by one, so that not all of them need be in memory at once."""
        self.parts = Parts(self.crew.paths.local, level, number)

    def add_part(self, number: int) -> None:
        """Take a variable as it is now; not collective. Nothing happens without begin_parts."""
        if self.parts is not None:
            self.parts.add(self.variables[number])

    def end_parts(self) -> bool:
        """Take the checkpoint of what was added. False when none was begun."""
        parts, self.parts = self.parts, None
        if parts is None:
            return False
        everything, self.variables = self.variables, parts.variables()
        try:
            self.checkpoint(parts.level, parts.number)
        finally:
            for each in self.variables:
                everything[each.id].stored = each.stored
            self.variables = everything
            parts.close()
        return True

    def snapshot(self, number: int | None = None) -> int | None:
        """To be called once per iteration: recovers when the program was resumed, else takes the checkpoint that is
        due by the configuration's intervals. The index that was taken or recovered, or None."""
        if self.status and self.saved is not None:
            return self.recover()
        level = self.schedule.due()
        return self.checkpoint(level, number) if level else None

    def finish(self) -> None:
        """The program ended well: checkpoints go, but for what the configuration keeps."""
        if self.finished:
            return
        self.finished = True
        self.stage.wait()
        self._collect()
        if self.second is not None:
            self.second.end()
        kept = clean.finish(self.crew, self.records)
        job.together(self.crew.app, lambda: job.note_failure(self.crew, 2 if kept else 0))

    def __enter__(self) -> Levels:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.finish()


__all__ = ["Levels", "MetamoriError"]
