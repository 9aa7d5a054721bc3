"""Several at once on one store: one wins, the other says so, nothing is damaged; reused numbers fool nobody."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import PATIENCE, Lab, wait_until

from metamori._area import ffi
from metamori.runtime.area import unwritten
from metamori.store.io import commit
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store

ROUNDS = 8


def together(lab: Lab, *verbs: list[object]) -> list[tuple[int, str]]:
    """Started at once; exit code and what each said."""
    processes = [subprocess.Popen(lab.argv(str(verb[0]), *verb[1:]), cwd=lab.folder, env=lab.env, text=True,
                                  errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE) for verb in verbs]
    said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said)]


@pytest.fixture
def three(lab: Lab) -> Lab:
    """A store with three indexes and the end; f0 holds the number of its index."""
    session = lab.start()
    for number in (1, 2, 3):
        session.must([f"open f{number} rw,creat", f"write {number + 2} 300000 {number}", "checkpoint"])
        session.must([f"pwrite {number + 2} 200000 1000 {number + 5}"])
    assert session.end() == 0
    return lab


def test_two_restores(three: Lab) -> None:
    states = {}
    for index in (1, 2):
        three.restore(index)
        states[index] = three.state()
    for _ in range(ROUNDS):
        three.restore(4)
        codes = together(three, ["restore", 1], ["restore", 2])
        assert all(code in (0, 11) for code, _ in codes) and (0 in [code for code, _ in codes]), codes
        assert all("in use" in said for code, said in codes if code == 11)
        three.assert_state(states[three.log()["head"]], "after two restores at once")
    three.verb("verify")


def test_restores_prunes_and_readers(three: Lab) -> None:
    end = three.state()
    for _ in range(ROUNDS):
        codes = together(three, ["restore", 3], ["prune", "--keep-last", 9], ["verify"], ["cat", 4, three.work / "f3"],
                         ["log"])
        assert (codes[2][0], codes[4][0]) == (0, 0) and codes[3][0] in (0, 11), codes
        assert all(code in (0, 11) for code, _ in codes[:2]), codes
        three.restore(4)
        three.assert_state(end, "the last index again")
    three.verb("verify")


@contextmanager
def held(lab: Lab) -> Iterator[None]:
    """A run that lives."""
    session = lab.start()
    session.must(["open f9 rw,creat", "write 3 100 1"])
    yield
    assert session.end() == 0


def test_a_live_run_keeps_others_out(three: Lab) -> None:
    with held(three):
        assert "in use" in three.verb("prune", "--keep-last", 1, code=11).stderr
        assert "f9 by driver" in three.verb("restore", 1, code=11).stderr
        assert three.run("true").returncode == 125
        three.verb("verify")
        three.verb("log")
    three.restore(1)


def test_readers_beside_a_run_that_prunes_itself(lab: Lab) -> None:
    """Every answer is right, or says that the index went; never damage, never bytes of another index."""
    session = lab.start("--keep-last", 6)
    session.must(["open f0 rw,creat", "write 3 600000 1", "checkpoint"])
    answers: list[tuple[int, bytes]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            done = lab.run([*lab.argv("log"), "--json"], native=True)
            if done.returncode == 0:
                newest = max(entry["index"] for entry in json.loads(done.stdout)["checkpoints"])
                done = lab.run([*lab.argv("cat"), newest, lab.work / "f0"], native=True)
            answers.append((done.returncode, done.stdout if done.returncode == 0 else done.stderr))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()

    def right() -> int:
        return [code for code, _ in answers].count(0)

    for number in range(2, 50):
        session.must([f"pwrite 3 600000 0 {number}", "checkpoint"])
        if number % 12 == 0:               # the run stands still, until one has looked at an index that stays
            before = right()
            wait_until(lambda before=before: right() > before, "a right answer")
    stop.set()
    for each in readers:
        each.join(PATIENCE)
    assert session.end() == 0
    codes = {code for code, _ in answers}
    assert codes <= {0, 11, 13} and 0 in codes, [each for each in answers if each[0] not in (0, 11, 13)]
    for code, text in answers:
        if code == 0:
            assert len(text) == 600000


def test_two_runs_in_a_store_that_is_not_there_yet(lab: Lab) -> None:
    """Whoever comes first makes it; the others say that it is in use, and it is nobody's other store."""
    argv = [*lab.argv("run"), "--", "sh", "-c", "echo $$ >> log"]
    for _ in range(3):
        shutil.rmtree(lab.store, ignore_errors=True)
        (lab.work / "log").unlink(missing_ok=True)
        runs = [subprocess.Popen(argv, cwd=lab.work, env=lab.env, text=True, stderr=subprocess.PIPE) for _ in range(4)]
        said = [run.communicate(timeout=PATIENCE)[1] for run in runs]
        codes = [run.returncode for run in runs]
        assert 0 in codes and set(codes) <= {0, 125}, (codes, said)
        assert all("in use" in text for run, text in zip(runs, said) if run.returncode), said
        assert len((lab.work / "log").read_text().split()) == codes.count(0)
        lab.verb("verify")
        assert [entry["message"] for entry in lab.log()["checkpoints"][1:]] == ["end of run"] * codes.count(0)


