"""Load, lock and update a pool's rows during a reconciliation pass."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta

from berth.db.queries.compiled import compiled_once
from pools import history
from pools.engine.reconciler import Fleet
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Provider, ProviderError
from pools.services.failed_boots import are_launches_delayed

Fence = Callable[[], AbstractContextManager[None]]
REPEAT_AFTER = timedelta(hours=1)
POOLS = compiled_once(lambda keys: NodePool.objects.filter(pk__any=keys))
LIVING_NODES = compiled_once(
    lambda pools: Node.objects.filter(pool_id__any=pools).exclude(state=NodeState.ENDED).order_by("ordinal")
)


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Context of one reconciliation pass.

    `fence()` opens a transaction, or raises an error if this process is no longer the leader. `name`
    distinguishes launch requests of different passes. `changed_at` is when the provider last noticed a
    change, or None if it cannot notice changes.
    """

    provider: Provider
    now: datetime
    fence: Fence
    name: str
    changed_at: datetime | None = None


def lock_pool(pool_id: int) -> NodePool:
    """Lock the pool's row for updates, and return it.

    Other transactions can still add foreign keys to the row.
    """
    return NodePool.objects.select_for_update(no_key=True).get(pk=pool_id)


def load_pool(pool_id: int) -> NodePool:
    """Return the pool's row. Raises NodePool.DoesNotExist if the pool has been deleted."""
    for pool in POOLS([pool_id]):
        return pool
    raise NodePool.DoesNotExist(f"There is no pool with the ID {pool_id}.")


def load_live_nodes(pool_id: int) -> list[Node]:
    """Return the pool's nodes that have not ended.

    Lost nodes are included, because their ordinals are still in use.
    """
    return list(LIVING_NODES([pool_id]))


def load_pool_nodes(pool: NodePool) -> list[Node]:
    """Return the pool's nodes that have not ended.

    To save queries, `node.pool` is set to the given pool.
    """
    nodes = load_live_nodes(pool.pk)
    for node in nodes:
        node.pool = pool
    return nodes


def build_fleet(pool: NodePool, nodes: Iterable[Node], now: datetime) -> Fleet:
    nodes = tuple(nodes)
    draining = [node for node in nodes if node.state == NodeState.DRAINING and node.emptied_at is None]
    by_scaling = frozenset(node.ordinal for node in draining if node.drained_by_scaling)
    current = _ordinals_in_states(nodes, USABLE)
    pending = _ordinals_in_states(nodes, PENDING)
    return Fleet(
        desired=pool.nodes_desired,
        current=current,
        pending=pending,
        queued=frozenset(node.ordinal for node in nodes if node.state in PENDING and node.queued),
        draining=by_scaling,
        retiring=frozenset(node.ordinal for node in nodes) - current - pending - by_scaling,
        in_flight=pool.provisioning["count"] if pool.provisioning else 0,
        may_launch=not pool.paused
        and not is_retry_delayed(pool, now)
        and not are_launches_delayed(pool, now),
        may_drain=not pool.paused,
    )


def is_retry_delayed(pool: NodePool, now: datetime) -> bool:
    """Return whether a failed call to the provider delays the next one."""
    if pool.retry_at is None:
        return False
    return now < pool.retry_at <= now + timedelta(seconds=pool.reconcile_tick)


def record_error(pool: NodePool, action: str, error: ProviderError, now: datetime) -> None:
    """Store the provider's error on the pool. Add it to the history unless it was added recently."""
    pool.last_error = f"could not {action} ({error.kind}): {error.message}"
    pool.save(update_fields=["last_error"])
    # Sort by primary key, because the clock may have been set back.
    latest = ScalingEvent.objects.filter(pool=pool).order_by("-pk").first()
    if latest is not None and (latest.kind, latest.reason) == (ScalingKind.ERROR, pool.last_error):
        recorded_at = latest.at
        if recorded_at <= now < recorded_at + REPEAT_AFTER:
            return
    history.write(pool, ScalingKind.ERROR, pool.last_error, at=now, error=error.kind)


def clear_error(pool: NodePool) -> bool:
    """Clear the provider's error, but not a boot failure. Return whether there was an error."""
    if pool.last_error == pool.boot_error:
        return False
    pool.last_error = pool.boot_error
    pool.save(update_fields=["last_error"])
    return True


def _ordinals_in_states(nodes: Iterable[Node], states: tuple[NodeState, ...]) -> frozenset[int]:
    return frozenset(node.ordinal for node in nodes if node.state in states)
