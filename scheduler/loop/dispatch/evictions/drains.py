"""Evict pods from draining nodes after the drain timeout.

Non-preemptible workloads are evicted only from nodes that are about to be interrupted.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from django.db.models import Q

from berth.db.loops.lease import fenced_transaction
from berth.db.queries.compiled import compiled_once
from berth.db.writes.set_writes import write_with_bisection
from pools.models import Node
from pools.selectors import overdue_drains
from projects.models import Phase, Pod, Workload
from projects.models.workloads import LIVE_POD_STATES
from projects.queries.lost_work import lost_gpu_seconds
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.lifecycle.gangs import change_phases_and_stop_pods
from scheduler.models import Eviction
from scheduler.reports.evictions.rows import eviction_row

log = logging.getLogger(__name__)

OVERDUE = compiled_once(overdue_drains)


def evict_from_overdue_drains(now: datetime, context: SchedulerContext) -> int:
    """Evict workloads from nodes whose drain timeout has passed. Return the number of evicted workloads."""
    overdue = {node.pk: node for node in OVERDUE(now)}
    if not overdue:
        return 0
    with fenced_transaction(context.held_lease):
        pods_by_workload: dict[uuid.UUID, list[Pod]] = defaultdict(list)
        pods = Pod.objects.filter(node_id__in=overdue, state__in=LIVE_POD_STATES).select_related(
            "allocation", "node__pool"
        )
        for pod in pods.order_by("workload_id", "role", "index"):
            pods_by_workload[pod.workload_id].append(pod)
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        interrupted = [
            pk
            for pk, live_pods in pods_by_workload.items()
            if any(overdue[p.node_id].interruption_at for p in live_pods)
        ]
        # A node with a spot interruption is about to disappear.
        protected = Q(preemptible=False) & ~Q(pk__in=interrupted)
        live = rows.filter(pk__in=pods_by_workload, phase__in=(Phase.STARTING, Phase.RUNNING)).exclude(
            protected
        )
        drained = [(row, pods_by_workload[row.pk]) for row in live.order_by("pk")]
        rejected = write_with_bisection(drained, lambda part: _evict_workloads(part, now))
    for (workload, _), reason in rejected:
        log.error("workload %s could not be evicted from its drained node: %s", workload.pk, reason)
    return len(drained) - len(rejected)


def _evict_workloads(drained: Sequence[tuple[Workload, list[Pod]]], now: datetime) -> None:
    transitions = [
        PhaseTransition(
            workload,
            [workload.phase],
            Phase.STOPPING,
            "Drained",
            _drain_rule(pods[0].node),
            data={"node": pods[0].node.name},
            columns={"next_phase": Phase.PENDING},
        )
        for workload, pods in drained
    ]
    made = change_phases_and_stop_pods(transitions, now)
    assert len(made) == len(transitions), "a locked row cannot leave its phase"
    Eviction.objects.bulk_create(_audit_record(workload, pods, now) for workload, pods in drained)


def _drain_rule(node: Node) -> str:
    reason = f": {node.drain_reason}." if node.drain_reason else "."
    return f"The drain timeout of node {node.name} has passed{reason}"


def _audit_record(workload: Workload, pods: Sequence[Pod], now: datetime) -> Eviction:
    node, gpu_milli = pods[0].node, workload.gpu_milli_now
    return eviction_row(
        workload,
        node.pool_id,
        node.pool.name,
        at=now,
        kind="drain",
        rule=_drain_rule(node),
        pods=[(pod.role, pod.index) for pod in pods],
        numbers={"node": node.name, "drain_started_at": str(node.drain_started_at)},
        gpu_milli=gpu_milli,
        lost_gpu_seconds=lost_gpu_seconds(
            gpu_milli, workload.started_at or now, workload.last_checkpoint_at, now
        ),
    )