@pytest.mark.parametrize("options", [[], ["--keep-last", 3]], ids=["keeping all", "pruning itself"])
def test_checkpoints_against_prunes(lab: Lab, options: list[object]) -> None:
    """Of a live run, from outside and at once: a prune says 11 as long as it lives, each checkpoint is there."""
    session = lab.start(*options)
    session.must(["open f0 rw,creat", "write 3 60000 1"])
    trees: dict[int, str] = {}
    for number in range(6):
        session.must([f"pwrite 3 9000 {number * 5000} {number}"])
        tree = session.ask("tree")
        codes = together(lab, ["checkpoint"], ["prune", "--keep-last", 1], ["checkpoint"], ["prune", "--keep-last", 2])
        assert [code for code, _ in codes] == [0, 11, 0, 11], codes
        newest = max(entry["index"] for entry in lab.log()["checkpoints"])
        trees[newest - 1] = trees[newest] = tree
    assert session.end() == 0
    there = {entry["index"] for entry in lab.log()["checkpoints"]}
    assert set(trees) <= there or options
    looker = lab.start(native=True)
    for index in sorted(trees.keys() & there):
        lab.restore(index)
        assert looker.ask("tree") == trees[index], index
    lab.verb("prune", "--keep-last", 2)
    lab.verb("verify")


def test_a_prune_against_a_run_that_begins(three: Lab) -> None:
    """One has the store: the run that comes second says 125, the prune 11; every index that is kept is right."""
    three.restore(4)
    end = three.state()
    command = [*three.argv("run"), "--", "true"]
    for _ in range(ROUNDS):
        run = subprocess.Popen(command, cwd=three.work, env=three.env, text=True, stderr=subprocess.PIPE)
        code, _ = together(three, ["prune", "--keep-last", 2])[0]
        said = run.communicate(timeout=PATIENCE)[1]
        assert (run.returncode, code) in ((0, 0), (125, 0), (0, 11)), (run.returncode, code, said)
        assert not said or (run.returncode == 125 and "in use" in said)
        three.verb("verify")
    three.assert_state(end, "runs that do nothing, and prunes")


def has_locked(pid: int) -> bool:
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "FLOCK" in line]
    return str(pid) in [words[words.index("FLOCK") + 3] for words in held]


