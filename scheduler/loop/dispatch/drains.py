"""Evict pods from draining nodes after the drain timeout.

The engine only avoids draining nodes. Evictions of kind `drain` come from this module alone.
A drain never evicts a non-preemptible workload unless its node has a spot interruption.
"""

import uuid
from collections import defaultdict
from datetime import datetime

from django.db.models import Q

from berth.db.lease import fenced_transaction
from pools.selectors import overdue_drains
from projects.models import Phase, Pod, Workload
from projects.models.workloads import LIVE_POD_STATES
from projects.services.workloads.moves import move
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.gangs import ACTOR, stop_live_pods
from scheduler.models import Eviction


def evict_from_overdue_drains(now: datetime, context: SchedulerContext) -> int:
    """Evict workloads from nodes whose drain timeout has passed. Return the number of evicted workloads."""
    overdue = {node.pk: node for node in overdue_drains(now)}
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
        return sum(_evict_workload(row, pods_by_workload[row.pk], now) for row in live.order_by("pk"))


def _evict_workload(workload: Workload, pods: list[Pod], now: datetime) -> bool:
    node = pods[0].node
    rule = f"The drain timeout of node {node.name} has passed" + (
        f": {node.drain_reason}." if node.drain_reason else "."
    )
    started = workload.started_at or now
    since = max(started, workload.last_checkpoint_at or started)
    moved = move(
        workload,
        expected=[workload.phase],
        to=Phase.STOPPING,
        next_phase=Phase.PENDING,
        reason="Drained",
        message=rule,
        actor=ACTOR,
        now=now,
        data={"node": node.name},
    )
    stop_live_pods([workload.pk], now)
    project = workload.project
    Eviction.objects.create(
        at=now,
        kind="drain",
        pool_id=node.pool_id,
        pool_name=node.pool.name,
        workload_id=workload.pk,
        workload_name=workload.name,
        project_id=project.pk,
        project_name=project.name,
        department_id=project.department_id,
        department_name=project.department.name,
        rule=rule,
        numbers={"node": node.name, "drain_started_at": str(node.drain_started_at)},
        pods=[{"role": pod.role, "index": pod.index} for pod in pods],
        entire_workload=True,
        gpu_milli=workload.gpu_milli_now,
        lost_gpu_seconds=int((now - since).total_seconds()) * workload.gpu_milli_now // 1000,
    )
    return moved
