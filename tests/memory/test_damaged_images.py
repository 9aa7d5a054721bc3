"""Images of memory whose bytes were changed: found and named, and no program continues from one."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from comeback import METAMORI, Memory
from lab import ROOT, picture

from metamori.runtime.lifecycle import process_restart
from metamori.runtime.memory import proc_inspect
from metamori.store.io.os_io import Door
from metamori.store.read import image
from metamori.store.read.store import Store

pytestmark = pytest.mark.usefixtures("installed")


class InMemory(Door):
    """One file, of which a byte can be another; nothing is written anywhere."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)

    def open(self, path: bytes, flags: int, mode: int = 0o600) -> int:
        return 0

    def close(self, fd: int) -> None:
        pass

    def fstat(self, fd: int) -> os.stat_result:
        return os.stat_result((0o100600, 0, 0, 1, 0, 0, len(self.content), 0, 0, 0))

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return bytes(memoryview(self.content)[offset:offset + length])

    def checksum(self, fd: int, length: int, offset: int, crc: int = 0) -> tuple[int, int]:
        piece = self.pread(fd, length, offset)
        return zlib.crc32(piece, crc), len(piece)


def run_of(folder: Path, name: str) -> Memory:
    """A program that takes checkpoints itself, and its end."""
    source, program = Path(__file__).parent / "programs" / f"{name}.c", folder / name
    subprocess.run(["gcc", "-O1", f"-I{ROOT}/shim_c/include", str(source), "-o", str(program), "-pthread"], check=True)
    case = Memory(folder, [program])
    assert case.start().wait(300) == case.native.status, case.errors()
    return case


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """Four checkpoints."""
    return run_of(tmp_path_factory.mktemp("images"), "own")


def flipped(case: Memory, most: int) -> int:
    """Each image, byte by byte: is it still what its record says?"""
    rng, count = random.Random(14), 0
    with Store.open(str(case.store)) as store:
        for index in case.images():
            entry = store.meta(index).memory[0]
            path = store.layout.memory(index, entry.process)
            door = InMemory(Path(os.fsdecode(path)).read_bytes())
            assert image.check(door, path, entry) == ""
            for at in sorted(rng.sample(range(entry.size), min(most, entry.size))):
                bit = 1 << rng.randrange(8)
                door.content[at] ^= bit
                assert os.fsdecode(path) in image.check(door, path, entry), (index, at)
                door.content[at] ^= bit
                count += 1
    return count


def test_flipped_bytes_are_found(case: Memory) -> None:
    assert flipped(case, 50) == 50 * len(case.images()) > 100


@pytest.mark.parametrize(("most", "least"), [(4000, 5000), pytest.param(10**9, 50_000, marks=pytest.mark.slow)])
def test_every_flipped_byte_is_found(tmp_path: Path, most: int, least: int) -> None:
    """Of a complete image and of one that counts from it; the short form takes some thousands of each."""
    small = run_of(tmp_path, "two")
    count = flipped(small, most)
    print(f"{count} flips, all found")
    assert len(small.images()) >= 2 and count > least


