"""Assign a rendezvous address to a run's ranks before the first rank starts."""

import logging
import uuid
from collections.abc import Iterable

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.writes.moves import RowChange, lock_keys
from berth.db.writes.set_writes import write_changes
from pools.models import NodePool
from pools.runtimes.base import RuntimeFailure
from projects.models import Phase, Pod, Workload
from scheduler.engine.plan import Place, Plan
from scheduler.loop.context import SchedulerContext
from scheduler.loop.observe.view import ClusterView

log = logging.getLogger(__name__)

PHASES = (Phase.STARTING, Phase.RUNNING)

Rendezvous = dict[str, str | int]


def rendezvous_for_plan(view: ClusterView, plan: Plan, context: SchedulerContext) -> dict[str, Rendezvous]:
    """Return a rendezvous address for each workload that the plan starts, to be stored at commit."""
    assert_no_transaction()
    addresses: dict[str, Rendezvous] = {}
    for bundle in plan.bundles:
        for step in bundle.steps:
            workload = view.workloads.get(step.workload)
            if not isinstance(step, Place) or step.reserved or step.workload in addresses or workload is None:
                continue
            if workload.phase in (Phase.PENDING, Phase.RESERVED):
                address = _find_free_address(view.pools[bundle.pool], context)
                if address is not None:
                    addresses[step.workload] = address
    return addresses


def assign_rendezvous(pods: Iterable[Pod], context: SchedulerContext) -> None:
    """Assign an address to runs that started without a rendezvous address."""
    assert_no_transaction()
    pending = [pod for pod in pods if pod.workload.rendezvous is None]
    addresses: dict[uuid.UUID, Rendezvous] = {}
    for pod in pending:
        address = None if pod.workload_id in addresses else _find_free_address(pod.node.pool, context)
        if address is not None:
            addresses[pod.workload_id] = address
    if not addresses:
        return
    with fenced_transaction(context.held_lease):
        unassigned = lock_keys(Workload.objects.filter(pk__in=addresses, rendezvous__isnull=True))
        changes = [RowChange(pk, PHASES, {"rendezvous": addresses[pk]}) for pk in unassigned]
        write_changes(Workload, "phase", changes)
    crash_point("dispatch.rendezvous")
    stored = dict(Workload.objects.filter(pk__in=addresses).values_list("pk", "rendezvous"))
    for pod in pending:
        pod.workload.rendezvous = stored.get(pod.workload_id)


def _find_free_address(pool: NodePool, context: SchedulerContext) -> Rendezvous | None:
    try:
        address, port = context.runtimes(pool).rendezvous()
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("no rendezvous address in pool %s: %s", pool.name, error)
        return None
    return {"address": address, "port": port}
