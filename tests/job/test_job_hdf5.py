"""Ranks of MPI, each a run of a job, write one dataset by parallel HDF5, rows in turn: each index is of one moment.

The library is called by ctypes: no headers are needed, and h5py of the distribution is of the serial one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from ctypes.util import find_library

import pytest
from lab import Lab
from launch import ENVIRONMENT, need

pytest.importorskip("zmq")

RANKS, ROWS, WIDTH, PHASES = 2, 48, 700, 3
PROGRAM = r"""
import ctypes, hashlib, sys
from ctypes import byref, c_char_p, c_int, c_int64, c_uint, c_uint64, c_void_p
from mpi4py import MPI
import metamori

name, rows, width, phases = sys.argv[1], *map(int, sys.argv[2:])
world = MPI.COMM_WORLD
lib = ctypes.CDLL(name)

def call(function, *values):
    of = getattr(lib, function)
    of.restype = c_int64 if "create" in function else c_int
    got = of(*values)
    assert got >= 0, function
    return got

def known(what):
    return c_int64(c_int64.in_dll(lib, what).value)

def sizes(*values):
    return (c_uint64 * len(values))(*values)

def handle(of):
    return c_void_p.from_address(MPI._addressof(of))

call("H5open")
access = c_int64(call("H5Pcreate", known("H5P_CLS_FILE_ACCESS_ID_g")))
call("H5Pset_fapl_mpio", access, handle(world), handle(MPI.INFO_NULL))
file = c_int64(call("H5Fcreate", c_char_p(b"grid.h5"), c_uint(2), c_int64(0), access))
number = known("H5T_NATIVE_INT_g")
space = c_int64(call("H5Screate_simple", c_int(2), sizes(rows, width), None))
data = c_int64(call("H5Dcreate2", file, c_char_p(b"u"), number, space, c_int64(0), c_int64(0), c_int64(0)))
memory = c_int64(call("H5Screate_simple", c_int(2), sizes(1, width), None))
for phase in range(1, phases + 1):
    row = (c_int * width)(*[phase] * width)
    for at in range(world.rank, rows, world.size):
        call("H5Sselect_hyperslab", space, c_int(0), sizes(at, 0), None, sizes(1, width), None)
        if phase % 2 and at == rows // 2 + 1:
            metamori.checkpoint(f"amid {phase}")
        call("H5Dwrite", data, number, memory, space, c_int64(0), row)
    call("H5Fflush", file, c_int(1))
    world.Barrier()
    if world.rank == 0:
        index = metamori.checkpoint(f"after {phase}")
        with open("grid.h5", "rb") as there:
            print(index, hashlib.sha256(there.read()).hexdigest(), flush=True)
    world.Barrier()
for what, which in (("H5Dclose", data), ("H5Fclose", file)):
    call(what, which)
"""


@pytest.mark.slow
def test_rows_in_turn(lab: Lab) -> None:
    need("openmpi")
    name = find_library("hdf5_openmpi")
    if name is None:
        pytest.skip("no parallel HDF5 (apt-get install libhdf5-openmpi-103-1)")
    env = {each: value for each, value in (ENVIRONMENT | lab.env).items() if each != "METAMORI_TRACK"}
    words = [sys.executable, "-c", PROGRAM, name, ROWS, WIDTH, PHASES]
    done = subprocess.run(["mpirun.openmpi", "-n", str(RANKS), *lab.argv("run", "--job"), "--", *map(str, words)],
                          cwd=lab.work, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "lost" not in done.stderr, done.stdout + done.stderr
    messages = {index: text for index, text in lab.messages().items() if text[:5] in ("amid ", "after")}
    sums = dict(line.split() for line in done.stdout.splitlines())
    assert len(messages) == PHASES + (PHASES + 1) // 2 and len(sums) == PHASES
    row = {phase: phase.to_bytes(4, "little") * WIDTH for phase in range(PHASES + 1)}
    last = (lab.work / "grid.h5").read_bytes()
    start = last.index(row[PHASES] * ROWS)     # the dataset is in one piece
    for index in [*reversed(messages), *messages]:
        lab.restore(index)
        found, phase = (lab.work / "grid.h5").read_bytes(), int(messages[index].split()[1])
        if messages[index].startswith("after"):
            assert hashlib.sha256(found).hexdigest() == sums[str(index)], index
            continue
        of: list[list[int]] = [[] for _ in range(RANKS)]
        for at in range(ROWS):
            line = found[start + 4 * WIDTH * at:start + 4 * WIDTH * (at + 1)].ljust(4 * WIDTH, b"\0")
            assert line in (row[phase], row[phase - 1]), (index, at)
            of[at % RANKS].append(line[0])
        assert all(each == sorted(each, reverse=True) for each in of), (index, of)
        assert of[1].count(phase) == ROWS // 4, (index, of)    # who asked for it had written so much
    lab.verb("verify")
