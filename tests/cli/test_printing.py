"""What `log` prints on terminals and into pipes, and names that would draw on a terminal, wherever they are printed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from lab import Lab
from terminal import on_terminal, printed

from metamori.cli import log
from metamori.printed import columns

UGLY = "a\x1b[31mred\nfake line\t"
LONG = "a message that is longer than any terminal is wide, " * 4


def script(lab: Lab, text: str) -> None:
    path = lab.folder / "script"
    path.write_text(f"M='{' '.join(lab.argv('checkpoint'))}'\n{text}")
    assert lab.run(["sh", path]).returncode == 0


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_gets_a_header_and_lines_that_fit(lab: Lab, width: int) -> None:
    script(lab, f"echo 1 > f; $M -m short; echo 2 > f; $M -m '{LONG}'; echo 3 > f")
    lines = on_terminal(lab, "log", width=width)
    assert lines[0].split() == ["index", "time", "size", "files", "message"]
    assert len(lines) == 5 and all(columns(line) <= width for line in lines)
    assert lines[3].endswith("…") and LONG[:20] in lines[3] and columns(lines[3]) == width
    assert lines[4].startswith("* 3") and lines[4].endswith("end of run")
    message_at = lines[0].index("message")
    assert [line[message_at:message_at + 5] for line in lines[2:]] == ["short", "a mes", "end o"]


@pytest.mark.parametrize(("settings", "is_coloured"), [
    ({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)], ids=["xterm", "dumb", "no colour"])
def test_colours_are_for_terminals_that_have_them(lab: Lab, settings: dict[str, str], is_coloured: bool) -> None:
    script(lab, "echo 1 > f; $M -m short")
    assert ("\x1b[" in printed(lab.argv("log"), lab, width=80, raw=True, **settings)) == is_coloured


def test_a_pipe_gets_everything(lab: Lab) -> None:
    script(lab, f"echo 1 > f; $M -m '{LONG}'")
    lines = lab.verb("log").stdout.splitlines()
    assert len(lines) == 3 and lines[1].endswith(LONG.rstrip())


class Deep:
    """A tree in which each branch point is on a branch: as deep as there are levels."""

    def __init__(self, levels: int) -> None:
        from metamori.tables.history import History

        self.history = History()
        tips = [0]
        for _ in range(levels):            # the older child goes on, the newer ends at once
            at = tips[-1]
            self.history.add(self.history.newest + 1, at)
            tips.append(self.history.newest)
        for at in reversed(tips[:-1]):
            self.history.add(self.history.newest + 1, at)


@pytest.mark.parametrize("width", [0, 60, 80, 120])
@pytest.mark.parametrize("levels", [1, 10, 40])
def test_columns_of_a_deep_tree_stay_apart(width: int, levels: int) -> None:
    deep = Deep(levels)
    entries = {index: {"index": index, "time": "2026-11-22T10:00:00.000000Z" if index else None, "bytes": 12345678,
                       "files": 3, "message": LONG.strip(), "memory": None, "lost": []}
               for index in deep.history.indexes}
    lines = log._lines(deep, entries, 0, width)  # type: ignore[arg-type]
    rows = [line for line in lines if "2026-" in line]
    assert len(rows) == 2 * levels
    assert len({columns(line[:line.index("2026-")]) for line in rows}) == 1
    assert all(re.search(r"\d +2026-", line) for line in rows)
    assert all(columns(line) <= width for line in lines) or not width
    assert all("a message" in line for line in rows)


def test_only_the_newest(lab: Lab) -> None:
    script(lab, "for i in 1 2 3 4; do echo $i > f; $M; done")
    shown = lab.verb("log", "-n", 2).stdout.splitlines()
    assert [line.lstrip("* ").split()[0] for line in shown] == ["4", "5"]
    assert on_terminal(lab, "log", "-n", 2, width=80)[1] == "  … 4 older"
    lab.verb("log", "-n", "0", code=2)


def test_a_long_log_goes_through_the_pager(lab: Lab) -> None:
    script(lab, "for i in 1 2 3 4 5 6; do echo $i > f; $M; done")
    pager = lab.folder / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/paged:/'\n")
    pager.chmod(0o755)
    assert all(line.startswith("paged:") for line in on_terminal(lab, "log", width=80, height=5, PAGER=str(pager)))
    for setting in ({"PAGER": str(pager)}, {"PAGER": "cat"}, {"PAGER": "/no/such/pager"}):
        lines = on_terminal(lab, "log", width=80, height=200 if setting["PAGER"] == str(pager) else 5, **setting)
        assert len(lines) == 9 and not lines[1].startswith("paged:")
    assert on_terminal(lab, "log", width=80, height=5, PAGER="true") == []
    assert "paged" not in lab.verb("log").stdout


def test_names_that_draw_on_a_terminal_are_quoted_everywhere(lab: Lab, tmp_path: Path) -> None:
    (lab.work / UGLY).write_text("before\n")
    code = f"open({UGLY!r}, 'a').write('more'); open({UGLY + '2'!r}, 'w').write('new')"
    done = lab.run(["python3", "-c", code])
    assert done.returncode == 0 and not done.stderr
    copy = lab.folder / "copy"
    for words, status in ((["log"], 0), (["show", 1], 0), (["diff", 0, 1], 0), (["diff", 0, 1, UGLY], 0),
                          (["verify"], 0), (["restore", "--dry-run", 0], 0), (["restore", "--to", copy, 1], 0),
                          (["status"], 0), (["cat", 0, UGLY + "3"], 1)):
        printed = lab.verb(*words, code=status, cwd=lab.work)  # type: ignore[arg-type]
        _is_clean(printed, words)
        if words[0] == "diff" or "--dry-run" in words:
            assert r"$'a\e[31mred\nfake line\t" in printed.stdout
    (lab.work / UGLY).write_text("changed from outside\n")
    for words in (["restore", 0], ["restore", "--to", copy, 0], ["verify"], ["log"]):
        _is_clean(lab.verb(*words, code=None, cwd=lab.work), words)  # type: ignore[arg-type]
    _is_clean(lab.verb("restore", "--force", 0, code=None, cwd=lab.work), ["restore", "--force"])


def _is_clean(done: subprocess.CompletedProcess[str], words: Sequence[object]) -> None:
    for text in (done.stdout, done.stderr):
        assert "\x1b" not in text and "\nfake" not in text and "\t" not in text, (words, text)
