"""Memory of several processes is known by what the kernel calls it."""

from __future__ import annotations

import os

import pytest

from metamori.runtime.memory import segments

MAPS = b"""\
7f0000000000-7f0000002000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7f0000002000-7f0000003000 rw-s 00002000 00:01 77                         [anon_shmem:a name]
7f0000004000-7f0000005000 rw-p 00000000 00:00 0                          [anon:another]
7f0000006000-7f0000007000 r--s 00000000 00:1a 5                          /dev/shm/file
"""


def test_memory_that_a_program_has_named_is_shared_as_before() -> None:
    """By PR_SET_VMA_ANON_NAME: all of a mapping, or a part of it."""
    device = os.makedev(0, 1)
    start = 0x7f0000000000
    assert segments._shared(MAPS) == [
        (segments.NAMELESS, start, start + 0x2000, 0, device, 77, b"/dev/zero (deleted)"),
        (segments.NAMELESS, start + 0x2000, start + 0x3000, 0x2000, device, 77, b"[anon_shmem:a name]"),
        (segments.POSIX, start + 0x6000, start + 0x7000, 0, os.makedev(0, 0x1a), 5, b"/dev/shm/file")]


GROUPS = {
    "/proc/meminfo": b"MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable:    8000 kB\n",
    "/proc/7/cgroup": b"0::/slice/job\n",
    "/sys/fs/cgroup/slice/job/memory.max": b"max\n",
    "/sys/fs/cgroup/slice/memory.max": b"5000000\n",
    "/sys/fs/cgroup/slice/memory.current": b"4000000\n",
    "/sys/fs/cgroup/slice/memory.stat": b"file 900000\nshmem 600000\ninactive_file 200000\nactive_file 100000\n",
}
BEFORE = {
    "/proc/7/cgroup": b"9:cpu:/\n4:blkio,memory:/job\n0::/\n",
    "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": b"3000000\n",
    "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": b"2000000\n",
    "/sys/fs/cgroup/memory/job/memory.stat": b"inactive_file 1\ntotal_inactive_file 500000\ntotal_active_file 0\n",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": b"9223372036854771712\n",
}


@pytest.mark.parametrize(("said", "left"), [
    (GROUPS, 1_300_000), (GROUPS | BEFORE, 1_500_000), (GROUPS | {"/proc/7/cgroup": b"0::/\n"}, 8000 << 10),
    (GROUPS | {"/sys/fs/cgroup/slice/memory.current": b"6000000\n"}, 0), ({}, 0)])
def test_room_for_copies(monkeypatch: pytest.MonkeyPatch, said: dict[str, bytes], left: int) -> None:
    """As the machine and each group with a limit have it."""
    monkeypatch.setattr(segments, "_read", lambda path: said.get(path, b""))
    assert segments.room_for_copies(7) == left * 3 // 4
