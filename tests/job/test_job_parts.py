"""Parts of a job that no whole one shows at will: rounds, who is named, what is lost and said."""

from __future__ import annotations

import mmap
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, Tree, picture, wait_until
from ranks import checkpoint, end, job
from test_job import everything_back

pytest.importorskip("zmq")

from metamori.errors import MetamoriError
from metamori.runtime.job import finish, folder, places, start
from metamori.runtime.job.counter import Round
from metamori.runtime.job.member import dial, identity, is_same_job, name_of
from metamori.runtime.job.places import Place
from metamori.runtime.job.wire import Client, NoAnswer, Server
from metamori.runtime.lifecycle import recover
from metamori.store.format.records import UndoEntry
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store


def test_a_round_goes_on_when_all_are_frozen_and_is_over_when_all_have_written() -> None:
    places = iter((96,))                   # asked for once, when all are frozen
    round_ = Round(4, {b"a", b"b"}, place=lambda: next(places))
    ready = {"what": "ready", "round": 4}
    answers = [round_.take(who, ready) for who in (b"a", b"a", b"b", b"b")]
    assert answers == [None, None, {"what": "cut", "round": 4}, None]
    assert round_.take(b"a", {"what": "frozen", "round": 4}) is None
    assert round_.take(b"b", {"what": "frozen", "round": 3}) is None
    assert round_.take(b"b", {"what": "frozen", "round": 4}) == {"what": "look", "round": 4, "place": 96}
    assert round_.take(b"b", {"what": "frozen", "round": 4}) is None
    assert round_.take(b"b", {"what": "looked", "round": 4}) is None
    assert round_.take(b"a", {"what": "looked", "round": 4}) == {"what": "go", "round": 4}
    assert not round_.is_over
    for who, index in ((b"a", 7), (b"b", 9)):
        assert round_.take(who, {"what": "written", "round": 4, "index": index}) is None
    assert round_.is_over and round_.indexes == {b"a": 7, b"b": 9}


def test_a_round_that_one_gives_up_is_over_for_all() -> None:
    round_ = Round(1, {b"a", b"b"})
    assert round_.take(b"a", {"what": "failed", "round": 1, "why": "full"}) == {"what": "abort", "round": 1}
    assert round_.is_over and round_.why == "full"
    assert round_.take(b"b", {"what": "frozen", "round": 1}) is None


def test_a_round_is_short_when_one_that_is_awaited_ends() -> None:
    round_ = Round(1, {b"a", b"b"})
    round_.leave(b"c")
    assert not round_.is_short
    for what in ("ready", "frozen", "looked", "written"):
        round_.take(b"a", {"what": what, "round": 1, "index": 1})
    round_.leave(b"a")
    assert not round_.is_short
    round_.leave(b"b")
    assert round_.is_short


