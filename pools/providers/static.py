"""Provider of existing machines that have joined a pool.

Each use of a machine is an instance, and the machine remains after the instance has ended.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from berth.core.wording.words import format_count
from pools.environments.progress import START, Progress
from pools.models import Machine, MachineUse, Node, NodePool
from pools.models.node import NodeState
from pools.providers.base import (
    Instance,
    InstanceState,
    Interruption,
    LaunchRequest,
    ProviderError,
    ProviderErrorKind,
    ProvisionResult,
    Shape,
)
from pools.providers.preview import Preview

SILENT_AFTER = timedelta(seconds=180)
RETRY_AFTER = timedelta(minutes=2)  # delay before reusing a machine after its start script failed


class StaticProvider:
    """Provider whose instances are uses of joined machines.

    After three minutes of silence, a machine counts as gone until it reports again. After its start script
    has failed, a machine is not used for two minutes, so that other machines are tried first.
    """

    has_joining_machines = False  # machines join before they are requested, not afterwards

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        with transaction.atomic():
            list(NodePool.objects.select_for_update(no_key=True).filter(name=order.pool))
            uses = list(_pool_uses(order.pool).filter(client_token=order.client_token))
            if not uses:
                uses = self._assign_machines(order)
        message = "" if len(uses) >= order.count else self._shortage_message(order)
        return ProvisionResult(tuple(self._instances(uses)), message)

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        uses = _pool_uses(pool).filter(ended_at=None)
        active = [instance for instance in self._instances(uses) if instance.state != InstanceState.GONE]
        return tuple(sorted(active, key=lambda instance: (instance.ordinal, instance.instance_id)))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Release the machines, which can then be used again unless they are being removed."""
        keys = [key for key in map(parse_use_id, instance_ids) if key is not None]
        now = self._now()
        with transaction.atomic():
            ending = _pool_uses(pool).filter(pk__in=keys, ended_at=None)
            machines = list(ending.values_list("machine_id", flat=True))
            ending.update(ended_at=now)
            for key in machines:
                mark_departed_if_unused(key, now)

    def preview(self, pool: str, shape: Shape) -> Preview:
        """Return an empty preview. Machines join a pool only after it has been created."""
        return Preview()

    def _assign_machines(self, order: LaunchRequest) -> list[MachineUse]:
        free = self._free_machines(order.pool)
        fitting = [machine for machine in free if _fits_shape(machine, order.shape)][: order.count]
        if not fitting:
            raise ProviderError(ProviderErrorKind.CAPACITY, self._shortage_message(order))
        return [
            MachineUse.objects.create(
                machine=machine, client_token=order.client_token, ordinal=order.start_ordinal + index,
                began_at=self._now(),
            )
            for index, machine in enumerate(fitting)
        ]  # fmt: skip

    def _free_machines(self, pool: str) -> list[Machine]:
        responding = Machine.objects.filter(
            pool__name=pool, departed_at=None, removed_at=None, last_seen_at__gt=self._now() - SILENT_AFTER
        )
        used = MachineUse.objects.filter(ended_at=None).values("machine_id")
        failed = [machine.pk for machine, _ in self._failed_machines(pool)]
        return list(responding.exclude(pk__in=used).exclude(pk__in=failed).order_by("name", "pk"))

    def _failed_machines(self, pool: str) -> list[tuple[Machine, str]]:
        """Return the machines whose start script failed recently, with the reasons."""
        now = self._now()
        nodes = Node.objects.filter(
            pool__name=pool, state__in=(NodeState.LOST, NodeState.ENDED), since__gt=now - RETRY_AFTER,
            since__lte=now, phases__contains=[{"phase": START, "state": "failed"}],
        )  # fmt: skip
        failure = {
            parse_use_id(node.instance_id): Progress.from_rows(node.phases).failure_message
            for node in nodes.order_by("pk")
        }
        uses = _pool_uses(pool).filter(pk__in=[key for key in failure if key is not None])
        return list({use.machine_id: (use.machine, failure[use.pk]) for use in uses}.values())

    def _shortage_message(self, order: LaunchRequest) -> str:
        free = self._free_machines(order.pool)
        fitting = sum(_fits_shape(machine, order.shape) for machine in free)
        failed = (
            f"; {machine.name} failed recently and is retried later: {failure}"
            for machine, failure in self._failed_machines(order.pool)
        )
        free_machines = format_count(len(free), "free joined machine")
        return f"{free_machines} ({fitting} large enough)" + "".join(failed)

    def _instances(self, uses: Iterable[MachineUse]) -> list[Instance]:
        return [self._machine_instance(use) for use in uses]

    def _machine_instance(self, use: MachineUse) -> Instance:
        machine = use.machine
        is_silent = machine.last_seen_at <= self._now() - SILENT_AFTER
        is_gone = use.ended_at is not None or machine.departed_at is not None or is_silent
        return Instance(
            instance_id=instance_id(use),
            ordinal=use.ordinal,
            state=InstanceState.GONE if is_gone else InstanceState.READY,
            client_token=use.client_token,
            address=machine.address,
            devices=tuple(machine.devices),
            shape=_machine_shape(machine),
            interruption=Interruption(f"machine {machine.name} is being removed")
            if machine.removed_at
            else None,
            prepared=False,
        )


def mark_departed_if_unused(machine: int, at: datetime) -> bool:
    """Mark a removed machine as departed and revoke its secret, unless it is in use.

    Return whether the machine was marked.
    """
    used = MachineUse.objects.filter(ended_at=None).values("machine_id")
    departing = Machine.objects.filter(pk=machine, departed_at=None, removed_at__isnull=False)
    return departing.exclude(pk__in=used).update(departed_at=at) == 1


def instance_id(use: MachineUse) -> str:
    return f"{use.machine.name}/{use.pk}"


def parse_use_id(instance_id: str) -> int | None:
    """Return the primary key in an instance ID, or None if the ID belongs to a different provider."""
    key = instance_id.rpartition("/")[2]
    return int(key) if key.isdecimal() and len(key) < 19 else None


def _pool_uses(pool: str) -> QuerySet[MachineUse]:
    return MachineUse.objects.filter(machine__pool__name=pool).select_related("machine__pool").order_by("pk")


def _machine_shape(machine: Machine) -> Shape:
    memory = [int(gpu["memory_mib"]) for gpu in machine.inventory.get("gpus", ())]
    return Shape(
        machine.cpu_milli, machine.memory_mib, len(machine.devices), machine.gpu_model, min(memory, default=0)
    )


def _fits_shape(machine: Machine, shape: Shape) -> bool:
    return (
        machine.cpu_milli >= shape.cpu_milli
        and machine.memory_mib >= shape.memory_mib
        and len(machine.devices) >= shape.gpus
    )
