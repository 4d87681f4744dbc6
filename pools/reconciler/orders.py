"""Carry out a pool's order in flight and record its outcome."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from berth.core.words import counted
from pools import history
from pools.engine.victims import HEAD
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import (
    Instance,
    InstanceState,
    ProviderError,
    ProviderErrorKind,
    ProvisionOrder,
    ProvisionResult,
    Shape,
)
from pools.reconciler import terminations
from pools.reconciler.rows import Pass, living, locked, record_error, retry_is_delayed
from pools.services.failed_boots import forget_failed_boots

# After these errors, as after a crash, the call may have succeeded: it is repeated under the same token.
UNCERTAIN = (ProviderErrorKind.TIMEOUT, ProviderErrorKind.BROKEN)
BOOTS_REMEMBERED = 10


def carry_out(pool_id: int, this: Pass) -> bool:
    """Carry out the pool's order, possibly from an earlier pass. Return True if rows changed."""
    pool = NodePool.objects.get(pk=pool_id)
    if not pool.provisioning or pool.paused or retry_is_delayed(pool, this.now):
        return False
    if not _is_still_needed(pool):
        return _drop(pool_id, this)
    order = _order(pool)
    try:
        result = this.provider.provision(order)
    except ProviderError as error:
        return _fail(pool_id, order, error, this)
    return _record(pool_id, order, result, this)


def _order(pool: NodePool) -> ProvisionOrder:
    shape = Shape(pool.cpu_milli, pool.memory_mib, pool.gpus_per_node, pool.gpu_model, pool.gpu_memory_mib)
    flight = pool.provisioning
    assert flight is not None
    tags = {"berth:pool": pool.name}
    return ProvisionOrder(
        pool.name, flight["count"], flight["token"], flight["start_ordinal"], shape, tags,
        flight.get("environment") or "",
    )  # fmt: skip


def _is_still_needed(pool: NodePool) -> bool:
    nodes = Node.objects.filter(pool=pool, state__in=(*USABLE, *PENDING))
    for_the_head = pool.provisioning is not None and pool.provisioning["start_ordinal"] == HEAD
    if for_the_head and pool.nodes_desired > 0 and not nodes.filter(ordinal=HEAD).exists():
        return True
    return pool.nodes_desired > nodes.count()


def _drop(pool_id: int, this: Pass) -> bool:
    """Drop the order. Instances that it may have created are terminated as orphans."""
    with this.fence():
        pool = locked(pool_id)
        if not pool.provisioning:
            return False
        flight, pool.provisioning = pool.provisioning, None
        pool.save(update_fields=["provisioning"])
        reason = "order dropped: the nodes are no longer needed"
        history.write(pool, ScalingKind.SURPLUS, reason, at=this.now, token=flight["token"])
    return True


def _fail(pool_id: int, order: ProvisionOrder, error: ProviderError, this: Pass) -> bool:
    with this.fence():
        pool = locked(pool_id)
        if not _is_ours(pool, order):
            return False
        if _is_new(pool, this) and error.kind not in UNCERTAIN:
            pool.provisioning = None
        pool.retry_at = this.now + timedelta(seconds=pool.reconcile_tick)
        _count(pool, error.kind)
        pool.save(update_fields=["provisioning", "retry_at", "provision_outcomes"])
        record_error(pool, f"order {counted(order.count, 'node')}", error, this.now)
    return True


