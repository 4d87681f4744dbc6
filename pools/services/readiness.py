"""Record when a pool becomes operational or loses its last node."""

from collections.abc import Iterable
from datetime import datetime

from pools.models import Node, NodePool
from pools.models.node import HOSTING, USABLE
from pools.selectors import ready_threshold


def has_readiness_changed(pool: NodePool, nodes: Iterable[Node]) -> bool:
    states = [node.state for node in nodes]
    if pool.operational_since is None:
        return sum(state in USABLE for state in states) >= ready_threshold(pool)
    return not any(state in HOSTING for state in states)


def record_readiness(pool: NodePool, nodes: Iterable[Node], at: datetime) -> bool:
    """Store whether the pool is operational. Return whether that changed. The caller must lock the pool."""
    if not has_readiness_changed(pool, nodes):
        return False
    pool.operational_since = at if pool.operational_since is None else None
    pool.save(update_fields=["operational_since"])
    return True
