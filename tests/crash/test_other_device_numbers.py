"""Disks that have other numbers than a run, a head or an intent has noted: another mount, another start of the machine,
two disks found in another order. Nothing is lost by that. Needs root, as mounting does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import own_mounts
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "store"))

from conftest import Compile
from honest import told, verb
from lab import Lab, Tree, gone, picture, wait_until
from rewind import another_boot
from test_move_faults import FailingDoor, Killed
from test_power_cut_on_devices import do

from metamori.cli import progress
from metamori.runtime.area.run_area import Area

LARGE = 300_000                            # no copy of such a file is kept
BEFORE = [f"open old rw,creat; write 3 {LARGE} 1; close 3; open gone w,creat; write 3 90000 2; close 3; mkdir d",
          "open d/in w,creat; write 3 100000 3; close 3; symlink old l"]
FIRST = ["open old rw; pwrite 3 9000 4096 4; unlink gone; open new w,creat; write 4 80000 5; rename d e"]
SECOND = ["pwrite 3 5000 200000 6; rename new moved; open e/in rw; pwrite 5 4096 8192 7; mkdir f; unlink l"]
ALONE = ["open old rw; pwrite 3 20000 4096 4", "pwrite 3 5000 200000 6; ftruncate 3 250000"]


class Disk:
    def __init__(self, folder: Path) -> None:
        self.image, self.at = folder / "image", folder / "disk"
        self.at.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(32 << 20)
        do("mkfs.ext4", "-q", "-F", self.image)
        self.device = do("losetup", "-f", "--show", self.image)
        do("mount", self.device, self.at)

    def is_attached(self) -> bool:
        try:
            held = Path("/sys/block", Path(self.device).name, "loop/backing_file").read_text()
        except FileNotFoundError:
            return False
        return held.strip() == str(self.image)     # else the device is another test's already

    def close(self) -> None:
        subprocess.run(["umount", str(self.at)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", self.device], check=False, capture_output=True)


def elsewhere_than(disk: Disk) -> str:
    """A device of the disk's image that is not the one it was on: that has something else meanwhile."""
    other = disk.image.with_name("other")
    other.write_bytes(bytes(1 << 20))
    taken = subprocess.run(["losetup", disk.device, str(other)], check=False, capture_output=True)
    try:
        return do("losetup", "-f", "--show", disk.image)
    finally:
        if taken.returncode == 0:
            do("losetup", "-d", disk.device)


class Machine:
    """A laboratory on disks of its own: of one, or with the store on a second one."""

    def __init__(self, disks: list[Disk], driver: Path) -> None:
        self.disks, folder = disks, disks[0].at / "lab"
        folder.mkdir()
        self.lab = Lab(folder, driver)
        self.lab.store = disks[-1].at / "store"
        self.states: list[Tree] = []
        self.play(BEFORE)
        self.note()

    def play(self, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for each in lines for line in each.split("; "))
        subprocess.run([str(self.lab.driver)], input=text.encode(), cwd=self.lab.work, check=True, stdout=-3)

    def note(self) -> None:
        self.states.append(self.lab.state())

    def mount_anew(self) -> None:
        """Of two disks each gets the other one's number."""
        before = [os.stat(disk.at).st_dev for disk in self.disks]
        for disk in self.disks:
            wait_until(lambda at=disk.at: subprocess.run(  # type: ignore[misc]
                ["umount", str(at)], capture_output=True, check=False).returncode == 0, "a disk can be unmounted")
        for disk in self.disks:
            do("losetup", "-d", disk.device)
        for disk in self.disks:            # else it is a power cut: somebody else still has it mounted
            wait_until(lambda disk=disk: not disk.is_attached(), "a disk is let go of")  # type: ignore[misc]
        if len(self.disks) == 1:
            self.disks[0].device = elsewhere_than(self.disks[0])
        else:
            for disk, device in zip(self.disks, [disk.device for disk in self.disks[::-1]], strict=True):
                wait_until(lambda d=device, i=disk.image: subprocess.run(  # type: ignore[misc]
                    ["losetup", d, str(i)], capture_output=True, check=False).returncode == 0, "a device is let go of")
                disk.device = device
        for disk in self.disks:
            do("mount", disk.device, disk.at)
        now = [os.stat(disk.at).st_dev for disk in self.disks]
        assert now != before and (len(now) == 1 or now == before[::-1])

    def check(self, present: int) -> None:
        """Every index, after another mount before each restore; the files are at the given one."""
        self.lab.assert_state(self.states[present], "present")
        said = told(self.lab.store)
        assert (said.lost, said.problems) == (set(), [])
        assert said.listed == set(range(len(self.states)))
        for index in [*range(len(self.states)), present]:
            self.lab.restore(index)
            self.lab.assert_state(self.states[index], f"checkpoint {index}")
            self.mount_anew()
            assert told(self.lab.store).lost == set()


