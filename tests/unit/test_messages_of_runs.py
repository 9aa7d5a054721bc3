"""What a run says when something beside it fails: the function that says it, with the failure put in."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import ROOT, Lab, wait_until

import metamori
from metamori._area import lib
from metamori.cli import main
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import NotAtRest
from metamori.runtime.lifecycle import end_run, recover, run_controller, store_removed, sysv_restart, tcp_restart
from metamori.runtime.memory import (
    family,
    images,
    open_files,
    proc_inspect,
    proc_look,
    sockets,
    stopped,
    sysv,
    terminals,
    tree,
)
from metamori.runtime.memory.proc_inspect import NotBegun, Refused
from metamori.runtime.rollback import live_rollback, rollback, sole_process
from metamori.store.format.records import FamilyEntry, SegmentEntry


def area(pids: list[int], high: int = 2) -> Any:
    """With processes of these numbers."""
    return SimpleNamespace(
        processes=lambda: range(1, len(pids) + 1), process=lambda slot: SimpleNamespace(pid=pids[slot - 1], outside=0),
        pids=lambda but: pids, head=SimpleNamespace(process_high=high), pointer=images.ffi.NULL, path="",
        has_unborn=lambda: False,
        thaw=lambda: None)


def image(pid: int) -> Any:
    made = object.__new__(images.Image)
    made.area, made.slot, made.pid, made.known = area([pid]), 1, pid, pid
    made.memory = SimpleNamespace(writer=0, message=images.ffi.new("char[8]"))
    return made


def opened(fd: int) -> open_files.Open:
    """Of this process."""
    with closing(proc_look.Looks([(os.getpid(), images.ffi.new("struct mm_memory *", {"own": [-1]}))])) as looks:
        seen, = looks.first()
    return next(each for each in open_files.of_process(seen) if each.fd == fd)


def run_of(this: open_files.Open) -> open_files.Run:
    run = open_files.Run(1)
    run.add([this])
    return run


def all_images(pids: list[int]) -> Any:
    return tree.Images(None, area(pids), 1, False, "refuse")      # type: ignore[arg-type]


def test_a_run_without_its_process() -> None:
    with pytest.raises(Refused, match="the run's process has ended, or cannot be tracked"):
        all_images([])._processes()


def test_more_processes_than_can_come_back() -> None:
    with pytest.raises(Refused, match="513 processes are alive, more than can come back"):
        all_images([1] * 513)._processes()


def test_a_stopped_process_that_may_not_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(mm_ptrace=lambda *_: -errno.EPERM)
    monkeypatch.setattr(stopped, "lib", fake)
    memory = SimpleNamespace(stood=0, unseen=0, stands=0)
    with pytest.raises(Refused, match=r"sh \(7\) is stopped, and may not be looked into \(Operation not permitted\)"):
        stopped.Stopped(os.getpid(), memory, "sh (7)")
    assert memory.stands == 0


def test_a_stopped_process_with_a_thread_that_never_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(stopped, "lib", SimpleNamespace(mm_ptrace=lambda *_: 0))
    monkeypatch.setattr(stopped.os, "waitid", lambda *_: None)
    with pytest.raises(NotAtRest, match=r"a thread of sh \(7\) does not stop: no checkpoint was taken"):
        stopped.Stopped(os.getpid(), SimpleNamespace(stood=0, unseen=0, stands=0), "sh (7)")


def test_stopped_processes_stand_again_when_all_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    made = all_images([])
    made.all = [image(pid) for pid in (1, 2, 3)]
    made.area.thaw = lambda: did.append("thaw")
    monkeypatch.setattr(tree, "lib", SimpleNamespace(
        mm_memory_write=lambda area, slots, count: did.append(f"write {[*slots]}"),
        mm_memory_go=lambda area, slots, count: did.append(f"go {[*slots]}")))
    for slot, each in enumerate(made.all):
        each.slot = slot
    for each in made.all[:2]:
        each.stopped = SimpleNamespace(leave=lambda is_held: did.append("stand"))
    made.go()
    assert did == ["go [2, 0, 1]", "thaw", "stand", "stand", "write [0, 1, 2]"]


def test_a_child_that_has_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    made = all_images([])
    made._processes = list
    made.area.head.tree = SimpleNamespace(signals=0, claimed=images.ffi.new("uint64_t[]", 1))
    monkeypatch.setattr(family, "strangers", lambda _: [(image(0), 0)])
    with pytest.raises(tree.NotYet, match=r"\? \(0\) has a child that is not tracked: \? \(0\)"):
        made.hold()


@pytest.mark.parametrize(("result", "said"), [
    (errno.ESRCH, "a process of the program has just ended"),
    (errno.EINPROGRESS, r"\? \(0\) is becoming another program, or cannot be tracked"),
    (errno.EAGAIN, r"a thread of \? \(0\) does not stop: no checkpoint was taken"),
    (errno.E2BIG, r"the memory of \? \(0\) cannot be saved: Argument list too long"),
])
def test_a_process_that_is_not_stopped(result: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "lib", SimpleNamespace(mm_memory_held=lambda *_: -result))
    with pytest.raises(MetamoriError, match=said):
        image(0).hold()


def test_a_disk_without_room_for_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "lib", SimpleNamespace(mm_memory_wait=lambda *_: -errno.ENOSPC))
    monkeypatch.setattr(images, "_reap", lambda pid: None)
    with pytest.raises(OSError, match="the program's memory could not be written: No space left on device"):
        image(1).written()


def test_tracking_of_changes_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAMORI_MEMORY_CHANGES", "off")
    assert images.all_of_it() == "it is switched off (METAMORI_MEMORY_CHANGES)"


@pytest.mark.parametrize(("result", "said"), [
    (lib.MM_NO_PLACES, "a process is not allowed to say where its heap and stack lie (the kernel lacks "
                       "CONFIG_CHECKPOINT_RESTORE, or a container's filter)"),
    (lib.MM_NO_MOVE, "a process is not allowed to move the kernel's pages (CONFIG_MSEAL_SYSTEM_MAPPINGS, or a "
                     "container's filter)"),
])
def test_a_kernel_that_forbids_the_return(result: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "lib", SimpleNamespace(mm_refused_on_return=lambda *_: result))
    assert images.no_return() == said


def test_a_program_with_two_users() -> None:
    with pytest.raises(Refused, match="the program runs under a user that is not its own"):
        proc_inspect.owner(SimpleNamespace(users=[b"0", b"1", b"0"], groups=[b"0"] * 3))  # type: ignore[arg-type]


def test_a_pipe_that_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"on its way")
    monkeypatch.setattr(open_files, "lib", SimpleNamespace(mm_tee=lambda *_: -1, mm_pipe_holds=lib.mm_pipe_holds))
    with pytest.raises(Refused, match=f"descriptor {reader}: what is in the pipe cannot be copied"):
        open_files._in_pipe(SimpleNamespace(link=b"/proc/self/fd/%d" % reader, fd=reader))  # type: ignore[arg-type]
    os.close(reader)
    os.close(writer)


def test_a_pipe_whose_other_end_is_outside() -> None:
    reader, writer = os.pipe()
    this = opened(reader)
    with pytest.raises(Refused, match=f"descriptor {reader} is a pipe to another process"):
        open_files._pipe(this, run_of(this))
    os.close(writer)
    assert open_files._pipe(this, run_of(this)).kind == "pipe"   # at its end
    os.close(reader)


def test_terminals_that_cannot_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    this = opened(master)
    assert terminals.look(this).startswith(b"master ")
    os.write(slave, b"to be read\n")
    with pytest.raises(NotBegun, match=f"descriptor {master} is a terminal of the run's own that holds unread bytes"):
        terminals.look(this)
    os.read(master, 100)
    monkeypatch.setattr(terminals, "_MOST_TYPED", 3)
    os.write(master, b"long")
    assert os.read(master, 100) == b"long"                     # as the terminal shows it
    with pytest.raises(Refused, match=f"descriptor {master} is a terminal that holds more than 3 bytes unread"):
        terminals.look(this)
    monkeypatch.setattr(proc_inspect, "lib", SimpleNamespace(mm_take_descriptor=lambda *_: -errno.EPERM))
    with pytest.raises(Refused, match=r"is a terminal that cannot be looked at \(Operation not permitted\)"):
        terminals.look(this)
    os.close(master)
    os.close(slave)


def test_a_process_that_cannot_be_tracked() -> None:
    made = image(7)
    made.area.process = lambda slot: SimpleNamespace(outside=1)
    with pytest.raises(Refused, match=r"\(7\) has become a program that cannot be tracked"):
        made.require_ready()


def test_leaders_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "lib", SimpleNamespace(mm_known_number=lambda _, number: number))
    made = area([7])
    made.head.supervisor = os.getpid()
    first, orphan = FamilyEntry(5, 0, 5, 0), FamilyEntry(7, 0, 8, 9)
    assert family._gone(made, [first, orphan], []) == [FamilyEntry(9, 0, 9, 9, -2), FamilyEntry(8, 7, 8, 9, -2)]
    assert family._gone(made, [first, FamilyEntry(7, 5, 7, 9)], [])[0] == FamilyEntry(9, 5, 9, 9, -2)  # 5 takes orphans
    with pytest.raises(Refused, match="process 5 is in a session whose leader has gone"):
        family._gone(made, [FamilyEntry(5, 0, 5, 9)], [])


def test_a_connection_that_holds_more_than_can_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_MOST_WAITING", 1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as this:
        other, _ = server.accept()
        other.sendall(b"two")
        wait_until(lambda: sockets.unread.to_read(this) == 3, "they come")
        with pytest.raises(sockets._Cannot) as error:
            sockets._connection(sockets._seen(this, os.getpid(), sockets.Inside(frozenset())))
        assert error.value.found.why_not == "holds 3 bytes, more than can be given back"
        other.close()


def test_a_port_that_somebody_else_has(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tcp_restart, "_PATIENCE_S", 0)
    with socket.socket() as free, socket.create_server(("127.0.0.1", 0)) as taken:
        free.bind(("127.0.0.1", 0))
        here, there = (struct.pack("=H", 2) + struct.pack(">H", each.getsockname()[1]) + b"\x7f\0\0\1" + bytes(8)
                       for each in (free, taken))
    other = {"socket": ["2 1 0"], "address": [there.hex()], "to": [here.hex()], "server": ["0"]}
    with socket.create_server(("127.0.0.1", struct.unpack(">H", there[2:4])[0])):
        ends = tcp_restart.made([{**other, "address": [here.hex()], "to": [there.hex()], "server": ["1"]}, other])
    assert ends[0][1].getpeername() == ends[1][1].getsockname()
    for _, end in ends:
        end.close()
    said = capfd.readouterr().err
    assert re.search(r"is in use: the program's connection from there to \S+ has another port now", said)
    with socket.create_server(("127.0.0.1", struct.unpack(">H", here[2:4])[0])):     # now the one that accepted
        made = tcp_restart.made([{**other, "address": [here.hex()], "to": [there.hex()], "server": ["1"]}])
    one, two = (end for _, end in made)
    assert one.getpeername() == two.getsockname()
    assert one.getsockname()[1] != struct.unpack(">H", here[2:4])[0]
    one.close(), two.close()


def test_a_socket_of_another_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "readlink", lambda path: path)
    with socket.socket() as this:
        found = sockets._look(this, os.getpid(), sockets.Inside(frozenset()))
    assert found.why_not == "belongs to another network namespace"


def test_a_socket_that_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sockets.Found(what="a socket", why_not="cannot be looked at (Operation not permitted)")
    monkeypatch.setattr(sockets, "look", lambda *_: found)
    with pytest.raises(Refused, match="descriptor 5 is a socket, which cannot be looked at"):
        open_files._socket(SimpleNamespace(pid=1, fd=5), open_files.Run(0))  # type: ignore[arg-type]


def test_a_connection_without_a_name() -> None:
    """Its other end has reset it: there is nobody to name any more."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as this:
        other, _ = server.accept()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        wait_until(lambda: select.select([this], [], [], 0)[0] != [], "the reset comes")
        found = sockets._look(this, os.getpid(), sockets.Inside(frozenset()))
    assert (found.leads_out, found.what) == (True, "a socket with a connection")


