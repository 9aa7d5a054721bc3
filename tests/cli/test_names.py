"""Names and messages that would draw on a terminal, under each verb: nothing of them reaches it raw, and JSON gives
them back."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Compile
from lab import Lab

TITLE, LINE = b"\x1b]0;title\x07\x1b[31m", b"two\nmetamori: lines\r\t"
BYTE, TURNED = b"caf\xe9 \x9b31m", "\u202eb\u2028".encode()
NAMES = [TITLE, LINE, BYTE, TURNED]
FOLDER = b"in " + LINE + TITLE + BYTE
MESSAGE = (TITLE + LINE + TURNED).decode() + "\udce9"
WRITES = """
import os, sys
for name in os.listdir(b'.'):
    if not os.path.isdir(name): open(name, 'a').write('more')
for name in os.listdir(b'.'):
    if not name.startswith(b'.') and not os.path.lexists(name + b' link'):
        open(name + b' new', 'w').write('new')
        os.symlink(name, name + b' link')
"""


class Ugly:
    """A store in a folder with such a name, and in it checkpoints of files with such names."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.top = os.path.join(os.fsencode(lab.folder), FOLDER)
        os.mkdir(self.top)
        for name in NAMES:
            with open(os.path.join(self.top, name), "w") as file:
                file.write("before\n")
        self.metamori = lab.argv("log")[:3]
        done = self.run("run", "--", "python3", "-c", WRITES, *NAMES)
        assert done.returncode == 0, done.stderr
        script = b"'" + b"' '".join(map(os.fsencode, self.metamori)) + b"' checkpoint -m \"$0\""
        done = self.run("run", "--", "sh", "-c", script, os.fsencode(MESSAGE), LINE)
        assert done.returncode == 0, done.stderr

    def argv(self, *words: str | bytes) -> list[bytes]:
        return [*map(os.fsencode, self.metamori), *map(os.fsencode, words)]

    def run(self, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.argv(*words), cwd=self.top, env=self.env, capture_output=True, timeout=120,
                              stdin=subprocess.DEVNULL, check=False)

    @property
    def env(self) -> dict[str, str]:
        return self.lab.env


@pytest.fixture(scope="module")
def ugly(tmp_path_factory: pytest.TempPathFactory, compiled: Compile) -> Iterator[Ugly]:
    lab = Lab(tmp_path_factory.mktemp("ugly"), compiled("driver"))
    yield Ugly(lab)
    lab.close()


READS: list[tuple[str | bytes, ...]] = [
    ("log",), ("show", "1"), ("diff", "0", "1"), ("diff", "0", "1", LINE), ("diff", "0", "1", TITLE),
    ("diff", "0", "1", b"*new"), ("verify",),
    ("status",), ("cat", "1", LINE), ("restore", "--dry-run", "0"), ("restore", "--dry-run", "0", TITLE, BYTE),
    ("prune", "--dry-run", "--keep-last", "1"), ("doctor", TITLE), ("doctor",), ("config", "--cflags"),
    ("report", "timeline"), ("report", "space"), ("report", "heatmap", "--file", TITLE + b" new"),
]
WRONG: list[tuple[str | bytes, ...]] = [
    ("cat", "1", LINE + b"gone"), ("cat", TITLE, "x"), ("diff", "0", "1", BYTE + b"gone"), ("restore", b":" + LINE),
    ("restore", "0", BYTE + b"gone"), ("restore", "0", "--to", TITLE + b"/a/b"), ("show", TITLE), ("log", "-n", LINE),
    ("log", b"--" + TITLE), (TITLE,), ("checkpoint", "-m", LINE), ("undo", BYTE), ("redo", LINE), ("restart", TITLE),
    ("report", TITLE), ("report", b"/proc/" + LINE + b".html"), ("report", "heatmap", "--file", LINE + b"gone"),
    ("prune", "--keep-last", TITLE), ("prune", "--keep-every", LINE), ("log", "--store", TITLE + b"gone"),
    ("run", "--every", LINE, "true"), ("run", "--on-signal", TITLE, "true"), ("run", b"--" + LINE, "true"),
    ("run", "--store", b"/proc/" + TITLE, "true"), ("run", "--", TITLE), ("run", "--", LINE, BYTE),
    ("run", TITLE + b" a"), ("status", "--watch", "--interval", LINE), ("restore", "0", "--stdio", TITLE),
]


def is_clean(text: bytes) -> bool:
    try:
        letters = text.decode()
    except UnicodeDecodeError:
        return False
    return "\nmetamori: lines" not in letters and all(
        letter == "\n" or (unicodedata.category(letter) not in ("Cc", "Cs", "Zl", "Zp") and letter not in "\u202e")
        for letter in letters)


def each(words: tuple[str | bytes, ...]) -> str:
    return repr(" ".join(map(os.fsdecode, words)))


@pytest.mark.parametrize("words", READS + WRONG, ids=each)
def test_nothing_raw_is_printed(ugly: Ugly, words: tuple[str | bytes, ...]) -> None:
    done = ugly.run(*words)
    assert (done.returncode == 0) == (words in READS) or words == ("doctor", TITLE), done
    assert is_clean(done.stderr) and b"Traceback" not in done.stderr, done.stderr
    if words[0] != "cat":
        assert is_clean(done.stdout), done.stdout


