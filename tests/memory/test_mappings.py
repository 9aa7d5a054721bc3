"""What a program has mapped, seldom seen: as it was when it comes back, or refused by its name."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from comeback import TAKEN, Memory, built, came_back, run_of

from metamori.store.read.store import Store

pytestmark = pytest.mark.usefixtures("installed")
OLD = b"".join(bytes([letter]) * 4096 for letter in b"abcd")
FILES = {"shared": OLD, "private": OLD, "closed": OLD}


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """To an ordinary user, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("how", [[], ["shut"]], ids=["open", "shut"])
def test_mappings_that_only_read_show_what_is_written_later(open_to_all: Path, how: list[str]) -> None:
    """Where the modes allow nothing any more, too, to an ordinary user."""
    case = Memory(open_to_all, [built(open_to_all, "mapped.c"), *how], setup=FILES,
                  user="nobody" if os.geteuid() == 0 else None)
    assert case.native.status == 0, case.native
    run_of(case)
    for _ in range(2):
        case.goes_on(1)


def test_shut_files_that_many_processes_map(open_to_all: Path) -> None:
    """Each opens them up for a moment: nobody fails by another's shutting them, and nobody leaves them open."""
    case = Memory(open_to_all, [built(open_to_all, "shut_by_many.c")], setup=FILES,
                  user="nobody" if os.geteuid() == 0 else None)
    run_of(case)
    for _ in range(6):
        came_back(case, 1)
        assert [(case.work / name).stat().st_mode & 0o777 for name in ("private", "shared")] == [0, 0]


def test_guarded_pages(tmp_path: Path) -> None:
    """No checkpoint touches them; they are guarded again, and what was there is not."""
    case = Memory(tmp_path, [built(tmp_path, "guards.c")])
    run_of(case)
    assert case.errors().count("taken") == 4
    came_back(case, 4, 3, 2, 1)


@pytest.mark.parametrize("how", ["wiped", "absent"])
def test_memory_that_children_are_not_to_have(tmp_path: Path, how: str) -> None:
    """A copy of the process that writes the image has it all the same."""
    case = Memory(tmp_path, [built(tmp_path, "kept.c"), how])
    run_of(case)
    assert case.errors().count("taken") == 1
    came_back(case, 1)


@pytest.mark.parametrize("name", ["stack.c"])
def test_protections(tmp_path: Path, name: str) -> None:
    case = Memory(tmp_path, [built(tmp_path, name)])
    run_of(case)
    came_back(case, 1)


def test_more_address_space_than_memory(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"f")
        file.truncate(1 << 39)
    case = Memory(tmp_path, [built(tmp_path, "sparse.c"), tmp_path / "sparse"])
    run_of(case)
    came_back(case, 1)


def test_tiles_of_the_processor(tmp_path: Path) -> None:
    """Whoever has asked for them may use them when it is back; the state of a thread that has is refused."""
    case = Memory(tmp_path, [built(tmp_path, "tiles.c")])
    run_of(case)
    assert case.errors().count("taken") == 1 and "tiles of the processor (AMX)" in case.errors()
    came_back(case, 1)


@pytest.mark.parametrize("how", ["used", "unused", "the second", "by number", "of the kernel"])
def test_protection_keys(tmp_path: Path, how: str) -> None:
    """The signal's handler may not read what is under one: refused, and the program goes on; from before it is back."""
    case = Memory(tmp_path, [built(tmp_path, "keys.c"), how])
    run_of(case)
    is_refused = how not in ("unused", "of the kernel")    # node asks for a key that it does not use
    assert case.errors().count("taken") == 2 - is_refused
    assert ("it has protection keys" in case.errors()) == is_refused
    came_back(case, 1)


