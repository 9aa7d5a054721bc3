"""Memory of several processes is known by what the kernel calls it."""

from __future__ import annotations

import os

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