def test_names_of_runs_and_jobs() -> None:
    assert identity("", {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"}) == "12 1"
    again = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"}
    assert is_same_job(identity("", {"SLURM_JOB_ID": "12"}), identity("", again))
    assert is_same_job(identity("my a", {}), identity("my a", again))
    assert not is_same_job(identity("my a", {}), identity("my b", {}))
    assert not is_same_job(identity("my a", {}), identity("my b", again))
    for number, rank in (("SLURM_JOB_ID", "SLURM_PROCID"), ("PMIX_NAMESPACE", "PMIX_RANK"), ("PMI_JOBID", "PMI_RANK"),
                         ("OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_RANK")):
        assert identity("", {number: "ns", rank: "3"}) == identity("ns", {}) != identity("", {})
        assert name_of({number: "ns", rank: "3"}, "n1") == "3.n1"


def test_nobody_counts(tmp_path: Path) -> None:
    store = Store.create_or_open(str(tmp_path / "store"))
    with pytest.raises(NoAnswer, match="no job is alive in"):
        dial(store.path)
    server = Server()
    reached = server.reached
    server.close()
    with pytest.raises(NoAnswer, match="no answer from the run that counts, on"):
        Client(reached)
    (tmp_path / "store" / "nodes").mkdir()
    assert "a job was killed; the next" in " ".join(store.unfinished())
    store.lock()
    other = Store.open(store.path)
    assert "a job is alive" in " ".join(other.unfinished())
    part = store.path + "/nodes/x"
    assert folder.job_of(part) == part, "there is no such run"
    Store.create_or_open(part).close()
    assert folder.job_of(part) == store.path


def test_a_note_of_what_was_folded_that_was_only_begun(lab: Lab) -> None:
    """Else all is folded once more, as if it had been done after the last checkpoint."""
    ranks = job(lab, 2)
    ranks[0].do("append", "file", "one")
    checkpoint(lab, {})
    (lab.store / "nodes" / "folded" / "2.tmp").touch()
    assert set(folder.folded(Store.open(str(lab.store)))[0].values()) == {1}
    end(ranks)


MAPS = """
import mmap, sys
file = open("mapped", "r+b"); view = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
for line in sys.stdin:
    view[0:1] = line[:1].encode(); print("stored", flush=True)
"""


def test_a_file_that_one_maps_and_another_writes_is_in_no_checkpoint(lab: Lab) -> None:
    (lab.work / "mapped").write_bytes(b"." * 2 * mmap.PAGESIZE)
    ranks = job(lab, 1)
    env = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"}
    maps = subprocess.Popen([*lab.argv("run", "--job"), "--", sys.executable, "-c", MAPS], cwd=lab.work, env=env,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maps.stdout and maps.stdin and maps.stdout.readline() == "mapped\n"
    ranks[0].do("write", "mapped", 5000, "other")
    index = 0
    for letter in "xy":
        maps.stdin.write(letter + "\n")
        maps.stdin.flush()
        maps.stdout.readline()
        index = checkpoint(lab, {})
    maps.stdin.close()
    maps.wait()
    said = end(ranks)
    done = lab.verb("restore", index, code=12)
    assert "one node maps it, and others write it" in said
    assert "is lost" in done.stderr


def test_a_file_that_one_has_mapped_and_another_writes_later(lab: Lab) -> None:
    """Its bytes are those in place again, not what was stored of them while it was mapped."""
    (lab.work / "mapped").write_bytes(b"." * 4 * mmap.PAGESIZE)
    ranks, seen = job(lab, 1), {0: picture(lab.work)}
    env = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"}
    maps = subprocess.Popen([*lab.argv("run", "--job"), "--", sys.executable, "-c", MAPS], cwd=lab.work, env=env,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maps.stdout and maps.stdin and maps.stdout.readline() == "mapped\n"
    for letter in "xy":
        maps.stdin.write(letter + "\n")
        maps.stdin.flush()
        maps.stdout.readline()
        checkpoint(lab, seen)
    maps.stdin.close()
    maps.wait()
    checkpoint(lab, seen)
    for number in range(3):
        ranks[0].do("write", "mapped", number * mmap.PAGESIZE + 10, str(number) * 3000)
        checkpoint(lab, seen)
    assert end(ranks) == ""
    for index in (*seen, *reversed(seen)):
        lab.restore(index)
        lab.assert_state(seen[index], f"restore {index}")
    lab.verb("verify")


def test_a_renamed_file_of_which_nobody_knows_the_size(lab: Lab) -> None:
    ranks = job(lab, 2)
    ranks[0].do("write", "file", 0, "a" * 100)
    checkpoint(lab, {})
    ranks[1].do("rename", "file", "other")
    seen: dict = {}
    checkpoint(lab, seen)
    ranks[0].do("write", "file", 100, "more, by the old descriptor")
    ranks[0].do("close", "file")
    index = checkpoint(lab, seen)
    said = end(ranks)
    done = lab.verb("restore", index, code=None)
    if done.returncode:                    # honest, where it is not right
        assert done.returncode == 12 and "could not find a file that another run has renamed" in said
    else:
        lab.assert_state(seen[index], "the file that grew under another name")


def test_a_store_that_a_job_left_is_completed_by_a_run(lab: Lab) -> None:
    ranks = job(lab, 2)
    ranks[0].do("append", "file", "before")
    checkpoint(lab, {})
    ranks[0].do("append", "file", "more")
    for rank in ranks:
        rank.kill()
    done = lab.run("true")
    assert done.returncode == 0, done.stderr
    assert lab.messages()[2] == "killed"
    assert not os.path.exists(lab.store / "nodes")


def test_what_a_try_to_complete_a_run_has_left_counts_for_none(lab: Lab) -> None:
    """It was killed before its record was there, and the next one gave the file another number."""
    lab.work.joinpath("file").write_text("old\n")
    ranks = job(lab, 1)
    ranks[0].do("append", "file", "more\n")
    for rank in ranks:
        rank.kill()
    node = Store.open(str(next((lab.store / "nodes").glob("*/format")).parent))
    node.add_undo([UndoEntry(77, 0, 4, 0, 0)], 0, durable=False)
    node.close()
    assert lab.verb("log").returncode == 0
    lab.restore(0)
    assert lab.work.joinpath("file").read_text() == "old\n"


def test_a_job_that_was_killed_before_it_began(lab: Lab) -> None:
    lab.run("true", "--job")
    os.mkdir(lab.store / "nodes")
    (lab.store / "nodes" / ".run.metamori-new").touch()
    assert lab.verb("log").stderr == ""
    assert lab.run("true", "--job").returncode == 0


def test_a_filesystem_that_others_may_have_too_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create_or_open(str(lab.store))
    folders = [os.fsencode(lab.work), b"/dev/shm"]
    for kind in ("nfs4", "lustre", "fuse.sshfs", "9p", "unheard-of"):
        monkeypatch.setattr(places, "_mounts", lambda kind=kind: {b"/": "ext4", b"/dev/shm": kind})
        with pytest.raises(MetamoriError, match=f"/dev/shm: with --job tracked folders must .*; {kind} may be either"):
            places.look(store, "host", folders)
    monkeypatch.setattr(places, "_mounts", lambda: {b"/": "ext4", b"/dev/shm": "tmpfs", b"/dev/shm/p": "proc"})
    place = places.look(store, "host", folders)
    assert place.is_own(b"/dev/shm/file") and not place.is_own(b"/dev/shmfile")
    assert not place.is_own(os.fsencode(lab.work / "file"))
    monkeypatch.setattr(places, "_mounts", lambda: {b"/": "ext4", b"/dev/shm": "nfs4", b"/proc": "proc"})
    place = places.look(store, "host", [b"/"])
    assert (place.is_own(b"/dev/shm/file"), place.top(b"/dev/shm/file")) == (None, (b"/dev/shm", None))
    (lab.store / "nodes" / "name").mkdir(parents=True)
    places.note(store, b"name", place)
    assert places.read(store, b"name") == place


def test_a_run_is_not_alive_whose_job_is_completed_meanwhile(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many end at once, and each looks whether it was the last."""
    store = Store.create_or_open(str(lab.store))
    (lab.store / "nodes").mkdir()
    Store.create_or_open(store.layout.node(b"one")).close()
    open_ = Store.open

    def open_and_complete(*args: object, **named: object) -> Store:
        node = open_(*args, **named)  # type: ignore[arg-type]
        finish.close(store)
        return node

    monkeypatch.setattr(Store, "open", open_and_complete)
    assert folder.is_alive(store, b"one") is False


def test_who_looks_whether_a_run_is_alive_does_not_keep_it_from_beginning(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, create = Store.create_or_open(str(tmp_path / "store")), Store.create_or_open
    os.mkdir(store.layout.nodes)

    def looked_at(path: str) -> Store:
        """As `is_alive` does, in the moment after."""
        node = create(path)
        other = Store.open(path)
        other.lock()
        threading.Timer(0.1, other.close).start()
        return node

    monkeypatch.setattr(Store, "create_or_open", looked_at)
    node, _ = start._own_store(store, "run", Place("host", "boot", 1))
    assert node.is_locked
    node.close()


def test_where_a_run_is_outlives_a_power_cut(tmp_path: Path) -> None:
    """The note was renamed into place without its bytes: none of the job's history could be read any more."""
    class Synced(Door):
        def fsync(self, fd: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{fd}"))

    synced: list[str] = []
    store = Store.create_or_open(str(tmp_path / "store"), Synced())
    os.mkdir(store.layout.nodes)
    node = Store.create_or_open(store.layout.node(b"run"))
    places.note(store, b"run", Place("host", "boot", 1))
    assert synced[-2:] == [f"{node.path}/.place.metamori-new", node.path]
    assert places.read(store, b"run").host == "host"
    os.truncate(f"{node.path}/place", 0)   # by one that was not durable yet
    assert places.read(store, b"run").host == ""


def test_what_nodes_may_share_is_left_out_where_it_is_mounted_below(lab: Lab) -> None:
    """And nobody hears of it who does not touch it: of that kind there is much in /."""
    if os.getuid() != 0 or not all(map(shutil.which, ("mkfs.exfat", "mount.exfat-fuse"))):
        pytest.skip("needs root, mkfs.exfat and mount.exfat-fuse")
    below, image = lab.work / "below", lab.folder / "image"
    below.mkdir()
    image.touch()
    os.truncate(image, 16 << 20)
    subprocess.run(["mkfs.exfat", image], check=True, capture_output=True)
    device = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True).stdout.strip()
    try:
        done = subprocess.run(["mount.exfat-fuse", device, below], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(done.stderr)
        (below / "file").write_text("old\n")
        warning = f"{below}: nodes may share it or not; what is there is not part of the job's checkpoints"
        for what, said in (("file", set()), ("below/file", {f"metamori: {warning}\n"})):
            ranks = job(lab, 2)
            ranks[0].do("append", what, "more\n")
            checkpoint(lab, {})
            ranks[1].do("append", "another", "x\n")
            assert set(end(ranks).splitlines(True)) == said
        lab.restore(0)
        assert (below / "file").read_text() == "old\nmore\n" and not (lab.work / "file").exists()
        assert lab.run("true", "--job").stderr == b""
    finally:
        subprocess.run(["umount", "-l", below], check=False)
        subprocess.run(["losetup", "-d", device], check=False)


@pytest.mark.parametrize("others", [0, 2])
def test_a_command_that_cannot_start_leaves_the_job(lab: Lab, compiled: Compile, others: int) -> None:
    """Alone it completes the job at once; beside others these go on."""
    ranks = job(lab, others) if others else []
    lab.work.joinpath("text").write_text("no program")
    for command, code, said in (("not-there", 127, "No such file"), ("./text", 126, "Permission denied"),
                                (str(compiled("order", "static")), 125, "without the library are not tracked")):
        done = lab.run(command, "--job")
        assert done.returncode == code and said in done.stderr.decode(), done.stderr
        assert os.path.exists(lab.store / "nodes") == bool(others)
    if others:
        seen: dict[int, Tree] = {}
        ranks[1].do("append", "file", "still there")
        checkpoint(lab, seen)
        assert end(ranks) == ""
        lab.restore(1)
        lab.assert_state(seen[1], "the others' checkpoint")


def test_a_signal_takes_a_checkpoint_of_all(lab: Lab) -> None:
    ranks = job(lab, 2, "--on-signal", "USR1")
    ranks[0].process.send_signal(signal.SIGUSR1)
    ranks[0].process.wait()                # the program has the signal too, and knows no answer
    end(ranks[1:])
    assert lab.log()["checkpoints"][1]["message"] == "checkpoint"


@pytest.mark.parametrize("ends", ["kill -9 $$", "exit 3", "exit 0"])
def test_a_job_is_interrupted_though_others_outlive_its_command(lab: Lab, ends: str) -> None:
    """What the last of them left is one index with what the command did, whose end it tells."""
    takes = shlex.join(lab.argv("checkpoint"))
    later = "(until [ -e ../go ]; do sleep 0.1; done; echo late >> log) > ../out 2>&1 &"
    lab.run(["sh", "-c", f"echo one > log; {takes}; echo two >> log; {later} {ends}"], "--job")
    assert lab.messages().keys() == {0, 1}
    (lab.folder / "go").touch()
    wait_until(lambda: 2 in lab.messages(), "all have ended")
    assert (lab.work / "log").read_text() == "one\ntwo\nlate\n"
    said = lab.run("cat log", "--job", "--resume")
    again, lost = b"continuing from checkpoint 1" in said.stderr, b"two\nlate\n" not in said.stdout
    assert again == lost == (ends != "exit 0"), said


def test_a_run_is_completed_twice(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time by one that is killed before its run area is gone: what lies in place then is no pre-image."""
    (lab.work / "file").write_bytes(b"." * 9000)
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 2)
    for number, rank in enumerate(ranks):
        rank.do("write", "file", 4000 * number, "first" * 800)
    checkpoint(lab, seen)
    for number, rank in enumerate(ranks):
        rank.do("write", "file", 100 + number, "other" * 1000)
    seen[2] = picture(lab.work)
    for rank in ranks:
        rank.kill()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    store = Store.open(str(lab.store))
    with monkeypatch.context() as patch:
        patch.setattr(recover, "close", killed)
        for name in folder.names(store):
            with pytest.raises(KeyboardInterrupt):
                finish.complete_run(store, name)
    lab.verb("log")
    everything_back(lab, seen)
