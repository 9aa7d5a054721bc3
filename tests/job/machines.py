"""Machines of their own on this one: each has a network, a host name, shared memory, a boot id and a clock, and folders
are everybody's. They need root.

Of one kernel they still are: so are process numbers, and locks of files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HUB, NAMES = "hub", ["n1", "n2"]
UNSHARE = ["unshare", "-n", "-u", "-m", "-i", "-T", "--monotonic"]
NET = "10.97.0"
BEGIN = r"""
set -e
mount -t tmpfs shm /dev/shm
mount --bind {folder}/boot /proc/sys/kernel/random/boot_id
mount --bind {folder}/../hosts /etc/hosts
hostname {name}
ip link set lo up
mkdir {folder}/tmp
echo up > {folder}/up
exec sleep infinity
"""


def missing() -> str:
    """Why there can be none here, or ""."""
    if os.getuid() != 0:
        return "machines of their own need root"
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return "unshare, nsenter or ip is not installed"
    done = subprocess.run([*UNSHARE, "1", "ip", "link", "add", "name", "x", "type", "bridge"],
                          capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


class Machine:
    """Namespaces, held by a process that sleeps."""

    def __init__(self, folder: Path, name: str, ahead: int) -> None:
        """ahead: seconds, its clock of this one's."""
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.new_boot()
        self.holder = subprocess.Popen([*UNSHARE, str(ahead), "sh", "-c",
                                        BEGIN.format(folder=self.folder, name=name)])
        while not (self.folder / "up").exists():
            assert self.holder.poll() is None, f"no machine {name}"
        self.enter = ["nsenter", "-t", str(self.holder.pid), "-n", "-u", "-m", "-i", "-T"]
        self.env = {"TMPDIR": str(self.folder / "tmp"), "HOSTNAME": name}

    def new_boot(self) -> None:
        """As if it had been started anew."""
        (self.folder / "boot").write_text(f"{uuid.uuid4()}\n")

    def do(self, *words: object) -> None:
        subprocess.run([*self.enter, *map(str, words)], check=True)

    def pids(self) -> list[int]:
        """What runs on it, but for the holder."""
        mine, found = os.readlink(f"/proc/{self.holder.pid}/ns/net"), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{name}/ns/net") == mine and int(name) != self.holder.pid:
                    found.append(int(name))
            except OSError:
                continue
        return found

    def fail(self) -> None:
        """As when its power fails: all its processes end at once."""
        while left := [pid for pid in self.pids() if _stopped(pid)]:
            for pid in left:
                _signal(pid, 9)
        self.new_boot()

    def end(self) -> None:
        self.fail()
        self.holder.kill()
        self.holder.wait()


def _stopped(pid: int) -> bool:
    """Whether there was something to stop: so that nobody sees another end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state not in "ZX" and _signal(pid, 19)


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def machines(folder: Path, names: Iterable[str]) -> Iterator[list[Machine]]:
    """The first is the hub, with a bridge on which the others are."""
    folder.mkdir(parents=True, exist_ok=True)
    all_names = [HUB, *names]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
        f"{NET}.{number} {name}\n" for number, name in enumerate(all_names, 1)))
    made: list[Machine] = []
    try:
        for number, name in enumerate(all_names):
            made.append(Machine(folder, name, 1000 * (len(all_names) - number)))
        hub = made[0]
        hub.do("ip", "link", "add", "name", "hub0", "type", "bridge")
        hub.do("ip", "address", "add", f"{NET}.1/24", "dev", "hub0")
        hub.do("ip", "link", "set", "hub0", "up")
        for number, one in enumerate(made[1:], 2):
            line = f"to-{one.name}"
            hub.do("ip", "link", "add", "name", line, "type", "veth", "peer", "name", "eth0", "netns", one.holder.pid)
            hub.do("ip", "link", "set", line, "master", "hub0", "up")
            one.do("ip", "address", "add", f"{NET}.{number}/24", "dev", "eth0")
            one.do("ip", "link", "set", "eth0", "up")
        yield made
    finally:
        for one in reversed(made):
            one.end()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    """The hub and two others."""
    if why := missing():
        pytest.skip(why)
    with machines(tmp_path_factory.mktemp("m"), NAMES) as made:
        yield made
