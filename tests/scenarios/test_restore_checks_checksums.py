"""A restore inside the program takes over buffer bytes of earlier runs only as they were signed: else it is EIO,
nothing has moved, and no later record says that the damaged bytes are right."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab, Session

MODES = [(), ("--isolate",)]


def damaged(lab: Lab, run: int, old: bytes) -> None:
    """Another byte where the buffer of a run holds these."""
    path = lab.store / "buffer" / str(run)
    data = bytearray(path.read_bytes())
    at = data.find(old)
    assert at >= 0
    data[at + len(old) // 2] ^= 4
    path.write_bytes(data)


def first_run(lab: Lab) -> bytes:
    """`f`, of which an index of this run has bytes in its buffer; the bytes."""
    (lab.work / "f").write_bytes(bytes(range(256)) * 80)
    program = lab.start()
    program.must(["open f rw", "checkpoint", "pwrite 3 9000 3000 7", "checkpoint"])
    assert program.end() == 0
    return (lab.work / "f").read_bytes()[3000:12000]


def tried(lab: Lab, program: Session, index: int, change: list[str]) -> None:
    program.must(change)
    before = program.ask("tree")
    assert program.ask(f"restore {index}").startswith("-1 EIO")
    assert program.ask("tree") == before


@pytest.mark.parametrize("options", MODES, ids=" ".join)
def test_damage_in_an_earlier_runs_buffer(lab: Lab, options: tuple[str, ...]) -> None:
    old = first_run(lab)
    program = lab.start(*options)
    program.must(["open f rw"])
    index = int(program.ask("checkpoint"))
    damaged(lab, 1, old[2000:3000])
    tried(lab, program, index, ["pwrite 3 12000 1000 9", "open g w,creat", "write 4 100 1", "symlink f l"])
    again = int(program.ask("checkpoint"))
    seen = {name: (lab.work / name) for name in ("f", "g")}
    assert program.end() == 0
    end = {name: path.read_bytes() for name, path in seen.items()}
    said = lab.verb("verify", code=12).stderr
    assert "buffer/1" in said and "buffer/2" not in said
    lab.verb("restore", index, "--to", lab.folder / "there", code=12)
    lab.verb("restore", again, "--to", lab.folder / "again")
    assert {name: next((lab.folder / "again").rglob(name)).read_bytes() for name in end} == end


@pytest.mark.parametrize("options", MODES, ids=" ".join)
def test_whole_bytes_come_back(lab: Lab, options: tuple[str, ...]) -> None:
    """The same without damage: it is not that everything is refused."""
    old = first_run(lab)
    program = lab.start(*options)
    program.must(["open f rw"])
    index = int(program.ask("checkpoint"))
    program.must(["pwrite 3 12000 1000 9"])
    assert program.ask(f"restore {index}") == "0"
    assert program.end() == 0
    assert (lab.work / "f").read_bytes()[3000:12000] == old
    lab.verb("verify")


def test_damage_that_the_index_does_not_need(lab: Lab) -> None:
    """Of an earlier run's buffer only what is taken over is looked at."""
    old = first_run(lab)
    program = lab.start()
    program.must(["open f rw", "open g w,creat", "write 4 50 1"])
    index = int(program.ask("checkpoint"))
    damaged(lab, 1, old[2000:3000])
    program.must(["write 4 100 2", "unlink g"])
    assert program.ask(f"restore {index}") == "0"
    assert program.end() == 0
    assert (lab.work / "g").stat().st_size == 50


def test_a_mapped_file(lab: Lab) -> None:
    """Its bytes go back in place, where the mapping sees them; those of before were saved when the mapping began."""
    old = first_run(lab)
    program = lab.start()
    program.must(["open f rw", "map 3 20480 rw shared 0"])
    index = int(program.ask("checkpoint"))
    damaged(lab, 2, old[2000:3000])
    tried(lab, program, index, ["pwrite 3 12000 1000 9"])
    assert program.end() == 0


def test_bytes_that_are_lost(lab: Lab) -> None:
    """Nothing is made up: zeros in their place would be."""
    first_run(lab)
    program = lab.start()
    program.must(["open f rw"])
    index = int(program.ask("checkpoint"))
    program.must(["pwrite 3 100 0 9", "checkpoint"])
    from metamori.store.format.records import UndoEntry
    from metamori.store.read.store import Store

    with Store.open(str(lab.store)) as store:
        [inode] = [inode for inode, pif in store.state(index).pifs.items() if pif.filename.endswith(b"/f")]
        store.add_undo([UndoEntry(inode, 15000, 15100, 0, 0)], store.newest)
    tried(lab, program, index, ["pwrite 3 12000 1000 9"])
    assert program.end() == 0


def test_a_file_that_shrinks_while_it_is_saved(lab: Lab, tmp_path: Path) -> None:
    """By another process: the rest is lost, and said to be; it was a loop without end."""
    from types import SimpleNamespace

    from metamori.runtime.rollback.file_back import FileBack

    file, buffer = tmp_path / "file", tmp_path / "buffer"
    file.write_bytes(b"x" * 5000)
    buffer.touch()
    recorded = []
    store = SimpleNamespace(
        layout=SimpleNamespace(buffer=lambda run: str(buffer)), newest=3,
        buffers=SimpleNamespace(checksum=lambda run, place, length: length),
        add_undo=lambda entries, after, durable: recorded.extend(entries))
    one = SimpleNamespace(
        area=SimpleNamespace(take_blocks=lambda count: 1), store=store, run_number=1, inode=8,
        session=SimpleNamespace(durable=False, will_write_records=lambda: None))
    one._save = lambda *words: FileBack._save(one, *words)
    with file.open("rb") as opened:
        FileBack._keep(one, opened.fileno(), [(1000, 9000), (6000, 7000)])  # type: ignore[arg-type]
    assert [tuple(each) for each in recorded] == [
        (8, 1000, 5000, 1, 4096, 4000), (8, 5000, 9000, 0, 0, 0), (8, 6000, 7000, 0, 0, 0)]
    assert buffer.read_bytes()[4096:8096] == b"x" * 4000
