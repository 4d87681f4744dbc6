"""Compare the provider's listing with our rows."""

from datetime import timedelta

from berth.db.moves import move
from pools import history
from pools.models import Node, NodePool
from pools.models.node import HOSTING, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Instance, InstanceState, ProviderError
from pools.reconciler import long_drains, orphans, terminations
from pools.reconciler.rows import Pass, clear_error, living_of, locked, record_error
from pools.services.failed_boots import forget_failed_boots, note_failed_boot, orders_are_delayed
from pools.services.nodes import interrupt_node

EXISTING = (InstanceState.BOOTING, InstanceState.READY)
BOOTING_INTERVAL = timedelta(seconds=3)


def compare(pool_id: int, this: Pass) -> bool:
    """Compare at each tick, and more often while nodes boot. Return True if rows changed."""
    pool = NodePool.objects.get(pk=pool_id)
    if not _is_due(pool, this):
        return False
    try:
        listed = this.provider.list_instances(pool.name)
    except ProviderError as error:
        with this.fence():
            pool = locked(pool_id)
            _record_tick(pool, this)
            record_error(pool, "list instances", error, this.now)
        return True
    with this.fence():
        pool = locked(pool_id)
        nodes = living_of(pool)
        instances = {instance.instance_id: instance for instance in listed}
        did = [_compare(node, instances.get(node.instance_id), pool, this) for node in nodes]
        ending, wrote = orphans.to_end(pool, nodes, listed, this)
        wrote |= long_drains.note(pool, nodes, this)
        _record_tick(pool, this)
        wrote |= not ending and _clear_error_when_done(pool, nodes, this)
    if ending:
        terminations.terminate(pool, ending, this)
    return any(did) or wrote or bool(ending)


def _is_due(pool: NodePool, this: Pass) -> bool:
    if pool.ticked_at is None or this.now < pool.ticked_at:  # first tick, or the clock was set back
        return True
    interval = timedelta(seconds=pool.reconcile_tick)
    if this.now >= pool.ticked_at + interval:
        return True
    booting = Node.objects.filter(pool=pool, state__in=PENDING).exists()
    return booting and this.now >= pool.ticked_at + min(interval, BOOTING_INTERVAL)


def _record_tick(pool: NodePool, this: Pass) -> None:
    pool.ticked_at = this.now
    pool.save(update_fields=["ticked_at"])


def _clear_error_when_done(pool: NodePool, nodes: list[Node], this: Pass) -> bool:
    """Clear the pool's error once the provider responds and nothing is left to order or end."""
    living = sum(node.state in (*USABLE, *PENDING) for node in nodes)
    if pool.provisioning or (pool.nodes_desired > living and not orders_are_delayed(pool, this.now)):
        return False
    return clear_error(pool)


def _compare(node: Node, instance: Instance | None, pool: NodePool, this: Pass) -> bool:
    if instance is None or instance.state not in EXISTING:
        if node.state == NodeState.REQUESTED and instance is None and not _is_overdue(node, pool, this):
            return False  # just ordered: the listing may lag behind
        _note_phases(node, instance)
        why = instance.message if instance is not None else ""
        return _lose(node, why or "instance is gone", this)
    if instance.interruption is not None and node.state != NodeState.LOST:
        return interrupt_node(node, instance.interruption, at=this.now)
    if node.state not in PENDING:
        return False
    noted = _note_phases(node, instance) | _note_address(node, instance, this)
    if _is_ready(node, instance, this):
        return _join(node, instance, this)
    if _is_overdue(node, pool, this):
        obstacle = f": {instance.message}" if instance.message else ""
        return _lose(node, f"not ready within {pool.boot_timeout} s{obstacle}", this)
    return noted | move(node, "state", expected=(NodeState.REQUESTED,), to=NodeState.BOOTING, since=this.now)


def _is_ready(node: Node, instance: Instance, this: Pass) -> bool:
    """Return True if the machine runs, has joined if required, and has its environment."""
    joined = node.joined_at or not this.provider.machines_join
    prepared = node.environment_id is None or node.prepared_at or instance.prepared
    return bool(instance.state == InstanceState.READY and joined and prepared)


def _note_phases(node: Node, instance: Instance | None) -> bool:
    """Store the progress of the environment, if the provider reports it."""
    if instance is None or instance.phases is None or node.phases == list(instance.phases):
        return False
    node.phases = [dict(phase) for phase in instance.phases]
    node.save(update_fields=["phases"])
    return True


def _note_address(node: Node, instance: Instance, this: Pass) -> bool:
    """Store a booting node's address for checks of its runtime; joining machines report their own."""
    if this.provider.machines_join or node.address or not instance.address:
        return False
    node.address = instance.address
    node.save(update_fields=["address"])
    return True


def _join(node: Node, instance: Instance, this: Pass) -> bool:
    joined = move(
        node, "state", expected=PENDING, to=NodeState.READY, since=this.now, ready_at=this.now,
        address=node.address or instance.address, devices=node.devices or list(instance.devices),
        prepared_at=node.prepared_at or (this.now if node.environment_id else None),
    )  # fmt: skip
    if joined:
        took = (this.now - node.created_at).total_seconds()
        reason = f"ready after {max(took, 0):.0f} s"
        history.write(node.pool, ScalingKind.READY, reason, at=this.now, node=node)
        forget_failed_boots(node.pool)
    return joined


def _lose(node: Node, reason: str, this: Pass) -> bool:
    booting = node.state in PENDING
    is_lost = move(node, "state", expected=(*PENDING, *HOSTING), to=NodeState.LOST, since=this.now)
    if is_lost:
        history.write(node.pool, ScalingKind.LOST, reason, at=this.now, node=node)
    if is_lost and booting:
        note_failed_boot(node, reason, at=this.now)
    return is_lost


def _is_overdue(node: Node, pool: NodePool, this: Pass) -> bool:
    return this.now >= node.created_at + timedelta(seconds=pool.boot_timeout)