def test_room_that_is_missing_for_something_else(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """How much a run needs to begin is no answer when what came before it did not fit."""
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("metamori.cli.resume.files_back", full)
    assert main.main(["run", "--store", str(tmp_path / "store"), "--resume", "--", "true"]) == 125
    said = capfd.readouterr().err
    assert "cannot be used: No space left on device" in said and "to begin" not in said


@pytest.mark.parametrize(("name", "said"), [
    ("/etc/nowhere", "metamori: /etc/nowhere: Permission denied\n"),
    ("store/head", "metamori: the store {} cannot be used: Permission denied\n")])
def test_a_file_that_is_not_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capfd: pytest.CaptureFixture[str], name: str, said: str) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), os.path.join(tmp_path, name))

    store = str(tmp_path / "store")
    monkeypatch.setattr("metamori.cli.resume.files_back", fails)
    assert main.main(["run", "--store", store, "--resume", "--", "true"]) == 125
    assert capfd.readouterr().err == said.format(store)


def test_an_index_that_no_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cut to 32 bits: another checkpoint."""
    monkeypatch.setattr("metamori.runtime.inside.client._call", lambda *_: 0)
    with pytest.raises(OSError, match="Invalid argument"):
        metamori.restore(2 ** 32 + 1)
    with pytest.raises(OSError, match="Invalid argument"):
        metamori.checkpoint("a\0b")


def test_a_call_outside_of_a_run() -> None:
    with pytest.raises(OSError, match="this program does not run under metamori"):
        metamori.checkpoint()


def test_a_process_that_is_not_of_the_run() -> None:
    session: Any = SimpleNamespace(area=area([7]))
    with pytest.raises(rollback.NotThere, match="this process is not part of the run"):
        rollback._process_slot(session, os.getpid())
    with pytest.raises(sole_process.OthersAlive, match="other processes of the run are alive"):
        sole_process.require_alone(area([7]), os.getpid())
    forked = area([])                      # by one that has ended, and has not begun
    forked.has_unborn = lambda: True
    with pytest.raises(sole_process.OthersAlive, match="other processes of the run are alive"):
        sole_process.require_alone(forked, os.getpid())


def test_a_present_state_that_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(reason: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("metamori.runtime.checkpoint.auto_prune.recover", lambda *_: None)
    session: Any = SimpleNamespace(store=None, durable=False, take_now=full)
    with pytest.raises(MetamoriError, match="nothing was restored: the present state could not be saved: No space"):
        live_rollback._record(session)


def test_a_file_whose_bytes_nobody_has() -> None:
    watch: Any = object.__new__(store_removed.Watch)
    watch._area = area([])
    watch._area.pif_path = lambda p: b"/nowhere/file"
    with pytest.raises(FileNotFoundError, match="no file has these bytes"):
        watch._home(SimpleNamespace(dev=1, ino=2))


def live(**more: Any) -> Any:
    """A run's controller without a run."""
    made = object.__new__(run_controller.Live)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_term_that_nobody_could_take(capfd: pytest.CaptureFixture[str]) -> None:
    head = SimpleNamespace(tree=SimpleNamespace(term=lib.MM_TERM_WAITS))
    live(config=SimpleNamespace(on_term=True), _term_answered=False,
         session=SimpleNamespace(area=SimpleNamespace(head=head)))._say_of_term(0)
    assert "no checkpoint was taken at SIGTERM: the program has ended" in capfd.readouterr().err


