"""Every verb that prints a table, on terminals of 80 and 120 columns: lines fit, cuts are shown, columns stay apart."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, wait_until
from terminal import on_terminal

from metamori.printed import columns

WIDE = "検査点の名前" * 12
NAME = WIDE[:60]
DEEP = "/".join(["a-folder-with-a-long-name-to-it"] * 6) + "/file"
LEVELS = 10
WRITES = f"""
open({NAME!r}, 'a').write('more'); file = open({DEEP!r}, 'r+b')
for at in range(0, 1 << 20, 1 << 16): file.seek(at); file.write(b'x' * 4096)
for each in range(30): open(f'new{{each}}', 'w').write('new')
"""


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory, compiled: Compile) -> Iterator[Lab]:
    """Ten levels of branches, long and wide and many names; a run is alive, whose command is a long one."""
    lab = Lab(tmp_path_factory.mktemp("deep"), compiled("driver"))
    (lab.work / DEEP).parent.mkdir(parents=True)
    (lab.work / NAME).write_text("before")
    (lab.work / DEEP).write_bytes(bytes(1 << 20))
    take = f"{' '.join(lab.argv('checkpoint'))} -m '{WIDE}'"
    chain = f"python3 -c \"$0\"; for i in $(seq {LEVELS}); do echo $i >> f; {take}; done"
    done = lab.run(["sh", "-c", chain, WRITES])
    assert done.returncode == 0 and not done.stderr
    for tip in range(LEVELS - 1, 0, -1):
        lab.restore(tip, "--force")
        assert lab.run(["sh", "-c", "echo a branch >> f"]).returncode == 0
    lab.restore(LEVELS)
    subprocess.run(["cp", "-a", lab.store, lab.folder / "before"], check=True)
    words = ["sh", "-c", "echo here >> f; read wait", WIDE, *["and another word"] * 20]
    alive = subprocess.Popen([*lab.argv("run"), "--", *words], cwd=lab.work, env=lab.env, stdin=subprocess.PIPE)
    wait_until(lambda: (lab.work / "f").read_text().endswith("here\n"), "the run")
    yield lab
    alive.communicate(b"\n")
    lab.close()


TABLES = {"log": ["log"], "log -n": ["log", "-n", 3], "status": ["status"], "diff": ["diff", 0, LEVELS],
          "show": ["show", 1], "doctor": ["doctor", "PROGRAM"]}


def table(lab: Lab, name: str, width: int, tmp_path: Path) -> list[str]:
    program = tmp_path / ("a-program-with-a-name-" * 5)
    program.symlink_to("/bin/true")
    verb, *words = TABLES[name]
    lines = on_terminal(lab, str(verb), *[program if word == "PROGRAM" else word for word in words], width=width)
    assert lines and all(columns(line) <= width for line in lines), lines
    return lines


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", TABLES)
def test_lines_fit(deep: Lab, tmp_path: Path, name: str, width: int) -> None:
    lines = table(deep, name, width, tmp_path)
    cuts = [line for line in lines if "…" in line]
    assert cuts
    if name == "log":
        rows = [re.fullmatch(r"([* ] [^0-9]*\d+ +)20\d\d-.*", line) for line in lines[2:]]
        assert all(rows) and len({columns(row[1]) for row in rows if row}) == 1
        assert max(line.count("│ ") for line in lines) == LEVELS - 1
        assert all(line.endswith("…") for line in lines if "検査" in line)
    if name == "diff":
        assert any(re.match(r"M ….*/file  0-4096, ", line) for line in cuts) and "A new29" in lines
    if name == "status":
        assert lines[0].startswith("run ") and lines[0].endswith("…") and len(lines) >= 4
    if name == "doctor":
        assert all(re.match(r"(yes|NO |   ) .{24} \S| {29}\S", line) for line in lines), lines


@pytest.mark.parametrize("width", [80, 120])
def test_what_a_restore_and_a_prune_would_do(deep: Lab, width: int) -> None:
    """Of the store as it was before the run that is alive."""
    for verb, *words in (["restore", 0], ["restore", 0, DEEP, NAME], ["prune", "--keep-last", 1]):
        lines = on_terminal(deep, verb, "--dry-run", *words, "--store", deep.folder / "before", width=width)
        assert lines and all(columns(line) <= width for line in lines), lines
        if verb == "restore":
            assert any(re.match(r"M ….*/file  0-4096, .*…", line) for line in lines)
        else:
            assert re.match(r"\d+ would be pruned \(0-9, 11-\d+\), ", " ".join(lines))
