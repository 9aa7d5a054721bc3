"""The cache of all files together has a bound, however many are open; what does without is as right."""

from __future__ import annotations

import sys

from lab import Lab, difference

PROGRAM = """
import os, resource, sys
COUNT = 1300
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
for turn in range(2):
    opened = [os.open(f"f/{number}", os.O_RDWR) for number in range(COUNT)]
    for piece in range(3):
        for number, each in enumerate(opened):
            assert os.pwrite(each, b"%07d" % (number + turn), 500 + piece * 90) == 7
    for number, each in enumerate(opened):
        assert os.pread(each, 7, 590) == b"%07d" % (number + turn)
        os.close(each)
print(max(os.stat(path).st_size >> 20 for path in sys.argv[1:]))
"""


def test_as_many_as_are_open_at_once(lab: Lab, native_lab: Lab) -> None:
    for each in (lab, native_lab):
        (each.work / "f").mkdir()
        for number in range(1300):
            (each.work / f"f/{number}").write_bytes(b"%04d" % number * 1500)
    before = lab.state()
    command = [sys.executable, "-c", PROGRAM]
    assert native_lab.run([*command, "f"], native=True).returncode == 0
    done = lab.run([*command, lab.store / "run" / "cache"])
    assert (done.returncode, done.stderr) == (0, b"")
    assert 60 < int(done.stdout) < 70, "MiB; each of these files would have 64 KiB of its own: 81"
    end = lab.state()
    assert not difference(end, native_lab.state())
    lab.restore(0)
    lab.assert_state(before, "restore 0")
    lab.restore(1)
    lab.assert_state(end, "restore 1")
