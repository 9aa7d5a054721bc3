"""A filesystem in a file, mounted and unmounted by the program: the kernel reads and writes the file by itself."""

from __future__ import annotations

import os
import subprocess

import pytest
from lab import Lab

MODES = [[], ["--isolate"], ["--mode=single"]]
MAKE = "truncate -s 8M image && mke2fs -q -F -t ext4 image && mkdir at"
WORK = """
tune2fs -L changed image >said && {checkpoint} && mount -o loop image at || exit 9
echo 'on it' >at/file; seq 10000 >at/long; {checkpoint}; echo more >>at/file; cat at/file; umount at || exit 8
e2fsck -fn image >said 2>&1; echo $?; debugfs -R 'cat file' image 2>said
loop=$(losetup -f --show image) && mount $loop at || exit 7
{checkpoint}; rm at/long; exec 5>at/open; echo open >&5; exec 5>&-; umount $loop; losetup -d $loop
debugfs -R 'cat open' image 2>said; e2fsck -fn image >said 2>&1; echo $?; rm said
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_as_natively(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    for each in (lab, native_lab):
        subprocess.run(["sh", "-c", MAKE], cwd=each.work, check=True)
    native = native_lab.run(["bash", "-c", WORK.format(checkpoint="true")], native=True)
    if native.returncode:
        pytest.skip(f"nothing can be mounted here: {native.stderr.decode()}")
    before = (lab.work / "image").read_bytes()
    checkpoint = " ".join(map(str, lab.argv("checkpoint"))) + " >said"
    done = lab.run(["bash", "-c", WORK.format(checkpoint=checkpoint)], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, native.stdout, b"")
    assert native.stdout.count(b"on it") == 2 and native.stdout.endswith(b"open\n0\n")
    if options != ["--mode=single"]:
        end, last = (lab.work / "image").read_bytes(), max(lab.messages())
        lab.restore(0, "--force")          # the files on it are not there any more
        assert (lab.work / "image").read_bytes() == before
        said = lab.restore(last, "--force", code=12).stderr
        assert "work/at/file is lost; everything else was restored" in said
        assert (lab.work / "image").read_bytes() == end
