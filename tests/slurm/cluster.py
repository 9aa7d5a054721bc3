"""A whole Slurm in one folder, on the loopback device, or with machines of its own (tests/job/machines.py): munged,
slurmctld, slurmd in the foreground, nothing in /etc."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from machines import NET, Machine

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "squeue", "sinfo", "scancel")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
SBIN = "/usr/sbin:/sbin"
CONFIG = r"""
ClusterName=metamori
SlurmctldHost={host}({address})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={port}
SrunPortRange={port_low}-{port_high}
{communication}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=0,sched_interval=1,requeue_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout={silent}
KillWait=5
MailProg=/bin/true
SwitchType=switch/none
NodeName={nodes} NodeHostname={hosts} NodeAddr={addresses} Port={ports} CPUs={cpus} \
  CoresPerSocket={cpus} RealMemory=1000 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=p Nodes={nodes} Default=YES MaxTime=60 State=UP OverTimeLimit=0 PriorityTier=2
PartitionName=scavenge Nodes={nodes} MaxTime=60 State=UP OverTimeLimit=0 PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
"""


def missing() -> str:
    """What is not installed, or ""."""
    path = os.environ["PATH"] + ":" + SBIN
    return ", ".join(name for name in NEEDED if shutil.which(name, path=path) is None)


def wait_for(condition, what: str, seconds: float = 120):  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(0.1)
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _proc(pid: int, name: str) -> str:
    """Of a process that may be gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


class Cluster:
    """Up when made; `down` ends what was started, jobs first. Of one node, or of several, all on this machine."""

    def __init__(self, folder: Path, count: int = 1, silent: int = 300, machines: Sequence[Machine] = ()) -> None:
        """silent: seconds until a node that says nothing is taken for down. machines: the first is where jobs are
        submitted, the others are the nodes, and called so."""
        self.folder = folder
        self.hub = machines[0] if machines else None
        self.machines = {one.name: one for one in machines[1:]}
        host = self.hub.name if self.hub else socket.gethostname().split(".")[0]
        self.nodes = [f"n{number + 1}" for number in range(count)] if count > 1 else [host]
        (folder / "munge").mkdir(parents=True)
        for name in ("state", *(f"spool.{node}" for node in self.nodes)):
            (folder / name).mkdir()
        folder.chmod(0o755)
        (folder / "munge").chmod(0o755)
        key = folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        low = self._free_ports(24 + count)
        here = f"{NET}.1" if machines else "127.0.0.1"
        text = CONFIG.format(host=host, user=getpass.getuser(), folder=folder, cpus=os.cpu_count(), port=low,
                             silent=silent, nodes=",".join(self.nodes), hosts=",".join(self.machines) or host,
                             address=here, addresses=",".join(f"{NET}.{each}" for each in range(2, 2 + count))
                             if machines else here,
                             communication="" if machines else "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
                             ports=",".join(str(low + 24 + each) for each in range(count)),
                             port_low=low + 2, port_high=low + 22)
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "METAMORI"))}
        self.env = plain | {"SLURM_CONF": str(folder / "slurm.conf"),
                            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:{SBIN}"}
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.slurmd: dict[str, subprocess.Popen[bytes]] = {}
        self.hastened: set[tuple[str, ...]] = set()
        try:
            self._start()
        except BaseException:
            self.down()
            raise

    @staticmethod
    def _free_ports(count: int) -> int:
        """The first of a row of ports that nobody has just now."""
        for low in range(26000, 32000, count):
            try:
                for port in range(low, low + count):
                    with socket.socket() as each:
                        each.bind(("127.0.0.1", port))
                return low
            except OSError:
                continue
        raise AssertionError("no free ports on 127.0.0.1")

    def _start(self) -> None:
        munge = self.folder / "munge"
        self._daemon("munged", "-F", "-f", f"--key-file={munge}/key", f"--socket={munge}/socket",
                     f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        wait_for((munge / "socket").exists, "munged")
        self._daemon("slurmctld", "-D", "-c")
        for node in self.nodes:
            self.start_node(node)
        wait_for(lambda: self.states() == ["idle"] * len(self.nodes), "idle nodes")

    def states(self) -> list[str]:
        return self.ask("sinfo", "-h", "-N", "-p", "p", "-o", "%T", check=False).split()

    def start_node(self, node: str) -> None:
        self.slurmd[node] = self._daemon("slurmd", "-D", "-c", *(("-N", node) if len(self.nodes) > 1 else ()),
                                         on=self.machines.get(node))

    def kill_node(self, node: str) -> None:
        """With all that runs on it, as when its power fails."""
        self.daemons.remove(self.slurmd[node])
        if node in self.machines:
            self.machines[node].fail()
            self.slurmd[node].wait()
            return
        self.slurmd[node].kill()
        self.slurmd[node].wait()
        tasks = {pid for pid in _pids() if f"\0SLURMD_NODENAME={node}\0" in "\0" + _proc(pid, "environ") + "\0"}
        for pid in tasks | {int(_proc(each, "stat").rpartition(")")[2].split()[1] or 0) for each in tasks
                            if _proc(each, "stat")}:
            if pid in tasks or _proc(pid, "comm").startswith("slurmstepd"):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def _daemon(self, *command: str, on: Machine | None = None) -> subprocess.Popen[bytes]:
        machine = on or self.hub
        with open(self.folder / f"{command[0]}.{len(self.daemons)}.out", "wb") as out:
            self.daemons.append(subprocess.Popen([*(machine.enter if machine else ()), *command],
                                                 env=self.env | (machine.env if machine else {}),
                                                 stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT))
        return self.daemons[-1]

    def ask(self, *command: str, cwd: Path | None = None, check: bool = True, **variables: str) -> str:
        there = [*self.hub.enter, "env", "-C", str(cwd or self.folder)] if self.hub else ()
        done = subprocess.run([*there, *command], env=self.env | variables, cwd=cwd, capture_output=True, text=True,
                              timeout=120, check=False)
        assert not check or done.returncode == 0, (command, done.stderr)
        return done.stdout

    def field(self, job: str, name: str) -> list[str]:
        """What the controller says of a job, or of each task of an array."""
        words = self.ask("scontrol", "show", "job", "-o", job, check=False).split()
        return [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]

    def is_running(self, job: str) -> bool:
        return self.field(job, "JobState") == ["RUNNING"]

    def is_over(self, job: str) -> bool:
        """Ended for good; a task that waits is told not to."""
        states = self.field(job, "JobState")
        if "PENDING" in states:
            self.soon(job)
        return bool(states) and all(state in ENDED for state in states)

    def soon(self, job: str) -> None:
        """A job that was queued again waits for its credentials to expire: not here, where two seconds do.

        Not less: slurmd takes credentials of the second in which the old ones were revoked for revoked too ("already
        killed, do not launch"), and the job is lost.
        """
        which = (job, *self.field(job, "Restarts"))
        if which not in self.hastened:     # asked again and again it would never come
            self.hastened.add(which)
            self.ask("scontrol", "update", f"JobId={job}", "StartTime=now+2seconds", check=False)

    def down(self) -> None:
        if len(self.daemons) > 1:
            self.ask("scancel", "--user", getpass.getuser(), check=False)
            try:
                wait_for(lambda: not self.ask("squeue", "-h", check=False).strip(), "an empty queue", 30)
            except AssertionError:
                pass
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
