"""Remove the obstacle that a blocker names from a snapshot."""

from collections.abc import Callable
from dataclasses import replace

from berth.core.values.amounts import UNLIMITED, Bounds
from scheduler.engine.model import Node, PoolQuota, Queue, Role, Snapshot, Workload
from scheduler.engine.plan import Blocker, Reason
from tests.engine.reference.replay import roles

AMPLE = 10_000


def without(snapshot: Snapshot, workload: Workload, pool: str, blocker: Blocker) -> Snapshot | None:
    """Return the snapshot without the obstacle, or None if this module does not know the obstacle."""
    queue = str(blocker.numbers.get("queue"))
    match blocker.reason:
        case Reason.PROJECT_LIMIT | Reason.DEPARTMENT_LIMIT:
            return _with_pool_quota(
                snapshot, queue, pool, lambda had: replace(had, limit=UNLIMITED, over_quota=True)
            )
        case Reason.NON_PREEMPTIBLE_OVER_QUOTA | Reason.DEPARTMENT_OVERSOLD | Reason.WOULD_EXCEED_FAIR_SHARE:
            unlimited = Bounds(None, None, None)
            return _with_pool_quota(snapshot, queue, pool, lambda had: replace(had, quota=unlimited))
        case Reason.WAITING_FOR_CAPACITY | Reason.FRAGMENTED | Reason.TOPOLOGY:
            nodes = tuple(
                _ample_node(snapshot, role, pool, f"ample-{role.name}-{number}")
                for role in roles(workload.tree)
                for number in range(max(1, role.min))  # this role is enough for any spread limit
            )
            return replace(snapshot, nodes=snapshot.nodes + nodes)
        case _:
            return None


def _with_pool_quota(
    snapshot: Snapshot, name: str, pool: str, change: Callable[[PoolQuota], PoolQuota]
) -> Snapshot:
    def changed(queue: Queue) -> Queue:
        if queue.name != name:
            return queue
        pool_quota = change(queue.pool_quotas.get(pool, PoolQuota()))
        return replace(queue, pool_quotas={**queue.pool_quotas, pool: pool_quota})

    return replace(snapshot, queues=tuple(map(changed, snapshot.queues)))


def _ample_node(snapshot: Snapshot, role: Role, pool: str, name: str) -> Node:
    """Return an empty node with room for every workload, all in one new rack and zone."""
    levels = next(entry.topology for entry in snapshot.pools if entry.name == pool)
    labels = dict.fromkeys(levels, "ample") | dict(role.node_selector)
    model = role.gpu_models[0] if role.gpu_models else "A"
    return Node(name, pool, AMPLE, model, 16_000, AMPLE * 1000, AMPLE * 1000, AMPLE, labels)