def test_no_program_goes_on_from_another_store_s_image_or_a_later_one_s(case: Memory, tmp_path: Path) -> None:
    """The same program under the same names in another laboratory; another run of it in this one; a version to come."""
    other, index = run_of(tmp_path, "own"), case.images()[0]
    path = next((case.store / "checkpoints").glob(f"{index}.memory.*"))
    content, before = path.read_bytes(), picture(case.work)
    theirs = next((other.store / "checkpoints").glob(f"{other.images()[0]}.memory.*")).read_bytes()
    assert other.start().wait(300) == other.native.status, other.errors()
    second = next(each for each in other.images() if each > other.log()["checkpoints"][-1]["index"] // 2)
    again = next((other.store / "checkpoints").glob(f"{second}.memory.*")).read_bytes()
    later = content[:8] + bytes([content[8] + 1]) + content[9:]
    for wrong in (theirs, again, later):
        assert wrong != content
        path.write_bytes(wrong)
        for verb in (["restart", str(index)], ["verify"]):
            done = case.verb(*verb)
            assert done.returncode == 12 and str(path).encode() in done.stderr, (verb, done)
        assert picture(case.work) == before
    path.write_bytes(content)
    assert case.verb("verify").returncode == 0


UNCHECKED = """
import sys
from metamori.cli import main
from metamori.runtime.lifecycle import process_restart
process_restart.check = lambda *words, **named: None
main.main()
"""


def test_no_program_goes_on_with_another_build_of_the_library(case: Memory, tmp_path: Path) -> None:
    """Of the same length, even: only its build-id differs. Said before a file is touched."""
    shutil.copytree(ROOT / "metamori", tmp_path / "metamori")
    library, index = tmp_path / "metamori" / "libmetamori.so", case.images()[1]
    notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=True).stdout
    build = bytes.fromhex(re.search("Build ID: ([0-9a-f]+)", notes)[1])  # type: ignore[index]
    content = library.read_bytes()
    assert content.count(build) == 1
    library.write_bytes(content.replace(build, build[::-1]))
    (case.work / "lines").write_bytes(b"")
    case.verb("restore", "--force", "0")
    before = picture(case.work)
    for changed in ({"PYTHONPATH": str(tmp_path)}, {"METAMORI_CHECKED": "1"}):
        done = subprocess.run([*METAMORI, "restart", str(index)], cwd=case.work, env=case.environment() | changed,
                              capture_output=True, check=False)
        assert done.returncode == 1 and b"another build of Metamori saved it" in done.stderr, done
        assert picture(case.work) == before
    done = subprocess.run([sys.executable, "-c", UNCHECKED, "restart", str(index)], cwd=case.work, check=False,
                          env=case.environment() | {"PYTHONPATH": str(tmp_path)}, capture_output=True)
    assert done.returncode and b"its image was made by another version" in done.stderr, done
    assert case.verb("restart", str(index)).returncode == case.native.status


def test_what_speaks_against_an_image_is_said_ahead(case: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that has other tables; a kernel whose mappings in every process are others; another user."""
    index, really = case.images()[1], proc_inspect._read
    with Store.open(str(case.store)) as store:
        process_restart.check(store, index)
        with monkeypatch.context() as patch:
            patch.setattr(image, "VERSION", image.VERSION + 1)
            with pytest.raises(process_restart.CannotComeBack, match="another build of Metamori saved it"):
                process_restart.check(store, index)
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 4711)
            with pytest.raises(process_restart.CannotComeBack, match=f"it ran as user {os.getuid()}, group "):
                process_restart.check(store, index)
        monkeypatch.setattr(proc_inspect, "_read", lambda path: really(path).replace(b"[vsyscall]", b"[other]"))
        with pytest.raises(process_restart.CannotComeBack, match=r"this kernel gives a process no \[vsyscall\]"):
            process_restart.check(store, index)


def test_no_program_goes_on_from_a_damaged_image(case: Memory) -> None:
    """In its head, its tables, its pages, the image below it; cut off, or another one's."""
    first, second = case.images()[:2]
    paths = {index: next((case.store / "checkpoints").glob(f"{index}.memory.*")) for index in (first, second)}
    before = picture(case.work)
    for index, harmed, at in [(second, second, 30), (second, second, 5000), (second, second, -9),
                              (second, second, None), (second, first, -3000), (first, first, 1), (first, first, 0)]:
        path = paths[harmed]
        content = path.read_bytes()
        if at is None:
            path.write_bytes(paths[first].read_bytes())
        elif at == 0:
            path.write_bytes(content[:-1])
        else:
            path.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at:][1:])
        for verb in (["restart", str(index)], ["verify"]):
            done = case.verb(*verb)
            assert done.returncode == 12 and str(path).encode() in done.stderr, (verb, at, done)
            assert verb == ["verify"] or done.stdout == b""
        assert picture(case.work) == before
        path.write_bytes(content)
    path = paths[first]
    content = path.read_bytes()
    path.unlink()
    done = case.verb("restart", str(second))
    assert done.returncode == 12 and str(path).encode() in done.stderr, done
    path.write_bytes(content)
    assert case.verb("restart", str(second)).returncode == case.native.status
