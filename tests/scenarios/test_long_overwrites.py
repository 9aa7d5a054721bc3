"""Old bytes written over in one long sequence go to their place, and every index keeps its own (engine/overwrite.c)."""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lab import Lab, wait_until
from stops import Stops

MIB = 1 << 20
PIECE = MIB // 2
SIZE = 8 * MIB                             # a sequence is long from 4 MiB on, in the build with assertions at once
# between two checkpoints: sequences in pieces of one size, [from, to) in MiB
ROUNDS = [[(65536, 0, 8)], [(200000, 1, 7), (MIB, 6, 8)], [(4096, 5, 5.5), (6 * MIB, 0, 6)]]


def lines(rounds: list[tuple[int, float, float]], seed: int) -> list[str]:
    return [f"pwrite 3 {piece} {at} {seed}" for piece, first, last in rounds
            for at in range(int(first * MIB), int(last * MIB) - piece + 1, piece)]


@pytest.fixture
def states(lab: Lab, native_lab: Lab) -> list[bytes]:
    """What the file has before the first round and after each, natively."""
    content = os.urandom(SIZE)
    for each in (lab, native_lab):
        (each.work / "f").write_bytes(content)
    found, session = [content], native_lab.start(native=True)
    session.must(["open f rw"])
    for seed, sequences in enumerate(ROUNDS):
        session.must(lines(sequences, seed))
        found.append((native_lab.work / "f").read_bytes())
    assert session.end() == 0
    return found


@pytest.mark.parametrize("end", ["ended", "killed"])
def test_every_index_has_its_own(lab: Lab, states: list[bytes], end: str) -> None:
    session = lab.start()
    session.must(["open f rw"])
    indexes = [lab.checkpoint()]
    for seed, sequences in enumerate(ROUNDS):
        session.must(lines(sequences, seed))
        assert seed or (lab.work / "f").read_bytes()[-MIB:] == states[1][-MIB:], "redirected"
        if seed < len(ROUNDS) - 1:
            indexes.append(lab.checkpoint())
    if end == "killed":
        session.kill_program()
    else:
        assert session.end() == 0
    lab.verb("verify")
    indexes.append(lab.log()["checkpoints"][-1]["index"])
    for index, content in [*zip(indexes, states, strict=True), (indexes[1], states[1]), (indexes[0], states[0])]:
        lab.restore(index)
        assert (lab.work / "f").read_bytes() == content, f"checkpoint {index}"


def test_back_inside_the_program_and_on_another_branch(lab: Lab, states: list[bytes]) -> None:
    session = lab.start()
    session.must(["open f rw", "checkpoint", *lines(ROUNDS[0], 0), "checkpoint", *lines(ROUNDS[1], 1), "restore 1"])
    assert session.ask("restore 2") == "0"
    session.must([*lines(ROUNDS[1], 1), "checkpoint", "restore 1", *lines(ROUNDS[0], 0), "checkpoint"])
    assert session.end() == 0
    for index, content in ((1, states[0]), (3, states[2]), (4, states[1]), (2, states[1])):
        lab.restore(index)
        assert (lab.work / "f").read_bytes() == content, f"checkpoint {index}"


@pytest.mark.parametrize("options", [["--isolate"], ["--mode=single"]], ids="".join)
def test_nothing_goes_to_its_place_before_a_commit(lab: Lab, states: list[bytes], options: list[str]) -> None:
    session = lab.start(*options)
    session.must(["open f rw", *lines(ROUNDS[0], 0)])
    assert (lab.work / "f").read_bytes() == states[0]
    assert session.end() == 0
    assert (lab.work / "f").read_bytes() == states[1]


@pytest.mark.parametrize("back", [False, True], ids=["at its end", "gone back to"])
def test_what_an_earlier_run_had_in_its_buffer_is_no_more_the_file_s(lab: Lab, native_lab: Lab, back: bool) -> None:
    """Its checkpoints have these bytes in a buffer; what is written over them in place is the next index's."""
    scattered = [f"pwrite 3 4096 {at} 7" for at in range(4096, SIZE, 40 * 4096)]
    content = os.urandom(SIZE)
    states = {0: content}
    for each in (lab, native_lab):
        (each.work / "f").write_bytes(content)
    for rounds in ([scattered], [lines(ROUNDS[1], 1), [*scattered[::3], *lines(ROUNDS[0], 2)]]):
        session, native = lab.start(), native_lab.start(native=True)
        for each in (session, native):
            each.must(["open f rw"])
        for steps in rounds:
            session.must(steps)
            native.must(steps)
            states[lab.checkpoint()] = (native_lab.work / "f").read_bytes()
        assert session.end() == native.end() == 0
        states[lab.log()["checkpoints"][-1]["index"]] = (native_lab.work / "f").read_bytes()
        if back and len(states) == 3:
            lab.restore(1)
    lab.verb("verify")
    for index in sorted(states, reverse=True):
        lab.restore(index)
        assert (lab.work / "f").read_bytes() == states[index], f"checkpoint {index}"


def test_a_checkpoint_does_not_wait_for_what_is_saved_ahead(lab: Lab, tmp_path: Path) -> None:
    """The write goes to the buffer; the sequence goes on in place after it."""
    from metamori.runtime.area.run_area import Area

    stops, content = Stops(tmp_path / "stops"), os.urandom(SIZE)
    lab.env |= stops.env
    (lab.work / "f").write_bytes(content)
    session = lab.start()
    session.must(["thread 0", "open f rw"])
    area = Area(str(lab.store))
    stops.arm("preimage.piece")
    session.ask(f"begin 0 pwrite 3 {PIECE} 0 1")
    stops.wait("preimage.piece")
    with ThreadPoolExecutor(1) as other:
        index = other.submit(lab.checkpoint)
        wait_until(lambda: area.head.freeze, "the checkpoint waits for the write")
        stops.go("preimage.piece")
        assert session.ask("await 0") == str(PIECE)
        first = index.result()
    assert (lab.work / "f").read_bytes() == content, "in place"
    session.must([f"pwrite 3 {PIECE} {PIECE} 1"])
    assert (lab.work / "f").read_bytes()[PIECE:2 * PIECE] != content[PIECE:2 * PIECE], "redirected"
    assert session.end() == 0
    last = (lab.work / "f").read_bytes()
    lab.verb("verify")
    for index, there in ((first, last[:PIECE] + content[PIECE:]), (0, content), (first + 1, last)):
        lab.restore(index)
        assert (lab.work / "f").read_bytes() == there, f"checkpoint {index}"


def test_where_the_kernel_will_not_begin_to_write(lab: Lab) -> None:
    """As below a filter of system calls: each step was given up when it had been copied."""
    program = "import os; f = os.open('f', os.O_RDWR); [os.write(f, bytes(65536)) for _ in range(24 * 16)]"
    (lab.work / "f").write_bytes(os.urandom(32 * MIB))
    refuse = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=sync_file_range:error=ENOSYS"]
    if not shutil.which("strace") or lab.run([*refuse, "true"], native=True).returncode:
        pytest.skip("no strace, or no right to trace")
    done = lab.run([*refuse, *lab.argv("run"), "--", sys.executable, "-c", program], native=True)
    assert (done.returncode, done.stderr) == (0, b"")
    taken = sum(each.stat().st_blocks * 512 for each in (lab.store / "buffer").iterdir())
    assert taken < 40 * MIB, "pre-images of all, and what was redirected before"
    lab.verb("verify")
