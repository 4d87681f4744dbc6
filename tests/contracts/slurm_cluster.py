"""A real Slurm cluster on this machine, with several slurmd processes, in a temporary directory."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pools.providers.commands import LocalCommands
from tests.journeys.installation import free_port, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
MACHINES = 4
GPUS = 2
CONFIGURATION = """
ClusterName=berth
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldLogFile={root}/log/slurmctld
SlurmdLogFile={root}/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
MailProg=/bin/true
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
MpiDefault=none
SwitchType=switch/none
KillWait=5
MessageTimeout=5
SlurmdTimeout=20
SlurmdParameters=config_overrides
{nodes}
PartitionName=gpu Nodes=n[0-{last}] Default=YES MaxTime=1-00:00:00 DefaultTime=8:00:00 State=UP
PartitionName=short Nodes=n[0-1] MaxTime=5 State=UP
PartitionName=debug Nodes=n[0-1] MaxTime=12:00:00 State=DOWN
"""


def missing_programs() -> list[str]:
    """Return the Slurm programs that are not installed. The fixture also needs to run as root."""
    missing = [
        name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    return missing or ([] if os.geteuid() == 0 else ["root"])


@dataclass
class SlurmCluster:
    """Machines n0 to n3 with two GPUs each, which the kernel does not know, and eight CPUs."""

    root: Path
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def env(self) -> Mapping[str, str]:
        home = self.root / "home"
        return {
            "PATH": f"{os.environ['PATH']}:/usr/sbin", "SLURM_CONF": str(self.root / "slurm.conf"),
            "HOME": str(home), "USER": "root", "LOGNAME": "root",
        }  # fmt: skip

    @property
    def commands(self) -> LocalCommands:
        return LocalCommands(self.env)

    def start(self) -> None:
        for name in ("munge", "state", "spool", "log", "home", "tmp"):
            (self.root / name).mkdir(mode=0o755)
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName=n{number} NodeAddr=127.0.0.1 NodeHostname={host} Port={free_port()} CPUs=8 "
            f"RealMemory=16000 Gres=gpu:l40s:{GPUS} Features=rack{number % 2} State=UNKNOWN"
            for number in range(MACHINES)
        )
        text = CONFIGURATION.format(
            host=host, root=self.root, port=free_port(), nodes=nodes, last=MACHINES - 1
        )
        (self.root / "slurm.conf").write_text(text)
        gres = f"NodeName=n[0-{MACHINES - 1}] Name=gpu Type=l40s File=/dev/tty[0-{GPUS - 1}]\n"
        (self.root / "gres.conf").write_text(gres)
        (self.root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        key = self.root / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        munge = self.root / "munge"
        self._start(
            "munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log",
        )  # fmt: skip
        until((munge / "socket").exists, 30)
        self.start_controller("-i")
        for number in range(MACHINES):
            self.start_machine(f"n{number}")
        until(
            lambda: self.run("sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D").strip() == str(MACHINES),
            60,
        )

    def start_controller(self, *options: str) -> None:
        self._start("slurmctld", "-D", *options)

    def stop_controller(self) -> None:
        self._stop("slurmctld")

    def start_machine(self, name: str) -> None:
        self._start("slurmd", "-D", "-N", name, key=name)

    def kill_machine(self, name: str) -> None:
        """Kill the daemon of a machine, as if the machine failed. Its jobs are lost."""
        self._stop(name, signal.SIGKILL)

    def run(self, *arguments: str) -> str:
        result = self.commands.run(arguments, seconds=60)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def queue(self) -> list[str]:
        """Return the names of the jobs that have not ended."""
        return self.run("squeue", "-h", "-o", "%j").split()

    def leftovers(self) -> list[str]:
        """Return the private directories and processes of pilot jobs, which should end with them."""
        directory = os.fsencode(self.root / "tmp" / "berth-")
        left = [path.name for path in (self.root / "tmp").glob("berth-*")]
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = entry.read_bytes()
                left += [command.decode()] if directory in command else []
        return left

    def command_lines(self) -> str:
        """Return the command lines of all processes, which other users can see."""
        lines = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return "\n".join(lines)

    def clear(self) -> None:
        """Cancel all jobs and wait until they have ended."""
        self.run("scancel", "--user=root")
        until(lambda: not self.queue(), 60)

    def stop(self) -> None:
        with contextlib.suppress(AssertionError):
            self.clear()
        for name in reversed(self.processes):
            self._stop(name, kills_after=20)

    def _start(self, program: str, *options: str, key: str = "") -> None:
        with (self.root / "log" / f"{key or program}.out").open("ab") as log:
            self.processes[key or program] = subprocess.Popen(
                [program, *options], env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def _stop(self, name: str, number: int = signal.SIGTERM, kills_after: float = 60) -> None:
        process = self.processes[name]
        process.send_signal(number)
        try:
            process.wait(kills_after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Run a cluster in a directory that all users may enter, which munged requires."""
    root = Path(tempfile.mkdtemp(prefix="berth-slurm-"))
    root.chmod(0o755)
    cluster = SlurmCluster(root)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)
