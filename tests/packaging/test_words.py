"""The words of docs/glossary.md: pages, messages and help texts use them, and not the private ones of earlier days.

So do comments. Names in code are not looked at, and records of decisions (docs/adr) are of their time.
"""
from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLD = {
    "home": r"(?<![/~\w.])(?<!\b[Pp]roject )homes?\b(?![/_(]|\.\w)",    # in place, write back
    "outsider": r"\boutsiders?\b",                                # untracked process
    "in words": r"\bin words\b",                                  # with a message
    "vouch": r"\bvouch",                                          # checks, has a checksum
    "changed from outside": r"\bchange[sd]? from (?:the )?outside\b",     # external modification
    "go on from": r"\b(?:go|goes|going|gone) on from\b",          # continue, resume
    "followed": r"\b(?:is|are|was|were|be|not|a|get|gets|got|still|nobody) followed\b(?! by)"
                r"|\bfollowed (?:file|call|program|descriptor)s?\b",                        # tracked
    "believed": r"\bis believed\b",                               # trusted
    "all is well": r"\ball is well\b",                            # no errors
    "brought back exactly": r"\bbrought back exactly\b",          # restored exactly
}
EITHER = re.compile("|".join(f"(?:{pattern})" for pattern in OLD.values()))
PAGES = [*ROOT.glob("*.md"), ROOT / "bench" / "README.md",     # its figures are of their time, as records of decisions
         *(page for folder in ("docs", "examples", "tests") for page in (ROOT / folder).rglob("*.md"))]
PAGES_EXCUSED: set[str] = set()
COMMENTED = ("metamori", "shim_c", "tests", "bench")


def found(text: str) -> list[str]:
    """Old words, but not in names of files, links and code."""
    return EITHER.findall(re.sub(r"`[^`\n]*`|\]\([^)]*\)|\bHOME\b", " ", text))


@pytest.mark.parametrize("page", [page for page in PAGES if "adr" not in page.parts],
                         ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    if str(page.relative_to(ROOT)) in PAGES_EXCUSED:
        assert found(page.read_text()), "it is excused no longer: strike it from the list"
        return
    assert not [(number, line) for number, line in enumerate(page.read_text().splitlines(), 1) if found(line)]


def tracked(folder: str, *kinds: str) -> Iterator[Path]:
    done = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, check=False)
    names = done.stdout.decode().split("\0") if done.returncode == 0 and done.stdout else \
        [str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*")]
    return (ROOT / name for name in names if name.endswith(kinds) and (ROOT / name).is_file())


def docstrings(tree: ast.AST) -> set[int]:
    """Their positions in the tree: strings that stand alone."""
    return {id(node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}


def python_messages(path: Path) -> Iterator[str]:
    """String literals of several words: what a person may be told."""
    tree = ast.parse(path.read_text())
    aside = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in aside:
            yield node.value if " " in node.value else ""


def c_parts(text: str) -> tuple[list[str], list[str]]:
    """Its comments and its strings of several words."""
    parts = re.findall(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*|//[^\n]*', text, re.DOTALL)
    strings = [re.sub(r'"\s*"', "", part) for part in parts if part[0] == '"']
    return [part for part in parts if part[0] == "/"], [string for string in strings if " " in string]


def python_comments(path: Path) -> str:
    text = path.read_text()
    comments = [token.string for token in tokenize.generate_tokens(io.StringIO(text).readline)
                if token.type == tokenize.COMMENT]
    strings = [node.value.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)
               and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    return "\n".join([*comments, *strings])


def test_help_texts_use_the_words_of_the_glossary() -> None:
    """The docstring of a verb's module is what its --help says."""
    from metamori.cli.options import VERBS
    sources = {verb: (ROOT / "metamori" / "cli" / f"{verb}.py").read_text() for verb in VERBS}
    texts = {verb: ast.get_docstring(ast.parse(source)) or "" for verb, source in sources.items()}
    assert all(texts.values())
    assert not [verb for verb, text in texts.items() if found(text)]


def test_messages_use_the_words_of_the_glossary() -> None:
    wrong = [f"{path.relative_to(ROOT)}: {text}" for path in tracked("metamori", ".py")
             for text in python_messages(path) if found(text)]
    wrong += [f"man pages: {text}" for text in python_messages(ROOT / "tools" / "generate") if found(text)]
    wrong += [f"{path.relative_to(ROOT)}: {text}" for path in tracked("shim_c", ".c", ".h")
              for text in c_parts(path.read_text())[1] if found(text)]
    assert not wrong


@pytest.mark.parametrize("folder", COMMENTED)
def test_comments_use_the_words_of_the_glossary(folder: str) -> None:
    comments = [(path, python_comments(path)) for path in tracked(folder, ".py")]
    comments += [(path, "\n".join(c_parts(path.read_text())[0])) for path in tracked(folder, ".c", ".h")]
    assert not [f"{path.relative_to(ROOT)}: {found(text)}" for path, text in comments if found(text)]


def test_the_glossary_is_short() -> None:
    terms = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 20 < len(terms) - 1 <= 30         # one row is the head
