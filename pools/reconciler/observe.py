"""Update the database rows of nodes from the provider's list of instances."""

from collections.abc import Iterable
from datetime import timedelta

from berth.db.writes.moves import compare_and_set
from pools import history
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Instance, InstanceState, Interruption, ProviderError
from pools.reconciler import long_drains, orphans, terminations
from pools.reconciler.capacity import store_capacity
from pools.reconciler.rows import ReconcileContext, clear_error, load_pool_nodes, lock_pool, record_error
from pools.services.failed_boots import are_launches_delayed, record_failed_boot, reset_failed_boots
from pools.services.nodes import interrupt_node

EXISTING = (InstanceState.QUEUED, InstanceState.BOOTING, InstanceState.READY)
BOOTING_INTERVAL = timedelta(seconds=3)


def sync_nodes(pool: NodePool, context: ReconcileContext) -> bool:
    """Update the nodes from the provider's list of instances, and terminate orphans.

    Return whether anything changed.
    """
    pool_id = pool.pk
    try:
        listed = context.provider.list_instances(pool.name)
    except ProviderError as error:
        with context.fence():
            pool = lock_pool(pool_id)
            _record_tick(pool, context)
            record_error(pool, "list instances", error, context.now)
        return True
    with context.fence():
        pool = lock_pool(pool_id)
        nodes = load_pool_nodes(pool)
        instances = {instance.instance_id: instance for instance in listed}
        changes = [_sync_node(node, instances.get(node.instance_id), pool, context) for node in nodes]
        ending, has_written = orphans.select_orphans_to_terminate(pool, nodes, listed, context)
        has_written |= long_drains.record_overdue_drains(pool, nodes, context)
        _record_tick(pool, context)
        has_written |= not ending and _clear_error_when_done(pool, nodes, context)
    if ending:
        terminations.terminate(pool, ending, context)
    return any(changes) or has_written or bool(ending)


def is_listing_due(pool: NodePool, nodes: Iterable[Node], context: ReconcileContext) -> bool:
    """Return whether instances must be listed again: once per pool tick, or more often while nodes boot.

    They must also be listed immediately after the provider has noticed a change.
    """
    # A listing is due on the first tick, or if the clock was set back.
    if pool.ticked_at is None or context.now < pool.ticked_at:
        return True
    if context.changed_at is not None and context.changed_at >= pool.ticked_at:
        return True
    interval = timedelta(seconds=pool.reconcile_tick)
    if context.now >= pool.ticked_at + interval:
        return True
    booting = any(node.state in PENDING for node in nodes)
    return booting and context.now >= pool.ticked_at + min(interval, BOOTING_INTERVAL)


def _record_tick(pool: NodePool, context: ReconcileContext) -> None:
    pool.ticked_at = context.now
    pool.save(update_fields=["ticked_at"])


def _clear_error_when_done(pool: NodePool, nodes: list[Node], context: ReconcileContext) -> bool:
    """Clear the pool's error unless a launch is in progress or due. Return whether an error was cleared."""
    living = sum(node.state in (*USABLE, *PENDING) for node in nodes)
    if pool.provisioning or (pool.nodes_desired > living and not are_launches_delayed(pool, context.now)):
        return False
    return clear_error(pool)


def _sync_node(node: Node, instance: Instance | None, pool: NodePool, context: ReconcileContext) -> bool:
    if instance is None or instance.state not in EXISTING:
        if node.state == NodeState.REQUESTED and instance is None and not _is_overdue(node, pool, context):
            return False  # the instance was only just requested, so the listing may be out of date
        _store_phases(node, instance)
        if instance is not None and instance.interruption is not None and node.state in PENDING:
            return _interrupt_node(node, instance.interruption, context)
        reason = instance.message if instance is not None else ""
        is_evicted = instance is not None and instance.is_evicted
        return _mark_lost(node, reason or "instance is gone", context, is_evicted=is_evicted)
    if instance.interruption is not None and node.state != NodeState.LOST:
        return _interrupt_node(node, instance.interruption, context)
    has_stored = store_capacity(node, instance)
    if node.state not in PENDING:
        return has_stored
    has_stored |= _store_phases(node, instance) | _store_address(node, instance, context)
    has_stored |= _store_reason(node, instance) | _store_queued_state(node, instance, context)
    if node.queued:
        return has_stored
    if _is_ready(node, instance, context):
        return _mark_ready(node, instance, context)
    if _is_overdue(node, pool, context):
        obstacle = f": {instance.message}" if instance.message else ""
        return _mark_lost(node, f"not ready within {pool.boot_timeout} s{obstacle}", context)
    return has_stored | compare_and_set(
        node, "state", expected=(NodeState.REQUESTED,), to=NodeState.BOOTING, since=context.now
    )


