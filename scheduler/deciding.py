"""Call the engine, isolating pools that it cannot decide."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from scheduler.engine.decide import decide, decide_again
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Snapshot, Workload
from scheduler.engine.plan import Plan
from scheduler.specs import NOTHING_TO_RUN

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Carried:
    """How things stood after the last decision, for the next one to go on from. It spares effort only."""

    layout: Layout | None = None


def decide_what_can_be(snapshot: Snapshot, carried: Carried | None = None) -> Plan:
    """The plan for all pools. Where there is none, for those that can be decided by themselves; the notes
    name the others. Raises what the engine raised when no pool is to blame alone."""
    try:
        return decide(snapshot) if carried is None else _decided_again(snapshot, carried)
    except Exception:
        log.exception("no plan for all pools together")
        broken = _broken(snapshot)
        if not broken:
            raise
    plan = decide(without(snapshot, broken))
    notes = [f"The pool {name} was left out, for it cannot be decided: {why}" for name, why in broken.items()]
    return replace(plan, notes=(*plan.notes, *notes))


def _decided_again(snapshot: Snapshot, carried: Carried) -> Plan:
    """A decision that fails leaves nothing to carry on from, and is made once more from the beginning."""
    layout, carried.layout = carried.layout, None
    try:
        plan, carried.layout = decide_again(snapshot, layout)
    except Exception:
        if layout is None:
            raise
        log.exception("no plan from what was carried")
        plan, carried.layout = decide_again(snapshot, None)
    return plan


def _broken(snapshot: Snapshot) -> Mapping[str, str]:
    names = sorted(pool.name for pool in snapshot.pools)
    found: dict[str, str] = {}
    for name in names:
        try:
            decide(without(snapshot, [other for other in names if other != name]))
        except Exception as error:
            log.exception("the pool %s cannot be decided", name)
            found[name] = repr(error)
    return found


def without(snapshot: Snapshot, pools: Collection[str]) -> Snapshot:
    """The same, as if these pools were not there. Who has a place there, or no other pool, is set aside."""
    gone = {node.name for node in snapshot.nodes if node.pool in pools}
    placed = {promise.workload for promise in snapshot.reservations if promise.node in gone}
    return replace(
        snapshot,
        pools=tuple(pool for pool in snapshot.pools if pool.name not in pools),
        nodes=tuple(node for node in snapshot.nodes if node.name not in gone),
        reservations=tuple(promise for promise in snapshot.reservations if promise.workload not in placed),
        workloads=tuple(
            _elsewhere(workload, pools, gone, has_promise=workload.name in placed)
            for workload in snapshot.workloads
        ),
    )


def _elsewhere(
    workload: Workload, pools: Collection[str], gone: Collection[str], *, has_promise: bool
) -> Workload:
    left = tuple(pool for pool in workload.pools if pool not in pools)
    if left and not has_promise and not any(pod.node in gone for pod in workload.pods):
        return replace(workload, pools=left)
    # Whoever waits for it goes on waiting: it is there, and has not completed.
    return replace(workload, pools=(), tree=NOTHING_TO_RUN, pods=(), suspended=True)
