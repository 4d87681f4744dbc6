"""A real Slurm cluster on this machine: several slurmd processes in a temporary directory."""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pools.providers.commands import LocalCommands
from tests.journeys.installation import until
from tests.support.ports import free_port

PREFIX = "berth-slurm-"
# Root directory of a system with another version of Slurm. It shares /proc, /sys, /dev and /tmp.
SYSTEM = os.environ.get("BERTH_SLURM_ROOT", "")
ENTER = ("chroot", SYSTEM) if SYSTEM else ()
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CLIENTS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "sacctmgr")
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
ProctrackType=proctrack/{tracking}
TaskPlugin=task/{confinement}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
Licenses=matlab:4
MailProg=/bin/true
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
MpiDefault=none
KillWait=5
MessageTimeout=5
SlurmdTimeout=20
SlurmdParameters=config_overrides
{nodes}
PartitionName=gpu Nodes=n[0-{last}] Default=YES MaxTime=1-00:00:00 DefaultTime=8:00:00 State=UP
PartitionName=short Nodes=n[0-1] MaxTime=5 State=UP
PartitionName=debug Nodes=n[0-1] MaxTime=12:00:00 State=DOWN
"""
# The kernel has fewer cores than the machines, so jobs are only confined to their memory.
CONTROL_GROUPS = """
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainRAMSpace=yes
ConstrainCores=no
"""


FAULTS = ("hang", "fail", "lose")
WRAPPER = """#!/bin/sh
fault=$(cat {fault} 2> /dev/null)
rm -f {fault}
case $fault in
hang) exec sleep 1000 ;;
fail) echo "error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
lose) {program} "$@" > /dev/null; echo "error: Zero Bytes were transmitted or received" >&2; exit 1 ;;
esac
exec {program} "$@"
"""


def missing_programs() -> list[str]:
    """Return the names of missing Slurm programs. The fixture also requires root."""
    missing = [name for name in PROGRAMS if not is_installed(name)]
    return missing or ([] if os.geteuid() == 0 else ["root"])


def is_installed(program: str) -> bool:
    path = f"{SYSTEM}/usr/bin:{SYSTEM}/usr/sbin" if SYSTEM else f"{os.environ['PATH']}:/usr/sbin"
    return shutil.which(program, path=path) is not None


@dataclass
class SlurmCluster:
    """Slurm nodes n0 to n3, each with eight CPUs and two GPUs that do not exist."""

    root: Path
    has_control_groups: bool = False  # whether Slurm confines jobs to control groups
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def env(self) -> Mapping[str, str]:
        home = self.root / "home"
        return {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}:/usr/sbin",
            "SLURM_CONF": str(self.root / "slurm.conf"), "HOME": str(home), "USER": "root", "LOGNAME": "root",
        }  # fmt: skip

    @property
    def commands(self) -> LocalCommands:
        return LocalCommands(self.env)

    def start(self, prepare: Callable[["SlurmCluster"], object]) -> None:
        """Start all daemons. `prepare` runs before the Slurm daemons and may extend slurm.conf."""
        for name in ("munge", "state", "spool", "log", "home", "tmp", "bin"):
            (self.root / name).mkdir(mode=0o755)
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName=n{number} NodeAddr=127.0.0.1 NodeHostname={host} Port={free_port()} CPUs=8 "
            f"RealMemory=16000 Gres=gpu:l40s:{GPUS} Features=rack{number % 2} State=UNKNOWN"
            for number in range(MACHINES)
        )
        tracking, confinement = ("cgroup", "cgroup") if self.has_control_groups else ("linuxproc", "none")
        text = CONFIGURATION.format(
            host=host, root=self.root, port=free_port(), nodes=nodes, last=MACHINES - 1, tracking=tracking,
            confinement=confinement,
        )  # fmt: skip
        (self.root / "slurm.conf").write_text(text)
        for program in CLIENTS if SYSTEM else ():
            wrapper = self.root / "bin" / program
            wrapper.write_text(f'#!/bin/sh\nexec {_command(program)} "$@"\n')
            wrapper.chmod(0o755)
        self._start_munge()
        prepare(self)
        gres = f"NodeName=n[0-{MACHINES - 1}] Name=gpu Type=l40s File=/dev/tty[0-{GPUS - 1}]\n"
        (self.root / "gres.conf").write_text(gres)
        (self.root / "cgroup.conf").write_text(CONTROL_GROUPS)
        self.start_controller("-i")
        for number in range(MACHINES):
            self.start_machine(f"n{number}")
        until(
            lambda: self.run("sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D").strip() == str(MACHINES),
            60,
        )

    def _start_munge(self) -> None:
        munge = self.root / "munge"
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.start_daemon(
            "munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log",
        )  # fmt: skip
        until((munge / "socket").exists, 30)

    def start_controller(self, *options: str) -> None:
        self.start_daemon("slurmctld", "-D", *options)

    def stop_controller(self) -> None:
        self.stop_daemon("slurmctld")

    def start_machine(self, name: str) -> None:
        self.start_daemon("slurmd", "-D", "-N", name, key=name)

    def restart_controller(self) -> None:
        """Kill the controller and start a new one, which loads the saved state."""
        self.stop_daemon("slurmctld", signal.SIGKILL)
        self.start_controller()

    def restart_machine(self, name: str) -> None:
        """Kill the slurmd of a node and start a new one. The node's jobs continue."""
        self.stop_daemon(name, signal.SIGKILL)
        self.start_machine(name)

    def resume_machines(self) -> None:
        """Resume nodes that Slurm has drained, as an administrator does."""
        for name in self.run("sinfo", "-h", "-N", "-p", "gpu", "-t", "drain,down", "-o", "%N").split():
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME")

    def fail_next_call(self, program: str, fault: str) -> None:
        """Make the next call of a program hang, fail, or lose its response after taking effect."""
        (self.root / "bin" / f"{program}.fault").write_text(fault)
        wrapper = self.root / "bin" / program
        wrapper.write_text(WRAPPER.format(program=_command(program), fault=f"{wrapper}.fault"))
        wrapper.chmod(0o755)

    def run(self, *arguments: str) -> str:
        """Return the output of a program, unaffected by `fail_next_call`."""
        path = f"{os.environ['PATH']}:/usr/sbin"
        result = LocalCommands({**self.env, "PATH": path}).run([*ENTER, *arguments], seconds=60)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def queue(self) -> list[str]:
        """Return the names of the jobs that have not ended."""
        return self.run("squeue", "-h", "-o", "%j").split()

    def leftovers(self) -> list[str]:
        """Return the private directories and processes of pilot jobs that have not been cleaned up."""
        directory = os.fsencode(self.root / "tmp" / "berth-")
        left = [path.name for path in (self.root / "tmp").iterdir() if "berth-" in path.name]
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = entry.read_bytes()
                left += [command.decode()] if directory in command else []
        return left

    def command_lines(self) -> str:
        """Return the command lines of all processes, which every user of the machine can see."""
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
            self.stop_daemon(name, kills_after=20)

    def start_daemon(self, program: str, *options: str, key: str = "", enter: Sequence[str] = ENTER) -> None:
        with (self.root / "log" / f"{key or program}.out").open("ab") as log:
            self.processes[key or program] = subprocess.Popen(
                [*enter, program, *options], env={**os.environ, **self.env}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def stop_daemon(self, name: str, number: int = signal.SIGTERM, kills_after: float = 60) -> None:
        process = self.processes[name]
        process.send_signal(number)
        try:
            process.wait(kills_after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _command(program: str) -> str:
    if not SYSTEM:
        return str(shutil.which(program))
    # The tested system would otherwise find the wrapper again.
    return shlex.join(["env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *ENTER, program])


@contextlib.contextmanager
def slurm_cluster(
    prepare: Callable[[SlurmCluster], object] = lambda _: None, *, has_control_groups: bool = False
) -> Iterator[SlurmCluster]:
    """Run a cluster in a directory that all users may enter, as munged requires.

    Delete clusters left behind by killed test runs first.
    """
    delete_abandoned_clusters()
    root = Path(tempfile.mkdtemp(prefix=PREFIX))
    root.chmod(0o755)
    cluster = SlurmCluster(root, has_control_groups)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            cluster.start(prepare)
            yield cluster
        finally:
            cluster.stop()
            kill_processes(root)
            shutil.rmtree(root, ignore_errors=True)


def delete_abandoned_clusters() -> None:
    """Delete the daemons, jobs and files of clusters whose test run no longer holds its lock."""
    for file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with contextlib.suppress(OSError), file.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kill_processes(file.parent)
            shutil.rmtree(file.parent, ignore_errors=True)


def kill_processes(root: Path) -> None:
    """Kill all processes that have the directory in their command line or environment."""

    def are_gone() -> bool:
        pids = processes_of(root)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    until(are_gone, 60)


def processes_of(mark: Path | str) -> list[int]:
    """Return all other processes that have the mark in their command line or environment."""
    wanted, pids = os.fsencode(mark), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "cmdline").read_bytes() or wanted in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
    return [pid for pid in pids if pid != os.getpid()]