SHARED = """
import mmap
kind, size, step = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3]) << 12
if kind == "System V":
    libc.shmget.argtypes = ctypes.c_int, ctypes.c_size_t, ctypes.c_int
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(0, size, 0o1600)
    at = libc.shmat(number, None, 0)
    m = (ctypes.c_char * size).from_address(at)
    libc.shmctl(number, 0, None)
else:
    name = f"/dev/shm/metamori-{os.getpid()}"
    fd = os.memfd_create("m") if kind == "memfd" else -1
    if kind.startswith("/dev/shm"):
        fd = os.open(name, os.O_RDWR | os.O_CREAT)
    if fd >= 0:
        os.ftruncate(fd, size)
    m = mmap.mmap(fd, size)
    if kind == "/dev/shm, deleted":
        os.unlink(name)
written = range(0, size, step)
for at in written:
    m[at:at + 8] = (at + 1).to_bytes(8, "little")
if "out" in sys.argv:                                   # to the disk: MADV_PAGEOUT
    libc.madvise(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), ctypes.c_size_t(size), 21)
there, go = os.pipe()
child = os.fork()
if child == 0:                                          # it has none of the pages in its tables
    os.read(there, 1)
    m[16:24] = m[written[-1]:written[-1] + 8]
    os._exit(7)
taken()
m[8:16] = b"original"
os.write(go, b"g")
status = os.waitpid(child, 0)[1] >> 8
taken()
print(status, m[:8], m[8:16], m[16:24])
print(all(m[at:at + 8] == (at + 1).to_bytes(8, "little") for at in written))
pages = int(open("/proc/self/status").read().partition("RssShmem:")[2].split()[0]) // 4
print("out" in sys.argv or pages <= len(written))
if kind == "/dev/shm":
    os.unlink(name)
"""


def shared(folder: Path, *words: object) -> int:
    """Runs and comes back. The bytes of the first images."""
    (folder / "script").write_text(TAKEN + SHARED)
    case = Memory(folder, ["/usr/bin/python3", folder / "script", *map(str, words)])
    run_of(case)
    assert case.errors().count("taken") == 2, case.errors()
    came_back(case, 2, 1)
    with Store.open(str(case.store)) as store:
        return sum(Path(os.fsdecode(store.layout.memory(1, each.process))).stat().st_size
                   for each in store.meta(1).memory)


@pytest.mark.in_turn("kind", 3)
@pytest.mark.parametrize("kind", ["nameless", "memfd", "/dev/shm", "/dev/shm, deleted", "System V"])
def test_shared_memory_of_which_little_is_used(tmp_path: Path, kind: str) -> None:
    """Its holes are neither filled nor saved."""
    assert shared(tmp_path, kind, 1024, 1000) < 64 << 20


def test_much_shared_memory(tmp_path: Path) -> None:
    """More than the stage has room for."""
    assert shared(tmp_path, "nameless", 264, 1) > 264 << 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nameless", "/dev/shm"])
def test_shared_memory_that_was_swapped_out(tmp_path: Path, kind: str) -> None:
    """The kernel does not tell it from a hole."""
    disk = tmp_path / "swap"
    disk.write_bytes(bytes(64 << 20))
    disk.chmod(0o600)
    if os.geteuid() or any(subprocess.run([f"/usr/sbin/{name}", disk], capture_output=True).returncode
                           for name in ("mkswap", "swapon")):
        pytest.skip("nothing can be swapped out here")
    try:
        shared(tmp_path, kind, 32, 2, "out")
    finally:
        subprocess.run(["/usr/sbin/swapoff", disk], check=True)


def test_those_that_the_kernel_makes_one_of(tmp_path: Path) -> None:
    case = Memory(tmp_path, [built(tmp_path, "joins.c")])
    run_of(case)
    assert len(case.images()) == 6, case.errors()
    case.everywhere(case.images(), most=6)


def test_those_of_which_the_program_sees_to_faults_itself(tmp_path: Path) -> None:
    case = Memory(tmp_path, [built(tmp_path, "faults.c")])
    run_of(case)
    assert case.images() == [1, 2], case.errors()
    case.everywhere([1, 2])
