"""Evict pods from draining nodes after the drain timeout.

The engine only leaves such nodes alone; this is the one place that writes evictions of the kind `drain`.
Work that is not preemptible is waited for without limit.
"""

import uuid
from collections import defaultdict
from datetime import datetime

from django.db.models import Q

from berth.db.lease import fenced
from pools.selectors import overdue_drains
from projects.models import Phase, Pod, Workload
from projects.models.workloads import LIVE_POD_STATES
from projects.services.workloads.moves import move
from scheduler.dispatch.gangs import ACTOR, stop_live_pods
from scheduler.models import Eviction
from scheduler.post import Post


def evict_from_overdue_drains(now: datetime, post: Post) -> int:
    """Returns how many workloads had to go."""
    overdue = {node.pk: node for node in overdue_drains(now)}
    if not overdue:
        return 0
    with fenced(post.held):
        standing: dict[uuid.UUID, list[Pod]] = defaultdict(list)
        pods = Pod.objects.filter(node_id__in=overdue, state__in=LIVE_POD_STATES).select_related(
            "allocation", "node__pool"
        )
        for pod in pods.order_by("workload_id", "role", "index"):
            standing[pod.workload_id].append(pod)
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        going = [pk for pk, there in standing.items() if any(overdue[p.node_id].leaves_at for p in there)]
        waited_for = Q(preemptible=False) & ~Q(pk__in=going)  # a machine that is taken away waits for nobody
        live = rows.filter(pk__in=standing, phase__in=(Phase.STARTING, Phase.RUNNING)).exclude(waited_for)
        return sum(_evict(row, standing[row.pk], now) for row in live.order_by("pk"))


def _evict(workload: Workload, pods: list[Pod], now: datetime) -> bool:
    node = pods[0].node
    rule = f"Node {node.name} is being drained and its time is up" + (
        f": {node.drain_reason}." if node.drain_reason else "."
    )
    started = workload.started_at or now
    since = max(started, workload.last_checkpoint_at or started)
    stop_live_pods(workload, "Drained", now)
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
        whole=True,
        gpu_milli=workload.gpu_milli_now,
        lost_gpu_seconds=int((now - since).total_seconds()) * workload.gpu_milli_now // 1000,
    )
    return moved
