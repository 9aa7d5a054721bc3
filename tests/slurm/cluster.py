"""A whole Slurm in one folder, on the loopback device: munged, slurmctld, slurmd in the foreground, nothing in /etc."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "squeue", "sinfo", "scancel")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
SBIN = "/usr/sbin:/sbin"
CONFIG = """
ClusterName=metamori
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={port}
SlurmdPort={port_d}
SrunPortRange={port_low}-{port_high}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=0,sched_interval=1,requeue_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
MailProg=/bin/true
SwitchType=switch/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} CoresPerSocket={cpus} RealMemory=1000 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=p Nodes={host} Default=YES MaxTime=60 State=UP OverTimeLimit=0 PriorityTier=2
PartitionName=scavenge Nodes={host} MaxTime=60 State=UP OverTimeLimit=0 PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
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


class Cluster:
    """Up when made; `down` ends what was started, jobs first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "munge").mkdir(parents=True)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        folder.chmod(0o755)
        (folder / "munge").chmod(0o755)
        key = folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        low = self._free_ports(24)
        text = CONFIG.format(host=socket.gethostname().split(".")[0], user=getpass.getuser(), folder=folder,
                             cpus=os.cpu_count(), port=low, port_d=low + 1, port_low=low + 2, port_high=low + 22)
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "METAMORI"))}
        self.env = plain | {"SLURM_CONF": str(folder / "slurm.conf"),
                            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:{SBIN}"}
        self.daemons: list[subprocess.Popen[bytes]] = []
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
        self._daemon("slurmd", "-D", "-c")
        wait_for(lambda: self.ask("sinfo", "-h", "-o", "%T", check=False).strip() == "idle", "an idle node")

    def _daemon(self, *command: str) -> None:
        with open(self.folder / f"{command[0]}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=subprocess.STDOUT))

    def ask(self, *command: str, cwd: Path | None = None, check: bool = True, **variables: str) -> str:
        done = subprocess.run(command, env=self.env | variables, cwd=cwd, capture_output=True, text=True, timeout=120,
                              check=False)
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
