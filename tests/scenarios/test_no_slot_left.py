"""A process that finds no slot in the run area: it is not tracked, and keeps nothing of ours open."""

from __future__ import annotations

import sys
import textwrap

from lab import Lab

FILLS = """
    import os, resource, subprocess, sys
    from metamori._area import ffi, lib
    from metamori.runtime.area.run_area import Area

    area, size = Area(sys.argv[1]), ffi.sizeof("struct mm_process")
    room = area.head.reserved[1]
    made = []
    while (area.head.process_high + 1) * size <= room:
        made.append(lib.mm_process_join(area.pointer, os.getpid(), 0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))      # nor does it grow
    done = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, restore_signals=False)
    for slot in made:
        area.process(slot).pid = 0
    print("a slot" if not made or not all(made) else "no slot", "/buffer/" in done.stdout, done.returncode, done.stderr)
"""


def test_the_buffer_is_not_left_open(lab: Lab) -> None:
    done = lab.run([sys.executable, "-c", textwrap.dedent(FILLS), str(lab.store)])
    assert done.stdout.startswith(b"no slot False 0"), (done.stdout, done.stderr)