def _interrupt_node(node: Node, interruption: Interruption, context: ReconcileContext) -> bool:
    is_booting = node.state in PENDING
    is_interrupted = interrupt_node(node, interruption, at=context.now)
    if is_interrupted and is_booting and interruption.is_boot_failure:
        record_failed_boot(node, interruption.reason, at=context.now)
    return is_interrupted


def _is_ready(node: Node, instance: Instance, context: ReconcileContext) -> bool:
    """Return whether the machine is running, has joined if required, and has installed its environment."""
    joined = node.joined_at or not context.provider.has_joining_machines
    prepared = node.environment_id is None or node.prepared_at or instance.prepared
    return bool(instance.state == InstanceState.READY and joined and prepared)


def _store_phases(node: Node, instance: Instance | None) -> bool:
    """Store the progress of the environment's installation, if known. Return whether it has changed."""
    if instance is None or instance.phases is None or node.phases == list(instance.phases):
        return False
    node.phases = [dict(phase) for phase in instance.phases]
    node.save(update_fields=["phases"])
    return True


def _store_address(node: Node, instance: Instance, context: ReconcileContext) -> bool:
    """Store a booting node's address for runtime checks.

    Return whether it was stored. Nodes of joining machines are skipped, because these machines report their
    own addresses.
    """
    if context.provider.has_joining_machines or node.address or not instance.address:
        return False
    node.address = instance.address
    node.save(update_fields=["address"])
    return True


def _store_reason(node: Node, instance: Instance) -> bool:
    """Store why the node is not ready yet. Return whether the reason has changed."""
    if node.not_ready_reason == instance.message:
        return False
    node.not_ready_reason = instance.message
    node.save(update_fields=["not_ready_reason"])
    return True


def _store_queued_state(node: Node, instance: Instance, context: ReconcileContext) -> bool:
    """Store whether the request is in the provider's queue, and return whether this changed.

    The node's age counts from when the request leaves the queue.
    """
    is_queued = instance.state is InstanceState.QUEUED
    if node.queued == is_queued:
        return False
    node.queued = is_queued
    if not is_queued:
        node.created_at = context.now
    node.save(update_fields=["queued", "created_at"])
    return True


def _mark_ready(node: Node, instance: Instance, context: ReconcileContext) -> bool:
    joined = compare_and_set(
        node, "state", expected=PENDING, to=NodeState.READY, since=context.now, ready_at=context.now,
        address=node.address or instance.address, devices=node.devices or list(instance.devices),
        prepared_at=node.prepared_at or (context.now if node.environment_id else None),
    )  # fmt: skip
    if joined:
        took = (context.now - node.created_at).total_seconds()
        reason = f"ready after {max(took, 0):.0f} s"
        history.write(node.pool, ScalingKind.READY, reason, at=context.now, node=node)
        reset_failed_boots(node.pool)
    return joined


def _mark_lost(node: Node, reason: str, context: ReconcileContext, *, is_evicted: bool = False) -> bool:
    booting = node.state in PENDING
    is_lost = compare_and_set(
        node, "state", expected=(*PENDING, *HOSTING), to=NodeState.LOST, since=context.now,
        eviction_reason=reason if is_evicted else node.eviction_reason,
    )  # fmt: skip
    if is_lost:
        history.write(node.pool, ScalingKind.LOST, reason, at=context.now, node=node)
    if is_lost and booting:
        record_failed_boot(node, reason, at=context.now)
    return is_lost


def _is_overdue(node: Node, pool: NodePool, context: ReconcileContext) -> bool:
    return context.now >= node.created_at + timedelta(seconds=pool.boot_timeout)
