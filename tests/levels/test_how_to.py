"""docs/how-to/fti.md and docs/reference/fortran.md, run as they are printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import launch
import pytest

PAGES = {"how-to/fti.md": 4, "reference/fortran.md": 1}     # how many blocks of commands


@pytest.mark.parametrize("page", PAGES)
def test_the_page_does_what_it_says(tmp_path, page):
    launch.need("openmpi")
    if "fortran" in page and not (launch.ROOT / "metamori" / "libmetamori_fti_f90.so").exists():
        pytest.skip("the Fortran module is not built: gfortran is missing")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("mpicc", "mpif90", "mpirun"):       # a machine with two MPIs may call the other one by the plain name
        (tools / name).symlink_to(str(shutil.which(f"{name}.openmpi")))
    metamori = tools / "metamori"
    metamori.write_text(f'#!/bin/sh\nexec {sys.executable} -m metamori "$@"\n')
    metamori.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = {**launch.ENVIRONMENT, "PATH": f"{tools}:{launch.ENVIRONMENT['PATH']}"}
    said, ran = "", 0
    text = (launch.ROOT / "docs" / page).read_text()
    for kind, file, body in re.findall(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", text, re.S | re.M):
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
    assert ran == PAGES[page]
