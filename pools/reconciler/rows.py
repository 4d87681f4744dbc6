"""Load a pool's rows for one pass."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta

from pools import history
from pools.engine.reconciler import Fleet
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.providers.base import Provider, ProviderError
from pools.services.failed_boots import orders_are_delayed

Fence = Callable[[], AbstractContextManager[None]]
ONE_ROW_PER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass works with. `fence()` is a transaction in which we still lead, or it raises. By `name` a
    pass knows its own order from one that an earlier pass left behind."""

    provider: Provider
    now: datetime
    fence: Fence
    name: str


def locked(pool_id: int) -> NodePool:
    """Against other changes of the row; who only refers to it (a node's history does) need not wait, and so
    cannot wait for us while we wait for the node."""
    return NodePool.objects.select_for_update(no_key=True).get(pk=pool_id)


def living(pool_id: int) -> list[Node]:
    """Lost ones too: they hold their ordinal until they are ended."""
    return list(Node.objects.filter(pool_id=pool_id).exclude(state=NodeState.ENDED).order_by("ordinal"))


def living_of(pool: NodePool) -> list[Node]:
    """The same, each knowing the pool in hand: who writes of a node need not read its pool again."""
    nodes = living(pool.pk)
    for node in nodes:
        node.pool = pool
    return nodes


def fleet_of(pool: NodePool, nodes: Iterable[Node], now: datetime) -> Fleet:
    nodes = tuple(nodes)
    draining = [node for node in nodes if node.state == NodeState.DRAINING and node.emptied_at is None]
    ours = frozenset(node.ordinal for node in draining if node.drained_by_scaling)
    current = _ordinals(nodes, USABLE)
    pending = _ordinals(nodes, PENDING)
    return Fleet(
        desired=pool.nodes_desired,
        current=current,
        pending=pending,
        draining=ours,
        retiring=frozenset(node.ordinal for node in nodes) - current - pending - ours,
        in_flight=pool.provisioning["count"] if pool.provisioning else 0,
        may_order=not pool.paused and not waits(pool, now) and not orders_are_delayed(pool, now),
        may_drain=not pool.paused,
    )


def waits(pool: NodePool, now: datetime) -> bool:
    """After a failed call, for the next tick; a clock that was set back must not make it wait for years."""
    if pool.retry_at is None:
        return False
    return now < pool.retry_at <= now + timedelta(seconds=pool.reconcile_tick)


def remember_trouble(pool: NodePool, what: str, error: ProviderError, now: datetime) -> None:
    """On the pool, and in the history unless it stands there already."""
    pool.last_error = f"{what}: {error.kind}: {error.message}"
    pool.save(update_fields=["last_error"])
    latest = ScalingEvent.objects.filter(pool=pool).order_by("-pk").first()  # whatever the clock did
    if latest is not None and (latest.kind, latest.reason) == (ScalingKind.ERROR, pool.last_error):
        said_at = latest.at
        if said_at <= now < said_at + ONE_ROW_PER:
            return
    history.write(pool, ScalingKind.ERROR, pool.last_error, at=now, error=error.kind)


def forget_trouble(pool: NodePool) -> bool:
    """The provider answers again; failed boots remain the pool's trouble. False: nothing changed."""
    if pool.last_error == pool.boot_error:
        return False
    pool.last_error = pool.boot_error
    pool.save(update_fields=["last_error"])
    return True


def _ordinals(nodes: Iterable[Node], states: tuple[NodeState, ...]) -> frozenset[int]:
    return frozenset(node.ordinal for node in nodes if node.state in states)
