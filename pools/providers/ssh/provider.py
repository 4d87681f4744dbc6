"""Provider of nodes on hosts that Berth reaches over SSH.

Berth installs the agent on each host, which then joins like a machine of the static provider.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from pools.joining.server import reachable_server
from pools.models import MachineUse, NodePool, SshHost
from pools.providers.base import (
    Instance,
    LaunchRequest,
    ProviderError,
    ProviderErrorKind,
    Shape,
    SharedMachine,
)
from pools.providers.preview import Preview
from pools.providers.ssh.endpoint import ASYNCSSH_MISSING
from pools.providers.ssh.maintenance import SshMaintenance
from pools.providers.static import StaticProvider
from pools.services.ssh.keys import PoolKeys

PODS_MAX = 2**31 - 1  # no limit for this provider, because the pool's own maximum applies
HOSTS_NAMED = 3


class SshProvider(StaticProvider):
    """Provider of one SSH pool.

    `list_instances` also continues the maintenance of the hosts. `pool` may be unsaved if the provider is
    used only for previews.
    """

    def __init__(self, now: Callable[[], datetime], upkeep: SshMaintenance, pool: NodePool) -> None:
        super().__init__(now)
        self._upkeep, self._pool = upkeep, pool

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        self._upkeep.run_step(pool)
        return super().list_instances(pool)

    def preview(self, pool: str, shape: Shape) -> Preview:
        """Check all of the pool's hosts concurrently."""
        try:
            from pools.providers.ssh.examine import TIMEOUTS, examine
        except ModuleNotFoundError as error:
            raise ProviderError(ProviderErrorKind.SETTINGS, ASYNCSSH_MISSING) from error

        reachable_server()
        keys = PoolKeys(self._pool, self._pool.unstored_ssh_keys)
        return examine(self._pool, shape, keys, self._upkeep.installation(), TIMEOUTS)

    def _instances(self, uses: Iterable[MachineUse]) -> list[Instance]:
        uses = list(uses)
        hosts = SshHost.objects.filter(machine__in=[use.machine_id for use in uses])
        labels = dict(hosts.values_list("machine_id", "settings__labels"))
        return [
            replace(instance, shared=SharedMachine(PODS_MAX, labels[use.machine_id]))
            if labels.get(use.machine_id)
            else instance
            for use, instance in zip(uses, super()._instances(uses), strict=True)
        ]

    def _shortage_message(self, order: LaunchRequest) -> str:
        failing = SshHost.objects.filter(pool__name=order.pool, failures__gt=0, removed_at=None)
        failing = failing.order_by("name")
        problems = [f"{host.name}: {host.message}" for host in failing[:HOSTS_NAMED]]
        if (more := failing.count() - HOSTS_NAMED) > 0:
            problems.append(f"and {more} more hosts with problems")
        return "; ".join([super()._shortage_message(order), *problems])
