"""Kill and restart the kubelets of a real cluster on this machine."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pools.kubernetes.api_server.credentials import parse_kubeconfig
from tests.contracts.kubernetes.cluster import flatten


@dataclass(frozen=True)
class Kubelet:
    """A running kubelet, and the data needed to restart it."""

    pid: int
    command: list[str]
    namespace: int  # file descriptor of the mount namespace

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def restart(self) -> None:
        """Start the kubelet again. Record its process ID, so that the cluster's script can stop it."""
        run = Path(self.command[self.command.index("--kubeconfig") + 1]).parent
        name = self.command[self.command.index("--hostname-override") + 1].replace("node", "kubelet")
        with (run / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(
                ["nsenter", f"--mount=/proc/self/fd/{self.namespace}", *self.command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=[self.namespace],
            )  # fmt: skip
        (run / f"{name}.pid").write_text(f"{started.pid}\n")


@contextmanager
def kubelet_of(node: str, kubeconfig: str) -> Iterator[Kubelet]:
    """Yield the kubelet of a cluster node. Restart it afterwards if it is not running.

    Other clusters on this machine may have nodes with the same name.
    """
    server = parse_kubeconfig(kubeconfig).server
    (pid,) = _find(node, server)
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    kubelet = Kubelet(pid, _command(pid), namespace)
    try:
        yield kubelet
    finally:
        if not _find(node, server):
            kubelet.restart()
        os.close(namespace)


def _find(node: str, server: str) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _is_kubelet(_command(pid), node, server)]


def _is_kubelet(command: list[str], node: str, server: str) -> bool:
    if not command or Path(command[0]).name != "kubelet" or node not in command:
        return False
    try:
        kubeconfig = flatten(Path(command[command.index("--kubeconfig") + 1]))
    except OSError:  # the other cluster is being deleted
        return False
    return parse_kubeconfig(kubeconfig).server == server


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    except OSError:
        return []
