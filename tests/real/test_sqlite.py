"""sqlite3, unmodified: a database changed over ten checkpoints; each restored, checked and compared."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from lab import Lab, Session

SQLITE = shutil.which("sqlite3")
pytestmark = pytest.mark.skipif(not SQLITE, reason="sqlite3 is not installed")
ROUNDS = 10


class Shell(Session):
    """The sqlite3 shell: answers end with a marker line."""

    def say(self, text: str) -> str:
        answer = self.ask(f"{text}\n.print ==end==")
        lines = []
        while answer != "==end==":
            lines.append(answer)
            answer = self._line()
        return "\n".join(lines)


def shell(lab: Lab, *options: str) -> Shell:
    session = Shell(
        [*lab.argv("run", *options), "--", str(SQLITE), "-batch", "data.db"],
        lab.work, lab.env, lab.folder / "stderr.sqlite",
    )  # fmt: skip
    lab.sessions.append(session)
    return session


def change(sql: Shell, number: int) -> None:
    """One round of work: rows added, changed and removed, an index made and dropped, sometimes a vacuum."""
    fill = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
        f"INSERT INTO item(round, name, body) SELECT {number}, 'name ' || i, hex(zeroblob(i % 50)) FROM n;"
    )
    assert sql.say(f"BEGIN; {fill} COMMIT;") == ""
    assert sql.say(f"UPDATE item SET body = body || '{number}' WHERE id % 7 = {number % 7};") == ""
    assert sql.say(f"DELETE FROM item WHERE id % 11 = {number % 11} AND round < {number};") == ""
    if number % 3 == 1:
        assert sql.say(f"CREATE INDEX by_name{number} ON item(name, round);") == ""
    if number % 4 == 2:
        assert sql.say("VACUUM;") == ""
    assert sql.say("BEGIN; DELETE FROM item; ROLLBACK;") == ""


def dump(lab: Lab) -> str:
    """The dump of a copy of the database, by a sqlite3 of its own: opening one may change its journal."""
    copy = lab.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(lab.work, copy)
    command = [str(SQLITE), "-batch", "data.db", "PRAGMA integrity_check;", ".dump"]
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True).stdout


@pytest.mark.in_turn("journal")
@pytest.mark.parametrize("journal", ["delete", "wal", "truncate", "persist"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_ten_checkpoints(lab: Lab, journal: str, options: list[str]) -> None:
    sql = shell(lab, *options)
    assert sql.say(f"PRAGMA journal_mode={journal};") == journal
    sql.say("CREATE TABLE item(id INTEGER PRIMARY KEY, round INT, name TEXT, body TEXT);")
    dumps = {}
    for number in range(1, ROUNDS + 1):
        change(sql, number)
        inside = sql.say("PRAGMA integrity_check;\n.dump") + "\n"
        dumps[lab.checkpoint("-m", f"round {number}")] = inside
    assert all(text.startswith("ok\n") for text in dumps.values())
    assert len(set(dumps.values())) == ROUNDS
    change(sql, ROUNDS + 1)
    assert sql.end() == 0
    assert not sql.stderr()
    order = sorted(dumps)
    for index in [order[5], order[0], order[-1], *order]:
        lab.restore(index)
        assert dump(lab) == dumps[index], f"after restore {index}"
    lab.verb("verify")


def test_killed_in_a_transaction(lab: Lab) -> None:
    """SIGKILL with a hot journal on disk; restore to before it, and to the moment of the kill."""
    sql = shell(lab)
    sql.say("CREATE TABLE item(id INTEGER PRIMARY KEY, round INT, name TEXT, body TEXT);")
    change(sql, 1)
    wanted = sql.say("PRAGMA integrity_check;\n.dump") + "\n"
    index = lab.checkpoint()
    sql.say("PRAGMA cache_size=2; BEGIN; UPDATE item SET body = hex(zeroblob(700));")
    program = next(int(pid) for pid in children_of(sql.process.pid))
    sql.pid = program
    sql.kill_program()
    killed = max(lab.messages())
    lab.restore(index)
    assert dump(lab) == wanted
    lab.restore(killed)
    assert dump(lab) == wanted, "SQLite rolls its hot journal back"


def children_of(pid: int) -> list[str]:
    """Process ids of the children of `metamori run`: the command."""
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return listed.stdout.split()
