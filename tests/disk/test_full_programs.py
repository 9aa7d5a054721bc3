"""Real programs on a disk that fills up: what they say and how they end is what they say and how they end natively."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from disks import NoMount, mounted
from lab import PATIENCE, Lab

SQLITE = shutil.which("sqlite3")
BONNIE = shutil.which("bonnie++", path=os.environ.get("PATH", "") + ":/usr/sbin")
FILL = """
CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, body BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
INSERT INTO t(body) SELECT randomblob(1000) FROM n;
UPDATE t SET body = randomblob(1000) WHERE id % 5 = 0;
"""


def disk_of(tmp_path: Path, compiled: Compile, kind: str, megabytes: int) -> Iterator[Lab]:
    try:
        with mounted(tmp_path, kind, megabytes) as disk:
            lab = Lab(disk, compiled("driver"))
            yield lab
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))


@pytest.fixture(params=["ext4", "tmpfs"])
def small(request: pytest.FixtureRequest, tmp_path: Path, compiled: Compile, installed: None) -> Iterator[Lab]:
    yield from disk_of(tmp_path, compiled, request.param, 24)


@pytest.fixture
def medium(tmp_path: Path, compiled: Compile, installed: None) -> Iterator[Lab]:
    yield from disk_of(tmp_path, compiled, "ext4", 80)


def integrity(lab: Lab) -> str:
    """By a sqlite3 of its own, on a copy elsewhere: opening one may write."""
    copy = lab.folder.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(lab.work, copy)
    command = [str(SQLITE), "-batch", "data.db", "PRAGMA integrity_check; SELECT count(*) FROM t"]
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True).stdout


@pytest.mark.in_turn("small", 2)
@pytest.mark.skipif(not SQLITE, reason="sqlite3 is not installed")
def test_sqlite_until_the_disk_is_full(small: Lab) -> None:
    """Transactions and checkpoints in turn; then it says what it says natively, and nothing that was taken is lost."""
    script = small.folder / "job.sh"
    metamori = " ".join(small.argv("checkpoint"))
    script.write_text(f"for i in $(seq 60); do {SQLITE} -batch -bail data.db < {small.folder}/fill.sql || exit $?\n"
                      f"{metamori} >> {small.folder.parent}/taken 2>> {small.folder.parent}/untaken; done\n")
    (small.folder / "fill.sql").write_text(FILL)
    done = small.run(["sh", script], timeout=PATIENCE * 5)
    assert done.returncode == 1 and b"full" in done.stderr, done
    taken = [int(line) for line in (small.folder.parent / "taken").read_text().split()]
    assert len(taken) > 2
    assert integrity(small).startswith("ok\n")
    small.verb("verify")
    counts = []
    for index in taken:
        to = small.folder.parent / f"at{index}"
        small.restore(index, "--to", to)
        shown = subprocess.run([str(SQLITE), "-batch", str(next(to.rglob("data.db"))),
                                "PRAGMA integrity_check; SELECT count(*) FROM t"], capture_output=True, text=True)
        assert shown.stdout.startswith("ok\n"), (index, shown)
        counts.append(int(shown.stdout.split()[1]))
    assert counts == [500 * (number + 1) for number in range(len(taken))]
    shutil.rmtree(small.work)
    shutil.rmtree(small.store)
    small.work.mkdir()
    (small.folder.parent / "untaken").unlink(missing_ok=True)
    again = small.run(["sh", script], native=True, timeout=PATIENCE * 5, env={"METAMORI_STORE": "/nowhere"})
    assert again.returncode == done.returncode
    assert _last(again.stderr) == _last(done.stderr)


CHURN = """
CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, body BLOB);
INSERT OR REPLACE INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
SELECT i, randomblob(1000) FROM n;
"""


@pytest.mark.in_turn("rule")
@pytest.mark.skipif(not SQLITE, reason="sqlite3 is not installed")
@pytest.mark.parametrize("rule", [["--keep-last", "2"], ["--max-bytes", "1G"]], ids=["keep-last", "max-bytes"])
def test_sqlite_goes_on_where_pruning_is_allowed(small: Lab, rule: list[str]) -> None:
    """3 MB of rows replaced again and again on 24 MB, by a journal, a checkpoint after each: the oldest go."""
    script, transactions = small.folder / "job.sh", 12
    metamori = " ".join(small.argv("checkpoint"))
    (small.folder / "churn.sql").write_text(CHURN)
    script.write_text(f"for i in $(seq {transactions}); do\n"
                      f"{SQLITE} -batch -bail data.db < {small.folder}/churn.sql || exit $?\n"
                      f"{metamori} >> {small.folder.parent}/taken || exit 9; done\n")
    done = small.run(["sh", script], *rule, timeout=PATIENCE * 5)
    assert (done.returncode, done.stderr) == (0, b""), done
    taken = [int(line) for line in (small.folder.parent / "taken").read_text().split()]
    there = {entry["index"] for entry in small.log()["checkpoints"]}
    kept = [index for index in taken if index in there]
    assert len(taken) == transactions and taken[-1] in kept and taken[0] not in kept
    assert integrity(small) == "ok\n2500\n"
    small.verb("verify")
    for index in kept:
        small.restore(index)
        assert integrity(small) == "ok\n2500\n", index
    small.verb("verify")


def _last(text: bytes) -> bytes:
    """Without the line number of the script, and what `metamori run` says."""
    return [line for line in text.strip().splitlines() if not line.startswith(b"metamori:")][-1].rpartition(b":")[2]


def _words(text: bytes) -> list[bytes]:
    """Without the numbers: the store takes some room too."""
    return [word for word in text.split() if not word.rstrip(b".").isdigit()]


def bonnie(
    lab: Lab, megabytes: int, options: list[str], native: bool, again: bool = False,
) -> tuple[int, bytes, bytes, list[int]]:
    """again: as often as it needs until a checkpoint has been taken while it ran."""
    held = lab.folder.parent / "taken-of-bonnie"
    user = "root" if os.getuid() == 0 else str(os.getuid())
    words = [str(BONNIE), "-q", "-d", ".", "-s", f"{megabytes}m", "-r", str(megabytes // 2), "-n", "0", "-u", user]
    if again:
        words = ["sh", "-c", 'until [ -e "$0" ]; do "$@" || exit; done', str(held), *words]
    argv = words if native else [*lab.argv("run", *options), "--", *words]
    process = subprocess.Popen(argv, cwd=lab.work, env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    taken: list[int] = []
    try:
        while not native and process.poll() is None and len(taken) < 12:
            done = lab.verb("checkpoint", code=None)
            if done.returncode == 0:
                taken.append(int(done.stdout))
                held.touch()
        out, errors = process.communicate(timeout=PATIENCE * 5)
    finally:
        process.kill()
    return process.returncode, out, errors, taken


@pytest.mark.skipif(not BONNIE, reason="bonnie++ is not installed")
def test_bonnie_goes_on_where_pruning_is_allowed(medium: Lab) -> None:
    """16 MB written again and again under checkpoints on 80 MB: the oldest go, Bonnie++ comes to its end."""
    status, out, errors, taken = bonnie(medium, 16, ["--max-bytes", "1G", "--isolate"], native=False, again=True)
    assert status == 0 and b"No space" not in errors, errors
    assert out.strip() and taken
    medium.verb("verify")


@pytest.mark.skipif(not BONNIE, reason="bonnie++ is not installed")
def test_bonnie_says_the_same_when_the_disk_is_full(medium: Lab) -> None:
    native = bonnie(medium, 128, [], native=True)
    for each in medium.work.iterdir():
        each.unlink()
    ours = bonnie(medium, 128, [], native=False)
    assert native[0] != 0 and b"No space left" in native[2]
    assert (ours[0], _words(ours[2])) == (native[0], _words(native[2]))
    medium.verb("verify")
