"""Which frames leave the AML cache (area/cache.c), against a list: second chance, each file by a hand of its own,
and no byte that was newer than the disk buffer is lost."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import CHUNK, Area

if TYPE_CHECKING:
    from metamori._area import mm_frame

FILES = st.integers(0, 2)


class Modelled:
    """A frame as the model knows it."""

    def __init__(self, file: int, chunk: int) -> None:
        self.file, self.chunk = file, chunk
        self.used = False


class CacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.area = Area(self.folder, create=True)
        self.disk = os.open(os.path.join(self.folder, "buffer"), os.O_RDWR | os.O_CREAT)
        self.slots = [lib.mm_pif_new(self.area.pointer, 1, 100 + i, 0, b"/file%d" % i) for i in range(3)]
        self.frames: dict[int, Modelled] = {}          # by number
        self.hands = [0, 0, 0]
        self.wanted: dict[int, bytes] = {}             # what each chunk holds, in the cache or on the disk
        self.chunks = 0

    def teardown(self) -> None:
        self.area.close()
        os.close(self.disk)
        shutil.rmtree(self.folder)

    def frame(self, number: int) -> mm_frame:
        return lib.mm_frame_at(self.area.pointer, number)

    def frames_of(self, slot: int) -> list[int]:
        return [number for number in range(1, self.area.head.frame_count) if self.frame(number).slot == slot]

    def write(self, number: int, low: int, text: bytes) -> None:
        """As mm_frame_newer and the copy behind it."""
        frame, chunk = self.frame(number), self.frames[number].chunk
        place = ffi.cast("char *", lib.mm_frame_bytes(self.area.pointer, number))
        frame.low = low if frame.low == frame.high else min(frame.low, low)
        frame.high = max(frame.high, low + len(text))
        frame.used = 1
        ffi.memmove(place + low, text, len(text))
        held = self.wanted[chunk]
        self.wanted[chunk] = held[:low] + text + held[low + len(text):]
        self.frames[number].used = True

    @rule(file=FILES, written=st.booleans())
    def take(self, file: int, written: bool) -> None:
        self.chunks += 1
        number = lib.mm_frame_take(self.area.pointer, self.slots[file], self.chunks)
        assert number and number not in self.frames
        self.frames[number] = Modelled(file, self.chunks)
        self.wanted[self.chunks] = bytes(CHUNK)
        ffi.memmove(lib.mm_frame_bytes(self.area.pointer, number), bytes(CHUNK), CHUNK)
        if written:
            self.write(number, 0, b"new" * 30)

    @precondition(lambda self: self.frames)
    @rule(data=st.data(), low=st.integers(0, CHUNK - 300), fill=st.integers(1, 255))
    def use(self, data: st.DataObject, low: int, fill: int) -> None:
        self.write(data.draw(st.sampled_from(sorted(self.frames))), low, bytes([fill]) * 300)

    def next_to_leave(self, file: int) -> int | None:
        own = [number for number, frame in self.frames.items() if frame.file == file]
        hand = self.hands[file]
        around = sorted(number for number in own if number >= hand) + sorted(number for number in own if number < hand)
        for number in around * 2:
            if not self.frames[number].used:
                return number
            self.frames[number].used = False
        return None

    @rule(file=FILES, times=st.integers(1, 3), broken=st.booleans())
    def leave(self, file: int, times: int, broken: bool) -> None:
        for _ in range(times):
            number = self.next_to_leave(file)
            newer = number is not None and self.frame(number).high > 0
            if broken and newer:
                read_only = os.open(os.path.join(self.folder, "buffer"), os.O_RDONLY)
                assert lib.mm_cache_evict(self.area.pointer, self.slots[file], read_only) == -errno.EBADF
                os.close(read_only)
            else:
                result = lib.mm_cache_evict(self.area.pointer, self.slots[file], self.disk)
                assert result == (-errno.ENOENT if number is None else 0)
                self.frames.pop(number, None)          # type: ignore[arg-type]
            if number is not None:
                self.hands[file] = number

    @rule(file=FILES)
    def drop(self, file: int) -> None:
        """The file is gone, with what its frames held."""
        lib.mm_cache_drop(self.area.pointer, self.slots[file])
        for number in [number for number, frame in self.frames.items() if frame.file == file]:
            del self.wanted[self.frames.pop(number).chunk]

    @invariant()
    def agrees(self) -> None:
        for file, slot in enumerate(self.slots):
            own = sorted(number for number, frame in self.frames.items() if frame.file == file)
            assert self.frames_of(slot) == own and self.area.pif(slot).frames == len(own)
        assert all(self.frame(number).used == frame.used for number, frame in self.frames.items())
        chunks = {frame.chunk: number for number, frame in self.frames.items()}
        for chunk, wanted in self.wanted.items():
            on_disk = os.pread(self.disk, CHUNK, chunk * CHUNK).ljust(CHUNK, b"\0")
            if chunk not in chunks:
                assert on_disk == wanted, chunk
                continue
            frame = self.frame(chunks[chunk])
            held = bytes(ffi.buffer(lib.mm_frame_bytes(self.area.pointer, chunks[chunk]), CHUNK))
            assert held == wanted
            assert held[:frame.low] == on_disk[:frame.low] and held[frame.high:] == on_disk[frame.high:]


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

TestCache = CacheMachine.TestCase