def _record(pool_id: int, order: ProvisionOrder, result: ProvisionResult, this: Pass) -> bool:
    """Create a node for each instance in the result; terminate instances that cannot be nodes."""
    with this.fence():
        pool = locked(pool_id)
        if not _is_ours(pool, order):
            return False
        nodes = living(pool_id)
        fitting, surplus = _split(order, result.instances, {node.ordinal for node in nodes})
        kind = ScalingKind.PROVISION if _is_new(pool, this) else ScalingKind.ADOPTED
        pool.provisioning, pool.retry_at, pool.last_error = None, None, pool.boot_error
        _count(pool, "all" if len(fitting) >= order.count else "fewer")
        pool.save(update_fields=["provisioning", "retry_at", "last_error", "provision_outcomes"])
        expected = _expected_ready_at(pool, this)
        for instance in fitting:
            _create(pool, instance, order, expected, this)
        detail = f": {result.message}" if result.message else ""
        reason = f"provider returned {len(fitting)} of {order.count} nodes{detail}"
        history.write(
            pool, kind, reason, at=this.now, after=pool.nodes_desired,
            start_ordinal=order.start_ordinal, token=order.client_token, asked=order.count, came=len(fitting),
        )  # fmt: skip
        if surplus:
            names = [instance.instance_id for instance in surplus]
            reason = f"terminated {counted(len(names), 'extra instance')} that the provider returned"
            history.write(pool, ScalingKind.SURPLUS, reason, at=this.now, instances=names)
    if surplus:
        terminations.terminate(pool, names, this)
    return True


def _count(pool: NodePool, outcome: str) -> None:
    pool.provision_outcomes[outcome] = pool.provision_outcomes.get(outcome, 0) + 1


def _is_ours(pool: NodePool, order: ProvisionOrder) -> bool:
    return pool.provisioning is not None and pool.provisioning["token"] == order.client_token


def _is_new(pool: NodePool, this: Pass) -> bool:
    """Return True if this pass created the order. Otherwise an earlier call may have succeeded."""
    return pool.provisioning is not None and pool.provisioning["pass"] == this.name


def _split(
    order: ProvisionOrder, instances: Iterable[Instance], used: set[int]
) -> tuple[list[Instance], list[Instance]]:
    """Split the instances into those that can be nodes, by ordinal, and the rest."""
    ordered = range(order.start_ordinal, order.start_ordinal + order.count)
    fitting: list[Instance] = []
    surplus: list[Instance] = []
    for instance in sorted(instances, key=lambda instance: (instance.ordinal, instance.instance_id)):
        if instance.state in (InstanceState.ENDING, InstanceState.GONE):
            continue
        fits = instance.ordinal in ordered and instance.ordinal not in used
        (fitting if fits else surplus).append(instance)
        used = used | {instance.ordinal}
    return fitting, surplus


def _create(
    pool: NodePool, instance: Instance, order: ProvisionOrder, expected: datetime | None, this: Pass
) -> Node:
    prepared = instance.prepared or not order.environment
    ready = instance.state == InstanceState.READY and prepared and not this.provider.machines_join
    node = Node.objects.create(
        pool=pool,
        name=f"{pool.name}-{instance.ordinal}",
        ordinal=instance.ordinal,
        state=NodeState.READY if ready else NodeState.REQUESTED,
        instance_id=instance.instance_id,
        client_token=order.client_token,
        address=instance.address,
        devices=list(instance.devices),
        gpus=pool.gpus_per_node,
        gpu_model=pool.gpu_model,
        gpu_memory_mib=pool.gpu_memory_mib,
        cpu_milli=pool.cpu_milli,
        memory_mib=pool.memory_mib,
        max_pods=pool.max_pods,
        labels=pool.labels,
        taints=pool.taints,
        environment_id=order.environment or None,
        phases=list(instance.phases or ()),
        prepared_at=this.now if ready and order.environment else None,
        since=this.now,
        created_at=this.now,
        ready_at=this.now if ready else expected,
    )
    if ready:
        history.write(pool, ScalingKind.READY, "ready immediately", at=this.now, node=node)
        forget_failed_boots(pool)
    return node


def _expected_ready_at(pool: NodePool, this: Pass) -> datetime | None:
    """Return the time at which new nodes should be ready, from the average of recent boots."""
    booted = Node.objects.filter(pool=pool, state__in=HOSTING).order_by("-pk")[:BOOTS_REMEMBERED]
    times = [node.ready_at - node.created_at for node in booted if node.ready_at is not None]
    return this.now + sum(times, timedelta()) / len(times) if times else None
