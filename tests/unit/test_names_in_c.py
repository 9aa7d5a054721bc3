"""One name for one thing in the C half: what is called alike is the same, and what is the same is called alike."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from lab import ROOT

SOURCES = ROOT / "shim_c" / "src"
# These define whole functions, or the lines of a table: their `return` is not one out of where they stand.
DEFINES = {"FROM_LIBURING", "AIO", "OLD", "ON"}
FUNCTION = re.compile(r"^(?!typedef|struct \w+ \{|else|return)[A-Za-z_][\w \t*()]*?[ *](\w+)\((?:[^;{}]|\n)*?\)\s*\{",
                      re.MULTILINE)


def code(text: str) -> str:
    """Without comments and strings."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', " ", text, flags=re.DOTALL)


def functions(text: str) -> set[str]:
    """Names of the functions that a file defines."""
    plain = re.sub(r"^#(?:.*\\\n)*.*$", "", code(text), flags=re.MULTILINE)
    plain = re.sub(r"__attribute__\s*\(\(.*?\)\)|__asm__\([^)]*\)", "", plain)
    return set(FUNCTION.findall(plain)) - {"if", "for", "while", "switch"}


def macros(text: str) -> dict[str, str]:
    return dict(re.findall(r"^#define (\w+)(?:\([^)]*\))?((?:.*\\\n)*.*)$", code(text), re.MULTILINE))


def test_names_of_functions_and_bodies_of_macros_are_found() -> None:
    text = "static int __attribute__((noinline)) one(int a,\n    int b)\n{\n}\nEXPORT void *two(void) { return x; }\n" \
           "int three(void);\n#define FOUR(x) \\\n    if (x) return 4\n/* static int five(void) { */\n"
    assert functions(text) == {"one", "two"}
    assert "return" in macros(text)["FOUR"]


def defined() -> dict[str, list[str]]:
    """By function, the files that define it."""
    where = defaultdict(list)
    for path in SOURCES.rglob("*.c"):
        for name in functions(path.read_text()):
            where[name].append(str(path.relative_to(SOURCES)))
    return where


def test_no_two_functions_have_one_name() -> None:
    where = defined()
    assert len(where) > 900
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


HEADING = re.compile(r"/\* (?:-- )?((?:[\w/]+\.c(?:, )?)+)")
DECLARED = re.compile(r"(?!typedef)[a-z][\w *]*?\b(\w+)\([^{]*\)[^{]*;")


def misplaced(header: str, where: dict[str, list[str]]) -> list[str]:
    """Functions that a header declares below the name of a file which does not define them."""
    found, files = [], ""
    for line in header.splitlines():
        heading, declared = HEADING.match(line), DECLARED.match(line)
        files = heading[1] if heading else files
        if declared and files and declared[1] in where and not any(
                Path(each).name in files for each in where[declared[1]]):
            found.append(declared[1])
    return found


def test_a_declaration_below_another_file_is_found() -> None:
    header = "/* one.c */\nint one(int a);\n/* -- two.c: and so on */\nlong *two(void) __attribute__((noreturn));\n"
    assert misplaced(header, {"one": ["room/one.c"], "two": ["room/two.c"]}) == []
    assert misplaced(header, {"one": ["room/two.c"], "two": ["room/one.c"]}) == ["one", "two"]


def test_declarations_stand_below_the_file_that_defines_them() -> None:
    where = defined()
    wrong = {str(path.relative_to(SOURCES)): misplaced(path.read_text(), where) for path in SOURCES.rglob("*.h")}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_no_macro_hides_a_return() -> None:
    hiding = [f"{path.relative_to(SOURCES)}: {name}" for path in SOURCES.rglob("*.[ch]")
              for name, body in macros(path.read_text()).items()
              if name not in DEFINES and re.search(r"\b(?:return|goto|break|continue)\b", body)]
    assert hiding == []


@pytest.mark.parametrize(("name", "instead"), [("pif", "slot is its number, p the PIF itself")])
def test_one_word_for_one_thing(name: str, instead: str) -> None:
    wrong = [str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.[ch]")
             if re.search(rf"\b{name}\b", code(path.read_text()))]
    assert wrong == [], instead