@pytest.fixture(params=["one", "exchanged"])
def machine(tmp_path: Path, compiled: Compile, installed: None, request: pytest.FixtureRequest) -> Iterator[Machine]:
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    with ExitStack() as stack:
        disks = []
        for nth in range(1 if request.param == "one" else 2):
            disks.append(Disk(tmp_path / str(nth)))
            stack.callback(disks[-1].close)
        found = Machine(disks, compiled("driver"))
        stack.callback(found.lab.close)
        yield found


def ran(machine: Machine, *parts: list[str], options: tuple[str, ...] = ()) -> None:
    """A run with a checkpoint after each part but the last."""
    session = machine.lab.start(*options)
    for nth, lines in enumerate(parts):
        session.must([line for each in lines for line in each.split("; ")])
        if nth + 1 < len(parts):
            assert int(session.ask("checkpoint")) == len(machine.states)
            machine.states.append(as_seen(machine, parts[:nth + 1]))
    assert session.end() == 0
    machine.note()


def as_seen(machine: Machine, parts: tuple[list[str], ...]) -> Tree:
    """What the same lines make of the files natively."""
    native = machine.lab.folder / "native"
    native.mkdir()
    here, machine.lab.work = machine.lab.work, native
    try:
        machine.play([*BEFORE, *(line for lines in parts for line in lines)])
        return picture(native)
    finally:
        machine.lab.work = here
        subprocess.run(["rm", "-rf", str(native)], check=True)


def test_who_copies_the_mounts_of_all_holds_no_disk(machine: Machine) -> None:
    """Else what was not written yet is lost with each other mount, as by a power cut. Who waits here is none of our
    children, which would be waited for."""
    outside = ["nsenter", f"--mount=/proc/{os.getpid()}/fd/{own_mounts.BEFORE}", "unshare", "-m", "sleep", "600"]
    holder, disk = subprocess.Popen(outside, stderr=subprocess.DEVNULL), machine.disks[0].at
    try:
        wait_until(lambda: holder.poll() is not None or Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n",
                   "somebody has copied all mounts")
        if holder.poll() is not None:
            pytest.skip("mounts cannot be copied here")
        (disk / "probe").write_bytes(b"p" * 100_000)
        machine.mount_anew()
        assert (disk / "probe").read_bytes() == b"p" * 100_000
    finally:
        holder.kill()
        holder.wait()


def test_restores(machine: Machine) -> None:
    ran(machine, FIRST, SECOND)
    machine.mount_anew()
    machine.check(2)


def test_the_next_run(machine: Machine) -> None:
    """It records nothing of its own beginning, and knows the files as those of the indexes."""
    ran(machine, FIRST)
    machine.mount_anew()
    ran(machine, ["open old rw; pwrite 3 5000 200000 6; rename new moved; open e/in rw; pwrite 4 4096 8192 7"])
    machine.mount_anew()
    ran(machine, ["open moved rw; pwrite 3 500 100 8; ftruncate 3 70000; unlink l; rename e g"])
    assert set(machine.lab.messages()) == {0, 1, 2, 3}
    machine.mount_anew()
    machine.check(3)


@pytest.mark.in_turn("parts", "how")
@pytest.mark.parametrize("how", ["", "--durability=process", "--isolate", "power cut", "--isolate power cut"])
@pytest.mark.parametrize("parts", [(FIRST, SECOND), (ALONE[:1], ALONE[1:])], ids=["several", "alone"])
def test_a_killed_run(machine: Machine, how: str, parts: tuple[list[str], list[str]]) -> None:
    lab, cut = machine.lab, "power cut" in how
    session = lab.start(*(word for word in how.split() if word.startswith("--")))
    lines = [[line for each in part for line in each.split("; ")] for part in parts]
    session.must(lines[0])
    assert session.ask("checkpoint") == "1"
    session.must([*lines[1], *(["fsync 3", *["fsync 5"] * (parts[0] is FIRST)] if cut else [])])
    pid = session.program()
    session.kill_all()
    wait_until(lambda: gone(pid), "the program is gone")
    os.sync()
    if cut:
        another_boot(machine.disks[-1].at)
    machine.mount_anew()
    machine.states += [as_seen(machine, parts[:1]), as_seen(machine, parts)]
    assert lab.messages().keys() == {0, 1, 2}
    present = 0 if "--isolate" in how else 2
    machine.check(present)


