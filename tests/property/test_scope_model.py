"""The rule of the scope, in C, against one that is written down as the manual has it."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metamori.runtime.area import scope as rules
from metamori.store.read.scope import EVERYTHING, Pattern, Scope

NAMES = ["a", "b", "ab", "a.o", "build", "keep"]
HOME = {b"HOME": b"/home", b"TMPDIR": b"/a/tmp"}
KERNELS = ("/proc", "/sys", "/dev", "/run")
CACHES = ("/home/.cache", "/home/.ccache", "/home/.npm", "/home/.cargo/registry", "/home/.gradle/caches",
          "/home/.m2/repository")

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))
words = st.sampled_from([*NAMES, "*", "**", "?", "*.o", "b*", "[ab]", "[!a]", "a?", "*b*", "[a-b]*", "\\*", "[a"])
patterns = st.builds(
    lambda bang, front, parts, back: bang + front + "/".join(parts) + back,
    st.sampled_from(["", "", "!"]), st.sampled_from(["", "/"]), st.lists(words, min_size=1, max_size=3),
    st.sampled_from(["", "/"]))


def component(pattern: str) -> str:
    """One name's pattern as a regular expression."""
    found, at = "", 0
    while at < len(pattern):
        sign = pattern[at]
        bracket = re.match(r"\[([!^]?)(\]?(?:[^\]])*)\]", pattern[at:]) if sign == "[" else None
        if bracket:
            signs = bracket[2].replace("[", "\\[")
            found += f"[{'^/' if bracket[1] else ''}{signs}]"
            at += bracket.end()
            continue
        if sign == "\\" and at + 1 < len(pattern):
            at += 1
            found += re.escape(pattern[at])
        else:
            found += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
        at += 1
    return found


def in_parts(pattern: str) -> list[str]:
    """Of one name each, as git takes them: a slash between brackets is not between names."""
    parts, at = [""], 0
    while at < len(pattern):
        token = re.match(r"\[[!^]?\]?[^\]]*\]|\\.|.", pattern[at:])
        assert token
        if token[0] == "/":
            parts.append("")
        else:
            parts[-1] += token[0]
        at += token.end()
    return parts


def fits(parts: list[str], names: list[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        if len(parts) == 1:
            return bool(names)
        return any(fits(parts[1:], names[skipped:]) for skipped in range(len(names) + 1))
    return bool(names) and bool(re.fullmatch(component(parts[0]), names[0])) and fits(parts[1:], names[1:])


def below(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(folder + "/")


def expected(folders: list[str], lines: list[tuple[str, str]], path: str) -> bool:
    everything = "/" in folders
    out = KERNELS if everything else (*KERNELS, "/tmp", "/var/tmp", "/a/tmp", *CACHES)
    near = [(len(each.rstrip("/")), 1, each) for each in folders if below(path, each)]
    near += [(len(each), 0, each) for each in out if below(path, each)]
    if not near or not max(near)[1]:
        return False
    root = max(near)[2].rstrip("/")
    names = path.split("/")
    for depth in range(root.count("/") + 2, len(names) + 1):
        whole, excluded = "/".join(names[:depth]), False
        for folder, line in lines:
            text = line.removeprefix("!").rstrip("/")
            if not below(whole, folder) or whole == folder or not text:
                continue
            rest = whole[len(folder.rstrip("/")) + 1:]
            if "/" in text:
                matches = fits(in_parts(text.removeprefix("/")), rest.split("/"))
            else:
                matches = fits([text], [rest.split("/")[-1]])
            if matches:
                excluded = not line.startswith("!")
        if excluded:
            return False
    return True


@settings(max_examples=1500)
@given(st.lists(paths, min_size=1, max_size=3), st.lists(st.tuples(st.sampled_from(["/", "/a", "/a/b"]), patterns),
                                                         max_size=4), paths)
@example(["/b"], [("/", "b/[a/[a-b]*")], "/b/a")      # git check-ignore says that it is
def test_as_the_model(folders: list[str], lines: list[tuple[str, str]], path: str) -> None:
    scope = Scope(tuple(map(str.encode, folders)), tuple(
        Pattern(folder.rstrip("/").encode(), line.encode()) for folder, line in lines))
    assert rules.has(rules.rules(scope, HOME), path.encode()) == expected(folders, lines, path)


@pytest.mark.parametrize(("path", "tracked"), [
    ("/w/x", True), ("/w", True), ("/wx", False), ("/", False), ("/w/tmp/x", True), ("/tmp/x", False),
    ("/tmp/asked/x", True), ("/w/a.o", False), ("/w/d/a.o", False), ("/w/d/a.o/x", False), ("/w/keep.o", True),
    ("/w/build/x", False), ("/w/build/deep/x", True), ("/w/build/deep/a.o", False), ("/w/sub/build/x", True),
    ("/w/doc/p/q.txt", False), ("/w/doc/q.txt", False), ("/w/docs/q.txt", True)])
def test_by_example(path: str, tracked: bool) -> None:
    lines = ["# a comment", "", "*.o", "!keep.o", "/build/", "doc/**/*.txt", "   "]
    scope = Scope((b"/w", b"/w/build/deep", b"/tmp/asked"), tuple(Pattern(b"/w", line.encode()) for line in lines))
    assert rules.has(rules.rules(scope, HOME), path.encode()) == tracked


@pytest.mark.parametrize(("path", "tracked"), [
    ("/tmp/x", True), ("/home/.npm/x", True), ("/proc/1/x", False), ("/dev/shm/x", False), ("/process", True),
    ("/tmp/ompi.host/x", False), ("/a/tmp/pmix-1", False), ("/tmp/other", True)])
def test_everything_but_the_kernels(path: str, tracked: bool) -> None:
    assert rules.has(rules.rules(EVERYTHING, HOME), path.encode()) == tracked


@given(st.text("a.o-[]!", min_size=1, max_size=6), st.text("a.o-]", min_size=1, max_size=4))
def test_a_name_as_fnmatch(pattern: str, name: str) -> None:
    """Where the two agree on what a pattern is: no `[` that nothing closes, and none that closes at once."""
    if re.sub(r"\[!?[^\[\]!-]+\]", "", pattern).strip("ao.-") or "[" not in pattern:
        return
    found = rules.has(rules.rules(Scope((b"/w",), (Pattern(b"", pattern.encode()),)), HOME), b"/w/" + name.encode())
    assert found != fnmatch.fnmatchcase(name, pattern)
