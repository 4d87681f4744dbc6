"""Delay the readiness of nodes until their runtime, for example Ray, can run pods on them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pools.providers.base import Instance, InstanceState, LaunchRequest, Provider, ProvisionResult, Shape
from pools.providers.preview import Preview

UnreadyReasons = Callable[[Collection[str]], Mapping[str, str]]


class PendingInstances(Protocol):
    def __call__(self, pool: str, /, *, joined: bool) -> Collection[str]: ...


class ReachableNodes:
    """Provider wrapper that reports instances as booting until the runtime can run pods on them.

    `unready_reasons(instance_ids)` returns why instances cannot run pods yet. `pending(pool, joined=...)`
    returns the instances of nodes that are not ready yet. If machines join, only instances whose machines
    have joined are contacted.
    """

    def __init__(
        self, provider: Provider, unready_reasons: UnreadyReasons, pending: PendingInstances
    ) -> None:
        self.provider, self._unready_reasons, self._pending = provider, unready_reasons, pending

    @property
    def has_joining_machines(self) -> bool:
        return self.provider.has_joining_machines

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        """Provision instances, and report all of them as booting."""
        result = self.provider.provision(order)
        return replace(
            result, instances=tuple(_report_as_booting(instance, "") for instance in result.instances)
        )

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        listed = self.provider.list_instances(pool)
        pending = self._pending(pool, joined=self.has_joining_machines)
        ready = {instance.instance_id for instance in listed if instance.state is InstanceState.READY}
        unready_reasons = self._unready_reasons(sorted(ready.intersection(pending)))
        return tuple(
            _report_as_booting(instance, unready_reasons[instance.instance_id])
            if instance.instance_id in unready_reasons
            else instance
            for instance in listed
        )

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        self.provider.terminate(pool, instance_ids)

    def preview(self, pool: str, shape: Shape) -> Preview:
        return self.provider.preview(pool, shape)


def _report_as_booting(instance: Instance, reason: str) -> Instance:
    if instance.state is not InstanceState.READY:
        return instance
    return replace(instance, state=InstanceState.BOOTING, message=reason)
