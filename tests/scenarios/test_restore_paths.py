"""restore INDEX PATH...: these files and folders as at the index, all else as it is; after a run and while it lives."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from lab import Lab, Tree, difference
from test_undo import Shell, commands, inside, same


def chosen(path: str, words: Iterable[str]) -> bool:
    return any(path == word or path.startswith(f"{word}/") for word in words)


def expected(now: Tree, then: Tree, words: Iterable[str]) -> Tree:
    """What is chosen as then, folders around it too; the rest as now. How many names a file has is not compared."""
    words = list(words)
    want = {path: entry for path, entry in now.items() if not chosen(path, words)}
    for path in [path for path in then if chosen(path, words)]:
        while path and path not in want:
            want[path] = then[path]
            path = os.path.dirname(path)
    return unlinked(want)


def unlinked(tree: Tree) -> Tree:
    return {path: replace(entry, links=1) for path, entry in tree.items()}


def three(lab: Lab) -> list[Tree]:
    """Files at 0, 1, 2 and 3."""
    (lab.work / "old").write_text("old\n" * 3000)
    states = [lab.state()]
    for line in ("mkdir d; echo 1 > d/a; echo 1 > d/b; echo 1 > f; echo new >> old",
                 "echo 2 > d/a; rm d/b; echo 2 > d/c; echo 2 > f; ln -s f link; sed -i s/old/xxx/ old",
                 "mv d e; echo 3 > f; rm link; chmod 600 old"):
        lab.run(["sh", "-c", line])
        states.append(lab.state())
    return states


@pytest.mark.parametrize("index, words", [
    (0, ["f", "old"]), (1, ["d"]), (2, ["d/a"]), (1, ["d/b", "f"]), (2, ["e"]), (1, ["d", "e"]), (2, ["link", "d/c"]),
    (0, ["."]), (1, ["."]), (1, ["link"]),
], ids=str)
def test_only_these_go_back(lab: Lab, index: int, words: list[str]) -> None:
    states = three(lab)
    before, then = states[3], states[index]
    there = [word for word in words if word == "." or any(chosen(path, [word]) for path in {**before, **then})]
    if there != words:
        said = lab.verb("restore", index, *words, cwd=lab.work, code=1).stderr
        assert "is not there now and was not there at checkpoint" in said
        lab.assert_state(before, "nothing was touched")
        return
    want = unlinked(then) if words == ["."] else expected(before, then, words)
    lab.verb("restore", index, *words, cwd=lab.work)
    wrong = difference(unlinked(lab.state()), want)
    assert not wrong, wrong
    lab.verb("verify")
    after = lab.state()
    if after != before:                    # it is an index like any other
        assert lab.messages()[4] == f"{', '.join(words)} as at {index}"
        lab.verb("undo")
        lab.assert_state(before, "undone")
        lab.verb("redo")
        lab.assert_state(after, "done again")
    for other in (1, 3, 2):
        lab.restore(other)
        lab.assert_state(states[other], f"checkpoint {other}")


def test_what_is_printed(lab: Lab) -> None:
    three(lab)
    said = lab.verb("restore", 2, "d/*", "f", cwd=lab.work).stdout
    assert said == "d, d/a, d/c and 1 more are as at checkpoint 2; the files are at checkpoint 4, they were at 3\n"
    assert lab.verb("restore", 2, "f", cwd=lab.work).stdout == "already as at checkpoint 2\n"
    said = lab.verb("restore", 1, "f", "--dry-run", cwd=lab.work).stdout
    assert said == "from checkpoint 4, some files to 1:\nM f  0-2\n2 B would be written, 2 B saved first\n"
    answer = json.loads(lab.verb("restore", "--json", 1, "f", cwd=lab.work).stdout)
    assert (answer["index"], answer["from"]) == (5, 4)
    assert [Path(each["path"]).name for each in answer["paths"]] == ["f"]
    assert "--stdio goes with no PATH" in lab.verb("restore", 1, "f", "--stdio", code=2).stderr


def test_a_copy_of_some(lab: Lab) -> None:
    states = three(lab)
    lab.verb("restore", 1, "d", "f", "--to", lab.folder / "copy", cwd=lab.work)
    found = sorted(path.name for path in (lab.folder / "copy").rglob("*") if path.is_file())
    assert found == ["a", "b", "f"]
    lab.assert_state(states[3], "the files are left alone")


def test_links(lab: Lab) -> None:
    """A name alone gets a file of its own; names that are chosen together stay one file."""
    lab.run(["sh", "-c", "echo 1 > a; ln a b; ln a c"])
    lab.run(["sh", "-c", "echo 2 >> a"])
    lab.verb("restore", 1, "a", cwd=lab.work)
    a, b, c = (os.stat(lab.work / name) for name in "abc")
    assert (lab.work / "a").read_text() == "1\n" and (lab.work / "b").read_text() == "1\n2\n"
    assert a.st_ino != b.st_ino == c.st_ino and b.st_nlink == 2
    lab.verb("restore", 1, "a", "c", cwd=lab.work)
    a, b, c = (os.stat(lab.work / name) for name in "abc")
    assert a.st_ino == c.st_ino != b.st_ino and (lab.work / "c").read_text() == "1\n"
    assert (lab.work / "b").read_text() == "1\n2\n"
    lab.restore(1)
    assert os.stat(lab.work / "a").st_nlink == 3
    lab.run(["rm", "a"])                   # nothing of the file differs: the name leads to it again
    lab.verb("restore", 1, "a", cwd=lab.work)
    assert os.stat(lab.work / "a").st_nlink == 3
    lab.run(["sh", "-c", "echo 1 > one; mv one two"])
    lab.run(["sh", "-c", "mv two three"])  # a file that is called something else now keeps that name for itself
    last = lab.log()["head"] - 1
    lab.verb("restore", last, "two", cwd=lab.work)
    assert os.stat(lab.work / "two").st_nlink == 1 == os.stat(lab.work / "three").st_nlink
    lab.verb("verify")


def test_changed_from_outside(lab: Lab) -> None:
    """Only the chosen files count. What others did to the rest stays, and is still found out."""
    states = three(lab)
    (lab.work / "old").write_text("somebody else's")
    lab.verb("restore", 2, "f", cwd=lab.work)
    assert (lab.work / "old").read_text() == "somebody else's" and (lab.work / "f").read_text() == "2\n"
    assert "modified outside Metamori: old" in lab.verb("restore", 1, cwd=lab.work, code=14).stderr
    assert "modified outside Metamori: old" in lab.verb("restore", 1, "old", cwd=lab.work, code=14).stderr
    said = lab.verb("restore", 1, "old", "--dry-run", cwd=lab.work).stdout
    assert "refused without --force" in said
    (lab.work / "f").write_text("theirs too")
    recorded = json.loads(lab.verb("restore", "--json", 1, "f", "--force", cwd=lab.work).stdout)["recorded"]
    assert (lab.work / "f").read_text() == "1\n" and (lab.work / "old").read_text() == "somebody else's"
    lab.restore(recorded)
    assert (lab.work / "f").read_text() == "theirs too"
    lab.restore(1)
    assert (lab.work / "f").read_text() == "1\n"
    assert states


def test_lost_and_in_the_way(lab: Lab) -> None:
    big = "x" * 100_000                     # no copy of it is kept
    (lab.work / "big").write_text(big)
    lab.run(["sh", "-c", "echo 1 > f; echo tail >> big"])
    lab.run(["sh", "-c", "echo 2 > f"])
    (lab.work / "big").write_text("gone")
    assert "cannot be restored exactly" in lab.verb("restore", 1, "--force", code=12).stderr
    lab.restore(2, "--force", code=12)
    assert lab.verb("restore", 1, "f", cwd=lab.work).returncode == 0   # what is lost elsewhere is in nobody's way
    assert (lab.work / "f").read_text() == "1\n"
    lab.verb("restore", 1, "f", "big", cwd=lab.work, code=12)
    lab.run(["rm", "-f", "f"])
    lab.run(["sh", "-c", "mkdir f; echo 1 > f/x"])
    (lab.work / "f" / "theirs").write_text("untracked")
    lab.verb("restore", 1, "f", cwd=lab.work, code=14)
    assert (lab.work / "f" / "x").exists()
    lab.run(["sh", "-c", "mkdir n; echo 1 > n/x"])
    lab.run(["sh", "-c", "rm -r n; echo 1 > n"])
    last = len(lab.log()["checkpoints"]) - 2
    assert "is no folder now; restore it too" in lab.verb("restore", last, "n/x", cwd=lab.work, code=1).stderr
    lab.verb("restore", last, "n", cwd=lab.work)
    assert (lab.work / "n" / "x").exists()


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_inside_a_live_run(lab: Lab, options: list[str]) -> None:
    (lab.work / "old").write_text("old\n" * 3000)
    shell = Shell(lab, *options)
    shell.do("mkdir d; echo 1 > d/a; echo 1 > d/b; ln d/a hard; echo 1 > f; sed -i s/old/one/ old; $M checkpoint")
    first = inside(shell, lab)
    shell.do("echo 2 > d/a; rm d/b; echo 2 > d/c; echo 2 > f; exec 7<> old; printf 2 >&7; exec 7>&-; $M checkpoint")
    shell.do("exec 8>> f; echo 3 >&8; rm d/c")
    now = inside(shell, lab)
    assert "open for writing" in shell.do("$M restore 1 f", status=11)
    said = shell.do("$M restore 1 d old")
    assert "are as at checkpoint 1" in said, said
    have = inside(shell, lab)
    same(unlinked(have), expected(now, first, ["d", "old"]), "some restored")
    assert have["hard"].content == b"2\n" and have["d/a"].content == b"1\n"
    shell.do("echo 4 >&8; echo 4 >> d/a; echo 4 >> old")
    assert shell.do("cat f d/a hard") == "2\n3\n4\n1\n4\n2\n"
    assert "open for writing" in shell.do("$M undo", status=11)
    shell.do("exec 8>&-; $M undo 2")
    same(unlinked(inside(shell, lab)), unlinked(now), "undone")
    shell.do("$M restore 1 f")
    assert shell.do("cat f") == "1\n"
    assert "already as at checkpoint" in shell.do("$M restore 1 f")
    last = inside(shell, lab)
    shell.end()
    lab.assert_state(last, "at the end")
    lab.verb("verify")


def test_beside_a_live_run_others_change_files(lab: Lab) -> None:
    """What nobody of the run has used, and somebody else changed, is refused; forced, it is kept as an index first."""
    lab.run(["sh", "-c", "echo 1 > f; echo 1 > g; echo 1 > other"])
    lab.run(["sh", "-c", "echo 2 > f; echo 2 > g"])
    shell = Shell(lab)
    shell.do("echo 3 > other")
    (lab.work / "f").write_text("theirs")
    assert "modified outside Metamori: " in shell.do("$M restore 1 f", status=14)
    assert "modified outside Metamori: " in shell.do("$M restore 1", status=14)
    shell.do("$M restore 1 g")
    assert shell.do("cat f g other") == "theirs1\n3\n"
    recorded = json.loads(shell.do("$M restore --json --force 1 f"))["recorded"]
    assert shell.do("cat f g other") == "1\n1\n3\n"
    shell.end()
    lab.restore(recorded)
    assert (lab.work / "f").read_text() == "theirs"


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_what_the_run_wrote_by_another_name_is_its_own(lab: Lab, options: list[str]) -> None:
    lab.run(["sh", "-c", "echo 1 > f; ln f g; echo 1 > other"])
    shell = Shell(lab, *options)
    shell.do("mv f h; echo 2 >> h")
    shell.do("$M restore 1")
    assert shell.do("cat f g; ls") == "1\n1\nf\ng\nother\n"
    shell.end()
    lab.verb("verify")


def test_a_file_of_the_run_that_others_put_over_one_they_have_not(lab: Lab) -> None:
    lab.run(["sh", "-c", "echo 1 > f; echo 1 > other"])
    shell = Shell(lab)
    shell.do("echo 2 >> f")
    os.replace(lab.work / "f", lab.work / "other")
    assert "modified outside Metamori: " in shell.do("$M restore 1", status=14)
    shell.end()


@pytest.mark.parametrize("live", [[], [""], ["--isolate"]], ids=["over", "live", "isolated"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_random_histories(lab: Lab, seed: int, live: list[str]) -> None:
    pick = random.Random(seed)
    (lab.work / "first").write_text("before\n" * 3000)
    shell = Shell(lab, *[word for word in live if word]) if live else None
    indexes: dict[int, Tree] = {0: lab.state()}

    def look() -> Tree:
        return inside(shell, lab) if shell else lab.state()

    for number in range(1, 25):
        if shell:
            shell.do(f"{commands(lab.work, number, pick)}; true")
            indexes[int(shell.do("$M checkpoint"))] = look()
        else:
            lab.run(["sh", "-c", commands(lab.work, number, pick)])
            indexes[lab.log()["head"]] = look()
        if number % 3:
            continue
        index, now = pick.choice(sorted(indexes)), look()
        words = pick.sample(names := sorted({**now, **indexes[index]}), min(2, len(names)))
        if not words or any(now[path].kind != "folder" for path in now if any(
                word != path and chosen(word, [path]) for word in words)):
            continue                       # below what is no folder now: that is refused
        if shell:
            shell.do(f"$M restore {index} {' '.join(words)}")
        else:
            lab.verb("restore", index, *words, cwd=lab.work)
        wrong = difference(unlinked(look()), expected(now, indexes[index], words))
        assert not wrong, f"{number}: {words} of {index}: {wrong}"
        if not shell:
            indexes[lab.log()["head"]] = look()
    last = look()
    if shell:
        shell.end()
        lab.assert_state(last, "at the end")
    lab.verb("verify")
    for index, want in sorted(indexes.items(), reverse=True):
        lab.restore(index)
        lab.assert_state(want, f"checkpoint {index}")
