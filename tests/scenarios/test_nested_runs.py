"""A run inside a run with another store: its programs are not tracked by the one around it, and see what that has."""

from __future__ import annotations

import hashlib
import os
import shlex

from lab import Lab

SCRIPT = """
over() { dd if=../new of=file bs=4096 count=1 conv=notrunc status=none seek=$1; }
over 0
TAKES
over 2
mkfifo pipe
exec 3<> pipe
INNER sh -c 'md5sum < file; touch there; read x; md5sum < file' < pipe &
while ! test -e there; do sleep 0.01; done
over 4
echo > pipe
wait
md5sum < file
over 6
"""


def test_a_run_inside_reads_what_the_run_around_it_writes(lab: Lab) -> None:
    """What was redirected before it began is in the file by then, and what is written while it lives goes there."""
    new, sums = os.urandom(4096), []
    (lab.folder / "new").write_bytes(new)
    data = bytearray(os.urandom(1 << 20))
    (lab.work / "file").write_bytes(data)
    for block in (0, 2, 4, 6):
        data[block * 4096:(block + 1) * 4096] = new
        sums.append(hashlib.md5(data).hexdigest())
    script = SCRIPT.replace("TAKES", shlex.join(lab.argv("checkpoint"))).replace(
        "INNER", shlex.join([*lab.argv("run", store=lab.folder / "inner"), "--"]))
    done = lab.run(["sh", "-c", script])
    said = f"metamori: the run around this one, in {lab.store}, does not track it\n"
    assert (done.returncode, done.stderr.decode()) == (0, said)
    assert [each for each in done.stdout.decode().split() if len(each) == 32] == [sums[1], sums[2], sums[2]]
    assert (lab.work / "file").read_bytes() == data
    lab.restore(1)
    assert hashlib.md5((lab.work / "file").read_bytes()).hexdigest() == sums[0]
