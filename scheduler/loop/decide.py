"""Run the engine. Skip pools that cause the engine to fail."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from scheduler.engine.decide import decide, decide_with_layout
from scheduler.engine.layout.layout import Layout
from scheduler.engine.layout.quota_used import with_reduced_group_quotas
from scheduler.engine.model import Snapshot, Workload
from scheduler.engine.plan import Plan
from scheduler.loop.observe.specs import NOTHING_TO_RUN

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LayoutCache:
    """Layout (the engine's boards) of the last cycle, reused by the next cycle.

    The cache never affects a plan.
    """

    layout: Layout | None = None


def decide_pools(snapshot: Snapshot, cache: LayoutCache | None = None) -> Plan:
    """Return the plan for all pools.

    If the engine fails, skip the pools that cause the failure and list them in the plan's notes. Raises the
    engine's error if no single pool is the cause.
    """
    try:
        return decide(snapshot) if cache is None else _decide_from_cache(snapshot, cache)
    except Exception:
        log.exception("the engine failed for all pools together")
        broken = _errors_by_pool(snapshot)
        if not broken:
            raise
    plan = decide(without_pools(snapshot, broken))
    notes = [
        f"Pool {name} was skipped because the engine failed for it: {error}" for name, error in broken.items()
    ]
    return replace(plan, notes=(*plan.notes, *notes))


def _decide_from_cache(snapshot: Snapshot, cache: LayoutCache) -> Plan:
    """Decide from the cached layout, or from scratch if that fails."""
    layout, cache.layout = cache.layout, None
    try:
        plan, cache.layout = decide_with_layout(snapshot, layout)
    except Exception:
        if layout is None:
            raise
        log.exception("the engine failed with the cached layout")
        plan, cache.layout = decide_with_layout(snapshot, None)
    return plan


def _errors_by_pool(snapshot: Snapshot) -> Mapping[str, str]:
    names = sorted(pool.name for pool in snapshot.pools)
    errors: dict[str, str] = {}
    for name in names:
        try:
            decide(without_pools(snapshot, [other for other in names if other != name]))
        except Exception as error:
            log.exception("the engine failed for pool %s", name)
            errors[name] = repr(error)
    return errors


def without_pools(snapshot: Snapshot, pools: Collection[str]) -> Snapshot:
    """Return a snapshot as if the pools did not exist.

    Workloads that depend on one of the pools are suspended in this snapshot.
    """
    nodes = {node.name for node in snapshot.nodes if node.pool in pools}
    reserved = {reservation.workload for reservation in snapshot.reservations if reservation.node in nodes}
    return replace(
        snapshot,
        pools=tuple(pool for pool in snapshot.pools if pool.name not in pools),
        nodes=tuple(node for node in snapshot.nodes if node.name not in nodes),
        queues=with_reduced_group_quotas(snapshot, pools),
        reservations=tuple(row for row in snapshot.reservations if row.workload not in reserved),
        workloads=tuple(
            _workload_without_pools(workload, pools, nodes, is_reserved=workload.name in reserved)
            for workload in snapshot.workloads
        ),
    )


def _workload_without_pools(
    workload: Workload, pools: Collection[str], nodes: Collection[str], *, is_reserved: bool
) -> Workload:
    remaining = tuple(pool for pool in workload.pools if pool not in pools)
    if remaining and not is_reserved and not any(pod.node in nodes for pod in workload.pods):
        return replace(workload, pools=remaining)
    # Suspend the workload instead of removing it, because its dependents must not start.
    return replace(workload, pools=(), tree=NOTHING_TO_RUN, pods=(), suspended=True)
