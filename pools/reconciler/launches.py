"""Execute a pool's current launch request and store its result."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from berth.core.wording.words import format_count
from pools import history
from pools.engine.victims import HEAD
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import (
    Instance,
    InstanceState,
    LaunchRequest,
    ProviderError,
    ProviderErrorKind,
    ProvisionResult,
    Shape,
)
from pools.reconciler import terminations
from pools.reconciler.capacity import capacity_columns
from pools.reconciler.rows import (
    ReconcileContext,
    is_retry_delayed,
    load_live_nodes,
    lock_pool,
    record_error,
)
from pools.services.failed_boots import reset_failed_boots

# After these errors or a crash, the call may have succeeded, so it is repeated with the same token.
UNCERTAIN = (ProviderErrorKind.TIMEOUT, ProviderErrorKind.BROKEN)
RECENT_BOOTS = 10


def execute_launch_request(pool: NodePool, context: ReconcileContext) -> bool:
    """Execute the stored launch request, which may be from an earlier pass. Return whether rows changed."""
    pool_id = pool.pk
    if not pool.provisioning or pool.paused or is_retry_delayed(pool, context.now):
        return False
    if not _is_still_needed(pool):
        return _discard_launch_request(pool_id, context)
    order = _build_launch_request(pool, context)
    try:
        result = context.provider.provision(order)
    except ProviderError as error:
        return _record_failure(pool_id, order, error, context)
    return _record_result(pool_id, order, result, context)


def _build_launch_request(pool: NodePool, context: ReconcileContext) -> LaunchRequest:
    shape = Shape(pool.cpu_milli, pool.memory_mib, pool.gpus_per_node, pool.gpu_model, pool.gpu_memory_mib)
    in_flight = pool.provisioning
    assert in_flight is not None
    tags = {"berth:pool": pool.name}
    return LaunchRequest(
        pool.name, in_flight["count"], in_flight["token"], in_flight["start_ordinal"], shape, tags,
        in_flight.get("environment") or "", is_repeated=not _is_new_request(pool, context),
    )  # fmt: skip


def _is_still_needed(pool: NodePool) -> bool:
    nodes = Node.objects.filter(pool=pool, state__in=(*USABLE, *PENDING))
    is_head_launch = pool.provisioning is not None and pool.provisioning["start_ordinal"] == HEAD
    if is_head_launch and pool.nodes_desired > 0 and not nodes.filter(ordinal=HEAD).exists():
        return True
    return pool.nodes_desired > nodes.count()


def _discard_launch_request(pool_id: int, context: ReconcileContext) -> bool:
    """Discard the pool's launch request, whose instances are then terminated as orphans.

    Return False if there is no launch request.
    """
    with context.fence():
        pool = lock_pool(pool_id)
        if not pool.provisioning:
            return False
        in_flight, pool.provisioning = pool.provisioning, None
        pool.save(update_fields=["provisioning"])
        reason = "request dropped: the nodes are no longer needed"
        history.write(pool, ScalingKind.SURPLUS, reason, at=context.now, token=in_flight["token"])
    return True


def _record_failure(
    pool_id: int, order: LaunchRequest, error: ProviderError, context: ReconcileContext
) -> bool:
    with context.fence():
        pool = lock_pool(pool_id)
        if not _is_current_request(pool, order):
            return False
        if _is_new_request(pool, context) and error.kind not in UNCERTAIN:
            pool.provisioning = None
        pool.retry_at = context.now + timedelta(seconds=pool.reconcile_tick)
        _count_launch_outcome(pool, error.kind)
        pool.save(update_fields=["provisioning", "retry_at", "provision_outcomes"])
        record_error(pool, f"request {format_count(order.count, 'node')}", error, context.now)
    return True


def _record_result(
    pool_id: int, order: LaunchRequest, result: ProvisionResult, context: ReconcileContext
) -> bool:
    """Create nodes for the usable instances, and terminate all other instances.

    Return False if the launch request is no longer current.
    """
    with context.fence():
        pool = lock_pool(pool_id)
        if not _is_current_request(pool, order):
            return False
        nodes = load_live_nodes(pool_id)
        fitting, surplus = _split_instances(order, result.instances, {node.ordinal for node in nodes})
        kind = ScalingKind.PROVISION if _is_new_request(pool, context) else ScalingKind.ADOPTED
        pool.provisioning, pool.retry_at, pool.last_error = None, None, pool.boot_error
        _count_launch_outcome(pool, "all" if len(fitting) >= order.count else "fewer")
        pool.save(update_fields=["provisioning", "retry_at", "last_error", "provision_outcomes"])
        expected = _expected_ready_at(pool, context)
        for instance in fitting:
            _create_node(pool, instance, order, expected, context)
        detail = f": {result.message}" if result.message else ""
        is_complete = len(fitting) == order.count
        provided = (
            format_count(order.count, "node") if is_complete else f"{len(fitting)} of {order.count} nodes"
        )
        reason = f"{provided} provided{detail}"
        history.write(
            pool, kind, reason, at=context.now, after=pool.nodes_desired,
            start_ordinal=order.start_ordinal, token=order.client_token, asked=order.count, came=len(fitting),
        )  # fmt: skip
        if surplus:
            names = [instance.instance_id for instance in surplus]
            reason = f"terminated {format_count(len(names), 'extra instance')} that the provider returned"
            history.write(pool, ScalingKind.SURPLUS, reason, at=context.now, instances=names)
    if surplus:
        terminations.terminate(pool, names, context)
    return True


def _count_launch_outcome(pool: NodePool, outcome: str) -> None:
    pool.provision_outcomes[outcome] = pool.provision_outcomes.get(outcome, 0) + 1


def _is_current_request(pool: NodePool, order: LaunchRequest) -> bool:
    return pool.provisioning is not None and pool.provisioning["token"] == order.client_token


def _is_new_request(pool: NodePool, context: ReconcileContext) -> bool:
    """Return whether this pass created the request. If so, no earlier launch can have succeeded."""
    return pool.provisioning is not None and pool.provisioning["pass"] == context.name


def _split_instances(
    order: LaunchRequest, instances: Iterable[Instance], used: set[int]
) -> tuple[list[Instance], list[Instance]]:
    """Return the instances that can become nodes, and the surplus instances, both sorted by ordinal.

    Instances that are shutting down or no longer exist are in neither list.
    """
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


def _create_node(
    pool: NodePool,
    instance: Instance,
    order: LaunchRequest,
    expected: datetime | None,
    context: ReconcileContext,
) -> Node:
    prepared = instance.prepared or not order.environment
    ready = instance.state == InstanceState.READY and prepared and not context.provider.has_joining_machines
    node = Node.objects.create(
        pool=pool,
        name=f"{pool.name}-{instance.ordinal}",
        ordinal=instance.ordinal,
        state=NodeState.READY if ready else NodeState.REQUESTED,
        instance_id=instance.instance_id,
        client_token=order.client_token,
        address=instance.address,
        devices=list(instance.devices),
        **capacity_columns(pool, instance, order.shape),
        taints=pool.taints,
        queued=instance.state is InstanceState.QUEUED,
        not_ready_reason="" if ready else instance.message,
        environment_id=order.environment or None,
        phases=list(instance.phases or ()),
        prepared_at=context.now if ready and order.environment else None,
        since=context.now,
        created_at=context.now,
        ready_at=context.now if ready else None if instance.state is InstanceState.QUEUED else expected,
    )
    if ready:
        history.write(pool, ScalingKind.READY, "ready immediately", at=context.now, node=node)
        reset_failed_boots(pool)
    return node


def _expected_ready_at(pool: NodePool, context: ReconcileContext) -> datetime | None:
    """Estimate from recent boots when new nodes will be ready, or return None."""
    booted = Node.objects.filter(pool=pool, state__in=HOSTING).order_by("-pk")[:RECENT_BOOTS]
    times = [node.ready_at - node.created_at for node in booted if node.ready_at is not None]
    return context.now + sum(times, timedelta()) / len(times) if times else None
