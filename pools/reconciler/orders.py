"""Carry out a pool's order in flight and record its outcome."""

from collections.abc import Iterable
from datetime import datetime, timedelta

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
from pools.reconciler.rows import Pass, living, locked, remember_trouble, waits
from pools.services.failed_boots import forget_failed_boots

# After these nobody knows whether the call worked, nor after a crash: it is repeated under the same token.
UNCERTAIN = (ProviderErrorKind.TIMEOUT, ProviderErrorKind.BROKEN)
BOOTS_REMEMBERED = 10


def carry_out(pool_id: int, this: Pass) -> bool:
    """Also an order that an earlier pass wrote down and did not live to see answered."""
    pool = NodePool.objects.get(pk=pool_id)
    if not pool.provisioning or pool.paused or waits(pool, this.now):
        return False
    if not _still_wanted(pool):
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


def _still_wanted(pool: NodePool) -> bool:
    there = Node.objects.filter(pool=pool, state__in=(*USABLE, *PENDING))
    for_the_head = pool.provisioning is not None and pool.provisioning["start_ordinal"] == HEAD
    if for_the_head and pool.nodes_desired > 0 and not there.filter(ordinal=HEAD).exists():
        return True
    return pool.nodes_desired > there.count()


def _drop(pool_id: int, this: Pass) -> bool:
    """What it may have brought all the same serves no node: the next listing ends it."""
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
        remember_trouble(pool, f"ordering {order.count} nodes", error, this.now)
    return True


def _record(pool_id: int, order: ProvisionOrder, result: ProvisionResult, this: Pass) -> bool:
    """Every instance of the answer gets a node; one that cannot have any is ended."""
    with this.fence():
        pool = locked(pool_id)
        if not _is_ours(pool, order):
            return False
        nodes = living(pool_id)
        fitting, surplus = _sorted_out(order, result.instances, {node.ordinal for node in nodes})
        kind = ScalingKind.PROVISION if _is_new(pool, this) else ScalingKind.ADOPTED
        pool.provisioning, pool.retry_at, pool.last_error = None, None, pool.boot_error
        _count(pool, "all" if len(fitting) >= order.count else "fewer")
        pool.save(update_fields=["provisioning", "retry_at", "last_error", "provision_outcomes"])
        expected = _expected(pool, this)
        for instance in fitting:
            _create(pool, instance, order, expected, this)
        said = f": {result.message}" if result.message else ""
        reason = f"provider returned {len(fitting)} of {order.count} nodes{said}"
        history.write(
            pool, kind, reason, at=this.now, after=pool.nodes_desired,
            start_ordinal=order.start_ordinal, token=order.client_token, asked=order.count, came=len(fitting),
        )  # fmt: skip
        if surplus:
            names = [instance.instance_id for instance in surplus]
            reason = f"provider returned {len(names)} instances too many: terminated"
            history.write(pool, ScalingKind.SURPLUS, reason, at=this.now, instances=names)
    if surplus:
        terminations.terminate(pool, names, this)
    return True


def _count(pool: NodePool, outcome: str) -> None:
    pool.provision_outcomes[outcome] = pool.provision_outcomes.get(outcome, 0) + 1


def _is_ours(pool: NodePool, order: ProvisionOrder) -> bool:
    return pool.provisioning is not None and pool.provisioning["token"] == order.client_token


def _is_new(pool: NodePool, this: Pass) -> bool:
    """Of an earlier pass's order the answer was lost, with the pass or on the way: it may have worked."""
    return pool.provisioning is not None and pool.provisioning["pass"] == this.name


def _sorted_out(
    order: ProvisionOrder, instances: Iterable[Instance], taken: set[int]
) -> tuple[list[Instance], list[Instance]]:
    """Those that can be nodes, by ordinal, and those that cannot."""
    asked = range(order.start_ordinal, order.start_ordinal + order.count)
    fitting: list[Instance] = []
    surplus: list[Instance] = []
    for instance in sorted(instances, key=lambda instance: (instance.ordinal, instance.instance_id)):
        if instance.state in (InstanceState.ENDING, InstanceState.GONE):
            continue
        fits = instance.ordinal in asked and instance.ordinal not in taken
        (fitting if fits else surplus).append(instance)
        taken = taken | {instance.ordinal}
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


def _expected(pool: NodePool, this: Pass) -> datetime | None:
    """When new nodes will be ready, if they take as long as the last ones did."""
    booted = Node.objects.filter(pool=pool, state__in=HOSTING).order_by("-pk")[:BOOTS_REMEMBERED]
    times = [node.ready_at - node.created_at for node in booted if node.ready_at is not None]
    return this.now + sum(times, timedelta()) / len(times) if times else None
