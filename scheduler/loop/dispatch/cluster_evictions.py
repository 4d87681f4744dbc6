"""Record pods that their cluster evicted or deleted.

Berth does not decide these evictions. It learns of them from the reports of the pods.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.models import Eviction

KIND = "cluster"


def record_cluster_evictions(evicted: Collection[uuid.UUID], now: datetime) -> None:
    """Write one audit record for each workload of these pods, whose rows already contain their ends."""
    if not evicted:
        return
    pods_by_workload: dict[uuid.UUID, list[Pod]] = defaultdict(list)
    pods = Pod.objects.filter(pk__in=evicted).select_related(
        "allocation", "node__pool", "workload__project__department"
    )
    for pod in pods.order_by("workload_id", "role", "index"):
        pods_by_workload[pod.workload_id].append(pod)
    live = Pod.objects.filter(workload_id__in=pods_by_workload, state__in=LIVE_POD_STATES)
    with_live_pods = set(live.values_list("workload_id", flat=True))
    Eviction.objects.bulk_create(
        _audit_record(of_workload, now, entire_workload=workload_id not in with_live_pods)
        for workload_id, of_workload in pods_by_workload.items()
    )


def _audit_record(pods: Sequence[Pod], now: datetime, *, entire_workload: bool) -> Eviction:
    workload, pool = pods[0].workload, pods[0].node.pool
    project = workload.project
    return Eviction(
        at=now,
        kind=KIND,
        pool_id=pool.pk,
        pool_name=pool.name,
        workload_id=workload.pk,
        workload_name=workload.name,
        project_id=project.pk,
        project_name=project.name,
        department_id=project.department_id,
        department_name=project.department.name,
        rule=_rule(pods),
        numbers={"nodes": sorted({pod.node.name for pod in pods})},
        pods=[{"role": pod.role, "index": pod.index} for pod in pods],
        entire_workload=entire_workload,
        gpu_milli=sum(pod.allocation.gpu_milli_total for pod in pods),
        lost_gpu_seconds=sum(_lost_gpu_seconds(pod, now) for pod in pods),
    )


def _rule(pods: Sequence[Pod]) -> str:
    """Return who decided the eviction, and the reason that the cluster reports for each node."""
    reasons: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        reasons[pod.message].add(pod.node.name)
    parts = [f"on {' and '.join(sorted(nodes))}, {message}" for message, nodes in sorted(reasons.items())]
    return f"Decided outside Berth: {'; '.join(parts)}."


def _lost_gpu_seconds(pod: Pod, now: datetime) -> int:
    """Return the work since the pod's start or its workload's last checkpoint."""
    started = pod.started_at or now
    since = max(started, pod.workload.last_checkpoint_at or started)
    ended = max(pod.ended_at or now, since)
    return int((ended - since).total_seconds()) * pod.allocation.gpu_milli_total // 1000
