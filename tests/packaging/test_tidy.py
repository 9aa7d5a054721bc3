"""The shape of the source tree: what a reviewer would otherwise have to watch for."""
from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST_FILE = 500  # lines: beyond that a file has more than one subject
# In two parts each, so that this list is not what it looks for.
LEFT_OPEN = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
NAMELESS = {"utils", "helpers", "common", "misc"}
SOURCE = re.compile(r"\b[\w/]*\w\.(?:c|py)\b(?!\()")
OF_OTHERS = {"fs/inode.c"}  # the kernel's


def tracked() -> list[Path]:
    """Files that git knows, or every file when the tree is no clone."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if done.returncode == 0 and done.stdout:
        return [path for name in done.stdout.decode().split("\0") if (path := ROOT / name).is_file()]
    return [path for folder in ("metamori", "shim_c", "tests", "bench", "demo", "docs")
            for path in (ROOT / folder).rglob("*.*") if path.is_file() and "__pycache__" not in path.parts]


def texts() -> list[tuple[Path, str]]:
    pairs = []
    for path in tracked():
        try:
            pairs.append((path.relative_to(ROOT), path.read_text()))
        except UnicodeDecodeError:
            continue
    return pairs


def test_nothing_is_left_open() -> None:
    found = [f"{path}:{number}" for path, text in texts() for number, line in enumerate(text.splitlines(), 1)
             if LEFT_OPEN.search(line)]
    assert not found


def test_files_have_one_subject() -> None:
    long = [str(path) for path, text in texts()
            if path.suffix in (".py", ".c", ".h") and text.count("\n") > LONGEST_FILE]
    assert not long


def test_names_say_what_is_inside() -> None:
    assert not [str(path) for path, _ in texts() if path.stem in NAMELESS]


def test_no_file_is_empty() -> None:
    """An empty file is where something was planned; markers of packages and of types are meant."""
    markers = ("__init__.py", "py.typed")
    assert not [str(path) for path, text in texts() if not text.strip() and path.name not in markers]


def test_files_that_are_named_exist() -> None:
    """Whoever follows a comment of the product arrives somewhere."""
    there = [f"/{path.relative_to(ROOT)}" for path in tracked()]
    wrong = []
    for path, text in texts():
        if path.parts[0] in ("metamori", "shim_c"):
            said = text if path.suffix == ".py" else " ".join(re.findall(r"/\*.*?\*/", text, re.DOTALL))
            wrong += [f"{path}: {name}" for name in SOURCE.findall(said)
                      if name not in OF_OTHERS and not any(each.endswith(f"/{name}") for each in there)]
    assert not wrong


def test_tables_are_pure() -> None:
    """No I/O, no clock, no environment: they can be tested by values alone."""
    forbidden = {"os", "io", "time", "datetime", "pathlib", "socket", "subprocess", "threading", "mmap"}
    wrong = []
    for path in (ROOT / "metamori" / "tables").glob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []             # types do nothing
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
                [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.name} imports {name}" for name in names if name.split(".")[0] in forbidden]
    assert not wrong


def test_scripts_can_be_run() -> None:
    for name in (".ci/run", "tools/prepare", "tools/install-requirements", "tools/wheel"):
        assert os.access(ROOT / name, os.X_OK), name
        subprocess.run(["bash", "-n", name], cwd=ROOT, check=True)


def test_make_help_lists_every_task() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:])
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in shown.splitlines() if line.strip()} == phony