@pytest.mark.slow                          # of a minute each
@pytest.mark.parametrize("how", ["", "--durability=process", "--isolate"])
def test_a_killed_completion(machine: Machine, how: str) -> None:
    """Of a killed run, stopped at some of its later operations; repeated, it finds numbers as they are already."""
    lab, played, present = machine.lab, [*FIRST, "close 3; close 4"], 1
    ran(machine, FIRST)
    stops = among = 0
    for nth in range(111, 300, 31):
        before = lab.state()
        lines = [f"open old rw; open moved rw,creat; pwrite 3 9000 4096 {nth}; write 4 80000 {nth}",
                 f"pwrite 3 5000 200000 {nth + 1}; pwrite 4 100 50000 {nth + 1}; rename moved new"]
        session = lab.start(*how.split())
        session.must(lines[0].split("; "))
        session.must(["checkpoint", *lines[1].split("; ")])
        pid = session.program()
        session.kill_all()
        wait_until(lambda pid=pid: gone(pid), "the program is gone")  # type: ignore[misc]
        machine.mount_anew()
        among += is_stopped_among_files(lab, nth % 3)
        stops += is_stopped(lab, nth)
        done = lab.verb("log", "--json")
        where = f"stopped at {nth}; {done.stderr}"
        last = max(each["index"] for each in json.loads(done.stdout)["checkpoints"])
        if how == "--isolate":
            lab.assert_state(before, f"present, {where}")
            lab.restore(last)
        lab.assert_state(as_seen(machine, ([*played, *lines],)), f"checkpoint {last}, {where}")
        lab.restore(present + 1)
        lab.assert_state(as_seen(machine, ([*played, lines[0]],)), f"checkpoint {present + 1}, {where}")
        lab.restore(last)
        assert (told(lab.store).lost, told(lab.store).problems) == (set(), [])
        played, present = [*played, *lines, "close 3; close 4"], last
    assert stops >= 3 and among >= 3


def is_stopped_among_files(lab: Lab, left: int) -> bool:
    """Whether a verb that completes was killed when so many of the run's files had their numbers of now."""
    if not (pid := os.fork()):
        real, named = Area.identify, list[int]()

        def identify(*values: Any) -> None:
            if len(named) == left:
                os._exit(9)
            named.append(1)
            real(*values)

        Area.identify = identify  # type: ignore[assignment, method-assign]
        try:
            verb(lab.store, "log")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def is_stopped(lab: Lab, nth: int) -> bool:
    """Whether a verb that completes has come to its nth operation, and was killed there."""
    pid = os.fork()
    if not pid:
        door = FailingDoor(nth, lambda: os._exit(9))  # type: ignore[arg-type, return-value]
        progress.door = lambda: door  # type: ignore[assignment, return-value]
        try:
            verb(lab.store, "log")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@pytest.mark.in_turn("target", 2)
@pytest.mark.parametrize("target", [0, 1])
def test_an_interrupted_restore(machine: Machine, monkeypatch: pytest.MonkeyPatch, target: int) -> None:
    """Stopped at some of its operations; what completes it finds the disks with other numbers."""
    ran(machine, FIRST, SECOND)
    lab, nth = machine.lab, 1
    while True:
        door = FailingDoor(nth, Killed)
        with monkeypatch.context() as patch:
            patch.setattr(progress, "door", lambda door=door: door)
            try:
                verb(lab.store, "restore", target)
            except Killed:
                pass
        for name in os.listdir("/proc/self/fd"):       # those of the process that would have ended
            if os.path.realpath(f"/proc/self/fd/{name}").startswith(str(machine.disks[-1].at)):
                os.close(int(name))
        machine.mount_anew()
        lab.restore(target)
        lab.assert_state(machine.states[target], f"stopped at {nth}")
        said = told(lab.store)
        assert (said.lost, said.problems) == (set(), []), nth
        lab.restore(2)
        lab.assert_state(machine.states[2], f"back, stopped at {nth}")
        if door.count < nth:
            break
        nth += 11
    assert nth > 40