def was_killed(lab: Lab, verb: list[object]) -> bool:
    """While it had the store's lock; or it was faster."""
    with subprocess.Popen(lab.argv(str(verb[0]), *verb[1:]), cwd=lab.folder, env=lab.env, stderr=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not has_locked(process.pid):
            pass
        process.send_signal(signal.SIGSTOP)
        has = has_locked(process.pid)
        process.kill()
    return has


def test_a_killed_verb_leaves_no_lock(three: Lab) -> None:
    for verb in (["restore", 1], ["prune", "--keep-last", 3]):
        wait_until(lambda verb=verb: three.restore(4) and was_killed(three, verb), "a kill amid the verb")
        three.verb(*verb)
        three.restore(4)
    three.verb("verify")


# -- numbers that came round ---------------------------------------------------------------------


@pytest.fixture
def area(lab: Lab) -> Iterator:  # type: ignore[type-arg]
    from metamori.config import Config
    from metamori.runtime.lifecycle.start_run import begin
    from metamori.store.read.store import Store

    store = Store.create_or_open(str(lab.store))
    store.lock()
    session, _ = begin(store, Config.make({"store": str(lab.store)}))
    yield session.area
    session.area.remove()
    store.close()


def bystander() -> subprocess.Popen:  # type: ignore[type-arg]
    """A process that has nothing to do with us, and has the number of one that had."""
    return subprocess.Popen(["sleep", "600"])


def test_a_lock_whose_owner_s_number_came_round_is_taken_over(area) -> None:  # type: ignore[no-untyped-def]
    other = bystander()
    try:
        area.head.session_lock = other.pid
        with area.session_lock(PATIENCE):
            pass
        area.head.session_lock = other.pid
    finally:
        other.kill()
        other.wait()
    with area.session_lock(PATIENCE):
        pass


WAITED = 1 << 31                           # MM_WAITED of a lock's word: whoever lets go of it wakes somebody


def test_who_has_waited_for_a_lock_wakes_the_next(area) -> None:  # type: ignore[no-untyped-def]
    """Two wait; the second must not sleep on until it looks by itself, 10 ms later, when the first is done."""
    words: list[int] = []
    lock = f"{int(ffi.cast('uintptr_t', ffi.addressof(area.head, 'session_lock'))):#x}"

    def take_it() -> None:
        with area.session_lock(PATIENCE):
            words.append(area.head.session_lock)

    waiters = [threading.Thread(target=take_it) for _ in range(2)]
    with area.session_lock(PATIENCE):
        for waiter in waiters:
            waiter.start()
        calls = [Path(f"/proc/self/task/{waiter.native_id}/syscall") for waiter in waiters]
        wait_until(lambda: all(lock in call.read_text().split()[1:2] for call in calls), "both wait")
    for waiter in waiters:
        waiter.join()
    assert words[0] & WAITED


def test_a_lock_that_a_live_process_of_ours_holds_is_not(area, lab: Lab) -> None:  # type: ignore[no-untyped-def]
    from metamori.runtime.area.run_area import NotAtRest

    hold = ("import sys; from metamori.runtime.area.run_area import Area; area = Area(sys.argv[1])\n"
            "area.lock_session(); print('held', flush=True); sys.stdin.readline()")
    holder = subprocess.Popen([sys.executable, "-c", hold, str(lab.store)], env=lab.env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        with pytest.raises(NotAtRest), area.session_lock(3.0):
            pass
    finally:
        holder.kill()
        holder.wait()


def test_a_slow_call_is_waited_for_but_no_stopped_process(lab: Lab) -> None:
    """A call that a slow disk keeps for longer than a second is no reason to do without a checkpoint."""
    from metamori.runtime.area.run_area import Area, NotAtRest

    session = lab.start()
    session.must(["open f0 rw,creat", "write 3 100 1"])
    area = Area(str(lab.store))
    process = area.process(next(area.processes()))
    process.calls += 1                     # it waits for the next line, and seems to be in a call
    comes_out = threading.Timer(1.5, setattr, (process, "calls", 0))
    comes_out.start()
    with area.session_lock(PATIENCE), area.frozen():
        assert process.calls == 0
    comes_out.join()
    process.calls += 1
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with area.session_lock(PATIENCE), pytest.raises(NotAtRest):
            area.freeze()
    finally:
        process.calls = 0
        os.kill(process.pid, signal.SIGCONT)
    session.must(["write 3 100 2", "checkpoint"])
    assert session.end() == 0


def test_a_freeze_whose_owner_s_number_came_round_ends(lab: Lab) -> None:
    from metamori.runtime.area.run_area import Area

    session = lab.start()
    session.must(["open f0 rw,creat", "write 3 100 1"])
    area, other = Area(str(lab.store)), bystander()
    try:
        area.head.freeze = other.pid
        session.must(["write 3 100 2"])
        assert area.head.freeze == 0
    finally:
        area.close()
        other.kill()
        other.wait()
    assert session.end() == 0


def test_a_supervisor_s_number_that_came_round_is_no_supervisor(lab: Lab) -> None:
    """Everything was killed, and somebody else has the number of `metamori run`: no live run."""
    from metamori.runtime.area.run_area import Area

    session = lab.start()
    session.must(["open f0 rw,creat", "write 3 100 1"])
    session.kill_all()
    other = bystander()
    try:
        area = Area(str(lab.store))
        area.head.supervisor = other.pid
        area.close()
        lab.verb("checkpoint", code=15)
    finally:
        other.kill()
        other.wait()
    assert lab.log()["head"] == 1
    assert (lab.work / "f0").stat().st_size == 100


@pytest.mark.in_turn("changes")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("changes", ["mapwrite 3 9000 5000 9", "ftruncate 3 7000", "hole 3 50000 40000",
                                     "fill f w,trunc 150000 9"])
def test_reads_beside_a_run_that_writes_in_place(lab: Lab, options: list[object], changes: str) -> None:
    """What it has saved since its last checkpoint no record has yet: later bytes were read, and nobody said so."""
    (lab.work / "f").write_bytes(b"old" * 50000)

    def right(was: dict[int, str], store: str) -> None:
        for index, content in was.items():
            lab.restore(index, "--to", lab.folder / store / str(index))
            [copy] = (lab.folder / store / str(index)).rglob("f")
            assert f"{zlib.crc32(copy.read_bytes()):08x}" == content, f"checkpoint {index}, {store}"

    was = {0: f"{zlib.crc32(b'old' * 50000):08x}"}
    session = lab.start(*options)
    session.must(["open f rw", "pwrite 3 5000 100 1"])
    was[int(session.ask("checkpoint"))] = session.ask("pread 3 150000 0").split()[1]
    session.must([changes])
    right(was, "the first run")
    was[int(session.ask("checkpoint"))] = session.ask("pread 3 150000 0").split()[1]
    right(was, "a checkpoint later")
    assert session.end() == 0
    session = lab.start(*options)          # it knows the file by nothing but its number
    session.must(["open f rw", changes.replace("9000", "8000").replace("7000", "300").replace("4", "6")])
    right(was, "the next run")
    assert session.end() == 0
    right(was, "when it is over")


@pytest.mark.in_turn("size", "is_used")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("is_used", [False, True], ids=["", "used later"])
@pytest.mark.parametrize("size", [3000, 300000])
def test_reads_beside_a_run_of_what_somebody_else_changed(lab: Lab, size: int, is_used: bool, options: list[object]
                                                          ) -> None:
    """No run has a hand in it: its bytes were taken for those of every index."""
    old = lab.start()
    old.must(["open f rw,creat", f"write 3 {size} 1"])
    assert old.end() == 0
    f, was = lab.work / "f", (lab.work / "f").read_bytes()
    session = lab.start(*options)
    session.must(["open g rw,creat", "write 3 100 1", "checkpoint"])
    with f.open("r+b") as file:
        file.write(b"somebody's")
    if is_used:
        session.must(["open f rw", "pwrite 4 100 1000 2"])

    def looked_at() -> None:
        for index in (1, 2):
            to = lab.folder / "to" / str(len(list(lab.folder.glob("to/*"))))
            cat = lab.run([*lab.argv("cat"), index, f], native=True)
            if size == 3000:               # there is a copy
                assert (cat.returncode, cat.stdout) == (0, was), (index, cat.stderr)
                lab.restore(index, "--to", to)
                assert [each.read_bytes() for each in to.rglob("f")] == [was], index
            else:
                assert cat.returncode in (12, 14) and not cat.stdout, (index, cat.stderr)
                assert "f is lost" in lab.restore(index, "--to", to, code=12).stderr
        lost = {each["index"]: len(each["lost"]) for each in lab.log()["checkpoints"]}
        assert [lost[index] for index in (0, 1, 2)] == [0, size > 3000, size > 3000]

    looked_at()
    session.must(["checkpoint"])
    looked_at()
    assert session.end() == 0
    looked_at()


def test_losses_while_a_live_run_s_files_go_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a restore moves is nobody else's doing: a file that it took away amid the looks was called changed."""
    old = lab.start()
    old.must(["open f rw,creat", "write 3 3000 1"])
    assert old.end() == 0
    session, looked = lab.start(), list[bytes]()
    session.must(["open g r,creat", "close 3", "checkpoint"])

    def look(door: Door, path: bytes) -> os.stat_result | None:
        looked.append(path)
        if len(looked) == 1:
            lab.restore(0)
        return commit.lstat_or_none(door, path)

    monkeypatch.setattr(unwritten, "lstat_or_none", look)
    with Store.open(os.fsencode(lab.store)) as store:
        changed = unwritten.beside_runs(store).changed_beside
        assert changed is not None and not changed(None)
    assert looked
    assert session.end() == 0
