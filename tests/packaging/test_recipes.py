"""The short recipes do what they say: each block typed into a shell in an empty folder, shown output compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "recipes.md").read_text()
BLOCKS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", BLOCKS)
def test_recipe(name: str, tmp_path: Path) -> None:
    if "sqlite3" in BLOCKS[name] and shutil.which("sqlite3") is None:
        pytest.skip("sqlite3 is not installed")
    script, shown = [], {}
    number = 0
    for line in BLOCKS[name].splitlines():
        if line.startswith("$ "):
            number += 1
            script += [f"echo @@{number}", line[2:]]
        elif "<<'END'" in script[-1] or (script[-1] != "END" and any("<<'END'" in each for each in script)
                                         and "END" not in script):
            script.append(line)
        else:
            shown.setdefault(number, []).append(line)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("METAMORI_STORE", None)
    done = subprocess.run(["bash"], input="\n".join([*script, "echo @@end", ""]), cwd=tmp_path, env=environment,
                          capture_output=True, text=True, timeout=240, check=False)
    answers = re.findall(r"^@@(\d+)\n(.*?)(?=^@@)", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(answers) == number, done.stderr
    for each, said in answers:
        if int(each) in shown:
            assert said.splitlines() == shown[int(each)], (each, done.stderr)
    assert "Traceback" not in done.stderr and "error" not in done.stderr.lower(), done.stderr
