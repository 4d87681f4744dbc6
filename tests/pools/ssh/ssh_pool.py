"""A pool of SSH hosts with real servers and agents. Nodes run a simple process instead of Ray."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from pools import services
from pools.engine.ssh_hosts import HostState
from pools.models import Machine, Node, NodePool, SshHost
from pools.providers.ssh.endpoint import Timeouts
from pools.providers.ssh.maintenance import SshMaintenance
from pools.providers.ssh.provider import SshProvider
from pools.providers.ssh.task_runner import TaskRunner
from pools.reconciler import reconcile
from pools.services.ssh.hosts import displayed_state
from tests.pools.ssh.sshd import SshServer
from tests.pools.stage import SYSTEM

INSTALLATION = "berth-test"
TIMEOUTS = Timeouts(connect=30)


@dataclass
class SshPool:
    """A pool whose agents have their home directories under `directory`. `passed` is added to the clock."""

    directory: Path
    pool: NodePool
    timeouts: Timeouts = TIMEOUTS
    passed: timedelta = timedelta()
    provider: SshProvider = field(init=False)

    def __post_init__(self) -> None:
        self.restart_berth()

    def now(self) -> datetime:
        return timezone.now() + self.passed

    def restart_berth(self) -> None:
        """Forget all tasks, as if Berth were killed with kill -9."""
        upkeep = SshMaintenance(self.now, lambda: INSTALLATION, TaskRunner(), self.timeouts)
        self.provider = SshProvider(self.now, upkeep, self.pool)

    def reconcile(self) -> None:
        NodePool.objects.filter(pk=self.pool.pk).update(ticked_at=None, retry_at=None)
        reconcile(self.pool.pk, provider=self.provider, now=self.now())

    def edit(self, *hosts: dict[str, Any], **settings: Any) -> None:
        self.pool = services.edit_pool(
            actor=SYSTEM, pool=self.pool, changes={"provider_settings": {**settings, "hosts": list(hosts)}}
        )

    def state(self, name: str) -> HostState | None:
        """Take a step and return the state of the host, or None if the host does not exist."""
        self.reconcile()
        host = SshHost.objects.select_related("machine").filter(name=name).first()
        return None if host is None else displayed_state(host, self.now())

    def host(self, name: str) -> SshHost:
        return SshHost.objects.select_related("machine").get(name=name)

    def machine(self, name: str) -> Machine:
        machine = self.host(name).machine
        assert machine is not None
        return machine

    def wait_for(self, name: str, state: HostState | None) -> None:
        self.wait(lambda: self.state(name) == state, lambda: list(SshHost.objects.values()))

    def wait(self, reached: Callable[[], object], story: Callable[[], object] = lambda: "") -> None:
        deadline = time.monotonic() + 300
        while not reached():
            assert time.monotonic() < deadline, story()
            time.sleep(0.05)

    def reconcile_until(self, reached: Callable[[], object]) -> None:
        def step() -> object:
            self.reconcile()
            return reached()

        self.wait(step)

    def agent_pids(self) -> list[int]:
        """Return the process IDs of all agents and their supervisors."""
        return [pid for pid, command in _processes() if str(self.directory).encode() in command]

    def agents(self) -> list[int]:
        """Return the process IDs of running agents, without their supervisors."""
        return [
            pid
            for pid, command in _processes()
            if str(self.directory).encode() in command and command.endswith(b"\0run\0")
        ]

    def kill_agents(self) -> None:
        """Kill the agents and their supervisors, but not the nodes."""
        for pid, command in _processes():
            if str(self.directory).encode() in command and b"berth-machine" in command:
                os.kill(pid, signal.SIGKILL)

    def kill_all_agents(self) -> None:
        """Kill agents and supervisors until none is left, even if a supervisor has just started an agent."""

        def step() -> bool:
            self.kill_agents()
            return not self.agent_pids()

        self.wait(step)


def host_entry(server: SshServer, name: str, directory: Path, **more: Any) -> dict[str, Any]:
    """Return the settings of a host whose agent seems to run on a machine of its own."""
    home = directory / name / "berth-machine"
    home.mkdir(parents=True, exist_ok=True)
    (home / "machine-id").write_text(f"machine-of-{name}".ljust(32, "x").replace(".", "-"))
    return {
        "name": name, "address": server.address, "port": server.port, "host_key": server.host_key,
        "home": str(home), **more,
    }  # fmt: skip


def create(name: str = "metal", **values: Any) -> NodePool:
    defaults = {
        "provider": "ssh", "runtime": "fake", "nodes": (0, 8), "cpu_milli": 1, "memory_mib": 1,
        "gpus_per_node": 0,
    }  # fmt: skip
    return services.create_pool(actor=SYSTEM, name=name, **{**defaults, **values})


def ready_nodes() -> list[str]:
    return sorted(Node.objects.filter(state="ready").values_list("name", flat=True))


def _processes() -> list[tuple[int, bytes]]:
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                processes.append((int(entry.name), (entry / "cmdline").read_bytes()))
            except OSError:
                continue
    return processes
