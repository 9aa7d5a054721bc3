"""What the verbs say of a job, against pictures of the files (diff, cat, show, restore --to, report); what is left."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab, Tree, picture
from ranks import Rank, checkpoint, end, job

pytest.importorskip("zmq")


@pytest.mark.slow
def test_what_the_verbs_say_of_a_job(lab: Lab) -> None:
    (lab.work / "shared").write_bytes(b"." * 30_000)
    (lab.work / "old").write_bytes(b"old")
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab)
    for step in range(3):
        for number, rank in enumerate(ranks):
            for at in range(100 * number, 30_000, 300):
                rank.do("write", "shared", at, f"{step}{number}" * 50)
            if number <= step:
                rank.do("append", f"own.{number}", f"step {step}\n")
        if step == 1:
            ranks[2].do("rename", "old", "new")
            ranks[0].do("unlink", "own.1")
        checkpoint(lab, seen, f"of step {step}")
    assert end(ranks) == ""
    for one, other in itertools.permutations(seen, 2):
        said = json.loads(lab.verb("diff", "--json", one, other).stdout)["changes"]
        differ = {path for path in seen[one].keys() | seen[other].keys()
                  if seen[one].get(path) != seen[other].get(path)}
        assert {entry["path"] for entry in said} == {str(lab.work / path) for path in differ}, (one, other)
        kinds = {entry["path"].rpartition("/")[2]: entry["change"] for entry in said}
        assert all(kinds[path] == ("M" if path in seen[one] and path in seen[other] else
                                   "A" if path in seen[other] else "D") for path in differ), (one, other, kinds)
    for index, tree in seen.items():
        for path, entry in tree.items():
            assert lab.verb("cat", index, lab.work / path).stdout.encode() == entry.content, (index, path)
        lab.verb("restore", index, "--to", lab.folder / f"copy.{index}")
        copied = {path: entry.content for path, entry in picture(lab.folder / f"copy.{index}" / "work").items()}
        assert copied == {path: entry.content for path, entry in tree.items()}, index
        if index:
            shown = {entry["path"] for entry in json.loads(lab.verb("show", "--json", index).stdout)["names"]}
            made = tree.keys() - seen[index - 1].keys()
            assert made and {str(lab.work / path) for path in made} <= shown, (index, shown)
    lab.verb("report", lab.folder / "report.html")
    text = (lab.folder / "report.html").read_text()
    assert all(f"of step {step}" in text for step in range(3)) and all(f"own.{number}" in text for number in range(3))
    lab.verb("verify")
    for buffer in (lab.store / "buffer").iterdir():
        buffer.write_bytes(buffer.read_bytes().replace(b"00000000", b"00000001"))      # of step 0 by the first run
    done = lab.verb("verify", code=None)
    assert done.returncode and "checksum" in done.stdout + done.stderr, done


def listeners() -> set[str]:
    """Ports of TCP that are listened at."""
    return {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [Rank.end, Rank.kill])
def test_nothing_is_left(lab: Lab, how: Callable[[Rank], object]) -> None:
    """No process, port, or file outside of the store; in it what any store has. Of a killed job by the next verb."""
    (lab.folder / "tmp").mkdir()
    lab.env["TMPDIR"] = str(lab.folder / "tmp")
    before = set(os.listdir("/dev/shm"))
    ranks = job(lab)
    for rank in ranks:
        rank.do("append", "common", "a")
    checkpoint(lab, {})
    port = f":{json.loads((lab.store / 'job').read_bytes())['port']:04X}"
    assert any(each.endswith(port) for each in listeners())
    for rank in ranks:
        rank.do("append", "common", "b")
        how(rank)
    lab.verb("log")
    assert sorted(os.listdir(lab.store)) == [".gitignore", "buffer", "checkpoints", "format", "head", "kept", "lock",
                                             "scope"]
    assert not os.listdir(lab.folder / "tmp") and os.listdir(lab.work) == ["common"]
    assert not any("metamori" in name for name in set(os.listdir("/dev/shm")) - before)
    assert not any(each.endswith(port) for each in listeners())
    mine = os.fsencode(lab.folder)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        assert mine not in words or b"verbs" in words or b"serve" in words, words
