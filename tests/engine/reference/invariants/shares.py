"""Invariants for reported shares.

Each invariant yields one sentence per violation and uses none of the engine's own logic.
"""

from collections.abc import Iterator

from berth.core.values.amounts import Amounts
from scheduler.engine.model import (
    NodeState,
    Snapshot,
)
from scheduler.engine.plan import Plan
from tests.engine.reference.replay import (
    replay_plan,
    roles,
)

Broken = Iterator[str]


def shares_sum_to_no_more_than_capacity(snapshot: Snapshot, plan: Plan) -> Broken:
    shares = {(r.pool, r.queue): r.share for r in plan.queues}
    for pool in snapshot.pools:
        for parent in (None, *(q.name for q in snapshot.queues if q.parent is None)):
            children = [q.name for q in snapshot.queues if q.parent == parent]
            whole = capacity(snapshot, pool.name) if parent is None else shares[pool.name, parent]
            total = Amounts()
            for name in children:
                total = total.plus(shares[pool.name, name])
            if any(share > most for share, most in zip(total, whole, strict=True)):
                yield f"{pool.name}: shares of {children} are {total}, there is {whole}"


def capacity(snapshot: Snapshot, pool: str) -> Amounts:
    total = Amounts()
    for node in snapshot.nodes:
        if node.pool == pool and node.state in (NodeState.READY, NodeState.BOOTING):
            total = total.plus(node.capacity)
    return total


def reports_match_allocated_resources(snapshot: Snapshot, plan: Plan) -> Broken:
    cluster = replay_plan(snapshot, plan)
    for report in plan.queues:
        held = cluster.allocated(report.pool, report.queue)
        if report.allocated.gpu != held.gpu and not _by_memory(snapshot):
            yield f"{report.queue} in {report.pool}: reported {report.allocated}, holds {held}"


def _by_memory(snapshot: Snapshot) -> bool:
    return any(role.request.gpu_memory_mib for w in snapshot.workloads for role in roles(w.tree))


INVARIANTS = (
    shares_sum_to_no_more_than_capacity,
    reports_match_allocated_resources,
)