def test_a_rollback_to_what_has_no_memory() -> None:
    store = SimpleNamespace(refresh=lambda: None, require_restorable=lambda index: None,
                            meta=lambda index: SimpleNamespace(memory=()))
    with pytest.raises(rollback.NotThere, match="checkpoint 3 does not hold the program's memory"):
        live(session=SimpleNamespace(store=store))._roll_back(3)


def test_what_can_be_continued_after_a_kill(capfd: pytest.CaptureFixture[str]) -> None:
    """By words for a shell."""
    store = SimpleNamespace(path="/a store", history=SimpleNamespace(indexes=[0, 1, 2]), indexes=[0, 1, 2],
                            refresh=lambda: None, meta=lambda index: SimpleNamespace(memory=(1,)))
    live(session=SimpleNamespace(store=store), config=SimpleNamespace(memory=True))._say_what_is_left("killed")
    said = capfd.readouterr().err
    assert "can be restored to checkpoints 0 to 2: metamori restore --store '/a store' INDEX" in said
    assert "the program can continue from checkpoint 2: metamori restart --store '/a store' 2" in said


def test_a_program_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ended for a rollback; only whoever watches the run is left to be told."""
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(1)
    for module, name in (("process_restart", "check"), ("process_restart", "check_free"), ("end_run", "finish"),
                         ("end_run", "close")):
        monkeypatch.setattr(f"metamori.runtime.lifecycle.{module}.{name}", lambda *_, **__: None)
    monkeypatch.setattr(sockets, "reset_at_end", lambda pid: None)
    monkeypatch.setattr(run_controller, "start_again", fails)
    store = SimpleNamespace(refresh=lambda: None, require_restorable=lambda index: None,
                            meta=lambda index: SimpleNamespace(memory=(1,)))
    head = SimpleNamespace(first_index=1, tree=SimpleNamespace(term=0))
    area_of_it = SimpleNamespace(head=head, pids=list, is_peopled=bool)
    made = live(session=SimpleNamespace(store=store, area=area_of_it), pid=pid, config=None, environ={},
                _store_watch=SimpleNamespace(close=lambda: None))
    with pytest.raises(run_controller.NobodyLeft, match=r"the run has ended: its program could not continue from "
                                                        r"checkpoint 3: .*Cannot allocate memory"):
        made._roll_back(3)


def test_an_end_that_cannot_be_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                        monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(end_run, "finish", full)
    monkeypatch.setattr(recover, "finish", full)
    assert main.main(["run", "--store", str(tmp_path / "store"), "--", "true"]) == 125
    said = capfd.readouterr().err
    assert "the run's end could not be recorded: No space left on device; 'metamori log' completes it" in said
    assert main.main(["log", "--store", str(tmp_path / "store")]) == 1
    said = capfd.readouterr().err
    assert f"the end of the last run in {tmp_path}/store could not be recorded: No space left on device" in said


def test_a_run_left_in_numbers_that_nothing_can_have(lab: Lab, capfd: pytest.CaptureFixture[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    session = lab.start()
    session.must(["open f w,creat", "write 3 10 1"])
    wait_until(lambda: "a run is alive" in lab.verb("verify").stderr, "verify says that a run is alive")
    session.kill_all()

    def finish(*_: Any, **__: Any) -> int:
        raise ValueError("a length below 0")

    monkeypatch.setattr(recover, "finish", finish)
    assert main.main(["log", "--store", str(lab.store)]) == 12
    assert f"what the last run left in {lab.store}/run makes no sense: a length below 0" in capfd.readouterr().err


def test_a_key_of_system_v_that_somebody_else_has() -> None:
    key = os.getpid() | 0x4d000000
    real = sysv_restart.lib.mm_sysv_get(sysv.SEMAPHORES, key, 2, 0o3600)
    assert real >= 0
    try:
        with pytest.raises(sysv_restart.KeyTaken, match="is there and in use, or is not the program's own"):
            sysv_restart.check([SegmentEntry(sysv.SEMAPHORES, 0, 1, b"%d 7" % key)])
    finally:
        ctypes.CDLL(None).semctl(real, 0, 0)           # IPC_RMID
    sysv_restart.check([SegmentEntry(sysv.SEMAPHORES, 0, 1, b"%d 7" % key)])


def test_shared_memory_of_which_the_run_does_not_know() -> None:
    nobody = SimpleNamespace(head=SimpleNamespace(tree=SimpleNamespace(sysv_lost=0, sysv=[])))
    with pytest.raises(Refused, match="System V shared memory of which the run does not know: number 5"):
        sysv.found(nobody, (), {5: []})  # type: ignore[arg-type]


def test_a_member_in_another_ipc_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "readlink", lambda path: str(path))
    with pytest.raises(Refused, match="is in another IPC namespace"):
        sysv.require_own([os.getpid()])


@pytest.mark.skipif(os.getuid() != 0, reason="only root may have another group")
def test_a_program_whose_rights_are_not_those_of_its_user() -> None:
    text = "import os; os.setegid(65534); from metamori.runtime.lifecycle import elf; print(elf.look('/bin/true').why)"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "real and effective user or group differ" in done.stdout
