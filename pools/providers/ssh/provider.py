"""Nodes from hosts that Berth reaches over SSH.

Berth installs the agent on each host. From then on, hosts are joined machines like those of the static
provider.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from pools.models import MachineUse, SshHost
from pools.providers.base import Instance, ProvisionOrder, SharedMachine
from pools.providers.ssh.upkeep import SshUpkeep
from pools.providers.static import StaticProvider

PODS_MAX = 2**31 - 1  # the pool's own maximum applies
HOSTS_NAMED = 3


class SshProvider(StaticProvider):
    """Provider of all pools of SSH hosts. Each listing also takes a step of the upkeep."""

    def __init__(self, now: Callable[[], datetime], upkeep: SshUpkeep) -> None:
        super().__init__(now)
        self._upkeep = upkeep

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        self._upkeep.step(pool)
        return super().list_instances(pool)

    def _instance(self, use: MachineUse) -> Instance:
        instance = super()._instance(use)
        host = SshHost.objects.filter(machine=use.machine_id).only("settings").first()
        labels = host.settings["labels"] if host is not None else {}
        return replace(instance, shared=SharedMachine(PODS_MAX, labels)) if labels else instance

    def _shortage_message(self, order: ProvisionOrder) -> str:
        """Return the shortage with the problems of some hosts."""
        failing = SshHost.objects.filter(pool__name=order.pool, failures__gt=0, removed_at=None)
        failing = failing.order_by("name")
        problems = [f"{host.name}: {host.message}" for host in failing[:HOSTS_NAMED]]
        if (more := failing.count() - HOSTS_NAMED) > 0:
            problems.append(f"and {more} more hosts with problems")
        return "; ".join([super()._shortage_message(order), *problems])
