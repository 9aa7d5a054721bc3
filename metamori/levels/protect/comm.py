"""Messages between the processes of a job. The only importer of mpi4py; `Alone` is a job of one process without MPI.

Buffers are writable bytes-like objects and are never copied here; anything else travels pickled by mpi4py.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metamori.errors import MetamoriError, missing

PIECE = 1 << 30                            # MPI-3 counts are C ints
SMALL = 504                                # bytes of a thing that needs one message only
LONGEST_PAUSE = 0.01                       # seconds between two looks at a message


class NoMPI(MetamoriError):
    """mpi4py, or an MPI library that fits it, is not there."""


def _mpi() -> Any:
    if "mpi4py.MPI" not in sys.modules and os.environ.get("MPI4PY_MPIABI") == "mpich":
        _answer_to_mpichs_name()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise NoMPI(missing(error) or str(error)) from None
    return MPI


def _answer_to_mpichs_name() -> None:
    """Debian calls MPICH's library libmpich.so.12, mpi4py asks for libmpi.so.12, the name of the common ABI.

    An empty library of that name satisfies the loader; the symbols are those of the MPICH that is loaded.
    """
    try:
        ctypes.CDLL("libmpi.so.12", ctypes.RTLD_GLOBAL)
    except OSError:
        with contextlib.suppress(OSError):
            ctypes.CDLL("libmpich.so.12", ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(Path(__file__).resolve().parents[2] / "libmpi_mpich.so"), ctypes.RTLD_GLOBAL)


class Alone:
    """One process. Every collective is already complete."""

    rank, size, threads = 0, 1, True

    def allgather(self, thing: Any) -> list[Any]:
        return [thing]

    gather = allgather

    def bcast(self, thing: Any) -> Any:
        return thing

    def barrier(self) -> None:
        return

    def all(self, well: bool) -> bool:
        return well

    def largest(self, value: float) -> float:
        return value

    def split(self, color: int | None, key: int = 0) -> Alone:
        return self

    def duplicate(self) -> Alone:
        return self

    def free(self) -> None:
        return

    def write_together(self, path: str, start: int, pieces: Sequence[Any], hints: dict[str, str]) -> None:
        with open(path, "wb", buffering=0) as file:
            for piece in pieces:
                while len(piece):
                    piece = piece[file.write(piece):]
            os.fsync(file.fileno())


class Job:
    """A communicator of mpi4py, with the calls that checkpoints need."""

    def __init__(self, comm: Any) -> None:
        self.comm = self.origin = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    @classmethod
    def from_handle(cls, handle: int) -> Job:
        """From the Fortran handle of a program's communicator."""
        return cls(_mpi().Comm.f2py(handle))

    @property
    def handle(self) -> int:
        """Its Fortran handle."""
        return int(self.comm.py2f())

    @property
    def threads(self) -> bool:
        """Whether any thread may call MPI at any time."""
        MPI = _mpi()
        return bool(MPI.Query_thread() == MPI.THREAD_MULTIPLE)

    def _wait(self, *requests: Any) -> None:
        """Until all are complete, leaving the processor to others: MPI itself would use it up while it waits."""
        MPI, began = _mpi(), time.monotonic()
        while not MPI.Request.Testall(list(requests)):
            time.sleep(min(50e-6 + (time.monotonic() - began) / 10, LONGEST_PAUSE))

    def barrier(self) -> None:
        self._wait(self.comm.Ibarrier())

    def allgather(self, thing: Any) -> list[Any]:
        """Everybody's thing. Small ones travel with their lengths, in one message."""
        MPI, text = _mpi(), pickle.dumps(thing)
        mine = bytearray(len(text).to_bytes(8, "little") + text[:SMALL].ljust(SMALL, b"\0"))
        heads = bytearray(len(mine) * self.size)
        self._wait(self.comm.Iallgather([mine, MPI.BYTE], [heads, MPI.BYTE]))
        parts = [heads[i:i + len(mine)] for i in range(0, len(heads), len(mine))]
        lengths = [int.from_bytes(part[:8], "little") for part in parts]
        if max(lengths) <= SMALL:
            return [pickle.loads(memoryview(part)[8:]) for part in parts]
        whole = bytearray(sum(lengths))
        self._wait(self.comm.Iallgatherv([text, MPI.BYTE], [whole, lengths, MPI.BYTE]))
        starts = [sum(lengths[:i]) for i in range(self.size)]
        return [pickle.loads(memoryview(whole)[start:]) for start in starts]

    def gather(self, thing: Any) -> list[Any] | None:
        """To rank 0."""
        found = self.allgather(thing)
        return found if self.rank == 0 else None

    def bcast(self, thing: Any) -> Any:
        """The first one's."""
        return self.allgather(thing if self.rank == 0 else None)[0]

    def all(self, well: bool) -> bool:
        """Whether it is so for everybody."""
        return all(self.allgather(well))

    def largest(self, value: float) -> float:
        found: float = max(self.allgather(value))
        return found

    def split(self, color: int | None, key: int = 0) -> Job | None:
        """None for those without a color."""
        MPI = _mpi()
        made = self.comm.Split(MPI.UNDEFINED if color is None else color, key)
        return None if made == MPI.COMM_NULL else Job(made)

    def duplicate(self) -> Job:
        made = Job(self.comm.Dup())
        made.origin = self.comm
        return made

    def subset(self, ranks: Sequence[int]) -> Job | None:
        """A communicator of these ranks in this order; None for the others. Everybody calls it."""
        return self.split(0 if self.rank in ranks else None, ranks.index(self.rank) if self.rank in ranks else 0)

    def free(self) -> None:
        self.comm.Free()

    # -- buffers ---------------------------------------------------------------------------------

    def exchange(self, out: Any, to: int, into: Any, source: int) -> None:
        """Send `out` to one and receive `into` from another at the same time; either may be empty."""
        MPI = _mpi()
        waiting = []
        for start in range(0, len(into), PIECE):
            waiting.append(self.comm.Irecv([into[start:start + PIECE], MPI.BYTE], source, 711))
        for start in range(0, len(out), PIECE):
            waiting.append(self.comm.Isend([out[start:start + PIECE], MPI.BYTE], to, 711))
        self._wait(*waiting)

    def transpose(self, out: Any, into: Any, to: Sequence[int], sources: Sequence[int], step: int) -> None:
        """Slice i of `out` goes to rank to[i], slice i of `into` comes from rank sources[i]; `step` bytes each."""
        MPI, out, into = _mpi(), memoryview(out), memoryview(into)
        waiting = [self.comm.Irecv([into[i * step:(i + 1) * step], MPI.BYTE], rank, 713)
                   for i, rank in enumerate(sources) if rank != self.rank]
        waiting += [self.comm.Isend([out[i * step:(i + 1) * step], MPI.BYTE], rank, 713)
                    for i, rank in enumerate(to) if rank != self.rank]
        for i in (i for i, rank in enumerate(sources) if rank == self.rank):
            own = to.index(self.rank)
            into[i * step:(i + 1) * step] = out[own * step:(own + 1) * step]
        self._wait(*waiting)

    # -- single messages -------------------------------------------------------------------------

    def send(self, thing: Any, to: int, tag: int) -> None:
        self.comm.send(thing, to, tag)

    def receive(self, source: int, tag: int, patient: bool = False) -> Any:
        """patient: leave the processor to others until the message comes."""
        while patient and not self.comm.Iprobe(source=source, tag=tag):
            time.sleep(0.001)
        return self.comm.recv(source=source, tag=tag)

    def comes(self, tag: int, end: int) -> bool:
        """Wait, leaving the processor to others, for a message with a tag; False when a C int with the tag `end` came
        in the communicator that this one was made from, and nothing before it. It is taken."""
        MPI = _mpi()
        while not self.comm.Iprobe(MPI.ANY_SOURCE, tag):
            if self.origin.Iprobe(MPI.ANY_SOURCE, end) and not self.comm.Iprobe(MPI.ANY_SOURCE, tag):
                self.origin.Recv([bytearray(4), MPI.INT], MPI.ANY_SOURCE, end)
                return False
            time.sleep(0.001)
        return True

    # -- one file of all -------------------------------------------------------------------------

    def write_together(self, path: str, start: int, pieces: Sequence[Any], hints: dict[str, str]) -> None:
        """Write this process's bytes at a place of the one file, durably. OSError. Everybody calls it."""
        MPI = _mpi()
        info = MPI.Info.Create()
        for key, value in hints.items():
            if value not in ("0", "-1"):
                info.Set(key, value)
        try:
            file = MPI.File.Open(self.comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY, info)
            try:
                for piece in pieces:
                    for at in range(0, len(piece), PIECE):
                        file.Write_at(start, [piece[at:at + PIECE], MPI.BYTE])
                        start += len(piece[at:at + PIECE])
                file.Sync()
            finally:
                file.Close()
        except MPI.Exception as error:
            raise OSError(errno.EIO, f"{path}: {error}") from None
        finally:
            info.Free()


def wrap(comm: Any) -> Alone | Job:
    """What a caller gave: None for one process, an mpi4py communicator, or one of ours."""
    if comm is None:
        return Alone()
    return comm if isinstance(comm, Alone | Job) else Job(comm)


def finalize() -> None:
    """End MPI in a process that never returns to the program."""
    MPI = _mpi()
    if not MPI.Is_finalized():
        MPI.Finalize()
