"""An installation with hosts in network namespaces that no pool uses yet."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.journeys.command import Terminal
from tests.journeys.installation import Installation, InstallContext, command_line
from tests.journeys.on_hosts.host_namespaces import SERVER, NamespaceHost, namespace_hosts
from tests.support.ports import free_port

ROLE = {"cpu": os.cpu_count() or 1, "memory_mib": 64}  # this role needs a whole host


@dataclass(frozen=True)
class SshInstallation:
    """Berth and its hosts. `key` is the private key file for logging in to the hosts."""

    berth: Installation
    hosts: list[NamespaceHost]
    key: Path
    place: Path
    options: tuple[str, ...]

    @property
    def workspaces(self) -> Path:
        return self.place / "workspaces"

    def start(self) -> None:
        self.berth.start(*self.options)

    def entries(self, hosts: Iterable[NamespaceHost]) -> list[dict[str, Any]]:
        """Return the hosts in the format of `--hosts`, without their keys."""
        env = {
            "BERTH_NODE_PYTHON": sys.executable, "BERTH_NODE_WORKSPACES": str(self.workspaces),
            "BERTH_NODE_START_SECONDS": "840",  # Ray starts slowly on a busy machine
        }  # fmt: skip
        return [{"name": host.name, "address": host.address, "env": env} for host in hosts]


@contextmanager
def ssh_installation(
    installing: InstallContext, place: Path, names: list[str], *options: str, gpus: int = 0
) -> Iterator[SshInstallation]:
    """Run Berth and hosts that can connect to it. `options` are passed to Berth when it restarts."""
    (place / "workspaces").mkdir()
    (place / "workspaces").chmod(0o777)
    port, listens = free_port(), ("--host", "0.0.0.0")
    settings = {
        "BERTH_PLAIN_HTTP": "1", "BERTH_PUBLIC_URL": f"http://{SERVER}:{port}",
        "BERTH_ALLOWED_HOSTS": f"{SERVER},127.0.0.1",
    }  # fmt: skip
    with (
        namespace_hosts(place, names, gpus) as (hosts, key),
        installing(port, *listens, **settings) as berth,
    ):
        yield SshInstallation(berth, hosts, key, place, (*options, *listens))


def set_quotas(admin: Terminal) -> None:
    """Set a quota of two hosts for ads, so that vision borrows them."""
    cores = 2 * (os.cpu_count() or 1)
    for owner, cpu in ((["product", "--department"], cores), (["ads"], cores),
                       (["research", "--department"], 0), (["vision"], 0)):  # fmt: skip
        admin.berth("quota", "set", *owner, "--pool", "metal", "--cpu", str(cpu))


def agents(host: NamespaceHost) -> list[int]:
    """Return the processes of the agent and its supervisor."""
    return [
        pid
        for pid in host.pids()
        if "/berth-machine/" in command_line(pid) and "ray" not in command_line(pid)
    ]


def read_log_text(host: NamespaceHost) -> str:
    files = [host.home / "supervisor.output", host.home / "start.output", host.directory / "log"]
    return "\n".join(f"{file}:\n{file.read_text()[-3000:]}" for file in files if file.exists())
