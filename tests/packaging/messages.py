"""The messages of Metamori, as the code has them: what a person may be told, Python's and the preload library's.

A message is a string of at least three words that is neither documentation nor help. What is filled in, in an f-string
or a format, is `{}`.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ASIDE = {"help", "description", "epilog", "metavar"}       # of argparse: in the reference and the man pages
# What is written for machines: pictures, generated code.
NO_MESSAGES = ("metamori/report/", "metamori/tables/record.py", "metamori/levels/api/build_", "build_", "cdef.py",
               "metamori/store/format/quick.py")
FORMAT = re.compile(r"%[-.\d]*(?:l|ll|z)?[a-zA-Z]")


class Message(NamedTuple):
    file: str
    text: str

    @property
    def pieces(self) -> list[str]:
        """What is always said, between what is filled in."""
        return [piece.strip(" .,:;()'") for piece in self.text.split("{}")]


def template(node: ast.AST) -> str | None:
    """The text of a literal, also of one in parts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return node.value if isinstance(node.value, str) else node.value.decode(errors="replace")
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = template(node.left), template(node.right)
        return None if parts == (None, None) else "".join("{}" if part is None else part for part in parts)
    return None


def literals(tree: ast.AST) -> Iterator[str]:
    """All texts, outermost, but docstrings and help."""
    if (isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant)) \
            or (isinstance(tree, ast.keyword) and tree.arg in ASIDE):
        return
    text = template(tree)
    if text is not None:
        yield text
        return
    for each in ast.iter_child_nodes(tree):
        yield from literals(each)


def literals_of_c(text: str) -> Iterator[str]:
    plain = re.sub(r"/\*.*?\*/|^#(?:include|error)[^\n]*|_Static_assert[^\n]*|__asm__.*?;$", " ", text,
                   flags=re.DOTALL | re.MULTILINE)
    for found in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', plain):
        yield FORMAT.sub("{}", re.sub(r'"\s*"', "", found)[1:-1]).replace('\\"', '"').replace("\\n", "")


def is_told(text: str) -> bool:
    return " " in text.strip() and "<" not in text and "/proc" not in text \
        and len(re.findall(r"(?<![\w/.%\\])[A-Za-z][a-z'’-]*(?![\w/\\])", text)) >= 3


def messages() -> list[Message]:
    found = set()
    for path in sorted((ROOT / "metamori").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not name.startswith(NO_MESSAGES) and not path.name.startswith(NO_MESSAGES):
            found |= {Message(name, text) for text in literals(ast.parse(path.read_text()))}
    for path in sorted((ROOT / "shim_c" / "src").rglob("*.[ch]")):
        found |= {Message(str(path.relative_to(ROOT)), text) for text in literals_of_c(path.read_text())}
    return sorted(message for message in found if is_told(message.text))


def quoted_in_tests() -> str:
    """Every text in the tests, joined: of a text with something filled in, each piece."""
    texts = [text for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)
             for text in literals(ast.parse(path.read_text()))]
    return "\n".join(piece for text in texts for piece in (text.replace("\\", "").replace("\n", " "),
                                                           *text.replace("\\", "").split("{}")))


def words(text: str) -> list[str]:
    return re.findall(r"[\w'’-]+", text)


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    """Neighbouring words."""
    found = words(text)
    return {tuple(found[i:i + length]) for i in range(len(found) - length + 1)}
