"""docs/how-to/fti.md, run as it is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import launch

PAGE = launch.ROOT / "docs" / "how-to" / "fti.md"


def test_the_page_does_what_it_says(tmp_path):
    launch.need("openmpi")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("mpicc", "mpirun"):       # a machine with two MPIs may call the other one by the plain name
        (tools / name).symlink_to(str(shutil.which(f"{name}.openmpi")))
    metamori = tools / "metamori"
    metamori.write_text(f'#!/bin/sh\nexec {sys.executable} -m metamori "$@"\n')
    metamori.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = {**launch.ENVIRONMENT, "PATH": f"{tools}:{launch.ENVIRONMENT['PATH']}"}
    said, ran = "", 0
    for kind, file, body in re.findall(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", PAGE.read_text(), re.S | re.M):
        if file:
            Path(work, file).write_text(body)
        elif kind == "sh":
            done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", body], cwd=work, env=environment,
                                  capture_output=True, text=True, timeout=launch.LIMIT)
            assert done.returncode == 0, body + done.stdout + done.stderr
            said, ran = done.stdout, ran + 1
        else:
            for line in body.splitlines():
                assert line in said.splitlines(), f"{line!r} is not in what was printed:\n{said}"
    assert ran == 4
