"""What a run says when something beside it fails: the function that says it, with the failure put in."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import Lab, wait_until

import metamori
from metamori._area import lib
from metamori.cli import main
from metamori.errors import MetamoriError
from metamori.runtime.lifecycle import end_run, recover, run_controller, store_removed
from metamori.runtime.memory import images, proc_inspect, sockets
from metamori.runtime.memory.proc_inspect import Refused
from metamori.runtime.rollback import live_rollback, rollback, sole_process


def area(pids: list[int], high: int = 2) -> Any:
    """With processes of these numbers."""
    return SimpleNamespace(
        processes=lambda: range(1, len(pids) + 1), process=lambda slot: SimpleNamespace(pid=pids[slot - 1]),
        pids=lambda but: pids, head=SimpleNamespace(process_high=high), pointer=None)


def image(pids: list[int]) -> Any:
    made = object.__new__(images.Image)
    made.area, made.memory = area(pids), SimpleNamespace(writer=0, message=images.ffi.new("char[8]"))
    return made


def test_a_run_without_its_process() -> None:
    with pytest.raises(Refused, match="the run's process has ended, or cannot be tracked"):
        image([])._one_process()


def test_a_child_that_is_not_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_inspect, "children", lambda *_: [os.getpid()])
    with pytest.raises(Refused, match=rf"the program has live children: .*{os.getpid()}"):
        image([os.getpid()])._one_process()


def test_a_program_that_ends_while_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    made = image([1])
    made.slot, made.pid = 1, os.getpid()
    made.area.process = lambda slot: SimpleNamespace(outside=0, executing=0)
    monkeypatch.setattr(proc_inspect, "catches", lambda *_: True)
    monkeypatch.setattr(images, "lib", SimpleNamespace(mm_memory_stop=lambda *_: -errno.ESRCH))
    with pytest.raises(Refused, match="the program has ended"):
        made.stop()


def test_a_disk_without_room_for_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "lib", SimpleNamespace(mm_memory_wait=lambda *_: -errno.ENOSPC))
    monkeypatch.setattr(images, "_reap", lambda pid: None)
    with pytest.raises(OSError, match="the program's memory could not be written: No space left on device"):
        image([1]).written()


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


def test_a_program_with_two_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_inspect, "_status", lambda pid, field: b"0 1 0 0")
    with pytest.raises(Refused, match="the program runs under a user that is not its own"):
        proc_inspect.owner(1)


def test_a_pipe_that_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"on its way")
    monkeypatch.setattr(proc_inspect, "lib", SimpleNamespace(mm_tee=lambda *_: -1))
    with pytest.raises(Refused, match=f"descriptor {reader}: what is in the pipe cannot be copied"):
        proc_inspect._in_pipe(SimpleNamespace(link=f"/proc/self/fd/{reader}", fd=reader))  # type: ignore[arg-type]
    os.close(reader)
    os.close(writer)


def test_a_socket_of_another_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "readlink", lambda path: path)
    with socket.socket() as this:
        assert sockets._look(this, os.getpid(), ()).why_not == "belongs to another network namespace"


def test_a_socket_that_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sockets.Found(what="a socket", why_not="cannot be looked at (Operation not permitted)")
    monkeypatch.setattr(sockets, "look", lambda *_: found)
    with pytest.raises(Refused, match="descriptor 5 is a socket, which cannot be looked at"):
        proc_inspect._socket(SimpleNamespace(pid=1, fd=5), set(), "refuse")  # type: ignore[arg-type]


def test_a_connection_without_a_name() -> None:
    """Its other end has reset it: there is nobody to name any more."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as this:
        other, _ = server.accept()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        wait_until(lambda: select.select([this], [], [], 0)[0] != [], "the reset comes")
        found = sockets._look(this, os.getpid(), ())
    assert (found.leads_out, found.what) == (True, "a socket with a connection")


def test_a_call_outside_of_a_run() -> None:
    with pytest.raises(OSError, match="this program does not run under metamori"):
        metamori.checkpoint()


def test_a_process_that_is_not_of_the_run() -> None:
    session: Any = SimpleNamespace(area=area([7]))
    with pytest.raises(rollback.NotThere, match="this process is not part of the run"):
        rollback._process_number(session, os.getpid())
    with pytest.raises(sole_process.OthersAlive, match="other processes of the run are alive"):
        sole_process.require_alone(area([7]), os.getpid())


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
    head = SimpleNamespace(memory=SimpleNamespace(term=lib.MM_TERM_WAITS))
    live(config=SimpleNamespace(on_term=True), _term_answered=False,
         session=SimpleNamespace(area=SimpleNamespace(head=head)))._say_of_term(0)
    assert "no checkpoint was taken at SIGTERM: the program has ended" in capfd.readouterr().err


def test_a_rollback_to_what_has_no_memory() -> None:
    store = SimpleNamespace(refresh=lambda: None, require_restorable=lambda index: None,
                            meta=lambda index: SimpleNamespace(memory=()))
    with pytest.raises(rollback.NotThere, match="checkpoint 3 does not hold the program's memory"):
        live(session=SimpleNamespace(store=store))._roll_back(3)


def test_what_can_be_continued_after_a_kill(capfd: pytest.CaptureFixture[str]) -> None:
    store = SimpleNamespace(path="/store", history=SimpleNamespace(indexes=[0, 1, 2]),
                            meta=lambda index: SimpleNamespace(memory=(1,)))
    live(session=SimpleNamespace(store=store), config=SimpleNamespace(memory=True))._say_what_is_left("killed", 2)
    assert "the program can continue from checkpoint 2: metamori restart --store /store 2" in capfd.readouterr().err


def test_a_program_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ended for a rollback; only whoever watches the run is left to be told."""
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(1)
    for module, name in (("process_restart", "check"), ("end_run", "finish"), ("end_run", "close")):
        monkeypatch.setattr(f"metamori.runtime.lifecycle.{module}.{name}", lambda *_, **__: None)
    monkeypatch.setattr(sockets, "reset_at_end", lambda pid: None)
    monkeypatch.setattr(run_controller, "start_again", fails)
    store = SimpleNamespace(refresh=lambda: None, require_restorable=lambda index: None,
                            meta=lambda index: SimpleNamespace(memory=(1,)))
    head = SimpleNamespace(first_index=1, memory=SimpleNamespace(term=0))
    made = live(session=SimpleNamespace(store=store, area=SimpleNamespace(head=head)), pid=pid, config=None,
                environ={}, _store_watch=SimpleNamespace(close=lambda: None))
    with pytest.raises(run_controller.NobodyLeft, match=r"the run has ended: its program could not continue from "
                                                        r"checkpoint 3: .*Cannot allocate memory"):
        made._roll_back(3)


def test_an_end_that_cannot_be_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                        monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(end_run, "finish", full)
    assert main.main(["run", "--store", str(tmp_path / "store"), "--", "true"]) == 125
    said = capfd.readouterr().err
    assert "the run's end could not be recorded: " in said and "'metamori log' completes it" in said


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