@pytest.mark.parametrize("words", [words for words in READS if words[0] not in ("report", "config")], ids=each)
def test_json_gives_them_back(ugly: Ugly, words: tuple[str | bytes, ...]) -> None:
    done = ugly.run(words[0], "--json", *words[1:])
    assert is_clean(done.stdout)
    found = json.loads(done.stdout)
    json.dumps(found, ensure_ascii=False).encode()            # no halves of letters, which other languages refuse
    names = {path for key in ("path", "filename") for path in paths_in(found, key)}
    own = {os.path.join(ugly.top, name) for name in NAMES}
    if words[0] in ("show", "diff") and len(words) < 4:
        assert own <= names
    if words[0] == "diff":
        assert found["changes"]                           # a name with a bracket is a name first, and then a glob
    if words[0] == "cat":
        assert names == {os.path.join(ugly.top, LINE)} and base64.b64decode(found["content_b64"]) == b"before\nmore"
    if words[0] == "log":
        assert list(paths_in(found, "message"))[2] == os.fsencode(MESSAGE)


def paths_in(found: Any, key: str) -> Iterator[bytes]:
    """As whoever reads it takes them: from base64 where that is given."""
    if isinstance(found, dict):
        if f"{key}_b64" in found:
            yield base64.b64decode(found[f"{key}_b64"])
        elif key in found:
            yield found[key].encode()
    for value in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from paths_in(value, key)


CHANGES: list[tuple[tuple[str | bytes, ...], int | None]] = [
    (("restore", "0", "--to", b"../copy " + LINE + TITLE + BYTE), 0), (("restore", "1"), 14),
    (("restore", "--force", "1"), 0), (("undo",), 0), (("redo",), 0), (("restore", "0", TITLE, BYTE), 0),
    (("restart",), 0), (("report", TITLE + b".html"), 0), (("prune", "--keep-last", "2"), 0), (("verify",), 0),
    (("run", "--", "sh", "-c", b"echo x > '" + LINE + b"'; kill -9 $$"), 137), (("run", "--resume", "--", "true"), 0),
    (("run", "--on-checkpoint", b"false '" + LINE + b"'", "--", "sh", "-c", "metamori checkpoint"), None),
]


def test_what_changes_files_and_what_a_run_says(ugly: Ugly) -> None:
    with open(os.path.join(ugly.top, LINE), "a") as file:
        file.write("modified outside")
    for words, code in CHANGES:
        done = ugly.run(*words)
        assert code in (None, done.returncode), done
        assert is_clean(done.stderr) and is_clean(done.stdout), done
    where = os.path.join(ugly.top, TITLE + b".html")
    with open(where, "rb") as picture:
        page = picture.read()
    assert is_clean(page) and b"metamori: lines" in page


def test_what_a_run_wrote_elsewhere(ugly: Ugly) -> None:
    """Folders out of its scope, and a command of such a name, while it is alive too."""
    env = {name: value for name, value in ugly.env.items() if name != "METAMORI_TRACK"}
    away = os.path.join(os.fsencode(ugly.lab.folder), b"away " + LINE + TITLE + BYTE)
    os.mkdir(away)
    metamori = b"'" + b"' '".join(map(os.fsencode, ugly.metamori)) + b"'"
    script = metamori + b' status --store "$METAMORI_STORE"; echo x > "$0/"x'
    argv = ugly.argv("run", "--store", LINE + b"store", "--", "sh", "-c", script, away)
    done = subprocess.run(argv, cwd=ugly.top, env=env, capture_output=True, timeout=120, check=False)
    assert b"written outside" in done.stderr and b"run " in done.stdout
    assert is_clean(done.stdout) and is_clean(done.stderr), done


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_terminals_that_cannot_write_a_name(lab: Lab, encoding: str) -> None:
    """What they have no letter for is escaped; it ended with Python's own words."""
    lab.run(["sh", "-c", "echo one > '\u017e\u20ac'"])
    for words in (["diff", "0", "1"], ["show", "1"], ["cat", "1", "\u20ac"]):
        done = subprocess.run(lab.argv(*words), cwd=lab.work, env=lab.env | {"PYTHONIOENCODING": encoding},
                              capture_output=True, timeout=100, check=False)
        said = (done.stdout + done.stderr).decode("ascii")
        assert "Traceback" not in said and "\\u20ac" in said, said


@pytest.mark.parametrize("name", [*NAMES, b"it's a store", b"$'", b"$(true)"], ids=repr)
def test_a_line_to_paste_names_the_store(lab: Lab, name: bytes) -> None:
    store = os.path.join(os.fsencode(lab.folder), name)
    done = subprocess.run([*lab.argv("run")[:4], "--store", store, "--", "sh", "-c", "kill -9 $$"], cwd=lab.work,
                          env=lab.env, capture_output=True, timeout=120, check=False)
    place = re.search(rb"metamori restore --store (.*) INDEX", done.stderr)
    assert place and is_clean(done.stderr), done.stderr
    shell = subprocess.run([b"bash", b"-c", b"printf %s " + place[1]], capture_output=True, check=True)
    assert shell.stdout == store
