"""What the C library does to descriptors by calls of its own: the program's next write goes where it natively does."""

from __future__ import annotations

import pytest
from lab import Lab, wait_until

DAEMON = """
import ctypes, os
fd = os.open("log", os.O_RDWR)
os.dup2(fd, 1)
os.write(1, b"before")
if ctypes.CDLL(None).daemon(1, 0) == 0:
    os.write(1, b"after")
    os.write(fd, b"last")
    os.close(fd)
    open("done", "w").close()
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]])
def test_a_daemon_s_standard_descriptors_are_no_files(lab: Lab, options: list[str]) -> None:
    found = []
    for native in (True, False):
        (lab.work / "log").write_bytes(b"old " * 10)
        (lab.work / "done").unlink(missing_ok=True)
        assert lab.run(["/usr/bin/python3", "-c", DAEMON], *options, native=native).returncode == 0
        wait_until(lambda: (lab.work / "done").exists(), "the daemon is done")
        if not native:
            wait_until(lambda: "no run is alive" in lab.verb("status").stdout, "the daemon ends")
        found.append((lab.work / "log").read_bytes())
    assert found[0] == found[1]
